"""What one record can move, against hand-worked numbers and against adversaries who look for more."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from fedfair.errors import PlanError
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from fedfair.privacy.sensitivity import sensitivity, step_sensitivity
from tests.oracles.exact_rcvar import threshold_gradient

sizes = st.floats(0.01, 1.0)
tradeoffs = st.floats(0.0, 1.0)
positive = st.floats(0.01, 100.0)


def objective(size: float, tradeoff: float, name: str = "softplus", gamma: float = 0.05) -> Objective:
    return Objective(size, tradeoff, smoothing(name, gamma))


@pytest.mark.parametrize("mean", [None, objective(1.0, 0.3), objective(0.3, 1.0)])
def test_without_a_tail_to_follow_it_is_the_clip(mean: Objective | None) -> None:
    assert sensitivity(mean, 3.0, 7.0) == 3.0


def test_sensitivities_by_hand_and_at_their_ends() -> None:
    # rho = 1/4, eps = 1/5: W = 0.8 * 4 + 0.2 = 3.4; (W C)^2 = 46.24 for C = 2, and the threshold moves by at most
    # 0.8 * 3 = 2.4, times kappa = 1/2: 1.44. Below the tail (0.2 * 2)^2 + (0.4)^2 is far less.
    assert sensitivity(objective(0.25, 0.2), 2.0, 0.5) == pytest.approx(math.sqrt(46.24 + 1.44), rel=1e-15)
    # rho = 0.9, eps = 0: W = 1/0.9 against a threshold that is pulled by 1 below the tail and by 1/9 in it.
    assert sensitivity(objective(0.9, 0.0), 0.5) == pytest.approx(1.0, rel=1e-15)
    assert step_sensitivity(objective(0.1, 0.0), 1.0, 1.0, "joint") == 1.0
    assert step_sensitivity(objective(0.1, 0.0), 1.0, 1.0, "before_weighting") == pytest.approx(math.hypot(10, 9))


@pytest.mark.parametrize(
    ("clip", "scale"), [(0.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, 0.0), (1.0, math.inf)]
)
def test_what_is_no_positive_number_is_refused(clip: float, scale: float) -> None:
    with pytest.raises(PlanError, match=r"privacy\.sample_level"):
        sensitivity(objective(0.1, 0.1), clip, scale)


def moved(given_objective: Objective, loss: float, threshold: float, gradient: float, scale: float) -> float:
    """Return the norm of what one record with a (clipped) gradient of this norm adds to a step."""
    losses = torch.tensor([loss], dtype=torch.float64)
    weight = float(given_objective.weights(losses, threshold))
    return math.hypot(weight * gradient, scale * float(threshold_gradient(given_objective, losses, threshold)))


@settings(deadline=None, max_examples=70)
@given(
    sizes, tradeoffs, st.sampled_from(["softplus", "zang", "quadratic", "chks", "gaussian"]), positive, positive,
    st.floats(0.0, 50.0), st.floats(0.0, 50.0), st.floats(0.0, 1.0),
)  # fmt: skip
def test_no_record_moves_a_step_by_more(
    size: float, tradeoff: float, name: str, clip: float, scale: float, loss: float, threshold: float, share: float
) -> None:
    given_objective = objective(size, tradeoff, name)
    # The weights are computed in fp64 with a handful of roundings.
    bound = sensitivity(given_objective, clip, scale) * (1.0 + 1e-12)
    assert moved(given_objective, loss, threshold, share * clip, scale) <= bound


@settings(deadline=None, max_examples=25)
@given(st.floats(0.01, 0.99), st.floats(0.0, 0.99), positive, positive)
def test_searching_the_worst_finds_the_bound(size: float, tradeoff: float, clip: float, scale: float) -> None:
    given_objective = objective(size, tradeoff, "zang", 1.0)
    bound = sensitivity(given_objective, clip, scale)
    # The norm is convex in the weight, so that each half of the losses around the threshold may hold a maximum.
    found = [
        -minimize_scalar(
            lambda loss: -moved(given_objective, loss, 5.0, clip, scale), bounds=bounds, method="bounded"
        ).fun
        for bounds in ((0.0, 5.0), (5.0, 10.0))
    ]
    ends = [moved(given_objective, loss, 5.0, clip, scale) for loss in (0.0, 10.0)]
    assert max(found) <= bound * (1.0 + 1e-12)
    assert max(*ends, *found) == pytest.approx(bound, rel=1e-6)
