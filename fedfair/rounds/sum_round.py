"""The contract between a run and one sum, in the clear or masked, and the words that it is made of.

`plain_sum` sums in the clear, `masked_sum` under masks. `federation` drives either and does not know which. What
only masks bring about is a value here, `Aftermath` or `Outgoing`, and it is empty for a sum in the clear.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fedfair.rounds.events import Clipping

if TYPE_CHECKING:
    from fedfair.aggregation.requests import SumRequest
    from fedfair.aggregation.running_sum import Totals
    from fedfair.ids import ParticipantId, SumNumber
    from fedfair.secagg.arriving import ArrivingVector
    from fedfair.secagg.masking import MaskedVector


class MemberStanding(enum.Enum):
    """The standing of a cohort's member in this sum."""

    ASKED = "asked"
    AWAY = "away"
    LAPSED = "lapsed"
    COUNTED = "counted"
    ABSTAINED = "abstained"
    EXPELLED = "expelled"


class Step(enum.Enum):
    """An event that can happen to a member."""

    UPLOAD = "upload"
    ABSTAIN = "abstain"
    LEAVE = "leave"
    RETURN = "return"
    LAPSE = "lapse"
    EXPEL = "expel"


class SumState(enum.Enum):
    """Whether the sum still waits, has its total, or will never have one."""

    OPEN = "open"
    COMPLETE = "complete"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A member's messages contradict those of others: it lies, or they do.

    Attributes:
        member: whose messages.
        reason: in words, with the names of the others.
        proven: whether it lies, if most members are honest; it takes no further part in the run.
    """

    member: ParticipantId
    reason: str
    proven: bool


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message of secure aggregation to one member.

    Attributes:
        member: to whom.
        message: its bytes.
        vector: the body of an opened sum, shared by all who receive it; empty with all else.
    """

    member: ParticipantId
    message: bytes
    vector: bytes | memoryview = b""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The messages and reports of a sum after a step, in order.

    Attributes:
        messages: of secure aggregation.
        suspicions: whose messages contradict those of others.
    """

    messages: tuple[OutgoingMessage, ...] = ()
    suspicions: tuple[Suspicion, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything to be said."""
        return bool(self.messages or self.suspicions)


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The facts that a sum leaves for the next one, and for those who took part.

    Attributes:
        accepted: whose contributions are acknowledged only now that the sum is opened.
        settled: whose sum some sites may have helped to open; they open it again for the same sites only. Empty
            before they were asked to.
        missing: without whom a lost sum is repeated: whose upload did not come, or who kept it from being opened.
        reopens: whether the lost sum can be opened for the very same sites, once they are back.
        record: what must be kept before messages are sent, so that this sum can be opened later; may be empty.
        clipping: what the opened sum says about the size of changes; None where nothing is clipped.
        receivers: to whom the opened sum was announced; empty where sums are plain.
    """

    accepted: tuple[ParticipantId, ...] = ()
    settled: tuple[ParticipantId, ...] = ()
    missing: tuple[ParticipantId, ...] = ()
    reopens: bool = False
    record: bytes = b""
    clipping: Clipping | None = None
    receivers: tuple[ParticipantId, ...] = ()


class SumRound(Protocol):
    """One sum from its first request to its total."""

    @property
    def number(self) -> SumNumber:
        """Return the name of this sum; never used for another one."""

    @property
    def awaits(self) -> str:
        """Return in one word what it waits for: keys, uploads, votes or shares."""

    @property
    def request(self) -> SumRequest:
        """Return what the cohort was asked for."""

    @property
    def quorum(self) -> int:
        """Return how many contributors a total needs, at least 1."""

    @property
    def reason(self) -> str:
        """Return why the sum has no total, if it has none."""

    @property
    def cohort(self) -> tuple[ParticipantId, ...]:
        """Return all sites that were asked."""

    @property
    def waiting_for(self) -> tuple[ParticipantId, ...]:
        """Return those who may still answer in time."""

    @property
    def counted(self) -> tuple[ParticipantId, ...]:
        """Return those whose contribution is in the sum."""

    @property
    def remaining(self) -> int:
        """Return how many have contributed or may still do so."""

    @property
    def state(self) -> SumState:
        """Return whether the sum is open, complete or lost."""

    @property
    def step_name(self) -> str:
        """Return what members are asked for now, in a word."""

    @property
    def is_of_session(self) -> bool:
        """Return whether what is asked for now is the same for every purpose."""

    @property
    def suffices(self) -> bool:
        """Return whether enough have answered for the sum to continue, or be repeated, without the others."""

    @property
    def aftermath(self) -> Aftermath:
        """Return what the sum leaves behind, as things stand."""

    def take_outgoing(self) -> Outgoing:
        """Return what is to be said, once."""

    def upload(self, member: ParticipantId, payload: bytes | bytearray | memoryview) -> None:
        """Take a contribution in the clear; refuse it where the sum is masked.

        Raises:
            RemoteProtocolError: it cannot be added; nothing has changed.
        """

    def arriving(self, member: ParticipantId, message: bytes, length: int) -> ArrivingVector | None:
        """Return what adds a member's masked vector to the sum while it arrives, for `receive`; None for nothing.

        Args:
            member: who sends it.
            message: beside the vector.
            length: of the vector, in bytes.
        """

    def receive(self, member: ParticipantId, message: bytes, vector: MaskedVector) -> str:
        """Take a message of secure aggregation; refuse it where the sum is in the clear.

        Returns:
            Why it was passed over, or an empty string.

        Raises:
            RemoteProtocolError: no honest member sends it; nothing has changed.
        """

    def accuse(self, member: ParticipantId, accused: int) -> str:
        """Note that a member cannot open what another one sealed for it; as `receive`."""

    def step(self, member: ParticipantId, step: Step) -> MemberStanding:
        """Take any step but an upload; return the member's new standing.

        Raises:
            RemoteProtocolError: the member may not abstain now; nothing has changed.
            LocalProtocolError: the step is impossible; nothing has changed.
        """

    def pass_deadline(self) -> None:
        """Stop waiting for members that are late."""

    def totals(self) -> Totals:
        """Return the sum over all sites that were counted.

        Raises:
            LocalProtocolError: the sum is still open, or lost.
        """
