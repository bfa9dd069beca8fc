from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedfair.fairness.cvar import cvar
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from fedfair.training.assembly import flat_model
from fedfair.training.device import SplitRecords
from fedfair.training.flat_model import FlatModel
from fedfair.training.inference import evaluate
from tests import bc10
from tests.oracles.erm import descend_mean, minimise_mean
from tests.oracles.rcvar import descend_rcvar, minimise_rcvar

SMOOTHED = [
    (optimum["rho"], optimum["eps"], key.split("_")[1], float(key.split("_")[2]), figures)
    for optimum in bc10.ORACLE["optima"]
    for key, figures in optimum.items()
    if key.startswith("smooth_") and optimum["rho"] < 1.0
]


def zero_model() -> FlatModel:
    return flat_model(bc10.plan(1), bc10.dataset().schema, torch.device("cpu"), Path())


def objective(rho: float, eps: float, name: str = "softplus", gamma: float = 0.05) -> Objective:
    return Objective(rho, eps, smoothing(name, gamma))


def losses_of(model: FlatModel) -> NDArray[np.float64]:
    data = bc10.dataset()
    records = SplitRecords.place(data.features, data.labels, torch.float64, torch.device("cpu"))
    return evaluate(model, records, 0).values


@pytest.mark.parametrize(("rho", "eps", "name", "gamma", "expected"), SMOOTHED[::7])
def test_the_solver_reaches_the_smoothed_optimum_of_a_convex_solver(
    rho: float, eps: float, name: str, gamma: float, expected: dict[str, float]
) -> None:
    model = zero_model()
    found = minimise_rcvar(model, *bc10.pooled(), objective(rho, eps, name, gamma))
    assert found.value == pytest.approx(expected["ftilde"], abs=1e-6)
    # Values that agree to 1e-12 leave points apart by sqrt(2e-12 / curvature): 1e-4 where that is 2e-4.
    losses = losses_of(model)
    assert found.threshold == pytest.approx(expected["c"], abs=1e-4)
    assert losses.mean() == pytest.approx(expected["mean"], abs=1e-4)
    assert cvar(losses, rho) == pytest.approx(expected["worst"], abs=1e-4)


def test_the_smoothed_optimum_lies_above_the_exact_one_by_at_most_the_gap() -> None:
    for optimum in bc10.ORACLE["optima"]:
        if optimum["rho"] == 1.0:
            continue
        stated = objective(optimum["rho"], optimum["eps"], "zang")
        found = minimise_rcvar(zero_model(), *bc10.pooled(), stated)
        allowed = (1.0 - optimum["eps"]) * stated.smoothing.gap / optimum["rho"]
        # The exact optimum is known to 5e-7, its duality gap.
        assert optimum["objective"] - 5e-7 <= found.value <= optimum["objective"] + allowed + 5e-7


def test_descent_comes_down_to_where_the_solver_is() -> None:
    stated = objective(0.3, 0.1)
    optimum = minimise_rcvar(zero_model(), *bc10.pooled(), stated)
    model, threshold, values = zero_model(), 1.0, []
    for _ in range(4):
        threshold = descend_rcvar(
            model, *bc10.pooled(), stated, threshold, steps=250, learning_rate=0.1, threshold_learning_rate=0.1
        )
        values.append(float(stated.per_sample(torch.tensor(losses_of(model)), threshold).mean()))
    assert values == sorted(values, reverse=True)
    # Gradient descent on a convex function ends at most distance^2 / (2 eta steps) above its minimum
    # (Nesterov 2004, Corollary 2.1.2).
    distance = float(np.sum(optimum.vector**2)) + (1.0 - optimum.threshold) ** 2
    assert optimum.value - 1e-12 <= values[-1] <= optimum.value + distance / (2 * 0.1 * 1000)


@pytest.mark.parametrize(("rho", "end"), [(0.9, 0.0), (0.1, 0.7)])
def test_the_threshold_of_centralised_descent_stays_in_its_range(rho: float, end: float) -> None:
    # At zero every loss is ln 2, just above the threshold, so sigma = (ln 2 - 0.69) / 0.05 + 0.5 = 0.56 for all:
    # below 0.9 and above 0.1. A long step leaves the range below and above.
    stated = Objective(rho, 0.0, smoothing("zang", 0.05), loss_bound=0.7)
    threshold = descend_rcvar(
        zero_model(), *bc10.pooled(), stated, 0.69, steps=1, learning_rate=1e-9, threshold_learning_rate=50.0
    )
    assert threshold == end


def test_the_mean_is_the_worst_group_of_all_records_and_tradeoff_one() -> None:
    mean = next(optimum for optimum in bc10.ORACLE["optima"] if optimum["rho"] == 1.0)
    model = zero_model()
    assert minimise_mean(model, *bc10.pooled()).value == pytest.approx(mean["objective"], abs=1e-6)
    assert losses_of(model).mean() == pytest.approx(mean["mean"], abs=1e-6)
    assert minimise_rcvar(zero_model(), *bc10.pooled(), objective(1.0, 0.3)).value == pytest.approx(
        mean["objective"], abs=1e-6
    )
    plain, fair = zero_model(), zero_model()
    descend_mean(plain, *bc10.pooled(), steps=50, learning_rate=0.5)
    descend_rcvar(
        fair, *bc10.pooled(), objective(0.3, 1.0), 1.0, steps=50, learning_rate=0.5, threshold_learning_rate=0.5
    )
    assert torch.equal(plain.flat, fair.flat)
    stated = Objective(0.2, 0.0, smoothing("softplus", 0.05), loss_bound=0.1)
    assert minimise_rcvar(zero_model(), *bc10.pooled(), stated).threshold == pytest.approx(0.1, abs=1e-12)
