"""Every algorithm's trajectory against a slow version, written from its paper, that shares nothing with it."""

from collections.abc import Callable

import numpy as np
import pytest

from fedfair.fairness.theory import bpf_of_rcvar
from fedfair.simulation.baselines.fedminmax import MinimaxOverGroups
from tests import bc10
from tests.simulation import algorithm_runs as runs
from tests.simulation import slow_algorithms as slow

THIRDS = slow.thirds()
ROUNDS = 6
EVERYBODY = len(bc10.dataset())


def even(values: slow.Vector, weigh: Callable[[slow.Vector], slow.Vector]) -> slow.Vector:
    """Return an adversary's weights, and equal ones at the start, where all losses tie."""
    return np.ones(len(values)) if np.ptp(values) < 1e-12 else weigh(values)


def cvar_answer(values: slow.Vector) -> slow.Vector:
    share = np.full(EVERYBODY, 1.0 / EVERYBODY)
    return even(values, lambda held: EVERYBODY * slow.tail(held, share, 0.3))


def chi_square_answer(values: slow.Vector) -> slow.Vector:
    return even(values, lambda held: slow.chi_square(held, 0.8))


ADVERSARY = {"adversary_learning_rate": 0.3}
CASES: dict[str, tuple[dict[str, object], Callable[[], list[slow.Vector]]]] = {
    "afl": ({"options": ADVERSARY}, lambda: slow.afl(THIRDS, ROUNDS, 0.5, 0.3)),
    "drfa": (
        {"options": {**ADVERSARY, "drawn_collaborators": 2}, "local_steps": 3},
        lambda: slow.drfa(THIRDS, ROUNDS, 0.5, 0.3, 3, 2),
    ),
    "qffl": ({"options": {"loss_power": 2.0}, "local_steps": 2}, lambda: slow.qffl(THIRDS, ROUNDS, 0.5, 2, 2.0)),
    "deltafl": (
        {"options": {"worst_share": 0.5}, "local_steps": 2},
        lambda: slow.deltafl(THIRDS, ROUNDS, 0.5, 2, 0.5),
    ),
    "fedmgda": (
        {"options": {"weight_range": 0.2, "server_learning_rate": 0.1}, "local_steps": 2},
        lambda: slow.fedmgda(THIRDS, ROUNDS, 0.5, 2, 0.1, 0.2),
    ),
    "dro": ({}, lambda: slow.dro(ROUNDS, 0.5, cvar_answer)),
    "bpf": ({"options": ADVERSARY}, lambda: slow.bpf(ROUNDS, 0.5, 0.3, *bpf_of_rcvar(0.3, 0.1))),
}


@pytest.mark.parametrize("name", CASES)
def test_the_trajectory_is_that_of_the_slow_version(name: str) -> None:
    training, expected = CASES[name]
    plan = bc10.plan(3, algorithm=name, learning_rate=0.5, **training)
    # Sums of a few hundred terms of order one, in double precision; FedMGDA+'s and BPF's slow versions solve
    # their programmes to 1e-12.
    np.testing.assert_allclose(runs.models_after(plan, THIRDS, ROUNDS), expected(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("parts", [THIRDS, bc10.random_thirds()], ids=["in order", "random"])
def test_the_trajectory_of_fedminmax_depends_on_groups_and_not_on_who_holds_a_record(parts: bc10.Parts) -> None:
    first = bc10.dataset().features[:, 0]
    groups = [np.flatnonzero(first > 0), np.flatnonzero(first <= 0)]
    algorithm = MinimaxOverGroups([(first[part] <= 0).astype(np.int64) for part in parts], learning_rate=0.3)
    plan = bc10.plan(3, algorithm="fedminmax", learning_rate=0.5)
    played = runs.play_on(runs.cohort_of(plan, parts), algorithm, ROUNDS)
    expected = slow.fedminmax(groups, ROUNDS, 0.5, 0.3)
    np.testing.assert_allclose([after.vector for _, after in played], expected, rtol=0, atol=1e-10)


def test_the_trajectories_of_chi_square_and_local_bpf_are_those_of_the_slow_versions() -> None:
    plan = bc10.plan(
        3, objective={"worst_group_size": 0.8}, algorithm="dro", learning_rate=0.5, options={"divergence": "chi2"}
    )
    expected = slow.dro(ROUNDS, 0.5, chi_square_answer)
    np.testing.assert_allclose(runs.models_after(plan, THIRDS, ROUNDS), expected, rtol=0, atol=1e-10)
    plan = bc10.plan(3, algorithm="localbpf", local_steps=2, learning_rate=0.1)
    found, expected = runs.rounds_of(plan, THIRDS, ROUNDS), slow.local_bpf(THIRDS, ROUNDS, 0.1, 2, 0.3, 0.1, 0.05)
    np.testing.assert_allclose([model.vector for model in found], [v for v, _ in expected], rtol=0, atol=1e-10)
    assert [model.threshold for model in found] == pytest.approx([c for _, c in expected], abs=1e-10)
