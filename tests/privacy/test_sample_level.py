"""One noised step against the slow obvious version: what a record can do to it, and what the noise is."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional

from fedfair.errors import LocalProtocolError, PrivacyError
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from fedfair.plan.learning_rates import LearningRates
from fedfair.privacy.noise import Draws
from fedfair.privacy.per_sample import Way, per_sample_gradients
from fedfair.privacy.sample_level import Mechanism, PrivateSteps
from fedfair.privacy.sensitivity import Clipping, summed_sensitivity
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_sgd import Batch, loss_function
from fedfair.training.models import linear, mlp

COLUMNS, CLASSES = 4, 3
NO_NOISE = 1e-300
"""A noise multiplier whose noise is lost in fp64."""


def objective(size: float = 0.2, tradeoff: float = 0.1) -> Objective:
    return Objective(size, tradeoff, smoothing("softplus", 0.05))


def tensor(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def batch(records: int, seed: int = 0, scale: float = 1.0) -> Batch:
    source = torch.Generator().manual_seed(seed)
    features = scale * torch.randn(records, COLUMNS, generator=source, dtype=torch.float64)
    return Batch(features, torch.randint(CLASSES, (records,), generator=source))


class Trial:
    """A model at a random place, and steps on it that are larger than life: eta = b = 1."""

    def __init__(self, mechanism: Mechanism, *, way: Way = "auto", expected: float = 1.0, seed: int = 7) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.bare = mlp(COLUMNS, (5,), CLASSES).double()
        self.model = FlatModel(copy.deepcopy(self.bare), torch.float64)
        gradients = per_sample_gradients(self.model.module, way)

        def losses(features: Tensor, labels: Tensor) -> Tensor:
            return functional.cross_entropy(self.model(features), labels, reduction="none")

        self.steps = PrivateSteps(self.model, losses, gradients, mechanism, LearningRates(1.0, 1.0))
        self._expected, self._draws = expected, Draws(seed)

    def descended(self, batches: list[Batch], threshold: float) -> Tensor:
        """Make the steps, and return the threshold after them."""
        return self.steps.descend(batches, tensor(threshold), self._expected, self._draws)

    def moved(self, records: Batch, threshold: float = 0.8) -> Tensor:
        """Return the vector by which one step moves (theta, kappa c), with the sign of descent taken off."""
        start = self.model.flat.clone()
        after = self.descended([records], threshold)
        model = start - self.model.flat
        self.model.flat.copy_(start)
        scale = self.steps.mechanism.threshold_scale
        return torch.cat([model, ((threshold - after) * scale).reshape(1)])


def slow_sum(trial: Trial, records: Batch, threshold: float = 0.8) -> Tensor:
    """Return the clipped sum, record by record, from the formulas."""
    mechanism = trial.steps.mechanism
    total = torch.zeros(trial.model.flat.numel() + 1, dtype=torch.float64)
    named = dict(trial.bare.named_parameters())
    parameters = [named[entry.name] for entry in trial.model.layout.entries]
    for features, label in zip(records.features, records.labels, strict=True):
        loss = functional.cross_entropy(trial.bare(features[None]), label[None])
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])
        weight = mechanism.objective.weights(loss.detach(), threshold) if mechanism.objective else tensor(1.0)
        pull = (mechanism.threshold_scale * (1.0 - weight)).reshape(1)
        if mechanism.clipping == "joint" and mechanism.objective:
            vector = torch.cat([weight * gradient, pull])
            total += vector * min(1.0, mechanism.clip / float(vector.norm()))
        else:
            total += torch.cat([weight * gradient * min(1.0, mechanism.clip / float(gradient.norm())), pull])
    return total


@pytest.mark.parametrize("way", ["auto", "hooks", "ghost"])
@pytest.mark.parametrize("clipping", ["before_weighting", "joint"])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_a_step_moves_by_the_clipped_sum_over_a_batch(way: Way, clipping: Clipping, scale: float) -> None:
    trial = Trial(Mechanism(objective(), NO_NOISE, 0.7, clipping, scale), way=way, expected=13.0)
    records = batch(20)
    torch.testing.assert_close(13.0 * trial.moved(records), slow_sum(trial, records), rtol=1e-10, atol=1e-12)


@settings(deadline=None, max_examples=25)
@given(
    st.floats(0.02, 1.0), st.floats(0.0, 1.0), st.floats(0.05, 20.0), st.floats(0.05, 20.0),
    st.sampled_from(["before_weighting", "joint"]), st.floats(0.0, 5.0), st.floats(0.01, 1000.0),
    st.integers(0, 5),
)  # fmt: skip
def test_adding_a_record_moves_the_sum_by_at_most_the_sensitivity(
    size: float,
    tradeoff: float,
    clip: float,
    scale: float,
    clipping: Clipping,
    threshold: float,
    spread: float,
    others: int,
) -> None:
    trial = Trial(Mechanism(objective(size, tradeoff), NO_NOISE, clip, clipping, scale))
    records = batch(others + 1, seed=others, scale=spread)
    without = Batch(records.features[:-1], records.labels[:-1])
    apart = (trial.moved(records, threshold) - trial.moved(without, threshold)).norm()
    # Six vectors of that length are added up in fp64, and the threshold is subtracted from numbers of its size.
    room = 1e-12 * (6.0 + threshold * scale / trial.steps.mechanism.sensitivity)
    assert float(apart) <= trial.steps.mechanism.sensitivity * (1.0 + room)


@pytest.mark.parametrize("clipping", ["before_weighting", "joint"])
def test_an_adversary_who_climbs_the_gradient_attains_the_sensitivity(clipping: Clipping) -> None:
    given_objective = Objective(0.2, 0.1, smoothing("zang", 0.5))
    trial = Trial(Mechanism(given_objective, NO_NOISE, 0.7, clipping))
    features = torch.full((1, COLUMNS), 0.1, dtype=torch.float64, requires_grad=True)
    label = torch.zeros(1, dtype=torch.int64)
    # The worst record has a large loss and a large gradient: climb the loss, which brings both, and look at each
    # point on the way.
    reached = 0.0
    for _ in range(200):
        loss = functional.cross_entropy(trial.bare(features), label)
        (slope,) = torch.autograd.grad(loss, features)
        features = (features + slope / slope.norm()).detach().requires_grad_()
        reached = max(reached, float(trial.moved(Batch(features.detach(), label)).norm()))
    bound = trial.steps.mechanism.sensitivity
    assert reached <= bound * (1.0 + 1e-12)
    assert reached == pytest.approx(bound, rel=1e-6)


def test_the_noise_on_every_entry_is_normal_with_the_stated_deviation() -> None:
    mechanism = Mechanism(objective(), 1.5, 0.7, "before_weighting", 0.5)
    trial, nobody = Trial(mechanism, expected=4.0), batch(0)
    noise = torch.stack([trial.moved(nobody) for _ in range(400)]) * 4.0 / mechanism.noise_deviation
    assert mechanism.noise_deviation == 1.5 * mechanism.sensitivity
    # Kolmogorov-Smirnov over 400 steps of 44 entries, and over those of the threshold alone; the seed is fixed,
    # and another one would fail with probability 1e-4.
    assert stats.kstest(noise.numpy().ravel(), "norm").pvalue > 1e-4
    assert stats.kstest(noise[:, -1].numpy(), "norm").pvalue > 1e-4
    # Entries are independent: off the diagonal a correlation over 400 steps has the deviation 1/20.
    correlation = torch.corrcoef(noise.T).fill_diagonal_(0.0)
    pairs = correlation.numel() / 2
    assert float(correlation.abs().max()) < stats.norm.isf(1e-4 / (2 * pairs)) / 20


@pytest.mark.parametrize("way", ["auto", "hooks", "ghost"])
def test_a_record_that_is_no_number_adds_nothing_and_spoils_nothing(way: Way) -> None:
    trial = Trial(Mechanism(objective(), NO_NOISE, 1.0), way=way)
    sound = batch(5)
    for hostile in (math.nan, math.inf, 1e308):
        features = torch.cat([sound.features, torch.full((1, COLUMNS), hostile, dtype=torch.float64)])
        spoilt = Batch(features, torch.cat([sound.labels, torch.zeros(1, dtype=torch.int64)]))
        torch.testing.assert_close(trial.moved(spoilt), trial.moved(sound), rtol=1e-12, atol=1e-12)
        alone = Batch(features[-1:], spoilt.labels[-1:])
        assert float(trial.moved(alone).abs().max()) < 1e-290


@pytest.mark.parametrize("way", ["auto", "hooks", "ghost"])
def test_a_batch_in_parts_is_the_batch(way: Way) -> None:
    trial = Trial(Mechanism(objective(), NO_NOISE, 0.7), way=way)
    whole = trial.moved(batch(17))
    trial.steps.gradients.most_records = 5
    torch.testing.assert_close(trial.moved(batch(17)), whole, rtol=1e-12, atol=1e-12)


def test_entries_that_are_not_trained_get_no_noise() -> None:
    model = FlatModel(linear(COLUMNS, CLASSES, "random").double(), torch.float64)
    model.module.output.bias.requires_grad_(False)
    mask = torch.ones_like(model.flat, dtype=torch.bool)
    for entry, place in model.layout.slices():
        mask[place] = not entry.name.endswith("bias")
    gradients = per_sample_gradients(model.module, "hooks")
    steps = PrivateSteps(
        model, lambda features, labels: functional.cross_entropy(model(features), labels, reduction="none"),
        gradients, Mechanism(objective(), 1.0, 1.0), LearningRates(1.0, 1.0), mask,
    )  # fmt: skip
    start = model.flat.clone()
    steps.descend([batch(3)], tensor(0.5), 4.0, Draws(0))
    changed = model.flat != start
    assert torch.equal(changed, mask)


def test_empty_batches_are_noise_and_weights_of_their_own_refused() -> None:
    trial = Trial(Mechanism(objective(), NO_NOISE, 1.0))
    assert float(trial.moved(batch(0)).abs().max()) < 1e-290
    assert float(Trial(Mechanism(objective(), 1.0, 1.0)).moved(batch(0)).norm()) > 1.0
    records = batch(2)
    weighted = Batch(records.features, records.labels, torch.ones(2))
    with pytest.raises(LocalProtocolError, match="by the objective alone"):
        Trial(Mechanism(objective(), 1.0, 1.0)).descended([weighted], 0.5)
    trial = Trial(Mechanism(None, NO_NOISE, 0.5))
    moved = trial.moved(batch(9))
    torch.testing.assert_close(moved, slow_sum(trial, batch(9)), rtol=1e-10, atol=1e-12)
    assert moved[-1] == 0.0


@pytest.mark.parametrize(("noise", "expected"), [(math.inf, 1.0), (1.0, 0.0)])
def test_steps_without_meaning_are_refused(noise: float, expected: float) -> None:
    with pytest.raises(PrivacyError, match="no noise to be hidden in"):
        Trial(Mechanism(objective(), noise, 1.0), expected=expected).descended([batch(3)], 0.5)


@pytest.mark.parametrize("way", ["auto", "hooks", "ghost"])
@pytest.mark.parametrize("records", [1, 6])
def test_a_round_with_a_record_that_is_no_number_is_the_round_with_the_same_noise(way: Way, records: int) -> None:
    """In the second of three steps, so that steps before and after are made again with the same draws."""
    sound, rounds = batch(records), []
    features = torch.cat([sound.features, torch.full((1, COLUMNS), math.inf, dtype=torch.float64)])
    spoilt = Batch(features, torch.cat([sound.labels, torch.zeros(1, dtype=torch.int64)]))
    for second in (sound, spoilt):
        trial = Trial(Mechanism(objective(), 1.0, 1.0), way=way)
        after = trial.descended([sound, second, sound], 0.8)
        rounds.append(torch.cat([trial.model.flat, after.reshape(1)]))
    torch.testing.assert_close(rounds[1], rounds[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("way", ["auto", "hooks", "ghost"])
def test_others_keep_the_units_that_drop_out_when_a_record_is_no_number(way: Way) -> None:
    """Otherwise one record would change the gradients of all: by more than the sensitivity, and unseen."""
    mechanism = Mechanism(objective(), NO_NOISE, 1.0)
    dropping = nn.Sequential(nn.Linear(COLUMNS, 50), nn.Dropout(0.5), nn.Linear(50, CLASSES)).double()
    sound, moved = batch(8), []
    for value in (0.0, math.nan):
        # The last place is empty-handed (no weight) or no number; in both cases seven records are left.
        model = FlatModel(copy.deepcopy(dropping), torch.float64)

        def losses(features: Tensor, labels: Tensor, model: FlatModel = model) -> Tensor:
            return functional.cross_entropy(model(features), labels, reduction="none")

        features = sound.features.clone()
        features[-1] = value
        gradients = per_sample_gradients(model.module, way)
        steps = PrivateSteps(model, losses, gradients, mechanism, LearningRates(1.0, None))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            if value == 0.0:
                # What seven records do with these draws, by the slow way: all eight, without the last one's part.
                steps.gradients.reset()
                found = losses(features, sound.labels)
                norms = steps.gradients.norms(found)
                factors, _ = mechanism.factors(found.detach(), norms.detach(), tensor(0.8))
                factors[-1] = 0.0
                steps.gradients.weigh(found, factors, torch.ones(8, dtype=torch.bool))
                moved.append(model.gradient.clone())
            else:
                start = model.flat.clone()
                steps.descend([Batch(features, sound.labels)], tensor(0.8), 1.0, Draws(0))
                moved.append(start - model.flat)
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("way", ["auto", "hooks"])
@pytest.mark.parametrize("clipping", ["before_weighting", "joint"])
@pytest.mark.parametrize("spread", [0.1, 3.0, 300.0])
def test_in_bf16_a_record_moves_at_most_the_sensitivity(clipping: Clipping, spread: float, way: Way) -> None:
    """Layers are computed in 8 bits; what is clipped is what is added, so that no rounding comes in between."""
    # A grid so fine that a float32 lies on it unrounded.
    mechanism = Mechanism(objective(), 1e-12, 0.7, clipping, 0.3)
    half, full = (steps_in(precision, mechanism, way) for precision in ("bf16", "fp32"))
    records = batch(7, scale=spread)
    together = summed(half, records)
    for place in range(7):
        others = torch.arange(7) != place
        apart = together - summed(half, Batch(records.features[others], records.labels[others]))
        # Norms, factors and the sum of seven vectors are computed in float32, with an error of 2^-24: a norm is
        # off by a few times that, and a sum by at most 7 times that of 7 sensitivities.
        assert float(apart.norm()) <= mechanism.sensitivity * (1.0 + 64 * 2.0**-24)
    # Otherwise nothing was rounded, and nothing tested.
    exact = summed(full, records)
    assert float((together - exact).norm()) > 1e-3 * float(exact.norm())


def steps_in(precision: str, mechanism: Mechanism, way: Way) -> PrivateSteps:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        width = torch.float64 if precision == "fp64" else torch.float32
        model = FlatModel(mlp(COLUMNS, (50,), CLASSES).to(width), width)
    losses = loss_function(model, precision, compiled=False)
    gradients = per_sample_gradients(model.module, way)
    return PrivateSteps(model, losses, gradients, mechanism, LearningRates(1.0, 1.0))


def summed(steps: PrivateSteps, records: Batch, *, looking: bool = False) -> Tensor:
    """Return the clipped sum over the records, in float64."""
    grid = steps._grid()
    cells, pull = steps._sum(
        records.features.to(steps.model.flat), records.labels, steps.model.flat.new_tensor(0.8), grid,
        looking=looking,
    )  # fmt: skip
    return torch.cat([cells, pull.reshape(1)]).double() * grid.cell


@pytest.mark.parametrize("way", ["auto", "hooks", "ghost"])
def test_a_large_float32_batch_is_added_up_as_exactly_as_the_sensitivity_says(way: Way) -> None:
    """200 records: more than are added up in float32."""
    # A grid so fine that a float32 lies on it unrounded.
    steps = steps_in("fp32", Mechanism(objective(), 1e-12, 0.7), way)
    records, count = batch(200), 200
    exact = steps_in("fp64", Mechanism(objective(), 1e-12, 0.7), way)
    found, expected = summed(steps, records), summed(exact, records)
    mechanism = steps.mechanism
    # Two passes through the layers in float32 are off by a few millionths of the gradients; the sums by 2^-10 S.
    assert float((found - expected).norm()) <= mechanism.sensitivity * (2.0**-10 + count * 1e-5)
    some = Batch(records.features.clone(), records.labels)
    some.features[0] = math.nan
    apart = found - summed(steps, some, looking=not steps.gradients.drops_unsound)
    assert float(apart.norm()) <= summed_sensitivity(mechanism.sensitivity, 24)
