"""The steps that the state of a run makes at the aggregator, and what a site lacks to be at the present one.

A site whose copy is one sum behind receives that sum. A site that is further behind, or elsewhere, is sent the
whole state, which it believes only where the others vouch for it. An evaluation that is left out changes the state
without a sum: a site finds that out by itself, from the next request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.rounds.events import SendMessage, SendState, SendTotals
from fedfair.run.opened_totals import OpenedTotals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fedfair.aggregation.running_sum import Totals
    from fedfair.ids import ParticipantId
    from fedfair.rounds.events import Effect
    from fedfair.rounds.membership import Membership
    from fedfair.run.state import RunState
    from fedfair.run.training_run import TrainingRun
    from fedfair.secagg.recovery import Announcement

OUT_OF_STEP = frozenset({RefusalReason.SECAGG_STATE.value, RefusalReason.PROTOCOL.value})
"""Reasons of a site that is asked about another state of the run than its own."""


@dataclass(frozen=True, slots=True)
class LastOpened:
    """The sum that was opened last, as sites receive it.

    Attributes:
        before: 32 bytes, digest of the state that it was about.
        message: of secure aggregation; the opened totals where sums are plain.
        vector: what travels beside a message of secure aggregation.
        masked: whether it is one.
        receivers: who received it at once, or would have been; under masks nobody else could check it.
    """

    before: bytes
    message: bytes
    vector: bytes | memoryview
    masked: bool
    receivers: tuple[str, ...]

    @classmethod
    def in_the_clear(cls, before: bytes, totals: Totals, members: Sequence[ParticipantId]) -> LastOpened:
        """Return what sites receive of a plain sum.

        Args:
            before: digest of the state that it was about, 32 bytes.
            totals: its totals.
            members: who contributed.
        """
        return cls(before, OpenedTotals(before, tuple(members), totals).encode(), b"", masked=False, receivers=())

    @classmethod
    def under_masks(cls, before: bytes, said: Announcement, receivers: Sequence[ParticipantId]) -> LastOpened:
        """Return what sites receive of a masked sum.

        Args:
            before: digest of the state that it was about, 32 bytes.
            said: what secure aggregation tells.
            receivers: who was in the round to its end.
        """
        return cls(before, said.message, said.vector, masked=True, receivers=tuple(receivers))

    def is_for(self, participant: ParticipantId) -> bool:
        """Return whether a participant can do anything with it."""
        return not self.masked or participant in self.receivers

    def effect(self, participant: ParticipantId) -> SendMessage | SendTotals:
        """Return the telling of it."""
        if self.masked:
            return SendMessage(participant, self.message, self.vector)
        return SendTotals(participant, self.message)


class StateSteps:
    """The present state of one run, and the step before it.

    Args:
        training_run: whose state it is.
        plan_digest: of the plan, 32 bytes.
        last: the sum that an earlier process has opened last; None for none.
        masked: whether sums are masked.

    Attributes:
        masked: whether sums are masked.
        last: the sum that was opened last, if it led to the present state.
        initial: the digest of the state in which the run began.
    """

    def __init__(
        self, training_run: TrainingRun, plan_digest: bytes, last: LastOpened | None, *, masked: bool
    ) -> None:
        self._training_run = training_run
        self._plan_digest = plan_digest
        self.masked = masked
        self.last = last if last is not None and last.masked == masked else None
        self.initial = training_run.initial.digest(plan_digest)
        self._known: tuple[RunState, bytes] | None = None
        self._after_last = b""  # digest of the state right after the last sum of this process

    @property
    def present(self) -> bytes:
        """Return the digest of the present state; an omitted evaluation changes it too."""
        state = self._training_run.state
        if self._known is None or self._known[0] is not state:
            self._known = state, state.digest(self._plan_digest)
        return self._known[1]

    def moved(self, last: LastOpened) -> None:
        """Note the sum that led to the present state."""
        self.last, self._after_last = last, self.present

    def lacks(self, participant: ParticipantId, held: bytes) -> LastOpened | None:
        """Return the one sum that a participant's copy lacks; None where it lacks nothing, or needs the state.

        Args:
            participant: who.
            held: the digest of its copy.
        """
        last = self.last
        if last is None or held != last.before or self.is_present(held) or not last.is_for(participant):
            return None
        return last

    def send_last_sum(self, participant: ParticipantId, members: Membership) -> Iterator[SendMessage | SendTotals]:
        """Tell a participant of the sum that was opened last, if that is all that its copy of the run lacks.

        Args:
            participant: who, connected.
            members: what state each of them holds.
        """
        last = self.lacks(participant, members.held(participant))
        if last is not None:
            members.hold(participant, self.present)
            yield last.effect(participant)

    def bring_up(self, participant: ParticipantId, members: Membership) -> Iterator[Effect]:
        """Bring a participant's copy of the run to the present state; the rest as `send_last_sum`."""
        yield from self.send_last_sum(participant, members)
        if not self.is_present(members.held(participant)):
            members.hold(participant, self.present)
            yield SendState(participant)

    def to_the_end(
        self, participant: ParticipantId, held: bytes
    ) -> Iterator[SendMessage | SendTotals | SendState]:
        """Bring a participant's copy to the end of a run that is over, as far as it would believe it.

        Nobody is there any more to vouch for a masked run's state, so only the last sum is sent.

        Args:
            participant: who.
            held: the digest of its copy; empty where it has none of this run.
        """
        held = held or self.initial
        last = self.lacks(participant, held)
        if last is not None:
            yield last.effect(participant)
        elif not self.masked and not self.is_present(held):
            yield SendState(participant)

    def reaches(self, participant: ParticipantId, held: bytes) -> bool:
        """Return whether a participant's copy is at the present state, or one sum behind it."""
        return self.is_present(held) or self.lacks(participant, held) is not None

    def is_present(self, held: bytes) -> bool:
        """Return whether a copy with this digest is at the present state, or will be with the next request."""
        return held in (self.present, self._after_last)
