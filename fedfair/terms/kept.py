"""The things that sites keep of a round, and which of them the state of a run counts: one form for all terms.

A site keeps a number or a vector for the round in which it was made. The state says which round counted each site
last, so that a sum that is lost, repeated or opened without a site leaves what it has as it is. No torch.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fedfair.aggregation.requests import SumRequest, vector_sha256
from fedfair.errors import LocalProtocolError, RemoteProtocolError, StateError
from fedfair.ids import RoundNumber
from fedfair.plan.schema import Plan
from fedfair.terms.slot import Count, FirstState, Slot, Vectors, first_of, fitting
from fedfair.terms.term import Moved, OpenedRound, TermRule

NEVER = RoundNumber(0)
"""The round of whoever no sum has counted yet; its variate is zero."""


NEW_RUN = "have the aggregator begin a new run with --fresh, in which every variate begins at zero"


@dataclass(frozen=True, slots=True, eq=False)
class Variate:
    """A mean gradient, of one site or of all; its array never changes.

    Attributes:
        vector: float64 array (d,); 0 for entries that are never trained.
        threshold: the same of the threshold.
    """

    vector: NDArray[np.float64]
    threshold: float


@dataclass(frozen=True, slots=True, eq=False)
class CountedVariates:
    """The control variates that the state of a run counts.

    Attributes:
        total: V, the weighted sum of the variates of all sites ever counted.
        weight: the sum of their weights.
        rounds: for each collaborator of the plan, in its order, the last round that counted it; 0 for none.
    """

    total: Variate
    weight: float
    rounds: tuple[int, ...]

    @property
    def mean(self) -> Variate:
        """Return v; zeros before anybody is counted."""
        weight = self.weight or 1.0
        return Variate(self.total.vector / weight, self.total.threshold / weight)


@dataclass(frozen=True, slots=True, eq=False)
class KeptVariate:
    """One variate of a site.

    Attributes:
        variate: v_k.
        weight: w_k, with which it is counted; 0 where the site had no records and nothing is counted.
    """

    variate: Variate
    weight: int


class VariateMemory(Protocol):
    """The memory of one site's variates in one run."""

    def found(self, number: RoundNumber) -> KeptVariate | None:
        """Return what was kept for a round; None where nothing is."""

    def keep(self, number: RoundNumber, kept: KeptVariate, counted: RoundNumber) -> None:
        """Keep a variate for a round; it lasts when this returns.

        Args:
            number: the round.
            kept: the variate that follows from what the site is about to add.
            counted: the round whose variate the run counts now; it stays, and so does the one before.
        """


class VariatesInMemory:
    """The memory of a simulated site: it is never put back by more than one round."""

    def __init__(self) -> None:
        self._kept: dict[RoundNumber, KeptVariate] = {}

    def found(self, number: RoundNumber) -> KeptVariate | None:
        """Return what was kept for a round; None where nothing is."""
        return self._kept.get(number)

    def keep(self, number: RoundNumber, kept: KeptVariate, counted: RoundNumber) -> None:
        """Keep a variate for a round."""
        staying = set(staying_rounds(self._kept, number, counted))
        self._kept = {past: held for past, held in self._kept.items() if past in staying} | {number: kept}


def staying_rounds(
    known: Iterable[RoundNumber], number: RoundNumber, counted: RoundNumber
) -> Iterator[RoundNumber]:
    """Yield the rounds whose variates are still needed beside that of a new one: the counted, and one before it.

    An aggregator whose journal lacks the last sum puts a run back by one round.

    Args:
        known: the rounds of everything that is kept.
        number: the new one.
        counted: the last round that counted this site.
    """
    rounds = set(known)
    yield from {counted} & rounds
    yield from sorted(past for past in rounds if past < counted and past != number)[-1:]


def rounds_after(
    rounds: Sequence[int], names: Sequence[str], number: RoundNumber, members: Collection[str]
) -> tuple[int, ...]:
    """Return the last round that counted each collaborator, after one more.

    Args:
        rounds: the same before it.
        names: the collaborators of the plan.
        number: the round.
        members: whose contributions are in its sum.

    Raises:
        RemoteProtocolError: there is none, or one is no collaborator of the plan.
    """
    counted = set(members)
    unknown = sorted(counted - set(names))
    if unknown or not members:
        raise RemoteProtocolError(
            f"the sum of round {number} names {unknown or 'nobody'} among its members, but what sites keep is "
            "counted for the collaborators of the plan"
        )
    return tuple(int(number) if name in counted else earlier for name, earlier in zip(names, rounds, strict=True))


def round_of(counted: CountedVariates, names: Sequence[str], who: str) -> RoundNumber:
    """Return the last round that counted a collaborator; 0 for none."""
    return RoundNumber(counted.rounds[names.index(who)])


def rounds_may_be(rounds: Sequence[int], names: Sequence[str], rounds_done: int) -> bool:
    """Return whether these may be the last rounds that counted the collaborators of a plan, after so many."""
    return len(rounds) == len(names) and all(NEVER <= number <= rounds_done for number in rounds)


def lost(what: str) -> StateError:
    """Return the fault of a site that no longer has what the run counts of it: the words say what that is."""
    return StateError(
        f"{what} is lost: the run counts it, and no other number may take its place",
        f"copy this site's state folder back from its newest backup; or {NEW_RUN}",
    )


def counted_variates(request: SumRequest) -> CountedVariates:
    """Return what the state that asks for a sum counts of what sites keep. Raises LocalProtocolError."""
    return counted_in(request.terms)


def counted_in(terms: Mapping[str, object]) -> CountedVariates:
    """Return the same of the states of terms, by slot. Raises LocalProtocolError where they count nothing."""
    counted = terms.get(SLOT_NAME)
    if not isinstance(counted, CountedVariates):
        raise LocalProtocolError("a state or a request counts nothing that a site keeps")
    return counted


class SitesCounted(TermRule[CountedVariates]):
    """The counting of a plan whose sites keep something without a sum of it: the last round of each.

    Args:
        plan: the plan.
    """

    is_read_by_sites = True

    def __init__(self, plan: Plan) -> None:
        self._names = plan.federation.collaborators

    @property
    def first(self) -> CountedVariates:
        """Return what is counted before round 1: no site."""
        return CountedVariates(Variate(np.zeros(0), 0.0), 0.0, (NEVER,) * len(self._names))

    def may_be(self, counted: CountedVariates, rounds_done: int) -> bool:
        """Return whether a run may have reached this: rounds that are over, and nothing else."""
        total = counted.total
        empty = (total.vector.shape, total.threshold, counted.weight) == ((0,), 0.0, 0.0)
        return empty and rounds_may_be(counted.rounds, self._names, rounds_done)

    def apply(
        self, held: CountedVariates | None, opened: OpenedRound, model: Moved
    ) -> tuple[CountedVariates, Moved]:
        """Return what is counted after a round, of whose sum only the members matter; see `TermRule.apply`.

        Raises:
            RemoteProtocolError: a member is no collaborator of the plan, or there is none.
        """
        counted = held or self.first
        rounds = rounds_after(counted.rounds, self._names, opened.number, opened.members)
        return CountedVariates(counted.total, counted.weight, rounds), model


@dataclass(frozen=True, slots=True)
class VariateFields:
    """The counted control variates without V's vector; attributes as in `CountedVariates`."""

    threshold: float
    weight: float
    rounds: tuple[Count, ...]


def _digested(counted: CountedVariates) -> bytes:
    numbers = struct.pack("<dd", counted.total.threshold, counted.weight)
    rounds = struct.pack(f"<{len(counted.rounds)}Q", *counted.rounds)
    return vector_sha256(counted.total.vector) + numbers + rounds


def _made(fields: VariateFields, vectors: Vectors, initial: FirstState) -> CountedVariates:
    like = first_of(initial, SLOT_NAME, CountedVariates).total.vector
    vector = np.array(fitting(vectors[""], like), np.float64)
    return CountedVariates(Variate(vector, fields.threshold), fields.weight, fields.rounds)


SLOT_NAME = "variates"
SLOT = Slot(
    digested=_digested,
    fields=lambda counted: VariateFields(counted.total.threshold, counted.weight, counted.rounds),
    form=TypeAdapter(VariateFields),
    made=_made,
    vectors=lambda counted: {"": counted.total.vector},
    planned=True,
)
"""The slot of whatever sites keep and the state counts; no plan has two of the terms that fill it."""
