"""One masked sum over one cohort: keys first where they are due, then uploads, votes if somebody left, answers.

Keeps the contract of `sum_round`, so that `federation` drives it like a sum in the clear. What is said is carried
by messages that nobody but the two ends of secure aggregation reads. `secagg.server` decides when a phase of the
protocol is complete. This decides who may be waited for, and which refused message costs its sender the stream.

    [PROPOSAL -> ADVERT, (ADVERTS -> REVEAL,) ADVERTS or REVEALS -> CONFIRM] CONFIRMS, ROUND_START -> UPLOAD,
    [PAIR_MASKS_REQUEST -> PAIR_MASKS, SURVIVORS -> VOTE,] OPEN -> ANSWER, OPENED

A member that leaves has its grace in every phase; what it had been asked and had not answered is sent again when
it returns. Who lapses, abstains or is expelled is gone for the protocol: the sum is taken over the survivors if
they are enough, otherwise the round is lost and nothing was learnt. With the record of an interrupted round, the
very same round is asked for again, and opened for the same survivors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.rounds.events import Clipping
from fedfair.rounds.sum_round import (
    Aftermath,
    MemberStanding,
    Outgoing,
    OutgoingMessage,
    Step,
    SumRound,
    SumState,
    Suspicion,
)
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import (
    Contradicted,
    RoundAborted,
    SendTo,
    ServerEffect,
    SessionFailed,
    SessionReady,
    SumOpened,
)
from fedfair.secagg.server_state import ServerState

if TYPE_CHECKING:
    from fedfair.aggregation.requests import SumRequest
    from fedfair.aggregation.running_sum import Totals
    from fedfair.ids import ParticipantId, SumNumber
    from fedfair.rounds.secagg_session import SecaggSession
    from fedfair.secagg.arriving import ArrivingVector
    from fedfair.secagg.masking import MaskedVector
    from fedfair.secagg.opened_sum import OpenedSum
    from fedfair.secagg.transcript import RoundSubject

_SLOW: Final = frozenset({Check.LATE, Check.OUT_OF_ORDER, Check.TRANSCRIPT, Check.SESSION, Check.DUPLICATE})
"""Checks that an honest but slow member can fail: its message is about something that is over."""


_SET_UP: Final = frozenset({ServerState.ADVERTS, ServerState.REVEALS, ServerState.CONFIRMS})

_AWAITED: Final = {**dict.fromkeys(_SET_UP, "keys"), ServerState.ANSWERS: "shares"}
"""The word for what a state of the protocol waits for, where its own name is not the word."""


class MaskedSumRound:
    """One masked sum from its first request to its total.

    Attributes:
        number: names this sum.
        request: what the cohort was asked for.
        quorum: fewest contributors; the protocol's server opens nothing for fewer.
        reason: why the sum is lost; empty unless it is.
    """

    def __init__(
        self,
        number: SumNumber,
        request: SumRequest,
        cohort: Iterable[ParticipantId],
        quorum: int,
        protection: SecaggSession,
        subject: RoundSubject,
        clip: float,
        record: bytes = b"",
    ) -> None:
        self.number = number
        self.request = request
        self.quorum = quorum
        self.reason = ""
        self._protection = protection
        self._subject = subject
        self._members = {protection.index(name): name for name in cohort}
        self._out: set[int] = set()
        self._outgoing: list[OutgoingMessage] = []
        self._suspicions: list[Suspicion] = []
        self._opened: OpenedSum | None = None
        self._clip = clip
        self._settled: tuple[ParticipantId, ...] = ()
        self._missing: tuple[ParticipantId, ...] = ()
        self._reopens = False
        self._receivers: list[ParticipantId] = []
        self._begin(record)

    def _begin(self, record: bytes) -> None:
        server = self._protection.server
        for index in self._members:
            server.returned(index)
        if record:
            self._take(self._protection.reopen(record))
        elif self._protection.renewal(self._members):
            self._take(server.open_session(self._members))
        else:
            self._start_round()

    def _start_round(self) -> None:
        server = self._protection.server
        keyed = set(server.members) & self._members.keys() - self._out
        keyed -= server.without_neighbours(keyed)
        if len(keyed) < self.quorum:
            # Better no round than one that cannot be opened: an evaluation must not leave a site twice.
            self.reason = f"{len(keyed)} of {len(self._members)} have keys, {self.quorum} are needed"
            return
        self._take(self._protection.start_round(self.request, self._subject, self._clip, keyed))

    # -------------------------------------------------------------- what anybody may look at

    @property
    def cohort(self) -> tuple[ParticipantId, ...]:
        """Return all sites that were asked."""
        return tuple(self._members.values())

    @property
    def awaits(self) -> str:
        """Return in one word what it waits for."""
        state = self._protection.server.state
        return _AWAITED.get(state, state.name.lower())

    @property
    def waiting_for(self) -> tuple[ParticipantId, ...]:
        """Return those whose next message is awaited."""
        return tuple(self._members[index] for index in self._protection.server.awaited if index in self._members)

    @property
    def counted(self) -> tuple[ParticipantId, ...]:
        """Return those whose upload is in the opened sum."""
        opened = self._opened
        return () if opened is None else tuple(self._protection.name(index) for index in opened.survivors)

    @property
    def remaining(self) -> int:
        """Return how many of the cohort are still in."""
        return len(self._members.keys() - self._out)

    @property
    def state(self) -> SumState:
        """Return whether the sum is open, complete or lost."""
        if self._opened is not None:
            return SumState.COMPLETE
        return SumState.LOST if self.reason else SumState.OPEN

    @property
    def step_name(self) -> str:
        """Return what members are asked for now, in a word; what they only send again takes another time."""
        server = self._protection.server
        return "repeated uploads" if server.is_repeated else server.state.name.lower()

    @property
    def is_of_session(self) -> bool:
        """Return whether a session is being set up, which is the same for every purpose."""
        return self._protection.server.state in _SET_UP

    @property
    def suffices(self) -> bool:
        """Return whether enough have answered in the present phase."""
        return self._protection.server.suffices

    @property
    def aftermath(self) -> Aftermath:
        """Return what the sum leaves behind, as things stand."""
        opened, clipping = self._opened, None
        if opened is not None and opened.histogram:
            clipping = Clipping(self._clip, opened.clipped)
        record = self._protection.round_record
        left = (self.counted, self._settled, self._missing, self._reopens, record, clipping)
        return Aftermath(*left, tuple(self._receivers))

    def totals(self) -> Totals:
        """Return the sum over the survivors.

        Raises:
            LocalProtocolError: the sum is still open, or lost.
        """
        if self._opened is None:
            raise LocalProtocolError(f"masked sum {self.number} is {self.state.value} and has no totals")
        return self._protection.totals.of(self._opened)

    def take_outgoing(self) -> Outgoing:
        """Return what is to be said, once."""
        outgoing = Outgoing(tuple(self._outgoing), tuple(self._suspicions))
        self._outgoing, self._suspicions = [], []
        return outgoing

    # -------------------------------------------------------------- what can happen

    def upload(self, member: ParticipantId, payload: bytes | bytearray | memoryview) -> None:
        """Refuse a contribution in the clear.

        Raises:
            RemoteProtocolError: always.
        """
        raise RemoteProtocolError(
            f"{member} sent {len(payload)} bytes in the clear to sum {self.number}, which is masked",
            "compare the plan digests and the versions of fedfair on both sides",
        )

    def arriving(self, member: ParticipantId, message: bytes, length: int) -> ArrivingVector | None:
        """Return what adds a member's masked vector to the sum while it arrives; None where it must be held."""
        return self._protection.server.arriving(self._protection.index(member), message, length)

    def receive(self, member: ParticipantId, message: bytes, vector: MaskedVector) -> str:
        """Take one message of secure aggregation; return why it was passed over, or an empty string.

        Raises:
            RemoteProtocolError: no honest member sends it; nothing has changed.
        """
        index = self._protection.index(member)
        return self._hear(lambda: self._protection.server.receive(index, message, vector))

    def accuse(self, member: ParticipantId, accused: int) -> str:
        """Note that a member refuses to answer, because what another one sealed for it does not open.

        Returns:
            Why the accusation was passed over, or an empty string.

        Raises:
            RemoteProtocolError: no honest member says so; nothing has changed.
        """
        index = self._protection.index(member)
        return self._hear(lambda: self._protection.server.accuse(index, accused))

    def _hear(self, hear: Callable[[], list[ServerEffect]]) -> str:
        try:
            effects = hear()
        except SecaggError as fault:
            if fault.check not in _SLOW:
                raise
            return fault.message
        self._take(effects)
        return ""

    def step(self, member: ParticipantId, step: Step) -> MemberStanding:
        """Take a step of a member of the cohort; return its new standing.

        Raises:
            LocalProtocolError: an upload, which is a message here.
        """
        index = self._protection.index(member)
        match step:
            case Step.UPLOAD:
                raise LocalProtocolError("a masked upload is a message and goes through receive()")
            case Step.LEAVE:
                return MemberStanding.ABSTAINED if index in self._out else MemberStanding.AWAY
            case Step.RETURN if index in self._out:
                return MemberStanding.ABSTAINED
            case Step.RETURN:
                self._take(self._protection.server.returned(index))
                return MemberStanding.ASKED
            case Step.LAPSE:
                self._take(self._protection.server.gone(index))
                return MemberStanding.LAPSED
            case Step.ABSTAIN | Step.EXPEL:
                self._leave_out(index)
                return MemberStanding.ABSTAINED if step is Step.ABSTAIN else MemberStanding.EXPELLED

    def pass_deadline(self) -> None:
        """Close the present phase of the protocol with the members that have answered."""
        self._take(self._protection.server.deadline())

    def _leave_out(self, index: int) -> None:
        """Continue without a member; its next sum begins with new keys."""
        self._out.add(index)
        self._protection.note_keys(self._protection.name(index), b"")
        self._take(self._protection.server.gone(index))

    def _take(self, effects: list[ServerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendTo(member, message):
                    self._outgoing.append(OutgoingMessage(self._protection.name(member), message))
                case SessionReady():
                    self._protection.session_is_ready()
                    self._start_round()
                case Contradicted(left_out=left_out) as found:
                    self._suspicions.append(_suspicion(self._protection, found))
                    if left_out:
                        self._leave_out(found.member)
                case SumOpened():
                    self._opened = self._protection.server.take_sum()
                    self._settled = self.counted
                    self._announce_sum()
                case SessionFailed(reason):
                    self.reason = reason
                case RoundAborted(_, reason, _, missing, survivors, reopens):
                    self.reason, self._reopens = reason, reopens
                    self._missing = tuple(self._protection.name(index) for index in missing)
                    self._settled = tuple(self._protection.name(index) for index in survivors)

    def _announce_sum(self) -> None:
        """Tell every site that was asked and is not out what was opened, whether it is in the sum or not."""
        for index, member in self._members.items():
            if index not in self._out and (told := self._protection.announcement_for(member)) is not None:
                self._outgoing.append(told)
                self._receivers.append(member)


def accuse_late(protection: SecaggSession, member: ParticipantId, accused: int) -> tuple[Suspicion, ...]:
    """Note that a member could not open what another one had sealed for it in the sum before.

    Args:
        protection: masks every sum.
        member: who says so.
        accused: the other's place in the roster, as `member` names it.

    Returns:
        What follows from it; nothing where no answer of the member was outstanding any more.

    Raises:
        RemoteProtocolError: no honest member says so; nothing has changed.
    """
    try:
        effects = protection.server.accuse_late(protection.index(member), accused)
    except SecaggError as fault:
        if fault.check not in _SLOW:
            raise
        return ()
    return tuple(_suspicion(protection, effect) for effect in effects if isinstance(effect, Contradicted))


def _suspicion(protection: SecaggSession, found: Contradicted) -> Suspicion:
    return Suspicion(protection.name(found.member), found.reason, found.proven)


def abstention(sum_round: SumRound, reason: str) -> str:
    """Return that somebody takes no part, its reason, and how the sum continues, unless its loss follows."""
    told = f"it abstains: {reason}"
    if sum_round.state is SumState.LOST:
        return told
    left, asked = sum_round.remaining, len(sum_round.cohort)
    return f"{told}; the sum continues with {left} of {asked}; {sum_round.quorum} are needed"
