"""One sum over one cohort: who was asked, who answered, who is gone, and whether the sum may close.

Theory of operation. Every member of the cohort has a standing in the sum. Whatever happens to a member is a step,
and `TRANSITIONS` is the whole rule of which step leads where; a step that is not in the table was either taken by
a peer who broke the protocol (an upload, an abstention) or is a bug of ours (everything else). The state of the
sum is never stored: it follows from the standings, the quorum and whether the deadline has passed, so the two
cannot disagree.

    ASKED      was asked and is working           COUNTED    its upload is in the running sum, for good
    AWAY       lost its connection, has grace     ABSTAINED  said that it adds nothing, for good
    LAPSED     lost it for longer than the grace  EXPELLED   broke the protocol, or left; is not asked again

We wait for those who are ASKED or AWAY. When nobody is, or when the deadline passes, the sum is COMPLETE if at
least a quorum is COUNTED, otherwise it is LOST. Someone who comes back while the others are still working is asked
again under the same number, even after its grace: it costs nobody anything. An answer is final: a second upload is
not added again, and neither answer can be turned into the other.

A masked sum needs more from its survivors between uploads and totals; `masked_sum` does that. Both keep the
contract of `sum_round`.

Left to others: deadlines and connections (`federation`), the arithmetic (`RunningSum`), what a total means
(`run.training_run`). Source of the form: h11's transition tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.rounds.sum_round import Aftermath, MemberStanding, Outgoing, Step, SumState

if TYPE_CHECKING:
    from fedfair.aggregation.requests import SumRequest
    from fedfair.aggregation.running_sum import RunningSum, Totals
    from fedfair.ids import ParticipantId, SumNumber
    from fedfair.secagg.arriving import ArrivingVector
    from fedfair.secagg.masking import MaskedVector


TRANSITIONS: Final[Mapping[MemberStanding, Mapping[Step, MemberStanding]]] = {
    MemberStanding.ASKED: {
        Step.UPLOAD: MemberStanding.COUNTED,
        Step.ABSTAIN: MemberStanding.ABSTAINED,
        Step.LEAVE: MemberStanding.AWAY,
        Step.RETURN: MemberStanding.ASKED,  # a second connection replaces the first
        Step.EXPEL: MemberStanding.EXPELLED,
    },
    MemberStanding.AWAY: {
        Step.RETURN: MemberStanding.ASKED,
        Step.LAPSE: MemberStanding.LAPSED,
    },
    MemberStanding.LAPSED: {
        Step.RETURN: MemberStanding.ASKED,
    },
    MemberStanding.COUNTED: {
        Step.UPLOAD: MemberStanding.COUNTED,  # a resend, which is not added again
        Step.LEAVE: MemberStanding.COUNTED,
        Step.RETURN: MemberStanding.COUNTED,
        Step.EXPEL: MemberStanding.COUNTED,  # what is in a sum cannot be taken out of it
    },
    MemberStanding.ABSTAINED: {
        Step.ABSTAIN: MemberStanding.ABSTAINED,
        Step.LEAVE: MemberStanding.ABSTAINED,
        Step.RETURN: MemberStanding.ABSTAINED,
        Step.EXPEL: MemberStanding.ABSTAINED,
    },
    MemberStanding.EXPELLED: {
        Step.LEAVE: MemberStanding.EXPELLED,
        Step.RETURN: MemberStanding.EXPELLED,
        Step.EXPEL: MemberStanding.EXPELLED,
    },
}

_STEPS_OF_A_PEER: Final = frozenset({Step.UPLOAD, Step.ABSTAIN})
_WAITED_FOR: Final = frozenset({MemberStanding.ASKED, MemberStanding.AWAY})


class PlainSumRound:
    """One sum from its first request to its total.

    Attributes:
        number: names this sum; never used for another one.
        request: what the cohort was asked for.
        quorum: how many uploads a total needs, at least 1.
    """

    def __init__(
        self,
        number: SumNumber,
        request: SumRequest,
        cohort: Iterable[ParticipantId],
        quorum: int,
        running: RunningSum,
    ) -> None:
        self.number = number
        self.request = request
        self.quorum = quorum
        self._running = running
        self._standings = dict.fromkeys(cohort, MemberStanding.ASKED)
        self._overdue = False

    @property
    def cohort(self) -> tuple[ParticipantId, ...]:
        """Return all sites that were asked."""
        return tuple(self._standings)

    @property
    def awaits(self) -> str:
        """Return in one word what it waits for."""
        return "uploads"

    @property
    def waiting_for(self) -> tuple[ParticipantId, ...]:
        """Return those who may still answer in time."""
        return tuple(member for member, standing in self._standings.items() if standing in _WAITED_FOR)

    @property
    def counted(self) -> tuple[ParticipantId, ...]:
        """Return those whose upload is in the running sum."""
        return tuple(member for member, standing in self._standings.items() if standing is MemberStanding.COUNTED)

    @property
    def remaining(self) -> int:
        """Return how many have contributed or may still do so."""
        return len(self.counted) + len(self.waiting_for)

    @property
    def state(self) -> SumState:
        """Return whether the sum is open, complete or lost."""
        if self.waiting_for and not self._overdue:
            return SumState.OPEN
        return SumState.COMPLETE if len(self.counted) >= self.quorum else SumState.LOST

    step_name = "uploads"
    is_of_session = False

    @property
    def suffices(self) -> bool:
        """Return whether enough are counted."""
        return len(self.counted) >= self.quorum

    @property
    def reason(self) -> str:
        """Return why the sum has no total, if it has none."""
        return f"{len(self.counted)} of {len(self.cohort)} contributed, {self.quorum} are needed"

    @property
    def aftermath(self) -> Aftermath:
        """Return that a plain sum leaves nothing behind: it is repeated, and asks all sites again."""
        return Aftermath()

    def take_outgoing(self) -> Outgoing:
        """Return nothing: a plain sum sends no message but its request."""
        return Outgoing()

    def arriving(self, member: ParticipantId, message: bytes, length: int) -> ArrivingVector | None:  # noqa: ARG002
        """Return nothing: real numbers that were added cannot be taken out of a sum exactly."""
        return None

    def receive(self, member: ParticipantId, message: bytes, vector: MaskedVector) -> str:
        """Refuse a message of secure aggregation.

        Raises:
            RemoteProtocolError: always.
        """
        raise RemoteProtocolError(
            f"{member} sent a masked message of {len(message) + len(vector)} bytes to sum {self.number}, "
            "which is plain",
            "compare the plan digests and the versions of fedfair on both sides",
        )

    def accuse(self, member: ParticipantId, accused: int) -> str:
        """Refuse an accusation: nobody seals anything in a plain sum.

        Raises:
            RemoteProtocolError: always.
        """
        raise RemoteProtocolError(
            f"{member} accuses member {accused} in sum {self.number}, which is plain",
            "compare the plan digests and the versions of fedfair on both sides",
        )

    def upload(self, member: ParticipantId, payload: bytes | bytearray | memoryview) -> None:
        """Add a member's upload to the running sum, once.

        Raises:
            RemoteProtocolError: the member may not upload now, or its upload is malformed; nothing has changed.
            LocalProtocolError: the sum is closed.
        """
        standing = self._after(member, Step.UPLOAD)
        if self._standings[member] is not MemberStanding.COUNTED:
            self._running.add(payload)
        self._standings[member] = standing

    def step(self, member: ParticipantId, step: Step) -> MemberStanding:
        """Take any step but an upload, which carries a payload; return the member's new standing.

        Raises:
            RemoteProtocolError: the member may not abstain now; nothing has changed.
            LocalProtocolError: the step is impossible, or the sum is closed; nothing has changed.
        """
        if step is Step.UPLOAD:
            raise LocalProtocolError("an upload has a payload and goes through upload()")
        standing = self._after(member, step)
        self._standings[member] = standing
        return standing

    def pass_deadline(self) -> None:
        """Wait no longer for anybody.

        Raises:
            LocalProtocolError: the sum is closed.
        """
        self._refuse_when_closed("the deadline")
        self._overdue = True

    def totals(self) -> Totals:
        """Return the sum over all sites that were counted.

        Raises:
            LocalProtocolError: the sum is still open, or lost.
        """
        if self.state is not SumState.COMPLETE:
            raise LocalProtocolError(f"sum {self.number} is {self.state.value} and has no totals")
        return self._running.totals()

    def _after(self, member: ParticipantId, step: Step) -> MemberStanding:
        """Return where `step` would lead `member`; change nothing."""
        self._refuse_when_closed(f"a step ({step.value}) of {member}")
        blame = RemoteProtocolError if step in _STEPS_OF_A_PEER else LocalProtocolError
        standing = self._standings.get(member)
        if standing is None:
            raise blame(f"sum {self.number}: {step.value} of {member}, who was not asked")
        if step not in TRANSITIONS[standing]:
            raise blame(f"sum {self.number}: {step.value} of {member}, whose standing is '{standing.value}'")
        return TRANSITIONS[standing][step]

    def _refuse_when_closed(self, what: str) -> None:
        if self.state is not SumState.OPEN:
            raise LocalProtocolError(f"sum {self.number} is {self.state.value}; {what} comes too late")
