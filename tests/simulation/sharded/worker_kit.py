"""Workers in this process, which are lost when a test says so, and what it computes."""

import pickle
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.simulation.sharded.clients import Call, Lost, ShardedClients
from fedfair.simulation.sharded.on_ray import part_of
from fedfair.simulation.sharded.shard import Shard, ShardTerms
from fedfair.simulation.sharded.sharding import shard_collaborators
from fedfair.tables.dataset import Splits
from fedfair.training.assembly import flat_model

REASON = "the test has lost it"


class LocalWorkers:
    """Workers whose questions and answers travel as bytes, and that are lost at the questions with given numbers.

    Attributes:
        asked: how many questions there were.
        lost: the workers that were lost, in order.
        methods: what was asked, with the worker.
    """

    def __init__(self, count: int, losing: Collection[int] = (), *, after: bool = False) -> None:
        self._shards = [Shard() for _ in range(count)]
        self._losing, self._after = set(losing), after
        self.asked = 0
        self.lost: list[int] = []
        self.methods: list[tuple[int, str]] = []

    @property
    def count(self) -> int:
        return len(self._shards)

    def ask(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        return {worker: self._answer(worker, call) for worker, call in calls.items()}

    def keep(self, worker: int) -> Any:  # noqa: ANN401 - an answer
        return self._answer(worker, Call("memory"))

    def replace(self, worker: int) -> None:
        self._shards[worker] = Shard()

    def _answer(self, worker: int, call: Call) -> Any:  # noqa: ANN401 - as above
        self.asked += 1
        self.methods.append((worker, call.method))
        lost = self.asked in self._losing
        if lost:
            self.lost.append(worker)
            if not self._after:
                return Lost(REASON)
        given = pickle.loads(pickle.dumps(call.given))  # noqa: S301 - our own
        answer = self._shards[worker].answer(call.method, *given)
        return Lost(REASON) if lost else pickle.loads(pickle.dumps(answer))  # noqa: S301 - our own


def sharded(
    plan: Plan, sites: Mapping[ParticipantId, Splits], workers: LocalWorkers, *, vectorised: bool
) -> ShardedClients:
    """Return all collaborators, sharded over these workers, one for each shard."""
    names = list(sites)
    sharding = shard_collaborators(len(names), workers.count, vectorised=vectorised)
    assert len(sharding.shards) == workers.count
    schema = next(iter(sites.values())).train.schema
    layout = flat_model(plan, schema, torch.device("cpu"), Path()).layout
    parts = [
        part_of(sites, [names[member] for member in sharding.members(worker)]) for worker in range(workers.count)
    ]
    terms = ShardTerms(plan, vectorised, Path())
    return ShardedClients(workers, terms, sharding, names, parts, distributed_dp(plan, layout.dimension))
