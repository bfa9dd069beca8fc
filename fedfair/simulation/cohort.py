"""All collaborators of a plan, or some of them, as one of the engines of a single process computes them.

Decides nothing but who computes: `backend.py` says which engine a plan allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.model_layout import Layout
from fedfair.ids import ParticipantId
from fedfair.plan.derived import is_noised, protects_records
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import ReleaseLog
from fedfair.privacy.sample_level import PrivateSteps
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.vectorised.clients import VectorisedClients
from fedfair.simulation.vectorised.private_clients import PrivateClients
from fedfair.tables.dataset import Splits
from fedfair.terms.at_sites import SiteMemory, site_memory
from fedfair.terms.kept import VariatesInMemory
from fedfair.training.assembly import local_steps
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import simulated_protection
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_sgd import LocalSteps

Steps: TypeAlias = LocalSteps | PrivateSteps
Cohort: TypeAlias = LoopClients | VectorisedClients | PrivateClients


def cohort_of(
    plan: Plan,
    sites: Mapping[ParticipantId, Splits],
    model: FlatModel,
    logs: Mapping[ParticipantId, ReleaseLog],
    *,
    vectorised: bool,
    steps: Steps | None = None,
) -> Cohort:
    """Return the cohort, computed by one of the two engines.

    Args:
        plan: the plan.
        sites: the records of each site.
        model: the plan's model on the device to work on.
        logs: where the noised releases of each are written down; unused without privacy.
        vectorised: compute all at once, which `engine.obstacle` must find nothing against.
        steps: of another cohort on the same model, which private steps watch only once; None makes them.
    """
    if vectorised and not protects_records(plan):
        return VectorisedClients(plan, sites, model)
    steps = steps or local_steps(plan, model, next(iter(sites.values())).train.schema)
    noised = sites if is_noised(plan) else ()
    protections = {name: simulated_protection(plan, name, logs[name]) for name in noised}
    tasks = {
        name: TrainingClient(plan, name, splits, model, steps, protections.get(name))
        for name, splits in sites.items()
    }
    if not protections:
        return LoopClients(tasks, memories=simulated_memories(plan, model.layout, sites))
    loop = LoopClients(tasks, distributed_dp(plan, model.layout.dimension))
    return PrivateClients(plan, sites, model, protections, loop) if vectorised else loop


def simulated_memories(
    plan: Plan, layout: Layout, names: Iterable[ParticipantId]
) -> dict[ParticipantId, SiteMemory] | None:
    """Return what simulated sites keep of earlier rounds; None where the plan needs nothing of the kind."""
    memories = {name: site_memory(plan, layout, name, lambda _: VariatesInMemory()) for name in names}
    return {name: memory for name, memory in memories.items() if memory is not None} or None
