"""The local computation of all collaborators in one process, as an algorithm asks for it.

A `Clients` answers the sums of a training run and, for the algorithms that no weighted sum can carry, what single
collaborators would have to reveal: their changes and their losses. Only a simulation has one. Decides nothing
about training; `LoopClients` asks one task after the other and adds up the bytes that would have travelled.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution, encode
from fedfair.aggregation.distributed_dp import DistributedDp
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.running_sum import PlainSum, Totals
from fedfair.errors import LocalProtocolError
from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.secagg.fixedpoint import SizeReport, clipped_values, size_histogram
from fedfair.terms.at_sites import NOTHING, Remembered, SiteMemory
from fedfair.terms.local_change import weighted
from fedfair.training.client import TrainingClient


@dataclass(frozen=True, slots=True)
class AskedSteps:
    """The local steps that an algorithm asks for.

    Attributes:
        round: decides the batches.
        members: who is asked, by number; None asks all. Those asked must have training records.
        steps: only the first so many local steps, at least 1; None makes all of them.
        record_weights: for each member an array (its training records,): by how much each record's
            coefficient is multiplied; None multiplies by nothing.
    """

    round: RoundNumber
    members: Sequence[int] | None = None
    steps: int | None = None
    record_weights: Sequence[NDArray[np.floating]] | None = field(default=None, repr=False)

    def of(self, own: range, members: NDArray[np.int64], first: int = 0) -> tuple[list[int], AskedSteps]:
        """Return the places in `members` of those in a range, and what is asked of them, numbered from `first`."""
        places = np.flatnonzero((members >= own.start) & (members < own.stop)).tolist()
        weights = None if self.record_weights is None else [self.record_weights[place] for place in places]
        return places, replace(self, members=(members[places] - first).tolist(), record_weights=weights)


class Clients(Protocol):
    """All collaborators of a simulation, numbered from 0 in the order of the plan.

    Attributes:
        names: who they are.
        counts: int64 array (collaborators,): how many training records each has.
        weights: float64 array (collaborators,): what each weighs in a round (w_k, by the plan's `weights`).
    """

    names: tuple[ParticipantId, ...]
    counts: NDArray[np.int64]
    weights: NDArray[np.float64]

    @property
    def loss_unit(self) -> float:
        """Return how many natural units one loss of the local steps has, by which adversaries divide losses."""

    @property
    def last_losses(self) -> list[SiteLosses]:
        """Return what the last evaluation found at each collaborator."""

    def totals(self, request: SumRequest, model: GlobalModel, clip: float | None = None) -> Totals:
        """Return the sum over all collaborators that the training run asks for.

        Args:
            request: what it asks for.
            model: what is broadcast.
            clip: the largest change of one parameter that counts in full in a training sum, above 0; None where
                every change does.
        """

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features of all collaborators."""

    def apply_references(self, references: References) -> None:
        """Judge the records of all collaborators by these references, as `LocalRecords.apply_references`."""

    def changes(self, model: GlobalModel, asked: AskedSteps) -> NDArray[np.floating]:
        """Return by how much local steps change the model at each member: array (members, d) in its width."""

    def losses(self, model: GlobalModel, splits: Collection[str] = SPLITS) -> list[SiteLosses]:
        """Return the losses of the model at each collaborator, for those of the splits that have records."""


def asked_members(
    names: Sequence[ParticipantId], counts: NDArray[np.int64], members: Sequence[int] | None
) -> NDArray[np.int64]:
    """Return the numbers of those who are asked for local steps, int64 array; None asks all.

    Args:
        names: of all collaborators.
        counts: how many training records each has, int64 array (collaborators,).
        members: who is asked, by number.

    Raises:
        LocalProtocolError: one of them has no training records.
    """
    asked = np.arange(len(names)) if members is None else np.asarray(members, np.int64)
    for member in asked[counts[asked] == 0]:
        raise without_records(names[member])
    return asked


def without_records(name: ParticipantId) -> LocalProtocolError:
    """Return the fault of asking somebody without training records for a step."""
    return LocalProtocolError(f"{name} has no training records to make a step on")


class LoopClients:
    """A cohort that asks one task after the other: any model, any precision.

    Args:
        tasks: one for each collaborator; they may share one model.
        noised: how training sums are noised for whole collaborators; None where they are not.
        memories: what each keeps of earlier rounds; None where the plan needs nothing of the kind.
    """

    def __init__(
        self,
        tasks: Mapping[ParticipantId, TrainingClient],
        noised: DistributedDp | None = None,
        memories: Mapping[ParticipantId, SiteMemory] | None = None,
    ) -> None:
        self._noised, self.memory = noised, memories
        self._tasks, self.names = tuple(tasks.values()), tuple(tasks)
        self.counts = np.array([task.training_records for task in self._tasks])
        self.weights = np.array([task.training_weight for task in self._tasks], np.float64)

    @property
    def loss_unit(self) -> float:
        """Return how many natural units one loss of the local steps has."""
        return self._tasks[0].records.loss_unit

    @property
    def last_losses(self) -> list[SiteLosses]:
        """Return what the last evaluation found at each collaborator."""
        return [task.records.last_losses for task in self._tasks]

    def totals(self, request: SumRequest, model: GlobalModel, clip: float | None = None) -> Totals:
        """Return the sum over all collaborators, of bytes as they would have travelled; see `Clients.totals`."""
        if self._noised is not None and request.purpose.statistic.is_round:
            numbers = self.noised_numbers(request, model)
            return self._noised.opened_totals(numbers, len(self._tasks), model.vector.dtype)
        if clip is not None and request.purpose.statistic.is_round:
            return self._clipped_totals(request, model, clip)
        total = PlainSum(request.spec)
        for task in self._tasks:
            addend = task.contribution(request, model, self._remembered(task, request, model))
            self._note(task, request, model, addend)
            total.add(encode(addend, request.spec))
        return total.totals()

    def noised_numbers(self, request: SumRequest, model: GlobalModel) -> NDArray[np.int64]:
        """Return the sum of all noised whole numbers, int64 (length,), not yet taken modulo the ring."""
        numbers = (task.noised_numbers(model, request.round, request.attempt) for task in self._tasks)
        return functools.reduce(operator.add, numbers)

    def _remembered(self, task: TrainingClient, request: SumRequest, model: GlobalModel) -> Remembered:
        """Return what a member's steps need of earlier rounds."""
        if self.memory is None or not request.terms:
            return NOTHING
        return self.memory[task.participant].correction(request, model, task.training_weight)

    def _note(self, task: TrainingClient, request: SumRequest, model: GlobalModel, addend: Contribution) -> None:
        if self.memory is not None and request.purpose.statistic.is_round:
            self.memory[task.participant].adding(request, model, task.added(addend))

    def _clipped_totals(self, request: SumRequest, model: GlobalModel, clip: float) -> Totals:
        """Return a training sum of what the encoding of a masked one would let through, and the sizes it tells."""
        total, reports = PlainSum(request.spec), list[SizeReport]()
        for task in self._tasks:
            remembered = self._remembered(task, request, model)
            change = task.rounds.bounded_change(model, request.round, request.attempt, remembered)
            if change is None:
                addend = Contribution(np.zeros(request.spec.header_length), np.zeros_like(model.vector))
            else:
                values, report = clipped_values(change.model, clip)
                # What is no number is not clipped to one here: `encode` refuses it, and the simulation ends.
                addend = weighted(change if report.replaced else replace(change, model=values))
                reports.append(report)
            self._note(task, request, model, addend)
            total.add(encode(addend, request.spec))
        sizes = size_histogram(*(report.largest for report in reports))
        clipped = sum(report.clipped for report in reports)
        return replace(total.totals(), clipped=clipped, sizes=tuple(int(count) for count in sizes))

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features of all collaborators."""
        for task in self._tasks:
            task.apply_scaling(scaling)

    def apply_references(self, references: References) -> None:
        """Judge the records of all collaborators by these references."""
        for task in self._tasks:
            task.apply_references(references)

    def changes(self, model: GlobalModel, asked: AskedSteps) -> NDArray[np.floating]:
        """Return what local steps change at each member; see `Clients.changes`."""
        members = range(len(self._tasks)) if asked.members is None else asked.members
        models = np.empty((len(members), len(model.vector)), model.vector.dtype)
        for place, member in enumerate(members):
            weights = None if asked.record_weights is None else asked.record_weights[place]
            descent = self._tasks[member].descent
            change = descent.training_change(model, asked.round, 1, steps=asked.steps, record_weights=weights)
            if change is None:
                raise without_records(self.names[member])
            models[place] = change.model
        return models

    def losses(self, model: GlobalModel, splits: Collection[str] = SPLITS) -> list[SiteLosses]:
        """Return the losses of the model at each collaborator, for those of the splits that have records."""
        return [task.records.losses(model, splits) for task in self._tasks]
