"""The convex fit of a linear model, against optima of other solvers and bounds on the critical size."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import approx_fprime, brentq
from sklearn.datasets import load_breast_cancer, load_digits

from fedfair.errors import DataError, PlanError
from fedfair.fairness.critical_size import critical_group_size, critical_size_bounds
from fedfair.fairness.cvar import cvar, rcvar
from fedfair.fairness.linear_design import linear_design
from fedfair.fairness.linear_fit import _value_and_gradient, fit_linear, linear_losses, zang_threshold

OPTIMA = json.loads((Path(__file__).parent.parent / "vectors" / "bc10.json").read_text())["optima"]
SHARP = (0.05, 0.005, 0.0005, 0.00005)


def noisy(classes: int, records: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = np.arange(records) % classes
    features = generator.normal(size=(records, 2)) + 0.8 * labels[:, None] * np.array([1.0, -0.5])
    return features, labels


def base_rate(minority: int, records: int) -> tuple[np.ndarray, np.ndarray]:
    """Return records that only the base rate tells of: one feature, the same for all."""
    return np.ones((records, 1)), (np.arange(records) < minority).astype(int)


@pytest.mark.parametrize("entry", OPTIMA, ids=lambda entry: f"{entry['rho']}-{entry['eps']}")
def test_the_fit_reaches_the_optima_of_two_convex_solvers(entry: dict[str, float]) -> None:
    bundle = load_breast_cancer()
    columns = bundle.data[:, :10]
    columns = (columns - columns.mean(0)) / columns.std(0)
    design = linear_design(columns, bundle.target, 2, ridge=0.0)
    rho, eps = entry["rho"], entry["eps"]
    found = fit_linear(design, rho, eps, stages=SHARP)
    value = rcvar(linear_losses(found, design, columns, bundle.target)[0], rho, eps)
    # No model is below the optimum; the last smoothing leaves (1 - eps) / rho times an eighth of its width, and
    # the stopping rule of the solver 1e-4.
    assert entry["lower_bound"] - 1e-12 <= value
    assert value <= entry["objective"] + (1.0 - eps) / rho * SHARP[-1] / 8.0 + 1e-4


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("rho", "eps"), [(0.3, 0.1), (1.0, 0.0), (0.5, 1.0)])
def test_the_gradient_is_that_of_the_value(classes: int, rho: float, eps: float) -> None:
    design = linear_design(*noisy(classes, 60, 1), classes)
    point = np.random.default_rng(5).normal(size=design.start.size)
    arguments = (design, rho, eps, 0.3)
    numeric = approx_fprime(point, lambda vector: _value_and_gradient(vector, *arguments)[0], 1e-6)
    # Forward differences of 1e-6 are off by the curvature, here below ten, times half the step.
    assert _value_and_gradient(point, *arguments)[1] == pytest.approx(numeric, abs=2e-5)


@pytest.mark.parametrize(("classes", "records", "seed"), [(2, 40, 0), (2, 61, 1), (3, 60, 2), (5, 100, 3)])
def test_the_dual_bounds_hold_the_linear_program(classes: int, records: int, seed: int) -> None:
    features, labels = noisy(classes, records, seed)
    lower, upper = critical_size_bounds(features, labels, classes)
    exact = critical_group_size(features, labels, classes)
    # The program is solved to about 1e-6; the narrowest hinge is a thousandth wide.
    assert lower - 1e-6 <= exact <= upper + 1e-6
    assert upper - lower < 2e-3


@pytest.mark.parametrize("minority", [5, 20, 40, 50])
def test_a_base_rate_alone_has_twice_the_minoritys_share_as_critical_size(minority: int) -> None:
    features, labels = base_rate(minority, 100)
    expected = 2 * minority / 100
    assert critical_group_size(features, labels, 2) == pytest.approx(expected, abs=1e-6)
    lower, upper = critical_size_bounds(features, labels, 2)
    assert lower - 1e-6 <= expected <= upper + 1e-6
    assert upper - lower < 2e-3


def test_base_rates_and_thresholds_are_fitted_by_their_equations() -> None:
    losses = np.random.default_rng(3).exponential(size=200)
    for rho in (0.05, 0.3, 0.9):
        slope = lambda level, rho=rho: np.clip((losses - level) / 0.1 + 0.5, 0.0, 1.0).mean() - rho  # noqa: E731
        assert zang_threshold(losses, rho, 0.1) == pytest.approx(brentq(slope, -1.0, 20.0), abs=1e-9)
    # Above twice the minority's share m the worst group holds all of it, so the best model gives it m / rho.
    features, labels = base_rate(20, 100)
    design = linear_design(features, labels, 2, ridge=0.0)
    for rho in (0.2, 0.3, 0.45, 0.6, 0.8):
        share = min(0.2 / rho, 0.5)
        entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
        losses, _ = linear_losses(fit_linear(design, rho, 0.0, stages=SHARP), design, features, labels)
        # The optimum from above, within the bias of the last smoothing and the solver's 1e-5.
        assert entropy - 1e-12 <= cvar(losses, rho) <= entropy + SHARP[-1] / (8 * rho) + 1e-5


def test_the_fit_does_not_depend_on_which_class_is_the_last() -> None:
    features, labels = noisy(3, 90, 6)
    order = np.array([2, 0, 1])
    fits = [linear_design(features, one, 3, ridge=0.1) for one in (labels, order[labels])]
    found = [fit_linear(design, 0.5, 0.1, stages=SHARP).ravel() for design in fits]
    values = [
        _value_and_gradient(point, design, 0.5, 0.1, SHARP[-1])[0]
        for point, design in zip(found, fits, strict=True)
    ]
    # One convex problem under two numberings of its classes; the solver stops within 1e-4 of its minimum.
    assert values[0] == pytest.approx(values[1], abs=1e-4)


def test_separable_classes_and_bad_records_have_no_critical_size() -> None:
    bundle = load_digits()
    design = linear_design(bundle.data / 16.0, bundle.target, 10)
    losses, predicted = linear_losses(fit_linear(design, 0.1, 0.0), design, bundle.data / 16.0, bundle.target)
    assert np.isfinite(losses).all()
    assert (predicted == bundle.target).mean() > 0.99
    assert critical_size_bounds(bundle.data / 16.0, bundle.target, 10)[1] < 1e-3
    with pytest.raises(DataError, match="NaN"):
        linear_design(np.array([[math.nan], [1.0]]), np.array([0, 1]), 2)
    design = linear_design(*noisy(2, 20, 0), 2)
    with pytest.raises(PlanError, match=r"worst_group_size 0\.0 is outside"):
        fit_linear(design, 0.0, 0.1)
