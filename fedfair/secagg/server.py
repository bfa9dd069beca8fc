"""The aggregator's order of events: messages, departures and deadlines in, effects out.

IDLE -> ADVERTS -> (REVEALS ->) CONFIRMS -> READY -> UPLOADS -> (PAIR_MASKS -> VOTES ->) ANSWERS -> READY: each is
a phase of `set_up_phases` or `round_phases`, which says what to ask, what follows, and when. This module knows
whom it has asked and who is gone, and leads from phase to phase. A round that was interrupted begins again at
UPLOADS, with the bytes of its record. Its driver says who sent a message (from the certificate, never from the
message), who is gone and when time is up. A refused message changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError
from fedfair.secagg.arriving import ArrivingVector
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.disputes import Blame, Disputes
from fedfair.secagg.effects import SendTo, ServerEffect
from fedfair.secagg.masking import MaskedVector
from fedfair.secagg.messages import VERSION, Kind, kind_of
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.params import SessionPlan, least_survivors, threshold
from fedfair.secagg.recovery import Announcement, KeepBody, RoundState
from fedfair.secagg.round_messages import RoundStart
from fedfair.secagg.round_phases import (
    Answering,
    HandingOver,
    Opening,
    RoundOutcome,
    Summing,
    Uploading,
    Voting,
)
from fedfair.secagg.round_record import RoundRecord
from fedfair.secagg.server_setup import SetUp
from fedfair.secagg.server_state import (
    EXPECTED,
    NO_SESSION,
    NOTHING_CLOSED,
    OF_A_ROUND,
    AgreedSession,
    Move,
    Phase,
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
        roster: everybody's pinned keys.
        plan: what every session is for, and its terms.
        shapes: the shape of the sum of every purpose.
        randomness: source of nonces: `secrets.token_bytes`.
        body_dtype: float32 or float64: width of an opened body.
        threads: how many threads may take masks away.
        quorum: fewest contributors of a sum that is opened, where the consortium wants more than the protocol.
        keep: where the body of an opened sum is kept for those who are to be told of it; None for memory.
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
        self._roster = roster
        self._terms = plan.terms
        self._shapes = shapes
        self._opening = Opening(body_dtype, threads, keep)
        self._quorum = quorum
        self._phase: Phase | Resting = Resting(ServerState.IDLE)
        self._received: dict[int, bytes] = {}
        self._missing: set[int] = set()  # of those who were asked
        self._gone: set[int] = set()
        self._set_up = SetUp(roster, plan, shapes, randomness, quorum)
        self._session = NO_SESSION  # that is ready, or of a round that is opened again
        self.round = 0
        self._outcome: RoundOutcome | None = None  # of the round under way, or of the last one
        self._closed = NOTHING_CLOSED  # the last round, where it came to its answers
        self._spares: dict[int, NDArray[np.uint32]] = {}  # memory of earlier rounds, by the length of the body
        self._disputes = Disputes(len(roster))
        self._blame = Blame(roster, self._disputes)

    # -------------------------------------------------------------- what anybody may look at

    @property
    def state(self) -> ServerState:
        """Return what it waits for."""
        return self._phase.state

    @property
    def members(self) -> tuple[int, ...]:
        """Return everybody in the session; nobody before the first."""
        return self._session.members

    @property
    def session_id(self) -> bytes:
        """Return the 32 bytes that name the session, or the one that is being set up; empty before the first."""
        is_named = isinstance(self._phase, Revealing | Confirming)
        return self._set_up.session_id if is_named else self._session.session_id

    @property
    def round_record(self) -> RoundRecord | None:
        """Return what `reopen` needs for the round under way, or for the last one of this session.

        The driver keeps it before it sends anything that was asked meanwhile.
        """
        return None if self._outcome is None else self._outcome.record

    @property
    def announcement(self) -> Announcement | None:
        """Return what the cohort is to be told of its opened sum; None once the next session or round begins."""
        return None if self._outcome is None else self._outcome.announcement

    @property
    def awaited(self) -> tuple[int, ...]:
        """Return who was asked, has not answered, and is not gone."""
        return tuple(sorted(self._missing))

    @property
    def suffices(self) -> bool:
        """Return whether the present phase can close without those who are awaited.

        Where a sum is opened for the whole cohort or for nobody, it is lost then, but the others can repeat it.
        """
        return not isinstance(self._phase, Resting) and self._phase.suffices(self._received)

    @property
    def is_repeated(self) -> bool:
        """Return whether members are asked for an upload that some of them have sent before."""
        return isinstance(self._phase, Uploading) and self._phase.is_repeated

    def without_neighbours(self, cohort: Iterable[int]) -> frozenset[int]:
        """Return who of a cohort can share no mask in it, because too few of its neighbours are in it."""
        return frozenset(self._session.graph.lonely(frozenset(cohort)))

    # -------------------------------------------------------------- what the driver begins

    def open_session(self, members: Iterable[int]) -> list[ServerEffect]:
        """Propose a session to `members`; whatever was under way is over."""
        self._forget_round()
        self._outcome = None
        self._gone.clear()
        self.round = 0
        return self._enter(Move(Advertising(self._set_up, members)))

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
            unanimous: whether the sum is opened for the whole cohort or for nobody. Then a member that has not
                answered may send the same update again, because no sum with it can be open.

        Raises:
            LocalProtocolError: no session is ready, or the cohort is not part of it.
            PlanError: the cohort is too small for the colluders of the terms.
        """
        chosen = tuple(sorted(cohort))
        if self.state is not ServerState.READY or not set(chosen) <= set(self.members):
            raise LocalProtocolError(f"no round can start with {chosen} while waiting for {self.state.value}")
        least = threshold(self._terms.mode, len(chosen), self._terms.colluders)
        needed = len(chosen) if unanimous else least
        start = RoundStart(self.session_id, self.round + 1, purpose, chosen, needed, subject, clips)
        self.round += 1
        return self._sum(RoundRecord(self.members, self._session.graph, start), chosen, is_reopened=False)

    def reopen(self, record: RoundRecord) -> list[ServerEffect]:
        """Ask for the very same round again, byte for byte; whatever was under way is over.

        Sites that have uploaded, voted or answered send what they sent then. Where the survivors were known, the
        sum is opened for them or for nobody.

        Args:
            record: of a round of this plan, by this process or an earlier one.

        Raises:
            LocalProtocolError: its sum is none of this plan.
        """
        start = record.start
        if start.purpose not in self._shapes:
            raise LocalProtocolError(f"the record of a {start.purpose} sum, which this plan does not have")
        self._session = AgreedSession(start.session_id, record.members, record.graph)
        self.round = start.round
        return self._sum(record, record.asked, is_reopened=True)

    # -------------------------------------------------------------- what members say and do

    def arriving(self, sender: int, raw: bytes, length: int) -> ArrivingVector | None:
        """Return what adds the vector of an upload to the running sum while it arrives.

        Nothing is said by that about the upload: it counts once `receive` has taken it.

        Args:
            sender: roster index behind the peer's certificate.
            raw: the message of the upload.
            length: of its vector, in bytes.

        Returns:
            None where no upload of the member is due, where its vector would have another length, or where another
            one is arriving. Then `receive` takes the whole vector, or refuses it.
        """
        phase, is_upload = self._phase, raw[:2] == bytes((VERSION, Kind.UPLOAD))
        if (
            not isinstance(phase, Uploading)
            or not is_upload
            or sender in self._received
            or sender not in phase.asked
        ):
            return None
        shape = self._shapes[phase.summing.record.start.purpose]
        return phase.arriving() if length == shape.vector_bytes(self._terms.ring_bits) else None

    def receive(self, sender: int, raw: bytes, vector: MaskedVector = b"") -> list[ServerEffect]:
        """Take one message of a member; an exact repetition, or one answer too many, is passed over.

        Args:
            sender: roster index behind the peer's certificate.
            raw: the message.
            vector: what travelled beside an upload; of one that was added while it arrived, what `arriving` gave.

        Raises:
            SecaggError: the message was refused; nothing changed.
        """
        kind, seen = kind_of(raw), hashlib.sha256(raw).digest()
        if self._received.get(sender) == seen:
            return []
        is_slow = kind is Kind.UNMASK_SHARES and self.state is ServerState.READY
        if is_slow and sender in self._closed.owing:
            # It was asked to answer, but others were quicker.
            self._closed.owing.discard(sender)
            return []
        said, phase = f"{kind.name} of member {sender}", self._phase
        if isinstance(phase, Resting) or kind is not EXPECTED[self.state]:
            late = Check.LATE if kind in OF_A_ROUND else Check.OUT_OF_ORDER
            raise SecaggError(late, f"{said} while waiting for {self.state.value}")
        self._roster.check_pinned(sender)
        require(sender in phase.asked, Check.LATE, f"{said}, who is not asked this time")
        require(sender not in self._received, Check.DUPLICATE, f"a second, different {said}")
        told = phase.take(sender, raw, vector)
        self._received[sender] = seen
        self._missing.discard(sender)
        self._gone.discard(sender)
        return [*told, *self._advance(lost=(sender,) if told else ())]

    def accuse(self, holder: int, owner: int) -> list[ServerEffect]:
        """Note that a member answers nothing, because what a survivor sealed for it does not open; it is gone.

        Either of the two lies, so they contradict each other. One word of each member counts in a sum.

        Args:
            holder: roster index behind the peer's certificate.
            owner: whom it accuses; anything that the peer has sent.

        Raises:
            SecaggError: OUT_OF_ORDER, LATE or DUPLICATE: no answer of `holder` is due; MEMBERSHIP: it is
                nobody, or `owner` is no other survivor. Nothing changed.
        """
        phase = self._phase
        if not isinstance(phase, Answering):
            early = f"member {holder} accuses member {owner} while waiting for {self.state.value}"
            raise SecaggError(Check.OUT_OF_ORDER, early)
        self._roster.check_pinned(holder)
        require(holder in phase.asked, Check.LATE, f"member {holder} accuses, and is not asked this time")
        again = f"member {holder} accuses member {owner} after its answer or refusal"
        require(holder not in self._received.keys() | self._gone, Check.DUPLICATE, again)
        return [*phase.accuse(holder, owner), *self.gone(holder)]

    def accuse_late(self, holder: int, owner: int) -> list[ServerEffect]:
        """Note the same about the round before: its sum was opened, or lost, before the member had refused.

        Args:
            holder: roster index behind the peer's certificate.
            owner: whom it accuses; anything that the peer has sent.

        Raises:
            SecaggError: LATE: no answer of `holder` was outstanding in that round; MEMBERSHIP: `owner` is no other
                survivor of it. Nothing changed.
        """
        self._closed.accuse(holder, owner)
        self._disputes.add([(holder, owner)])
        return self._blame.unopened(holder, owner, self._closed.unopened)

    def gone(self, member: int) -> list[ServerEffect]:
        """Note that a member cannot answer any more; a phase that waits only for it is closed."""
        self._gone.add(member)
        self._missing.discard(member)
        return self._advance(lost=(member,)) if member in self._phase.asked else []

    def returned(self, member: int) -> list[ServerEffect]:
        """Note that a member is back; what it was asked and has not answered is sent again, byte for byte."""
        self._gone.discard(member)
        if member in self._phase.asked and member not in self._received:
            self._missing.add(member)
            return [SendTo(member, self._phase.asked[member])]
        return []

    def deadline(self) -> list[ServerEffect]:
        """Close the present phase with what there is."""
        return [] if isinstance(self._phase, Resting) else self._enter(self._phase.close(self._received))

    def take_sum(self) -> OpenedSum:
        """Return the sum after `SumOpened`, once.

        Raises:
            LocalProtocolError: there is none.
        """
        if self._outcome is None or self._outcome.opened is None:
            raise LocalProtocolError("no sum was opened")
        opened, self._outcome.opened = self._outcome.opened, None
        return opened

    # -------------------------------------------------------------- from phase to phase

    def _sum(self, record: RoundRecord, asked: Collection[int], *, is_reopened: bool) -> list[ServerEffect]:
        """Ask for the uploads of a round."""
        self._forget_round()
        start, terms = record.start, self._terms
        shape = self._shapes[start.purpose]
        spare = self._spares.pop(shape.body_length, None)
        arrived = RoundState(self._roster, terms, start, shape, record.graph, spare)
        protocol = least_survivors(terms.mode, len(start.cohort), terms.colluders)
        least = max(protocol, self._quorum, start.threshold)
        self._outcome = RoundOutcome(record)
        knowledge = (self._opening, self._roster, self._disputes, self._blame)
        summing = Summing(arrived, self._outcome, is_reopened, least, terms.mode, *knowledge)
        return self._enter(Move(Uploading(summing, asked)))

    def _advance(self, *, lost: Collection[int]) -> list[ServerEffect]:
        """Close the present phase where nothing more is to come; `lost` may just have failed to answer rightly."""
        phase = self._phase
        if isinstance(phase, Resting) or not phase.is_over(self._missing, lost):
            return []
        return self._enter(phase.close(self._received))

    def _enter(self, move: Move) -> list[ServerEffect]:
        if isinstance(move.following, Resting):
            self._rest(move.following)
        self._phase = phase = move.following
        self._received = {}
        self._missing = set() if isinstance(phase, Resting) else phase.asked.keys() - self._gone
        asked = [SendTo(member, message) for member, message in phase.asked.items()]
        return [*move.before, *asked, *self._advance(lost=phase.asked), *move.after]

    def _rest(self, resting: Resting) -> None:
        ended = self._phase
        if resting.agreed is not None:
            self._session = resting.agreed
        else:
            self._closed = ended.closed(self._received) if isinstance(ended, Answering) else NOTHING_CLOSED
        self._forget_round()

    def _forget_round(self) -> None:
        """End a round; keep its memory for the next one of the same length."""
        ended = self._summing
        if ended is not None and (spare := ended.arrived.take_spare()) is not None:
            self._spares[spare.size] = spare

    @property
    def _summing(self) -> Summing | None:
        """Return the round under way; None for none."""
        return (
            self._phase.summing if isinstance(self._phase, Uploading | HandingOver | Voting | Answering) else None
        )
