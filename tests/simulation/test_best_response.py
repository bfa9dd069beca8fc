"""Adversaries of pooled records that answer at once: on all records, and on the batch of the step."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fedfair.fairness.theory import bpf_of_rcvar
from fedfair.plan.schema import Plan
from fedfair.simulation.centralised.bpf import box_weights
from fedfair.simulation.simulate import simulate_sites
from tests import bc10
from tests.simulation import algorithm_runs as runs
from tests.simulation import slow_algorithms as slow

ROUNDS = 6
RHO, EPS = 0.3, 0.1
THIRDS = slow.thirds()


def plan_for(name: str, answers: str, **training: object) -> Plan:
    return bc10.plan(
        3, algorithm=name, learning_rate=0.5, rounds=ROUNDS, options={"best_response": answers}, **training
    )


def worst(values: slow.Vector) -> slow.Vector:
    """Return the weights of the worst 30 %, and equal ones where all losses tie."""
    count = len(values)
    if np.ptp(values) < 1e-12:
        return np.ones(count)
    return count * slow.tail(values, np.full(count, 1.0 / count), RHO)


EXPECTED = {"dro": worst, "bpf": lambda values: (1.0 - EPS) * worst(values) + EPS}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_answer_to_all_losses_makes_the_slow_trajectory(name: str) -> None:
    found = runs.models_after(plan_for(name, "all"), THIRDS, ROUNDS)
    # Sums of a few hundred terms of order one, in double precision.
    np.testing.assert_allclose(found, slow.dro(ROUNDS, 0.5, EXPECTED[name]), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_batch_of_all_records_is_an_answer_to_all_losses(name: str) -> None:
    found = simulate_sites(plan_for(name, "batch"), bc10.sites(THIRDS), Path()).model.vector
    np.testing.assert_allclose(found, slow.dro(ROUNDS, 0.5, EXPECTED[name])[-1], rtol=0, atol=1e-10)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=10), st.floats(0.05, 1.0), st.floats(0.0, 0.9))
def test_the_best_weights_in_a_box_solve_the_programme(losses: list[float], rho: float, eps: float) -> None:
    values, (group_size, floor) = np.array(losses), bpf_of_rcvar(rho, eps)
    weights = box_weights(values, group_size, floor=floor)
    solved = linprog(
        -values, A_eq=np.ones((1, len(values))), b_eq=[group_size * len(values)],
        bounds=[(floor, 1.0)] * len(values),
    )  # fmt: skip
    assert solved.success
    assert weights.mean() == pytest.approx(1.0, abs=1e-12)
    # The solver's own tolerance is 1e-7.
    assert weights @ values == pytest.approx(-solved.fun / group_size, rel=1e-6, abs=1e-5)
