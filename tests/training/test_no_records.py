"""A site without records takes part in every sum of a run, and changes no bit of what the others make of it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.errors import RemoteProtocolError
from fedfair.ids import ParticipantId
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.cohort import simulated_memories
from fedfair.simulation.simulate import play
from fedfair.tables.dataset import Splits, no_records
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from tests import bc10, plans

THIRDS = bc10.random_thirds()
DEPLOYED = [name for name, facts in ALGORITHMS.items() if facts.deployed]
NOTHING = Splits(no_records(bc10.dataset().schema))
EMPTY = ParticipantId("site-3")


def run_of(members: dict[ParticipantId, Splits], training: dict[str, object]) -> TrainingRun:
    """Return a finished run of these sites."""
    plan = bc10.plan(4, rounds=4, **training)
    flat = flat_model(plan, bc10.dataset().schema, torch.device("cpu"), Path())
    run = TrainingRun(plan, flat.layout, bc10.dataset().schema, flat.vector())
    tasks = {name: TrainingClient(plan, name, own, flat) for name, own in members.items()}
    play(run, LoopClients(tasks, memories=simulated_memories(plan, flat.layout, members)))
    return run


@pytest.mark.parametrize(
    ("algorithm", "weights"), [*((name, "samples") for name in DEPLOYED), ("fedsrcvar", "uniform")]
)
def test_a_site_without_records_changes_no_bit_of_a_run(algorithm: str, weights: str) -> None:
    training: dict[str, object] = {"algorithm": algorithm, "weights": weights}
    if algorithm in plans.OWN_STEP:
        training["server_optimizer"] = None
    three = bc10.sites(THIRDS)
    with_it, without = run_of({**three, EMPTY: NOTHING}, training), run_of(three, training)
    assert np.array_equal(with_it.model.vector, without.model.vector)
    assert with_it.model.threshold == without.model.threshold
    assert with_it.history[-1] == without.history[-1]


def test_sites_without_records_keep_no_variate_and_alone_end_a_run() -> None:
    training: dict[str, object] = {"control_variates": True, "local_steps": 2}
    three = bc10.sites(THIRDS)
    with_it, without = run_of({**three, EMPTY: NOTHING}, training), run_of(three, training)
    assert np.array_equal(with_it.model.vector, without.model.vector)
    with pytest.raises(RemoteProtocolError) as caught:
        run_of({ParticipantId(f"site-{place}"): NOTHING for place in range(4)}, {})
    assert "over no training record: no site takes part with as many records as its own policy.min_records" in (
        caught.value.message
    )
