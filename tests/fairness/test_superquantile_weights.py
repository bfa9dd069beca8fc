"""The adversary of a superquantile: the weights it picks, against linear programmes and by hand."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fedfair.errors import LocalProtocolError
from fedfair.fairness.cvar import cvar
from fedfair.fairness.superquantile_weights import worst_weights
from fedfair.simulation.centralised.dro import chi_square_spread, chi_square_weights, cvar_weights
from tests.simulation import slow_algorithms as slow

LOSSES = st.lists(st.floats(0.0, 5.0), min_size=1, max_size=30)
SHARES = st.floats(0.02, 1.0)


def test_quantiles_and_ties_are_shared_in_proportion() -> None:
    # Half of the whole: all of the worst (0.2) and 0.3 of the 0.5 that comes next.
    weights = worst_weights(np.array([1.0, 3.0, 2.0]), np.array([0.3, 0.2, 0.5]), 0.5)
    assert weights.tolist() == pytest.approx([0.0, 0.4, 0.6], abs=1e-15)
    weights = worst_weights(np.array([2.0, 2.0 + 1e-15, 9.0]), np.array([0.25, 0.5, 0.25]), 0.5)
    assert weights.tolist() == pytest.approx([1 / 6, 1 / 3, 0.5], abs=1e-14)


@settings(deadline=None, max_examples=30)
@given(losses=LOSSES, share=SHARES, seed=st.integers(0, 99))
def test_no_allowed_weights_do_worse(losses: list[float], share: float, seed: int) -> None:
    values, masses = np.array(losses), np.random.default_rng(seed).dirichlet(np.ones(len(losses))) + 1e-3
    masses /= masses.sum()
    weights = worst_weights(values, masses, share)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (weights >= 0).all()
    assert (weights <= masses / share + 1e-9).all()
    bounds = [(0.0, mass / share) for mass in masses]
    best = linprog(-values, A_eq=np.ones((1, len(values))), b_eq=[1.0], bounds=bounds)
    # The solver's own tolerance on the constraints is 1e-7.
    assert weights @ values == pytest.approx(-best.fun, abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(losses=LOSSES, share=SHARES)
def test_records_picked_by_the_cvar_adversary_have_the_worst_group_risk(losses: list[float], share: float) -> None:
    values = np.array(losses)
    found = float((cvar_weights(values, share) * values).mean())
    assert found == pytest.approx(cvar(values, max(share, 1.0 / len(values))) if len(losses) > 1 else losses[0])


@settings(deadline=None, max_examples=30)
@given(losses=LOSSES, share=SHARES)
@example(losses=[0.0, 1.697713782006105, 2.484731963589165], share=0.5)  # the second lies on the threshold
@example(losses=[0.0, 3.4465247034336423e-168], share=0.75)  # squares are lost to underflow
def test_the_chi_square_adversary_keeps_its_bound_as_the_slow_one(losses: list[float], share: float) -> None:
    values = np.array(losses)
    weights = chi_square_weights(values, share)
    assert weights.mean() == pytest.approx(1.0, abs=1e-12)
    assert (weights >= 0).all()
    assert (weights**2).mean() <= chi_square_spread(share) ** 2 * (1 + 1e-6)
    if np.ptp(values) > 1e-3 and share < 0.99:
        expected = slow.chi_square(values, share)
        assert weights @ values == pytest.approx(expected @ values, rel=1e-6)


def test_the_chi_square_adversary_is_that_of_a_solver_and_of_all_records() -> None:
    """So near to 1 the bound is 1 in floating point, and leaves no weight free to differ."""
    np.testing.assert_array_equal(chi_square_weights(np.array([0.0, 1.0]), 0.9999999999999999), 1.0)
    values = np.random.default_rng(2).exponential(size=200)
    weights, bound = cp.Variable(200), chi_square_spread(0.5)
    inside = [weights >= 0, cp.sum(weights) == 200, cp.norm(weights) <= bound * np.sqrt(200)]
    best = cp.Problem(cp.Maximize(values @ weights / 200), inside).solve(solver=cp.CLARABEL)
    assert (chi_square_weights(values, 0.5) * values).mean() == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("weigh", [cvar_weights, chi_square_weights])
def test_equal_losses_weigh_the_same(weigh: slow.Callable[..., slow.Vector]) -> None:
    np.testing.assert_allclose(weigh(np.full(7, 0.3), 0.2), np.ones(7), rtol=1e-14)


@pytest.mark.parametrize("weigh", [cvar_weights, chi_square_weights])
def test_where_every_record_is_protected_every_record_weighs_the_same(
    weigh: slow.Callable[..., slow.Vector],
) -> None:
    np.testing.assert_allclose(weigh(np.arange(5.0), 1.0), np.ones(5), rtol=1e-14)


@pytest.mark.parametrize(("values", "share"), [([1.0, np.nan], 0.5), ([1.0, np.inf], 0.5), ([1.0], 0.0)])
def test_what_cannot_be_weighed_is_refused(values: list[float], share: float) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be picked"):
        worst_weights(np.array(values), np.full(len(values), 1.0 / len(values)), share)
