"""Privacy of records where a part of a model is trained: a head on a frozen body, or adapters."""

import copy
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfair.plan.learning_rates import LearningRates
from fedfair.plan.parameters import LoraSection, ParametersSection
from fedfair.privacy.noise import Draws
from fedfair.privacy.per_sample import PerSample, Way, check_by_trial, per_sample_gradients
from fedfair.privacy.sample_level import Mechanism, PrivateSteps
from fedfair.training.dp_sgd import trainable_entries
from fedfair.training.flat_model import FlatModel
from fedfair.training.lora import UP, with_adapters
from fedfair.training.travelling import parts_of

BATCH, COLUMNS, CLASSES = 6, 5, 3
WAYS: tuple[Way, ...] = ("auto", "hooks", "ghost")
HEAD = {"train": ["head.*"]}
ADAPTERS = {"lora": {"layers": ["body.*"], "rank": 2, "alpha": 3.0}}
PARTS: Mapping[str, Mapping[str, object]] = {"head": HEAD, "adapters": ADAPTERS, "both": HEAD | ADAPTERS}


class Once(nn.Module):
    """A body and a head; running statistics of the body are frozen with it."""

    def __init__(self) -> None:
        super().__init__()
        layers = (nn.Linear(COLUMNS, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 4, bias=False))
        self.body, self.head = nn.Sequential(*layers), nn.Linear(4, CLASSES)

    def forward(self, features: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(features)))


class ByToken(nn.Module):
    """The same layers for each of several tokens of a record, whose gradients add up."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(COLUMNS, 7), nn.Tanh(), nn.Linear(7, 4))
        self.head = nn.Linear(4, CLASSES)

    def forward(self, features: Tensor) -> Tensor:
        tokens = torch.stack([features, features.cos(), features.square()], dim=1)
        return self.head(self.body(tokens)).mean(1)


def batch() -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(3)
    features = torch.randn(BATCH, COLUMNS, generator=source, dtype=torch.float64)
    return features, torch.randint(CLASSES, (BATCH,), generator=source)


def made(build: type[nn.Module], part: str) -> FlatModel:
    """Return a model at a random place, of which a part is trained."""
    stated = ParametersSection.model_validate(PARTS[part])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module = build().double()
        if stated.lora is not None:
            with_adapters(module, LoraSection.model_validate(ADAPTERS["lora"]))
        for name, tensor in module.named_parameters():
            # Where one factor is zero, so is the other's gradient.
            if name.endswith(UP):
                nn.init.normal_(tensor)
    return FlatModel(module, torch.float64, parts=parts_of(module, stated)).train()


def losses_of(model: FlatModel) -> Tensor:
    features, labels = batch()
    return functional.cross_entropy(model(features), labels, reduction="none")


def one_by_one(model: FlatModel) -> Tensor:
    """Return the gradients of single records in what is trained, the slow way: (batch, d) as the model lies."""
    features, labels = batch()
    trained = dict(model.module.named_parameters())
    rows = []
    for place in range(BATCH):
        loss = functional.cross_entropy(model(features[place : place + 1]), labels[place : place + 1])
        names = [entry.name for entry in model.layout.entries]
        parts = torch.autograd.grad(loss, [trained[name] for name in names])
        row = torch.zeros_like(model.flat)
        for (_, where), part in zip(model.layout.slices(), parts, strict=True):
            row[where] = part.flatten()
        rows.append(row)
    return torch.stack(rows)


def watched(model: FlatModel, way: Way) -> PerSample:
    """Return the gradients of single records, after the trial that a run makes of every model."""
    gradients = per_sample_gradients(model.module, way)
    features, labels = batch()
    check_by_trial(
        model.module, gradients, features, labels, lambda outputs, answers: functional.cross_entropy(
            outputs, answers, reduction="none"
        )
    )  # fmt: skip
    return gradients


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("build", [Once, ByToken])
def test_norms_and_sums_are_those_of_the_trained_part_of_single_records(
    build: type[nn.Module], part: str, way: Way
) -> None:
    expected = one_by_one(made(build, part))
    model = made(build, part)
    frozen = [one for one in model.module.parameters() if not one.requires_grad]
    before = [one.clone() for one in (*frozen, *model.module.buffers())]
    gradients, weights = watched(model, way), torch.linspace(-1.0, 2.0, BATCH, dtype=torch.float64)
    # Twice: nothing of the first batch may be left in the second.
    for _ in range(2):
        gradients.reset()
        losses = losses_of(model)
        norms = gradients.norms(losses)
        gradients.weigh(losses, weights, torch.isfinite(norms))
    # fp64 sums of at most 21 products of numbers near 1.
    torch.testing.assert_close(norms, expected.norm(dim=1), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(model.gradient, weights @ expected, rtol=1e-12, atol=1e-12)
    assert frozen
    for one in frozen:
        assert one.grad is None
        assert getattr(one, "grad_sample", None) is None
        assert getattr(one, "_norm_sample", None) is None
    after = (*frozen, *model.module.buffers())
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("part", PARTS)
def test_a_step_clips_by_the_norm_of_the_trained_part_alone_and_moves_nothing_else(part: str) -> None:
    model = made(Once, part)
    own = one_by_one(made(Once, part))
    norms = own.norm(dim=1)
    clip = float(norms.median())
    assert float(norms.min()) < clip < float(norms.max())
    whole = copy.deepcopy(model.module)
    start, module = model.flat.clone(), dict(model.module.named_parameters())
    others = {name: one.clone() for name, one in module.items() if not one.requires_grad}
    steps = PrivateSteps(
        model,
        lambda features, labels: functional.cross_entropy(model(features), labels, reduction="none"),
        watched(model, "auto"),
        # The noise is lost in fp64.
        Mechanism(None, noise_multiplier=1e-300, clip=clip),
        LearningRates(0.5, 0.0),
        trainable_entries(model),
    )
    steps.descend([(*batch(), None)], torch.tensor(0.0, dtype=torch.float64), BATCH, Draws(1))
    clipped = (own * (clip / norms).clamp(max=1.0).unsqueeze(1)).sum(0)
    # The sum is rounded to a grid that is finer than its own rounding.
    torch.testing.assert_close(start - model.flat, 0.5 * clipped / BATCH, rtol=1e-9, atol=1e-12)
    assert all(torch.equal(one, module[name]) for name, one in others.items())
    # Over all parameters the norms are others: they would clip records that are shorter in what is trained.
    for one in whole.parameters():
        one.requires_grad_(True)
    features, labels = batch()
    loss = functional.cross_entropy(whole(features[:1]), labels[:1])
    everything = torch.autograd.grad(loss, list(whole.parameters()))
    assert torch.cat([one.flatten() for one in everything]).norm() > 1.01 * norms[0]
