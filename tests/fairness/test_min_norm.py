"""The shortest combination against a solver, by hand, and against what makes it the shortest."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.fairness.min_norm import shortest_combination

FREE = np.zeros(2), np.ones(2)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 12), d=st.integers(1, 8), width=st.floats(0.0, 1.0))
def test_a_solver_finds_nothing_shorter(seed: int, k: int, d: int, width: float) -> None:
    source = np.random.default_rng(seed)
    vectors, share = source.normal(size=(k, d)), source.dirichlet(np.ones(k))
    lower, upper = np.maximum(share - width, 0.0), np.minimum(share + width, 1.0)
    weights = shortest_combination(vectors, lower, upper)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (weights >= lower - 1e-15).all()
    assert (weights <= upper + 1e-15).all()
    variable = cp.Variable(k)
    inside = [variable >= lower, variable <= upper, cp.sum(variable) == 1]
    best = cp.Problem(cp.Minimize(cp.sum_squares(vectors.T @ variable)), inside).solve(solver=cp.CLARABEL)
    # The gap at which it stops is 1e-13 of the largest eigenvalue, below 1e-11; the solver's is 1e-8.
    assert float(((weights @ vectors) ** 2).sum()) <= best + 1e-7


def test_orthogonal_opposite_and_parallel_directions() -> None:
    # |a (2, 0) + (1 - a) (0, 1)|^2 = 4 a^2 + (1 - a)^2 is least at a = 1/5.
    weights = shortest_combination(np.array([[2.0, 0.0], [0.0, 1.0]]), *FREE)
    assert weights.tolist() == pytest.approx([0.2, 0.8], abs=1e-9)
    weights = shortest_combination(np.array([[1.0, 0.0], [-1.0, 0.0]]), *FREE)
    assert weights.tolist() == pytest.approx([0.5, 0.5], abs=1e-9)
    # 2/3 (1, a) + 1/3 (1, -2 a) = (1, 0). What tells them apart is a^2 = 1e-8, of which products of numbers near 1
    # keep eight digits.
    close = np.array([[1.0, 1e-4], [1.0, -2e-4]])
    weights = shortest_combination(close, *FREE)
    assert weights.tolist() == pytest.approx([2 / 3, 1 / 3], abs=1e-7)
    weights = shortest_combination(np.zeros((3, 4)), np.zeros(3), np.ones(3))
    assert weights.sum() == pytest.approx(1.0)
    vectors = np.random.default_rng(1).normal(size=(20, 50))
    weights = shortest_combination(vectors, np.zeros(20), np.ones(20))
    direction = weights @ vectors
    assert (vectors @ direction >= direction @ direction - 1e-8).all()
