"""What a site does for the terms of a plan: one interface for all workers and all rooms.

A term has up to two parts at a site. Its memory keeps what it needs of earlier rounds; its `SiteTerm` sees the
records, and finishes a change. What a memory gives to the steps of a round is `Remembered`, which also goes to the
processes that compute together.

A memory commits nothing. What the site adds in round r is kept under r before it is sent, and the state of the run
says which round counted this site last. So a sum that is lost, repeated or opened without this site leaves what it
has as it is, wherever a process ends in between.

A room's module `site` is found by the name of the row, because the table itself may not import records or torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.header import Header
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Dataset
from fedfair.terms.local_change import LocalChange
from fedfair.terms.table import terms_of


class Remembered:
    """What a site's steps of one round need of its terms; as it stands nothing."""

    def start(self, shared: float) -> float:
        """Return the threshold that the steps begin from, in units of the loss; `shared` is that of the state."""
        return shared

    @property
    def drift(self) -> tuple[NDArray[np.float64], float] | None:
        """Return the addend of every gradient, array (d,) and that of the threshold; None for nothing."""
        return None

    @property
    def kept(self) -> NDArray[np.float64] | None:
        """Return what the site's own part of the model begins from, array (k,); None for as before round 1."""
        return None

    @property
    def further(self) -> Mapping[str, ArrayLike]:
        """Return what is added to the header beside the change, by field."""
        return {}


NOTHING = Remembered()


@dataclass(frozen=True, slots=True, eq=False)
class OwnPart(Remembered):
    """The part of the model that a site keeps, from which its steps and losses begin.

    Attributes:
        kept: float64 array (k,); None before any round has counted the site.
    """

    kept: NDArray[np.float64] | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class FinishedRound:
    """What a term may need to finish a change.

    Attributes:
        model: of the state that asks for the round.
        number: the round.
        remembered: what the steps needed of earlier rounds.
        losses: of the training records under `model`, array (n,); None where the sum tells nothing of them.
        loss_unit: how many of their units one loss of the local steps has.
    """

    model: GlobalModel
    number: RoundNumber
    remembered: Remembered = NOTHING
    losses: NDArray[np.floating] | None = field(default=None, repr=False)
    loss_unit: float = 1.0


class SiteTerm:
    """One term at one site, which sees its training records; as it stands it changes nothing."""

    whole = False
    """Whether a change counts only where all of it is finite."""

    def takes_losses(self, number: RoundNumber) -> bool:
        """Return whether a round's sum tells something of the losses under the broadcast model."""
        del number
        return False

    def record_weights(self, remembered: Remembered) -> NDArray[np.float64] | None:
        """Return by how much each record's coefficient is multiplied: array (n,); None for nothing."""
        del remembered
        return None

    def finished(self, change: LocalChange, about: FinishedRound) -> LocalChange:
        """Return what the sum takes of a change, whose memory it may take; the threshold's is clipped already."""
        del about
        return change


@dataclass(frozen=True, slots=True)
class AddedChange:
    """What a site is about to add in a round, and what it keeps to itself.

    Attributes:
        weight: of this site, 0 without records.
        change: array (d,): the change of the model, not weighted.
        threshold: the same of the threshold.
        kept: array (k,): what the steps left in the site's own part of the model; None where it has none.
    """

    weight: int
    change: NDArray[np.floating] = field(repr=False)
    threshold: float
    kept: NDArray[np.floating] | None = field(default=None, repr=False)

    @classmethod
    def nothing(cls) -> AddedChange:
        """Return that of a site without records."""
        return cls(0, np.zeros(0), 0.0)

    @classmethod
    def in_the_clear(cls, header: Header, addend: Contribution, kept: NDArray[np.floating] | None) -> AddedChange:
        """Return that of a contribution that is weighted already.

        Args:
            header: the layout of the training sum's.
            addend: what is added.
            kept: as in the attributes.
        """
        sums = header.read(addend.header)
        weight = int(sums["weight"])
        share = 1.0 / weight if weight else 0.0
        return cls(weight, addend.body.astype(np.float64) * share, float(sums["threshold"]) * share, kept)


class SiteMemory(Protocol):
    """The memory of one site under one plan: its control variates, its threshold, or its part of the model."""

    def correction(self, request: SumRequest, model: GlobalModel, weight: int) -> Remembered:
        """Return what this round's steps need of it.

        Args:
            request: the sum that the state of the run asks for; a round, where nothing is read in other sums.
            model: of that state.
            weight: of this site, 0 without records.

        Raises:
            StateError: the run counts something of this site that it does not have.
        """

    def adding(self, request: SumRequest, model: GlobalModel, added: AddedChange) -> None:
        """Keep what it becomes if the sum counts what is about to be sent; call it before anything is sent.

        Args:
            request: the round.
            model: of the state that asks for it.
            added: what is really added.

        Raises:
            StateError: as `correction`.
            FedfairError: it cannot be kept.
        """

    def own_part(self, terms: Mapping[str, object]) -> NDArray[np.float64] | None:
        """Return the part of the model that the site keeps, array (k,); None for as before round 1, or for none.

        Args:
            terms: the states of the plan's terms, by slot.

        Raises:
            StateError: as `correction`.
        """
        del terms
        return None


class OwnPartAlone(SiteMemory):
    """The own part that belongs to a saved model, of which no round is trained.

    Args:
        values: float64 array (k,).
    """

    def __init__(self, values: NDArray[np.float64]) -> None:
        self._values = values

    def correction(self, request: SumRequest, model: GlobalModel, weight: int) -> OwnPart:
        """Return the own part; see `SiteMemory.correction`."""
        del request, model, weight
        return OwnPart(self._values)

    def adding(self, request: SumRequest, model: GlobalModel, added: AddedChange) -> None:
        """Keep nothing; see `SiteMemory.adding`."""


def _rooms(plan: Plan) -> Iterator[ModuleType]:
    for term in terms_of(plan):
        if term.at_sites:
            yield importlib.import_module(f"fedfair.terms.{term.name}.site")


class SiteTerms:
    """The terms of a plan at one site, one after the other.

    Args:
        plan: the plan.
        records: the site's training records.
    """

    def __init__(self, plan: Plan, records: Dataset) -> None:
        rooms = [room for room in _rooms(plan) if hasattr(room, "site_term")]
        self._terms: tuple[SiteTerm, ...] = tuple(room.site_term(plan, records) for room in rooms)
        self.whole = any(term.whole for term in self._terms)
        """Whether a change counts only where all of it is finite."""

    def takes_losses(self, number: RoundNumber) -> bool:
        """Return whether a round's sum tells something of the losses under the broadcast model."""
        return any(term.takes_losses(number) for term in self._terms)

    def record_weights(self, remembered: Remembered) -> NDArray[np.float64] | None:
        """Return by how much each record's coefficient is multiplied: array (n,); None for nothing."""
        found = (term.record_weights(remembered) for term in self._terms)
        return next((weights for weights in found if weights is not None), None)

    def finished(self, change: LocalChange, about: FinishedRound) -> LocalChange:
        """Return what the sum takes of a change, whose memory it may take; the threshold's is clipped already."""
        for term in self._terms:
            change = term.finished(change, about)
        return change


def site_memory(
    plan: Plan, layout: Layout, participant: ParticipantId, opened: Callable[[int | None], Any]
) -> SiteMemory | None:
    """Return what a site needs of earlier rounds under a plan; None where it needs nothing.

    Args:
        plan: the plan.
        layout: of its model.
        participant: whose memory it is.
        opened: from the length of the vectors that are kept to where they are kept (`variates.site`).
    """
    found: list[SiteMemory] = [
        room.site_memory(plan, layout, participant, opened)
        for room in _rooms(plan)
        if hasattr(room, "site_memory")
    ]
    return found[0] if found else None
