import math

import cvxpy
import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.datasets import load_breast_cancer, load_iris

from fedfair.errors import DataError
from fedfair.fairness.critical_size import critical_group_size


def by_the_smallest_largest_weight(features: np.ndarray, labels: np.ndarray, classes: int) -> float:
    """Return 1/(n t) for the smallest t with 0 <= q_i <= t, sum q = 1 and sum q_i grad l_i = 0."""
    n = len(labels)
    design = np.column_stack([features, np.ones(n)])
    residuals = 1 / classes - np.eye(classes)[labels]
    gradients = np.einsum("ik,ij->ikj", residuals, design).reshape(n, -1)
    equalities = np.vstack(
        [np.column_stack([gradients.T, np.zeros(gradients.shape[1])]), np.append(np.ones(n), 0.0)]
    )
    solution = linprog(
        np.append(np.zeros(n), 1.0), A_ub=np.column_stack([np.eye(n), -np.ones(n)]), b_ub=np.zeros(n),
        A_eq=equalities, b_eq=np.append(np.zeros(gradients.shape[1]), 1.0), bounds=(0, None),
    )  # fmt: skip
    return 1 / (n * solution.x[-1]) if solution.status == 0 else 0.0


def smallest_cvar(features: np.ndarray, labels: np.ndarray, classes: int, size: float) -> float:
    """Return the smallest CVaR of a linear softmax model, by a convex solver."""
    n = len(labels)
    theta = cvxpy.Variable((features.shape[1] + 1, classes - 1))
    threshold = cvxpy.Variable()
    # The last class's logit is fixed at 0: adding the same to all logits changes nothing, and flat directions
    # trouble the solver.
    logits = cvxpy.hstack([np.column_stack([features, np.ones(n)]) @ theta, np.zeros((n, 1))])
    chosen = cvxpy.sum(cvxpy.multiply(np.eye(classes)[labels], logits), axis=1)
    losses = cvxpy.log_sum_exp(logits, axis=1) - chosen
    problem = cvxpy.Problem(cvxpy.Minimize(threshold + cvxpy.sum(cvxpy.pos(losses - threshold)) / (size * n)))
    tolerances = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-6)
    return float(problem.solve(solver=cvxpy.CLARABEL, **tolerances))


def noisy(classes: int, records: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = np.arange(records) % classes
    features = generator.normal(size=(records, 2)) + 0.8 * labels[:, None] * np.array([1.0, -0.5])
    return features, labels


@pytest.mark.parametrize(("classes", "records", "seed"), [(2, 40, 0), (2, 61, 1), (3, 60, 2), (5, 100, 3)])
def test_both_forms_of_the_linear_program_agree(classes: int, records: int, seed: int) -> None:
    features, labels = noisy(classes, records, seed)
    found = critical_group_size(features, labels, classes)
    # HiGHS is optimal within 1e-7 of numbers of order 1, and the size is a ratio of such numbers.
    assert found == pytest.approx(by_the_smallest_largest_weight(features, labels, classes), abs=1e-5)
    assert 0.0 < found < 1.0


@pytest.mark.parametrize(("classes", "seed"), [(2, 0), (3, 2)])
def test_guessing_is_optimal_just_below_the_critical_size_and_beaten_just_above(classes: int, seed: int) -> None:
    features, labels = noisy(classes, 45, seed)
    critical = critical_group_size(features, labels, classes)
    floor = math.log(classes)
    # The solver is asked for 1e-6. Above, the gain grows from 0, so look ten percent above.
    assert smallest_cvar(features, labels, classes, 0.97 * critical) == pytest.approx(floor, abs=1e-5)
    assert smallest_cvar(features, labels, classes, min(1.0, 1.1 * critical)) < floor - 1e-4


def test_critical_sizes_by_hand_separable_one_class_and_in_any_units() -> None:
    # Four zeros and two ones with the same feature: the ones can be balanced by two of the zeros, 4 of 6 in all.
    features = np.ones((6, 1))
    assert critical_group_size(features, np.array([0, 0, 0, 0, 1, 1]), 2) == pytest.approx(4 / 6, abs=1e-6)
    # A balanced coin: no model beats guessing.
    assert critical_group_size(features, np.array([0, 1] * 3), 2) == pytest.approx(1.0, abs=1e-6)
    features = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    assert critical_group_size(features, np.array([0, 0, 1, 1]), 2) == pytest.approx(0.0, abs=1e-6)
    everything = load_breast_cancer()
    columns = (everything.data - everything.data.mean(0)) / everything.data.std(0)
    assert critical_group_size(columns, everything.target, 2) == pytest.approx(0.0, abs=1e-6)
    iris = load_iris()
    assert critical_group_size(iris.data, iris.target, 3) == pytest.approx(0.0, abs=1e-6)
    features, labels = noisy(3, 60, 4)
    scaled = features * np.array([1e-6, 1e5])
    assert critical_group_size(scaled, labels, 3) == pytest.approx(
        critical_group_size(features, labels, 3), abs=1e-6
    )


@pytest.mark.parametrize(
    ("features", "labels", "classes", "message"),
    [
        (np.ones((3, 1)), np.array([0, 1]), 2, "do not fit"),
        (np.ones(3), np.array([0, 1, 0]), 2, "do not fit"),
        (np.ones((0, 1)), np.array([], int), 2, "do not fit"),
        (np.array([[math.nan], [1.0]]), np.array([0, 1]), 2, "NaN"),
        (np.ones((2, 1)), np.array([0, 2]), 2, "labels run"),
        (np.ones((2, 1)), np.array([-1, 0]), 2, "labels run"),
        (np.ones((2, 1)), np.array([0, 0]), 1, "labels run"),
    ],
)
def test_unfit_data_are_refused(features: np.ndarray, labels: np.ndarray, classes: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        critical_group_size(features, labels, classes)
