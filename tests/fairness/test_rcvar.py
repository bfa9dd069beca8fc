import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import PlanError
from fedfair.fairness.cvar import rcvar, threshold_interval
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from tests.oracles.exact_rcvar import exact_per_sample, exact_threshold_gradient, exact_weights, threshold_gradient

ROWS = ("softplus", "zang", "quadratic", "chks", "gaussian")
rows = pytest.mark.parametrize("name", ROWS)
losses_lists = st.lists(st.floats(0, 20), min_size=1, max_size=30)
sizes = st.floats(0.01, 1.0)
tradeoffs = st.floats(0.0, 1.0)


def objective(size: float, tradeoff: float, name: str = "softplus", gamma: float = 0.05) -> Objective:
    return Objective(size, tradeoff, smoothing(name, gamma))


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@rows
@pytest.mark.parametrize("threshold", [0.0, 0.31, 0.9])
@pytest.mark.parametrize(("size", "tradeoff"), [(0.1, 0.01), (0.5, 0.0), (0.3, 0.5), (1.0, 0.3), (0.2, 1.0)])
def test_weights_and_gradient_are_autograds(name: str, threshold: float, size: float, tradeoff: float) -> None:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    theta = torch.randn(4, generator=generator, dtype=torch.float64, requires_grad=True)
    c = tensor(threshold).requires_grad_()
    given_objective = objective(size, tradeoff, name)

    def losses_of(theta: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(-(features @ theta))

    whole = given_objective.per_sample(losses_of(theta), c).mean()
    by_theta, by_c = torch.autograd.grad(whole, (theta, c), allow_unused=True, materialize_grads=True)
    losses = losses_of(theta)
    weights = given_objective.weights(losses, c)
    assert not weights.requires_grad
    (by_weights,) = torch.autograd.grad((weights * losses).mean(), theta)
    # A mean of 40 float64 products with weights up to 10.
    assert torch.allclose(by_weights, by_theta, rtol=0, atol=1e-13)
    assert torch.allclose(threshold_gradient(given_objective, losses, c).mean(), by_c, rtol=0, atol=1e-13)


def test_a_hand_worked_example_and_finite_differences() -> None:
    # Zang with gamma 2 around c = 1: l - c = -1, 0, 1 gives s = 0, 1/4, 1 and sigma = 0, 1/2, 1.
    given_objective = objective(0.5, 0.2, "zang", 2.0)
    losses = tensor([0.0, 1.0, 2.0])
    # f~ = 0.8 (1 + s / 0.5) + 0.2 l; u = 0.8 sigma / 0.5 + 0.2; d/dc = 0.8 (1 - sigma / 0.5)
    assert given_objective.per_sample(losses, 1.0).tolist() == pytest.approx([0.8, 1.4, 2.8])
    assert given_objective.weights(losses, 1.0).tolist() == pytest.approx([0.2, 1.0, 1.8])
    assert threshold_gradient(given_objective, losses, 1.0).tolist() == pytest.approx([0.8, 0.0, -0.8])
    assert exact_per_sample(given_objective, losses, 1.0).tolist() == pytest.approx([0.8, 1.0, 2.8])
    assert exact_weights(given_objective, losses, 1.0).tolist() == pytest.approx([0.2, 0.2, 1.8])
    assert exact_threshold_gradient(given_objective, losses, 1.0).tolist() == pytest.approx([0.8, 0.8, -0.8])
    given_objective = objective(0.2, 0.1, "gaussian", 0.3)
    losses = tensor([0.2, 0.7, 1.3, 2.0]).requires_grad_()
    assert torch.autograd.gradcheck(given_objective.per_sample, (losses, tensor(0.9).requires_grad_()))


@settings(deadline=None, max_examples=30)
@given(losses_lists, sizes, tradeoffs, st.floats(0, 20), st.sampled_from(ROWS), st.floats(1e-3, 2))
def test_the_smoothed_objective_lies_above_the_exact_one_by_at_most_its_bias(
    losses: list[float], size: float, tradeoff: float, threshold: float, name: str, gamma: float
) -> None:
    given_objective = objective(size, tradeoff, name, gamma)
    smooth = given_objective.per_sample(tensor(losses), threshold)
    exact = exact_per_sample(given_objective, tensor(losses), threshold)
    bias = (1 - tradeoff) * given_objective.smoothing.gap / size
    slack = 1e-14 * (1 + exact.abs() / size)  # a handful of operations on numbers up to max(l, c) / rho
    assert (smooth >= exact - slack).all()
    assert (smooth <= exact + bias * (1 + 1e-14) + slack).all()


@settings(deadline=None, max_examples=30)
@given(losses_lists, sizes, tradeoffs, st.floats(0, 20), st.sampled_from(ROWS))
def test_weights_stay_in_bounds(losses: list[float], size: float, tradeoff: float, c: float, name: str) -> None:
    given_objective = objective(size, tradeoff, name)
    top = (1 - tradeoff) / size + tradeoff
    for weights in (given_objective.weights(tensor(losses), c), exact_weights(given_objective, tensor(losses), c)):
        assert (weights >= tradeoff).all()
        assert (weights <= top * (1 + 1e-15)).all()


@settings(deadline=None, max_examples=30)
@given(losses_lists, sizes, tradeoffs)
def test_at_an_optimal_threshold_exact_is_empirical(losses: list[float], size: float, tradeoff: float) -> None:
    values = np.array(losses)
    c = threshold_interval(values, size)[0]
    found = exact_per_sample(objective(size, tradeoff), tensor(losses), c).mean().item()
    # Rounding of (l - c) / rho with rho >= 0.01, and the snapping of rho n to whole numbers within 1e-9.
    assert found == pytest.approx(rcvar(values, size, tradeoff), rel=2e-9, abs=1e-12)


@pytest.mark.parametrize(("size", "tradeoff"), [(1.0, 0.0), (1.0, 0.4), (0.2, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_size_or_tradeoff_of_one_is_the_mean(size: float, tradeoff: float, dtype: torch.dtype) -> None:
    given_objective = objective(size, tradeoff)
    losses = torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=dtype)
    assert given_objective.is_plain_mean
    for found in (given_objective.weights(losses, 0.3), exact_weights(given_objective, losses, 0.3)):
        assert found.dtype == dtype
        assert (found == 1.0).all()
    assert torch.equal(given_objective.per_sample(losses, 0.3), losses)
    assert torch.equal(exact_per_sample(given_objective, losses, 0.3), losses)
    assert (threshold_gradient(given_objective, losses, 0.3) == 0.0).all()
    assert given_objective.stable_threshold_learning_rate == math.inf
    assert not objective(0.999, 0.999).is_plain_mean


def test_at_group_size_one_the_exact_objective_is_the_mean_for_every_threshold_below_the_losses() -> None:
    losses = tensor([0.4, 0.9, 2.0])
    for threshold in (0.0, 0.1, 0.4):
        unsimplified = threshold + (losses - threshold).clamp(min=0).mean()
        assert unsimplified.item() == pytest.approx(losses.mean().item(), rel=1e-15)


def test_float32_losses_keep_their_width() -> None:
    losses = torch.tensor([0.1, 0.9])
    given_objective = objective(0.3, 0.1)
    for found in (given_objective.per_sample(losses, 0.5), given_objective.weights(losses, 0.5)):
        assert found.dtype == torch.float32


def test_the_stable_learning_rate_of_softplus_is_the_published_one() -> None:
    assert objective(0.1, 0.2, "softplus", 0.05).stable_threshold_learning_rate == pytest.approx(
        4 * 0.05 * 0.1 / 0.8
    )


@rows
def test_descent_on_the_threshold_at_the_stable_rate_never_overshoots(name: str) -> None:
    given_objective = objective(0.2, 0.1, name)
    losses = torch.rand(64, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for start in (0.0, 1.0):
        c, signs = start, set()
        for _ in range(1000):
            gradient = threshold_gradient(given_objective, losses, c).mean().item()
            signs.add(math.copysign(1.0, gradient) if abs(gradient) > 1e-12 else 0.0)
            c -= given_objective.stable_threshold_learning_rate * gradient
        assert len(signs - {0.0}) == 1
        assert abs(gradient) < 1e-9


@pytest.mark.parametrize(
    ("size", "tradeoff", "bound"),
    [
        (0.0, 0.1, None), (-0.1, 0.1, None), (1.1, 0.1, None), (math.nan, 0.1, None), (0.1, -0.01, None),
        (0.1, 1.01, None), (0.1, math.nan, None), (0.1, 0.1, 0.0), (0.1, 0.1, math.inf), (0.1, 0.1, math.nan),
    ],
)  # fmt: skip
def test_values_outside_their_range_are_refused(size: float, tradeoff: float, bound: float | None) -> None:
    with pytest.raises(PlanError):
        Objective(size, tradeoff, smoothing("softplus", 0.05), bound)
