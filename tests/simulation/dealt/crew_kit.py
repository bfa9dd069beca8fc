"""A crew in this process, whose workers are lost when a test says so, and what it computes."""

import pickle
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.simulation.dealt.clients import Call, DealtClients, Lost
from fedfair.simulation.dealt.dealing import deal
from fedfair.simulation.dealt.on_ray import part_of
from fedfair.simulation.dealt.share import Share, ShareTerms
from fedfair.tables.dataset import Splits
from fedfair.training.assembly import flat_model

REASON = "the test has lost it"


class LocalCrew:
    """Workers whose questions and answers travel as bytes, and that are lost at the questions with given numbers.

    Attributes:
        asked: how many questions there were.
        lost: the workers that were lost, in order.
        methods: what was asked, with the worker.
    """

    def __init__(self, workers: int, losing: Collection[int] = (), *, after: bool = False) -> None:
        self._shares = [Share() for _ in range(workers)]
        self._losing, self._after = set(losing), after
        self.asked = 0
        self.lost: list[int] = []
        self.methods: list[tuple[int, str]] = []

    @property
    def workers(self) -> int:
        return len(self._shares)

    def ask(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        return {worker: self._answer(worker, call) for worker, call in calls.items()}

    def keep(self, worker: int) -> Any:  # noqa: ANN401 - an answer
        return self._answer(worker, Call("memory"))

    def replace(self, worker: int) -> None:
        self._shares[worker] = Share()

    def _answer(self, worker: int, call: Call) -> Any:  # noqa: ANN401 - as above
        self.asked += 1
        self.methods.append((worker, call.method))
        lost = self.asked in self._losing
        if lost:
            self.lost.append(worker)
            if not self._after:
                return Lost(REASON)
        given = pickle.loads(pickle.dumps(call.given))  # noqa: S301 - our own
        answer = self._shares[worker].answer(call.method, *given)
        return Lost(REASON) if lost else pickle.loads(pickle.dumps(answer))  # noqa: S301 - our own


def dealt(plan: Plan, sites: Mapping[ParticipantId, Splits], crew: LocalCrew, *, vectorised: bool) -> DealtClients:
    """Return everybody, dealt to a crew of one worker for each share."""
    names = list(sites)
    dealing = deal(len(names), crew.workers, vectorised=vectorised)
    assert len(dealing.shares) == crew.workers
    schema = next(iter(sites.values())).train.schema
    layout = flat_model(plan, schema, torch.device("cpu"), Path()).layout
    parts = [
        part_of(sites, [names[member] for member in dealing.members(worker)]) for worker in range(crew.workers)
    ]
    terms = ShareTerms(plan, vectorised, Path())
    return DealtClients(crew, terms, dealing, names, parts, distributed_dp(plan, layout.dimension))
