"""One round under way at the aggregator, what stays of it, and how rounds are begun and ended.

`round_phases` says what is asked and what follows; `recovery` checks what arrives. Decides with how many shares,
and for how many contributors at least, a sum is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError
from fedfair.secagg.disputes import Blame, Disputes
from fedfair.secagg.effects import RoundAborted
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.params import Mode, SessionTerms, least_survivors, threshold
from fedfair.secagg.recovery import Announcement, KeepBody, RoundState
from fedfair.secagg.round_messages import RoundStart
from fedfair.secagg.round_record import RoundRecord
from fedfair.secagg.server_state import AgreedSession, Move, Resting, ServerState
from fedfair.secagg.shape import SumShape
from fedfair.secagg.signing import Roster
from fedfair.secagg.transcript import RoundSubject


@dataclass(slots=True)
class RoundOutcome:
    """The part of a round that stays when it is over.

    Attributes:
        record: what opening it again takes; None where there is no round.
        opened: the sum, until it is taken; None where there is none.
        announcement: what the cohort is to receive; None where there is none.
    """

    record: RoundRecord | None = None
    opened: OpenedSum | None = None
    announcement: Announcement | None = None

    def take(self) -> OpenedSum:
        """Return the sum, once.

        Raises:
            LocalProtocolError: there is none.
        """
        if self.opened is None:
            raise LocalProtocolError("no sum was opened")
        opened, self.opened = self.opened, None
        return opened


NO_OUTCOME: Final = RoundOutcome()
"""In place of a round, where there is none in this session; nothing is written to it."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The way in which a sum is opened.

    Attributes:
        body_dtype: float32 or float64: width of an opened body.
        threads: how many threads may take masks away.
        keep: where its body is kept for those who are to receive it; None for memory.
    """

    body_dtype: np.dtype[np.floating]
    threads: int
    keep: KeepBody | None


@dataclass(frozen=True, slots=True)
class OpenRound:
    """One round under way, in the hands of one phase after the other.

    Attributes:
        arrived: what arrived.
        outcome: what stays of it.
        is_reopened: whether it was interrupted before.
        least: for how many contributors its sum is opened at least.
        mode: what the aggregator is trusted with.
        opening: how its sum is opened.
        roster: for names.
        disputes: who contradicts whom.
        blame: says so.
    """

    arrived: RoundState
    outcome: RoundOutcome
    is_reopened: bool
    least: int
    mode: Mode
    opening: Opening
    roster: Roster
    disputes: Disputes
    blame: Blame

    @property
    def record(self) -> RoundRecord:
        """Return what opening the round again takes."""
        if self.outcome.record is None:
            raise LocalProtocolError("no round is under way")
        return self.outcome.record

    def note(self, record: RoundRecord) -> None:
        """Keep how far the round has come."""
        self.outcome.record = record

    @property
    def settled(self) -> tuple[int, ...]:
        """Return the survivors for whom an earlier attempt at this very round may have been answered, if any."""
        return self.record.survivors if self.is_reopened else ()

    def aborted(
        self,
        reason: str,
        missing: tuple[int, ...] = (),
        *,
        reopens: bool = False,
        survivors: tuple[int, ...] | None = None,
    ) -> Move:
        """Return the end of a round that is lost.

        Args:
            reason: in words.
            missing: whom the next attempt should go without.
            reopens: whether the very same round can be opened later.
            survivors: whose sum some may have helped to open; None for what an earlier attempt asked.
        """
        known = self.settled if survivors is None else survivors
        lost = RoundAborted(self.record.start.round, reason, bool(known), missing, known, reopens)
        return Move(Resting(ServerState.READY), after=(lost,))


class Sums:
    """The rounds of one run, one after the other.

    Memory of a round is that of the next one of the same length.

    Args:
        roster: the pinned keys of all members.
        terms: of every session.
        shapes: the shape of the sum of every purpose.
        opening: how sums are opened.
        quorum: fewest contributors of a sum, where the consortium wants more than the protocol.

    Attributes:
        disputes: who contradicts whom.
        blame: says so.
    """

    def __init__(
        self, roster: Roster, terms: SessionTerms, shapes: Mapping[str, SumShape], opening: Opening, quorum: int
    ) -> None:
        self._roster = roster
        self._terms = terms
        self._shapes = shapes
        self._opening = opening
        self._quorum = quorum
        self._spares: dict[int, NDArray[np.uint32]] = {}  # by the length of the body
        self.disputes = Disputes(len(roster))
        self.blame = Blame(roster, self.disputes)

    def record(
        self,
        session: AgreedSession,
        number: int,
        sum_of: tuple[str, RoundSubject, tuple[float, ...]],
        cohort: tuple[int, ...],
        *,
        unanimous: bool,
    ) -> RoundRecord:
        """Return the record of a new round.

        Args:
            session: whose members are asked.
            number: of the round in its session.
            sum_of: why something is summed, what it is about, and C of each group of the body.
            cohort: whom to ask, increasing.
            unanimous: whether the sum is opened for the whole cohort or not at all.

        Raises:
            PlanError: the cohort is too small for the colluders of the terms.
        """
        purpose, subject, clips = sum_of
        needed = threshold(self._terms.mode, len(cohort), self._terms.colluders)
        needed = len(cohort) if unanimous else needed
        start = RoundStart(session.session_id, number, purpose, cohort, needed, subject, clips)
        return RoundRecord(session.members, session.graph, start)

    def vector_bytes(self, purpose: str) -> int:
        """Return the length of a masked vector of a sum."""
        return self._shapes[purpose].vector_bytes(self._terms.ring_bits)

    def begin(self, record: RoundRecord, before: OpenRound | None, *, is_reopened: bool) -> OpenRound:
        """Return a round in which nothing has arrived.

        Args:
            record: of the round.
            before: the round that was under way, and ends here; None for none.
            is_reopened: whether it was interrupted before.

        Raises:
            LocalProtocolError: its sum is none of this plan.
        """
        start, terms = record.start, self._terms
        if start.purpose not in self._shapes:
            raise LocalProtocolError(f"the record of a {start.purpose} sum, which this plan does not have")
        if before is not None:
            self.end(before)
        shape = self._shapes[start.purpose]
        spare = self._spares.pop(shape.body_length, None)
        arrived = RoundState(self._roster, terms, start, shape, record.graph, spare)
        protocol = least_survivors(terms.mode, len(start.cohort), terms.colluders)
        least = max(protocol, self._quorum, start.threshold)
        knowledge = (self._opening, self._roster, self.disputes, self.blame)
        return OpenRound(arrived, RoundOutcome(record), is_reopened, least, terms.mode, *knowledge)

    def end(self, summing: OpenRound) -> None:
        """Keep the memory of a round that is over."""
        if (spare := summing.arrived.take_spare()) is not None:
            self._spares[spare.size] = spare
