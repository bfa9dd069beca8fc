"""Simulates a plan of statistics: one sum over all records, with noise that follows from the plan's seed.

Decides nothing about the numbers: every site's part is made by the same code as in a deployment. No model is made
but the one that the plan is bound to, which nothing reads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from fedfair.errors import LocalProtocolError
from fedfair.ids import ParticipantId
from fedfair.plan.digest import format_digest
from fedfair.plan.schema import Plan
from fedfair.results.column_statistics import statistics_result
from fedfair.results.document import ResultDocument
from fedfair.results.writing import Setting
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.all_clients import simulated_clients
from fedfair.simulation.sharded.clients import ignore_loss
from fedfair.simulation.simulate import play
from fedfair.tables.dataset import Splits
from fedfair.tables.source import load_federation
from fedfair.training.binding import bound


def simulate_statistics(plan: Plan, root: Path) -> ResultDocument:
    """Return the result of a plan of statistics on this machine.

    Args:
        plan: the plan.
        root: the workspace: the plan's data paths start there.

    Raises:
        FedfairError: the plan's data cannot be loaded, or no records have such a total.
    """
    return simulate_statistics_of(plan, load_federation(plan, root), root)


def simulate_statistics_of(plan: Plan, sites: Mapping[ParticipantId, Splits], root: Path) -> ResultDocument:
    """Return the same of records that are in memory already; arguments and faults as of `simulate_statistics`."""
    started = time.perf_counter()
    with simulated_clients(plan, sites, root, "loop", None, ignore_loss) as clients:
        binding = bound(plan, clients.schema, root)
        run = TrainingRun(plan, binding.layout, clients.schema, binding.vector)
        play(run, clients.cohort(plan, sites))
    found, seconds = run.result().statistics, time.perf_counter() - started
    if found is None:
        raise LocalProtocolError("a run of statistics that was played to its end has none")
    digest = format_digest(binding.digest)
    return statistics_result(plan, digest, found, Setting.SIMULATION, seconds=seconds, costs=None)
