"""A cohort that is sharded over workers: it asks them, adds what they return, and survives their loss.

Answers what `LoopClients` answers, up to the order of additions. That order is the tree of `sharding.py`: neither
the number of workers nor the loss of one changes a bit. Rounding: with u = 2^-24 (float32) or 2^-53, either
order of n addends differs from the exact sum by at most (n - 1) u sum |addend|, to first order in u.

A lost worker is replaced. Where plans need nothing of earlier rounds, records and scaling are all that the new one
needs. Where they do (control variates, own thresholds, releases under noise), what every worker remembers is
copied to outlive it after each `SUMS_BETWEEN_COPIES` sums. The new worker starts from the copy and is asked again
for the sums since then, whose answers are not added a second time. All draws follow from the plan's seed, so that
it computes the very numbers that were lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.distributed_dp import DistributedDp
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.target_scaling import loss_unit
from fedfair.errors import AbortedError, TrainingError
from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import ParticipantId
from fedfair.plan.derived import is_noised, sites_remember
from fedfair.privacy.releases import ReleaseLog
from fedfair.simulation.clients import AskedSteps, asked_members
from fedfair.simulation.sharded.shard import (
    Counted,
    PackedLosses,
    PartialSums,
    ShardTerms,
    WorkerFault,
    loss_order,
)
from fedfair.simulation.sharded.sharding import Node, Sharding, added, node_sum


@dataclass(frozen=True, slots=True)
class Call:
    """One question to a worker: a method of `Shard` and what it is given."""

    method: str
    given: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Lost:
    """The loss of a worker before it answered; what it knew is gone.

    Attributes:
        reason: in words, on one line.
    """

    reason: str


class Workers(Protocol):
    """Workers, numbered from 0; each has a `Shard` and answers by it."""

    @property
    def count(self) -> int:
        """Return how many there are."""

    def ask(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Return the answer of each worker that is asked, or `Lost` where it was lost."""

    def keep(self, worker: int) -> Any:  # noqa: ANN401 - a value, or a place where it lies
        """Return what `Shard.restore` takes, of a worker as it is now, which outlives that worker; or `Lost`."""

    def replace(self, worker: int) -> None:
        """Put a new worker with an empty shard in the place of one that was lost."""


SUMS_BETWEEN_COPIES = 10
MAX_LOSSES = 3
"""So often the same question may cost its worker; then it is the question."""

OnLoss = Callable[[int, str], None]
"""Called with the number of a worker that was lost, and the reason."""


def ignore_loss(worker: int, reason: str) -> None:
    """Do nothing where a worker is lost."""


class ShardedClients:
    """A cohort of many workers; see `Clients` for what is asked.

    Args:
        workers: the workers, each with an empty shard.
        terms: the terms of all shards.
        sharding: who computes whom.
        names: of all collaborators, in the order of the plan.
        parts: for each worker, the records that its `Shard.begin` takes, or where the workers keep them.
        noised: how training sums are noised for whole collaborators; None where they are not.
        on_loss: who hears of lost workers.
    """

    def __init__(
        self,
        workers: Workers,
        terms: ShardTerms,
        sharding: Sharding,
        names: Sequence[ParticipantId],
        parts: Sequence[Any],
        noised: DistributedDp | None,
        on_loss: OnLoss = ignore_loss,
    ) -> None:
        self._workers, self._sharding, self._noised, self._on_loss = workers, sharding, noised, on_loss
        self.names = tuple(names)
        self._begin = {worker: Call("begin", (terms, sharding, worker, part)) for worker, part in enumerate(parts)}
        self._scaling: FeatureScaling | None = None
        self._references: References | None = None
        self._loss = terms.plan.task.loss
        self._remembers = sites_remember(terms.plan) or is_noised(terms.plan)
        self._since: list[Call] = []
        self._copies: dict[int, Any] = {}
        self.last_losses: list[SiteLosses] = [{} for _ in self.names]
        counted: dict[int, Counted] = self._answers(self._begin, known=False)
        self.counts = np.concatenate([counted[worker][0] for worker in sorted(counted)])
        self.weights = np.concatenate([counted[worker][1] for worker in sorted(counted)])

    @property
    def loss_unit(self) -> float:
        """Return how many natural units one loss of the local steps has."""
        return loss_unit(self._loss, self._scaling)

    def totals(self, request: SumRequest, model: GlobalModel, clip: float | None = None) -> Totals:
        """Return the sum over all collaborators; see `Clients.totals`.

        Raises:
            TrainingError: a worker's part cannot be computed, or the sum is beyond the plan's precision.
        """
        answers: dict[int, PartialSums] = self._ask_all(Call("sum", (request, model, clip)))
        parts: dict[Node, Totals] = {}
        for answer in answers.values():
            parts |= answer.nodes
        if all(answer.losses is not None for answer in answers.values()):
            self.last_losses = self._unpacked({worker: answer.losses for worker, answer in answers.items()})
        total = node_sum((0, self._sharding.blocks), parts.get, added)
        if self._noised is not None and request.purpose.statistic.is_round:
            # Whole numbers, which may be added in any order.
            return self._noised.opened_totals(total.body.astype(np.int64), total.contributors, model.vector.dtype)
        if not (np.isfinite(total.header).all() and np.isfinite(total.body).all()):
            raise TrainingError(
                f"the {request.purpose.value} sum of round {request.round} holds values that are NaN or infinite",
                "lower learning_rate, or look for missing or extreme values in the data",
            )
        return total

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale all features."""
        self._answers(dict.fromkeys(range(self._workers.count), Call("scale", (scaling,))))
        self._scaling = scaling

    def apply_references(self, references: References) -> None:
        """Judge all records by these references."""
        if references is not self._references:
            self._answers(dict.fromkeys(range(self._workers.count), Call("apply_references", (references,))))
            self._references = references

    def changes(self, model: GlobalModel, asked: AskedSteps) -> NDArray[np.floating]:
        """Return what local steps change at each member; only workers that have one compute."""
        members = asked_members(self.names, self.counts, asked.members)
        calls, places = dict[int, Call](), dict[int, list[int]]()
        for worker in range(self._workers.count):
            here, own = asked.of(self._sharding.members(worker), members)
            if here:
                calls[worker], places[worker] = Call("changes", (model, own)), here
        models = np.empty((len(members), len(model.vector)), model.vector.dtype)
        for worker, changed in self._answers(calls).items():
            models[places[worker]] = changed
        return models

    def losses(self, model: GlobalModel, splits: Collection[str] = SPLITS) -> list[SiteLosses]:
        """Return the losses of the model at each collaborator, for those of the splits that have records."""
        call = Call("losses", (model, tuple(splits)))
        return self._unpacked(self._answers(dict.fromkeys(range(self._workers.count), call)))

    def worst_log(self) -> dict[ParticipantId, ReleaseLog]:
        """Return whose releases promise least, and what they are; all others promise as much or more."""
        call = Call("worst_log")
        found = self._answers(dict.fromkeys(range(self._workers.count), call))
        name, log = max((found[worker] for worker in sorted(found)), key=lambda item: loss_order(item[1]))
        return {name: log}

    def _unpacked(self, found: Mapping[int, PackedLosses | None]) -> list[SiteLosses]:
        losses: list[SiteLosses] = []
        for worker in sorted(found):
            packed = found[worker]
            if packed is not None:
                losses += packed.unpacked(len(self._sharding.members(worker)))
        return losses

    def _ask_all(self, call: Call) -> dict[int, Any]:
        """Return every worker's answer to a question that changes what it remembers."""
        answers = self._answers(dict.fromkeys(range(self._workers.count), call))
        if self._remembers:
            self._since.append(call)
            if len(self._since) >= SUMS_BETWEEN_COPIES:
                self._copy()
        return answers

    def _copy(self) -> None:
        """Copy what all workers remember; only when all is copied is the way to it forgotten."""
        copies: dict[int, Any] = {}
        for worker in range(self._workers.count):
            copy, losses = self._workers.keep(worker), Counter[int]()
            while isinstance(copy, Lost):
                self._rebuild(worker, copy, losses)
                copy = self._workers.keep(worker)
            copies[worker] = copy
        self._copies, self._since = copies, []

    def _answers(self, calls: Mapping[int, Call], *, known: bool = True) -> dict[int, Any]:
        """Return the answers; ask a worker's successor where one is lost.

        Args:
            calls: by worker.
            known: whether the workers have begun, so that a successor must receive what they know.

        Raises:
            FedfairError: what a worker raised; or one question has cost too many workers.
        """
        answers: dict[int, Any] = {}
        losses = Counter[int]()
        while len(answers) < len(calls):
            found = self._workers.ask({worker: call for worker, call in calls.items() if worker not in answers})
            for worker, answer in found.items():
                if isinstance(answer, WorkerFault):
                    raise answer.error()
                if not isinstance(answer, Lost):
                    answers[worker] = answer
            for worker, answer in found.items():
                if isinstance(answer, Lost):
                    self._rebuild(worker, answer, losses, known=known)
        return answers

    def _rebuild(self, worker: int, lost: Lost, losses: Counter[int], *, known: bool = True) -> None:
        """Put a worker that knows the same in the place of a lost one.

        Args:
            worker: its number.
            lost: how it was lost.
            losses: how often each worker was lost at this question.
            known: as for `_answers`.

        Raises:
            AbortedError: it was lost too often.
        """
        found: Any = lost
        while isinstance(found, Lost):
            losses[worker] += 1
            self._on_loss(worker, found.reason)
            if losses[worker] >= MAX_LOSSES:
                raise AbortedError(
                    f"worker {worker + 1} was lost {losses[worker]} times in a row: {found.reason}",
                    "a worker that needs more memory than there is ends so; take fewer --workers",
                )
            self._workers.replace(worker)
            found = self._restored(worker) if known else None

    def _restored(self, worker: int) -> Lost | None:
        """Give a new worker what a lost one knew; return how this one was lost, or None.

        Raises:
            FedfairError: what it raised.
        """
        for call in self._recovery(worker):
            answer = self._workers.ask({worker: call})[worker]
            if isinstance(answer, WorkerFault):
                raise answer.error()
            if isinstance(answer, Lost):
                return answer
        return None

    def _recovery(self, worker: int) -> list[Call]:
        """Return what a new worker is asked, so that it knows what the lost one knew."""
        calls = [self._begin[worker]]
        if self._scaling is not None:
            calls.append(Call("scale", (self._scaling,)))
        if self._references is not None:
            calls.append(Call("apply_references", (self._references,)))
        if worker in self._copies:
            calls.append(Call("restore", (self._copies[worker],)))
        return calls + self._since
