"""The aggregator's order of events: messages, departures and deadlines in, effects out.

IDLE -> ADVERTS -> (REVEALS ->) CONFIRMS -> READY -> UPLOADS -> (PAIR_MASKS -> VOTES ->) ANSWERS -> READY: each is
a phase of `set_up_phases` or `round_phases`, which says what to ask, what follows, and when. This module knows
whom it has asked and who is gone, and leads from phase to phase. A round that was interrupted begins again at
UPLOADS, with the bytes of its record. Its driver says who sent a message (from the certificate, never from the
message), who is gone and when time is up. A refused message changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from fedfair.errors import LocalProtocolError
from fedfair.secagg.arriving import ArrivingVector
from fedfair.secagg.effects import ServerEffect
from fedfair.secagg.masking import MaskedVector
from fedfair.secagg.messages import VERSION, Kind, kind_of
from fedfair.secagg.open_round import NO_OUTCOME, Opening, OpenRound, Sums
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.params import SessionPlan
from fedfair.secagg.phase_sequence import PhaseSequence
from fedfair.secagg.recovery import Announcement, KeepBody
from fedfair.secagg.round_phases import Answering, RoundPhase, Uploading
from fedfair.secagg.round_record import RoundRecord
from fedfair.secagg.server_setup import SetUp
from fedfair.secagg.server_state import (
    NO_SESSION,
    NOTHING_CLOSED,
    AgreedSession,
    AskingPhase,
    Move,
    Resting,
    ServerState,
)
from fedfair.secagg.set_up_phases import Advertising, Confirming, Revealing
from fedfair.secagg.shamir import Randomness
from fedfair.secagg.shape import SumShape, check_shapes
from fedfair.secagg.signing import Roster
from fedfair.secagg.transcript import RoundSubject


class Server:
    """The aggregator's side of the protocol.

    Args:
        roster: the pinned keys of all members.
        plan: what every session is for, and its terms.
        shapes: the shape of the sum of every purpose.
        randomness: source of nonces: `secrets.token_bytes`.
        body_dtype: float32 or float64: width of an opened body.
        threads: how many threads may take masks away.
        quorum: fewest contributors of a sum that is opened, where the consortium wants more than the protocol.
        keep: where the body of an opened sum is kept for those who are to receive it; None for memory.
    """

    def __init__(
        self,
        roster: Roster,
        plan: SessionPlan,
        shapes: Mapping[str, SumShape],
        randomness: Randomness,
        body_dtype: np.dtype[np.floating],
        threads: int = 1,
        quorum: int = 0,
        keep: KeepBody | None = None,
    ) -> None:
        check_shapes(shapes, checked=plan.terms.check_sums)
        self._terms = plan.terms
        self._sums = Sums(roster, plan.terms, shapes, Opening(body_dtype, threads, keep), quorum)
        self._phases = PhaseSequence(roster, self._rest)
        self._set_up = SetUp(roster, plan, shapes, randomness, quorum)
        self._session = NO_SESSION  # that is ready, or of a round that is opened again
        self.round = 0
        self._outcome = NO_OUTCOME  # of the round under way, or of the last one
        self._closed = NOTHING_CLOSED  # the last round, where it came to its answers

    @property
    def state(self) -> ServerState:
        """Return what it waits for."""
        return self._phase.state

    @property
    def members(self) -> tuple[int, ...]:
        """Return the members of the session; none before the first."""
        return self._session.members

    @property
    def session_id(self) -> bytes:
        """Return the 32 bytes that name the session, or the one that is being set up; empty before the first."""
        is_named = isinstance(self._phase, Revealing | Confirming)
        return (self._set_up if is_named else self._session).session_id

    @property
    def round_record(self) -> RoundRecord | None:
        """Return what `reopen` needs for the round under way, or for the last one of this session.

        The driver keeps it before it sends anything that was asked meanwhile.
        """
        return self._outcome.record

    @property
    def announcement(self) -> Announcement | None:
        """Return the announcement of the cohort's opened sum; None once the next session or round begins."""
        return self._outcome.announcement

    @property
    def awaited(self) -> tuple[int, ...]:
        """Return who was asked, has not answered, and is not gone."""
        return tuple(sorted(self._phases.missing))

    @property
    def suffices(self) -> bool:
        """Return whether the present phase can close without those who are awaited.

        Where a sum is opened for the whole cohort or not at all, it is lost then, but the others can repeat it.
        """
        return not isinstance(self._phase, Resting) and self._phase.suffices()

    @property
    def is_repeated(self) -> bool:
        """Return whether members are asked for an upload that some of them have sent before."""
        return isinstance(self._phase, Uploading) and self._phase.is_repeated

    def without_neighbours(self, cohort: Iterable[int]) -> frozenset[int]:
        """Return who of a cohort can share no mask in it, because too few of its neighbours are in it."""
        return frozenset(self._session.graph.lonely(frozenset(cohort)))

    def open_session(self, members: Iterable[int]) -> list[ServerEffect]:
        """Propose a session to `members`; whatever was under way is over."""
        if self._summing is not None:
            self._sums.end(self._summing)
        self._outcome = NO_OUTCOME
        self._phases.gone.clear()
        self.round = 0
        return self._phases.enter(Move(Advertising(self._set_up, members)))

    def start_round(
        self,
        purpose: str,
        subject: RoundSubject,
        clips: tuple[float, ...],
        cohort: Iterable[int],
        *,
        unanimous: bool = False,
    ) -> list[ServerEffect]:
        """Ask `cohort` to contribute to a new sum; every attempt is a new round.

        Args:
            purpose: why something is summed.
            subject: what it is about.
            clips: C of each group of the body.
            cohort: whom to ask, members of the session.
            unanimous: whether the sum is opened for the whole cohort or not at all. Then a member that has not
                answered may send the same update again, because no sum with it can be open.

        Raises:
            LocalProtocolError: no session is ready, or the cohort is not part of it.
            PlanError: the cohort is too small for the colluders of the terms.
        """
        chosen = tuple(sorted(cohort))
        if self.state is not ServerState.READY or not set(chosen) <= set(self.members):
            raise LocalProtocolError(f"no round can start with {chosen} while waiting for {self.state.value}")
        about = (purpose, subject, clips)
        record = self._sums.record(self._session, self.round + 1, about, chosen, unanimous=unanimous)
        self.round += 1
        return self._sum(record, is_reopened=False)

    def reopen(self, record: RoundRecord) -> list[ServerEffect]:
        """Ask for the very same round again, byte for byte; whatever was under way is over.

        Sites that have uploaded, voted or answered send what they sent then. Where the survivors were known, the
        sum is opened for them or not at all.

        Args:
            record: of a round of this plan, by this process or an earlier one.

        Raises:
            LocalProtocolError: its sum is none of this plan.
        """
        effects = self._sum(record, is_reopened=True)
        self._session = AgreedSession(record.start.session_id, record.members, record.graph)
        self.round = record.start.round
        return effects

    def arriving(self, sender: int, raw: bytes, length: int) -> ArrivingVector | None:
        """Return what adds the vector of an upload to the running sum while it arrives.

        Nothing is said by that about the upload: it counts once `receive` has taken it.

        Args:
            sender: roster index behind the peer's certificate.
            raw: the message of the upload.
            length: of its vector, in bytes.

        Returns:
            None where no upload of the member is due, its vector would have another length, or another one is
            arriving. Then `receive` takes the whole vector, or refuses it.
        """
        phase, is_due = self._phase, sender in self._phases.missing and raw[:2] == bytes((VERSION, Kind.UPLOAD))
        if not isinstance(phase, Uploading) or not is_due:
            return None
        due = self._sums.vector_bytes(phase.summing.record.start.purpose)
        return phase.arriving() if length == due else None

    def receive(self, sender: int, raw: bytes, vector: MaskedVector = b"") -> list[ServerEffect]:
        """Take one message of a member; an exact repetition, or one answer too many, is passed over.

        Args:
            sender: roster index behind the peer's certificate.
            raw: the message.
            vector: beside an upload; of one that was added while it arrived, what `arriving` gave.

        Raises:
            SecaggError: the message was refused; nothing changed.
        """
        kind, seen = kind_of(raw), hashlib.sha256(raw).digest()
        if self._phases.received.get(sender) == seen:
            return []
        is_slow = kind is Kind.UNMASK_SHARES and self.state is ServerState.READY
        if is_slow and sender in self._closed.owing:
            # It was asked to answer, but others were quicker.
            self._closed.owing.discard(sender)
            return []
        return self._phases.take(kind, sender, raw, seen, vector)

    def accuse(self, holder: int, owner: int) -> list[ServerEffect]:
        """Note that a member answers nothing, because what a survivor sealed for it does not open; it is gone.

        Either of the two lies, so they contradict each other. One word of each member counts in a sum.

        Raises:
            SecaggError: OUT_OF_ORDER, LATE or DUPLICATE: no answer of `holder` is due; MEMBERSHIP: it is
                nobody, or `owner` is no other survivor. Nothing changed.
        """
        return self._phases.accuse(holder, owner)

    def accuse_late(self, holder: int, owner: int) -> list[ServerEffect]:
        """Note the same about the round before: its sum was opened, or lost, before the member had refused.

        Raises:
            SecaggError: LATE: no answer of `holder` was outstanding in that round; MEMBERSHIP: `owner` is no other
                survivor of it. Nothing changed.
        """
        self._closed.accuse(holder, owner)
        self._sums.disputes.add([(holder, owner)])
        return self._sums.blame.unopened(holder, owner, self._closed.unopened)

    def gone(self, member: int) -> list[ServerEffect]:
        """Note that a member cannot answer any more; a phase that waits only for it is closed."""
        return self._phases.leave(member)

    def returned(self, member: int) -> list[ServerEffect]:
        """Note that a member is back; what it was asked and has not answered is sent again, byte for byte."""
        return self._phases.come_back(member)

    def deadline(self) -> list[ServerEffect]:
        """Close the present phase with what there is."""
        return self._phases.close()

    def take_sum(self) -> OpenedSum:
        """Return the sum after `SumOpened`, once.

        Raises:
            LocalProtocolError: there is none.
        """
        return self._outcome.take()

    def _sum(self, record: RoundRecord, *, is_reopened: bool) -> list[ServerEffect]:
        """Ask for the uploads of a round; whatever was under way is over."""
        summing = self._sums.begin(record, self._summing, is_reopened=is_reopened)
        self._outcome = summing.outcome
        return self._phases.enter(Move(Uploading(summing, record.asked)))

    def _rest(self, resting: Resting) -> None:
        ended = self._phase
        if resting.agreed is not None:
            self._session = resting.agreed
            return
        self._closed = ended.closed(self._phases.received) if isinstance(ended, Answering) else NOTHING_CLOSED
        if isinstance(ended, RoundPhase):
            self._sums.end(ended.summing)

    @property
    def _phase(self) -> AskingPhase | Resting:
        return self._phases.phase

    @property
    def _summing(self) -> OpenRound | None:
        return self._phase.summing if isinstance(self._phase, RoundPhase) else None
