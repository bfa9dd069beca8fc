"""A small run in memory, for what a site does with the state of a run: three clinics, one process, no socket."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import ParticipantId
from fedfair.plan.digest import format_digest
from fedfair.plan.schema import Plan
from fedfair.results.outcome import RunSubject
from fedfair.run.progress import Progress
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.simulate import play
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model
from fedfair.training.binding import plan_binding
from fedfair.training.client import TrainingClient
from tests import plans

NAMES = plans.NAMES
MINE = ParticipantId("clinic-b")


def small(*, output: str = "last", rounds: int = 3, seed: int = 7) -> Plan:
    """Return a plan of three clinics that is evaluated after every round."""
    return Plan.model_validate(
        plans.over(
            plans.small_plan(rounds=rounds, output=output, seed=seed),  # type: ignore[arg-type]
            task={"test_fraction": 0.2},
            evaluation={"every": 1, "bins": 64, "min_group": 1},
        )
    )


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A run that was played to its end."""

    subject: RunSubject
    training_run: TrainingRun
    clients: LoopClients


def played(
    plan: Plan, folder: Path, told: Callable[[Progress, TrainingRun, SiteLosses], None] = lambda *_: None
) -> PlayedRun:
    """Play a run; `told` hears of every sum, with the losses of `MINE` at the latest evaluation."""
    binding, sites = plan_binding(plan, folder), load_federation(plan, folder)
    model = flat_model(plan, binding.schema, torch.device("cpu"), folder)
    clients = LoopClients({name: TrainingClient(plan, name, own, model) for name, own in sites.items()})
    training_run = TrainingRun(plan, binding.layout, binding.schema, binding.vector)
    place = clients.names.index(MINE)
    play(
        training_run,
        clients,
        on_progress=lambda progress: told(progress, training_run, clients.last_losses[place]),
    )
    subject = RunSubject(plan, format_digest(binding.digest), binding.layout, binding.schema)
    return PlayedRun(subject, training_run, clients)
