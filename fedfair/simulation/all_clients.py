"""All clients of a simulation, wherever they are computed: this process, or the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch

from fedfair.aggregation.model_layout import Layout
from fedfair.ids import ParticipantId
from fedfair.plan.derived import is_noised
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import ReleaseLog
from fedfair.simulation.backend import RayCluster
from fedfair.simulation.clients import Clients
from fedfair.simulation.cohort import cohort_of
from fedfair.simulation.sharded.clients import OnLoss, ShardedClients
from fedfair.simulation.sharded.on_ray import RayEngine, ray_engine
from fedfair.tables.dataset import Splits
from fedfair.training.assembly import flat_model
from fedfair.training.device import choose_device
from fedfair.training.flat_model import FlatModel


@dataclass
class SimulatedClients:
    """All clients of one simulation.

    Attributes:
        plan: that is simulated.
        sites: the records of all sites.
        root: the workspace, where the plan's code is.
        engine: of this process, or of each worker.
        machines: the workers; None for this process.
        ends: what is ended after the simulation.
    """

    plan: Plan
    sites: Mapping[ParticipantId, Splits]
    root: Path
    engine: Literal["loop", "vectorised"]
    machines: RayEngine | None
    ends: ExitStack
    _sharded: list[ShardedClients] = field(default_factory=list)

    @property
    def engine_name(self) -> Literal["loop", "vectorised", "ray"]:
        """Return what a result says of who computed it."""
        return self.engine if self.machines is None else "ray"

    @cached_property
    def schema(self) -> FeatureSchema:
        """Return what the features are; all sites have the same."""
        return next(iter(self.sites.values())).train.schema

    @property
    def layout(self) -> Layout:
        """Return the layout of the plan's model."""
        return self._model.layout

    @cached_property
    def logs(self) -> Mapping[ParticipantId, ReleaseLog]:
        """Return all sites' releases under noise; on workers, those that promise least."""
        if not self._sharded:
            return self._own_logs
        return self._sharded[0].worst_log() if is_noised(self.plan) else {}

    def cohort(self, plan: Plan, sites: Mapping[ParticipantId, Splits]) -> Clients:
        """Return a cohort of the plan, or of one that differs in noise alone."""
        if self.machines is None:
            # Nothing is vectorised where noise was taken out of a plan that could not be.
            vectorised = self.engine == "vectorised"
            return cohort_of(plan, sites, self._model, self._own_logs, vectorised=vectorised)
        sharded = self.machines.cohort(plan, sites, self.layout, vectorised=self.engine == "vectorised")
        self._sharded.append(self.ends.enter_context(sharded))
        return self._sharded[-1]

    @cached_property
    def _model(self) -> FlatModel:
        here = torch.device("cpu") if self.machines else choose_device(self.plan.training.device)
        return flat_model(self.plan, self.schema, here, self.root)

    @cached_property
    def _own_logs(self) -> dict[ParticipantId, ReleaseLog]:
        return {name: ReleaseLog() for name in self.sites}


@contextmanager
def simulated_clients(
    plan: Plan,
    sites: Mapping[ParticipantId, Splits],
    root: Path,
    engine: Literal["loop", "vectorised"],
    cluster: RayCluster | None,
    on_loss: OnLoss,
) -> Iterator[SimulatedClients]:
    """Yield all clients; workers end with the block.

    Args:
        plan: the plan.
        sites: the records of all sites.
        root: the workspace.
        engine: of this process, or of each worker.
        cluster: the workers; None for this process.
        on_loss: hears when a worker is lost.
    """
    with ExitStack() as ends:
        machines = None if cluster is None else ends.enter_context(ray_engine(plan, root, cluster, on_loss))
        yield SimulatedClients(plan, sites, root, engine, machines, ends)
