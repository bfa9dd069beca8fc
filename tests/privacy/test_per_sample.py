"""Gradients of single records against one backward pass for each, and what must not be trained this way."""

import copy
import functools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfair.errors import PlanError
from fedfair.privacy.linear_layers import LinearGradients, is_row_of_linear_layers
from fedfair.privacy.per_sample import Way, check_by_trial, per_sample_gradients

BATCH, SIDE, CLASSES = 6, 6, 3
WAYS: tuple[Way, ...] = ("auto", "hooks", "ghost")
cross_entropy = functools.partial(functional.cross_entropy, reduction="none")


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, CLASSES))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE * SIDE, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES)
    )


def convolutional() -> nn.Module:
    layers = (nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 6, 2, groups=2))
    return nn.Sequential(*layers, nn.Flatten(), nn.LayerNorm(24), nn.Linear(24, CLASSES))


class Scaled(nn.Module):
    """A parameter of its own beside its layers, for which Opacus has no rule but torch.func."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()
        self.scale = nn.Parameter(torch.full((SIDE * SIDE,), 0.5))

    def forward(self, features: Tensor) -> Tensor:
        return self.inner(features.flatten(1) * self.scale)


class Tied(nn.Module):
    """The same layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SIDE * SIDE, SIDE * SIDE)
        self.output = nn.Linear(SIDE * SIDE, CLASSES)

    def forward(self, features: Tensor) -> Tensor:
        return self.output(torch.tanh(self.layer(torch.tanh(self.layer(features.flatten(1))))))


def batch() -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(1)
    features = torch.randn(BATCH, 1, SIDE, SIDE, generator=source, dtype=torch.float64)
    return features, torch.randint(CLASSES, (BATCH,), generator=source)


def made(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return build().double()


def losses_of(module: nn.Module) -> Tensor:
    features, labels = batch()
    return functional.cross_entropy(module(features), labels, reduction="none")


def one_by_one(module: nn.Module) -> Tensor:
    """Return the gradients of single records the slow way: (batch, parameters)."""
    features, labels = batch()

    def gradients() -> Iterator[Tensor]:
        for place in range(BATCH):
            loss = functional.cross_entropy(module(features[place : place + 1]), labels[place : place + 1])
            yield torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(module.parameters()))])

    return torch.stack(list(gradients()))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("build", [linear, mlp, convolutional, Scaled])
def test_norms_and_sums_are_those_of_single_passes(build: Callable[[], nn.Module], way: Way) -> None:
    module = made(build)
    expected = one_by_one(copy.deepcopy(module))
    gradients = per_sample_gradients(module, way)
    weights = torch.linspace(-1.0, 2.0, BATCH, dtype=torch.float64)
    # Twice: nothing of the first batch may be left in the second.
    for _ in range(2):
        gradients.reset()
        losses = losses_of(module)
        norms = gradients.norms(losses)
        gradients.weigh(losses, weights, torch.isfinite(norms))
    summed = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    closed = way == "auto" and build in (linear, mlp)
    assert isinstance(gradients, LinearGradients) == closed
    # fp64 sums of at most 36 products of numbers near 1.
    torch.testing.assert_close(norms, expected.norm(dim=1), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(summed, weights @ expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(4, 3)),  # nobody says that records are flat
        nn.Sequential(nn.Flatten(0), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.LayerNorm(3)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Softmax(dim=0), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(4, 3))),
        nn.Sequential(nn.Flatten(), *[nn.Linear(4, 4)] * 2),
        nn.Linear(4, 3),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3).requires_grad_(False)),
    ],
)
def test_what_is_not_plainly_a_row_of_linear_layers_is_not_taken_for_one(module: nn.Module) -> None:
    assert not is_row_of_linear_layers(module)


def test_closed_forms_need_no_bias_and_keep_nothing_of_an_evaluation() -> None:
    module = made(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 5, bias=False), nn.ReLU(), nn.Linear(5, 3))
    )
    expected = one_by_one(copy.deepcopy(module))
    gradients = per_sample_gradients(module, "auto")
    assert isinstance(gradients, LinearGradients)
    gradients.reset()
    losses = losses_of(module)
    with torch.inference_mode():
        losses_of(module)
    norms = gradients.norms(losses)
    gradients.weigh(losses, torch.ones_like(losses), torch.isfinite(norms))
    summed = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    torch.testing.assert_close(norms, expected.norm(dim=1), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(summed, expected.sum(dim=0), rtol=1e-10, atol=1e-10)
    assert gradients._passing == {}


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_norm_is_refused_with_its_name_and_what_to_use_instead(way: Way) -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, CLASSES))
    with pytest.raises(PlanError, match=r"1 \(BatchNorm2d\)") as refused:
        per_sample_gradients(module, way)
    assert "GroupNorm" in refused.value.remedy


class Mixing(nn.Module):
    """Subtracts the mean over the batch, which no list of layers can know of."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()

    def forward(self, features: Tensor) -> Tensor:
        return self.inner(features - features.mean(dim=0, keepdim=True))


class Remembering(nn.Module):
    """Keeps the mean of its records, outside every trainable layer."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.inner = nn.BatchNorm2d(1, affine=False), linear()

    def forward(self, features: Tensor) -> Tensor:
        self.memory(features)
        return self.inner(features)


class Deep(nn.Module):
    """A linear layer on pictures, of which Opacus's norms know nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.output = nn.Linear(SIDE, SIDE), linear()

    def forward(self, features: Tensor) -> Tensor:
        return self.output(self.rows(features))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("build", "words"), [(Mixing, "depends on others"), (Remembering, "in a buffer")])
def test_what_no_list_shows_is_found_by_trial(build: Callable[[], nn.Module], words: str, way: Way) -> None:
    module, (features, labels) = made(build), batch()
    with pytest.raises(PlanError, match=words):
        check_by_trial(module, per_sample_gradients(module, way), features, labels, cross_entropy)


def test_layers_used_twice_or_overlooked_are_refused_by_ghosts_only() -> None:
    module, (features, labels) = made(Tied), batch()
    expected = one_by_one(copy.deepcopy(module))
    gradients = per_sample_gradients(module, "hooks")
    check_by_trial(module, gradients, features, labels, cross_entropy)
    gradients.reset()
    torch.testing.assert_close(gradients.norms(losses_of(module)), expected.norm(dim=1), rtol=1e-10, atol=1e-12)
    module = made(Tied)
    with pytest.raises(PlanError, match="Parameter tying") as refused:
        check_by_trial(module, per_sample_gradients(module, "ghost"), features, labels, cross_entropy)
    assert "gradients: hooks" in refused.value.remedy
    features, labels = batch()
    module = made(Deep)
    check_by_trial(module, per_sample_gradients(module, "hooks"), features, labels, cross_entropy)
    module = made(Deep)
    with pytest.raises(PlanError, match="cannot be told"):
        check_by_trial(module, per_sample_gradients(module, "ghost"), features, labels, cross_entropy)


@pytest.mark.parametrize("way", WAYS)
def test_dropout_passes_the_trial_and_is_on_again_afterwards(way: Way) -> None:
    module, (features, labels) = made(lambda: nn.Sequential(nn.Dropout(0.5), linear())), batch()
    check_by_trial(module, per_sample_gradients(module, way), features, labels, cross_entropy)
    assert all(layer.training for layer in module.modules())
    assert all(not parameter.grad.any() for parameter in module.parameters())


def test_only_gradients_that_are_kept_take_memory() -> None:
    # 16 MiB of fp64: 2^21 entries. An MLP has 36 * 8 + 8 + 8 * 8 + 8 + 8 * 3 + 3 = 395 of them, a convolution's
    # largest are the linear layer's, of which ghost clipping keeps none, and then its own 6 * 2 * 2 * 2 = 48.
    # Ghost clipping adds up a whole pass in floats, which is at most 2^16 records of fp64.
    most = {
        (build, way): per_sample_gradients(made(build), way).most_records
        for build, way in ((mlp, "hooks"), (mlp, "ghost"), (convolutional, "ghost"))
    }
    assert most == {(mlp, "hooks"): 2**21 // 395, (mlp, "ghost"): 2**16, (convolutional, "ghost"): 2**21 // 48}
    for width, most in ((1 << 18, 2**21), ((1 << 18) + 1, 2**26)):
        module = nn.Sequential(nn.Flatten(), nn.Linear(width, 1, bias=False)).double()
        assert per_sample_gradients(module, "hooks").most_records == most // width
    module = made(mlp)
    expected = one_by_one(copy.deepcopy(module))
    gradients = per_sample_gradients(module, "hooks")
    losses_of(module)  # and never goes backward
    gradients.reset()
    torch.testing.assert_close(gradients.norms(losses_of(module)), expected.norm(dim=1), rtol=1e-10, atol=1e-12)


def test_no_gradient_hides_behind_a_factor_whose_square_is_too_small_for_its_width() -> None:
    """Otherwise a record with huge features could pass a small clip unclipped, at weights made for that."""
    module = mlp_of_one_hidden_layer()
    features, labels = torch.full((1, SIDE * SIDE), 2.5e18), torch.zeros(1, dtype=torch.int64)
    losses = functional.cross_entropy(module(features), labels, reduction="none")
    truth = torch.stack([part.double().norm() for part in torch.autograd.grad(losses, list(module.parameters()))])
    # The squares of the first layer's errors are below the least number of float32; its gradients are not.
    assert float(truth[1]) ** 2 < 1e-45
    assert float(truth[0]) > 50 * float(truth[1:].norm())
    gradients = per_sample_gradients(module, "auto")
    gradients.reset()
    found = gradients.norms(functional.cross_entropy(module(features), labels, reduction="none"))
    # A norm may be overstated here, which clips more than need be; it is never understated, but by rounding.
    assert float(found) >= float(truth.norm()) * (1 - 1e-5)


def mlp_of_one_hidden_layer() -> nn.Module:
    """Return, in float32, a model that is sure of class 0 and nearly blind to what its first layer makes."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        module[1].bias.fill_(1.0)
        module[3].weight[0].fill_(1e-17)
        module[3].bias.copy_(torch.tensor([14.0, 0.0]))
    return module
