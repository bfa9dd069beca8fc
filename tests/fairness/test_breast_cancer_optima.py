"""The mathematics against optima and trajectories on real data; where they come from is in vectors/bc10.json."""

import itertools
import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer

from fedfair.fairness.critical_size import critical_group_size
from fedfair.fairness.cvar import cvar, rcvar, threshold_interval, worst_and_best
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from fedfair.fairness.theory import smoothing_bias
from tests.oracles.exact_rcvar import exact_per_sample, projected, threshold_gradient

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "bc10.json").read_text())
OPTIMA = {(entry["rho"], entry["eps"]): entry for entry in VECTORS["optima"]}
SMOOTHED = [
    (rho, eps, key)
    for (rho, eps), entry in OPTIMA.items()
    for key in entry
    if key.startswith("smooth_") and rho < 1.0
]


@cache
def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the design (569, 11), ten standardised columns and a 1, and the labels as -1 and 1."""
    bundle = load_breast_cancer()
    columns = bundle.data[:, :10]
    columns = (columns - columns.mean(0)) / columns.std(0)
    design = np.column_stack([columns, np.ones(len(columns))])
    return torch.from_numpy(design), torch.from_numpy(2.0 * bundle.target - 1.0)


def losses_at(theta: torch.Tensor) -> torch.Tensor:
    """Return the logistic loss of each record."""
    design, signs = data()
    return torch.nn.functional.softplus(-signs * (design @ theta), threshold=40)


def gradients_at(theta: torch.Tensor) -> torch.Tensor:
    """Return the gradient of each record's loss, (569, 11)."""
    design, signs = data()
    return (-signs * torch.sigmoid(-signs * (design @ theta)))[:, None] * design


def minimiser(objective: Objective) -> tuple[torch.Tensor, float]:
    """Return (theta, c) that minimise the smoothed objective, by L-BFGS-B with our gradients."""
    # The columns are collinear; in their orthonormal coordinates the problem is well conditioned.
    design, _ = data()
    basis = torch.linalg.svd(design, full_matrices=False)[2].T * math.sqrt(len(design))
    basis = basis / torch.linalg.svdvals(design)

    def value_and_gradient(point: np.ndarray) -> tuple[float, np.ndarray]:
        theta, c = basis @ torch.from_numpy(point[:-1]), float(point[-1])
        losses = losses_at(theta)
        by_theta = (objective.weights(losses, c)[:, None] * gradients_at(theta)).mean(0)
        by_c = threshold_gradient(objective, losses, c).mean().item()
        return objective.per_sample(losses, c).mean().item(), np.append((basis.T @ by_theta).numpy(), by_c)

    point = np.zeros(12)
    point[-1] = 0.5
    bounds = [(None, None)] * 11 + [(0.0, None)]
    for _ in range(3):  # a fresh start of the curvature estimate gets the last digits
        point = minimize(
            value_and_gradient, point, jac=True, method="L-BFGS-B", bounds=bounds,
            options={"maxiter": 5000, "maxfun": 10000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 30},
        ).x  # fmt: skip
    return basis @ torch.from_numpy(point[:-1]), float(point[-1])


@pytest.mark.parametrize(
    ("rho", "eps", "key"),
    [pytest.param(*case, marks=pytest.mark.slow if place % 3 else ()) for place, case in enumerate(SMOOTHED)],
)
def test_the_smoothed_optimum_is_reached_with_our_weights_and_thresholds(rho: float, eps: float, key: str) -> None:
    expected, optimum = OPTIMA[rho, eps][key], OPTIMA[rho, eps]
    _, name, gamma = key.split("_")
    objective = Objective(rho, eps, smoothing(name, float(gamma)))
    theta, c = minimiser(objective)
    losses = losses_at(theta)
    values = losses.numpy()
    reached = objective.per_sample(losses, c).mean().item()
    # Two convex solvers that stop at a gradient of 1e-10 differ by less than the rounding of a mean of 569 losses.
    assert reached == pytest.approx(expected["ftilde"], abs=1e-12)
    # f* <= f_minc <= f_at_c <= f~* <= f* + bias
    exact_at_c = exact_per_sample(objective, losses, c).mean().item()
    best_c = rcvar(values, rho, eps)
    bias = smoothing_bias(rho, eps, objective.smoothing.gap)
    assert optimum["lower_bound"] - 1e-12 <= best_c <= exact_at_c + 1e-12
    assert exact_at_c <= reached + 1e-12
    assert reached <= optimum["objective"] + bias
    assert bias == pytest.approx(expected["bound"], rel=1e-12)
    # Losses at the optimum are less sharply determined than its value: a value within 1e-14 of the optimum leaves
    # changes of the order of its root, 1e-7.
    for found, field in ((exact_at_c, "f_at_c"), (best_c, "f_minc"), (cvar(values, rho), "worst"), (c, "c")):
        assert found == pytest.approx(expected[field], abs=1e-6), field
    assert values.mean() == pytest.approx(expected["mean"], abs=1e-6)
    assert exact_at_c - optimum["objective"] == pytest.approx(expected["excess"], abs=1e-6)


@pytest.mark.parametrize(("rho", "eps"), [key for key in OPTIMA if key[0] >= 0.2 and key[0] < 1.0])
def test_a_sharp_smoothing_comes_within_its_bias_of_the_exact_optimum(rho: float, eps: float) -> None:
    entry = OPTIMA[rho, eps]
    objective = Objective(rho, eps, smoothing("zang", 5e-4))
    theta, _ = minimiser(objective)
    values = losses_at(theta).numpy()
    # f* <= f(theta) <= f~* <= f* + bias, and a solver's 1e-7.
    found = rcvar(values, rho, eps)
    assert entry["lower_bound"] - 1e-12 <= found
    assert found <= entry["objective"] + smoothing_bias(rho, eps, objective.smoothing.gap) + 1e-7
    assert found == pytest.approx(entry["objective"], abs=2e-4)


@pytest.mark.parametrize(("rho", "eps"), OPTIMA)
def test_the_entries_are_consistent_with_the_definitions(rho: float, eps: float) -> None:
    entry = OPTIMA[rho, eps]
    assert entry["lower_bound"] <= entry["objective"] <= entry["lower_bound"] + 5e-7
    assert (1 - eps) * entry["worst"] + eps * entry["mean"] == pytest.approx(entry["objective"], rel=1e-14)
    if rho < 1:
        assert entry["best"] == pytest.approx((entry["mean"] - rho * entry["worst"]) / (1 - rho), rel=1e-9)
        assert entry["c_interval"][0] <= entry["worst"]


def test_at_group_size_one_the_optimum_is_that_of_the_mean_and_any_low_threshold_is_optimal() -> None:
    entry = OPTIMA[1.0, 0.0]
    objective = Objective(1.0, 0.0, smoothing("softplus", 0.05))
    theta, _ = minimiser(objective)
    values = losses_at(theta).numpy()
    assert rcvar(values, 1.0, 0.0) == pytest.approx(entry["objective"], abs=1e-10)
    assert entry["objective"] == pytest.approx(OPTIMA[1.0, 1.0]["objective"], abs=1e-12)
    low, high = threshold_interval(values, 1.0)
    assert (low, high) == pytest.approx(tuple(entry["c_interval"]), abs=1e-12)
    assert math.isnan(worst_and_best(values, 1.0)[1])


def test_the_value_falls_with_the_group_size_and_worst_and_mean_cross_with_the_tradeoff() -> None:
    slack = 5e-7  # the duality gap of the entries
    sizes = sorted({rho for rho, _ in OPTIMA})
    for eps in (0.0, 0.01, 0.1):
        values = [OPTIMA[rho, eps]["objective"] for rho in sizes if (rho, eps) in OPTIMA]
        assert all(later <= earlier + slack for earlier, later in itertools.pairwise(values))
    for rho in sizes[:-1]:
        entries = [OPTIMA[rho, eps] for eps in (0.0, 0.01, 0.1)]
        for less, more in itertools.pairwise(entries):
            assert more["worst"] >= less["worst"] - slack
            assert more["mean"] <= less["mean"] + slack
            assert more["objective"] <= less["objective"] + slack


def test_guessing_is_optimal_below_the_critical_size_and_beaten_above_it() -> None:
    design, signs = data()
    critical = critical_group_size(design[:, :-1].numpy(), ((signs + 1) / 2).long().numpy(), 2)
    assert 0.1 < critical < 0.2
    assert OPTIMA[0.1, 0.0]["objective"] == pytest.approx(math.log(2), abs=5e-7)
    assert OPTIMA[0.2, 0.0]["objective"] < math.log(2) - 0.1
    # A positive tradeoff beats guessing at sizes where CVaR alone does not.
    assert OPTIMA[0.1, 0.1]["objective"] < math.log(2) - 0.005


def test_the_golden_trajectory_of_one_step_per_round_is_full_batch_descent_with_our_weights() -> None:
    golden = VECTORS["golden"]["fedsrcvar_tau1"]
    setting = golden["params"]
    objective = Objective(setting["rho"], setting["eps"], smoothing("softplus", setting["g"]))
    # With two logits (theta/2, -theta/2) from zero each gets half of the gradient in theta, so theta moves by
    # twice the step, and the norm of both together is |theta| / sqrt(2).
    step = 2 * setting["eta"]
    theta, c = torch.zeros(11, dtype=torch.float64), 1.0
    pairs = []
    for number in range(1, setting["T"] + 1):
        pairs.append((theta, c))
        losses = losses_at(theta)
        by_theta = (objective.weights(losses, c)[:, None] * gradients_at(theta)).mean(0)
        by_c = threshold_gradient(objective, losses, c).mean().item()
        theta, c = theta - step * by_theta, projected(objective, c - setting["eta_c"] * by_c)
        if str(number) in golden["rounds"]:
            check(theta, c, golden["rounds"][str(number)])
    mean_theta = torch.stack([pair[0] for pair in pairs]).mean(0)
    check(mean_theta, float(np.mean([pair[1] for pair in pairs])), golden["average_iterates_1_to_T"])


def check(theta: torch.Tensor, c: float, expected: dict[str, float]) -> None:
    values = losses_at(theta).numpy()
    found = {
        "mean": values.mean(), "worst10": cvar(values, 0.1), "worst30": cvar(values, 0.3),
        "theta_norm": theta.norm().item() / math.sqrt(2), "c": c,
    }  # fmt: skip
    # Five hundred steps in float64, in another order of operations: rounding grows by less than a factor per step.
    assert found == pytest.approx(expected, abs=1e-9)
