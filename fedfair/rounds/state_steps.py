"""The steps that the state of a run makes at the aggregator, and what a site lacks to be at the present one.

A site whose copy is one sum behind is told that sum. A site that is further behind, or elsewhere, is sent the
whole state, which it believes only where the others vouch for it. An evaluation that is left out changes the state
without a sum: a site finds that out by itself, from the next request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.rounds.events import SendMessage, SendTotals
from fedfair.run.opened_totals import OpenedTotals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedfair.aggregation.running_sum import Totals
    from fedfair.ids import ParticipantId
    from fedfair.run.state import RunState
    from fedfair.run.training_run import TrainingRun
    from fedfair.secagg.recovery import Announcement


@dataclass(frozen=True, slots=True)
class LastOpened:
    """The sum that was opened last, as sites are told of it.

    Attributes:
        before: 32 bytes, digest of the state that it was about.
        message: of secure aggregation; the opened totals where sums are plain.
        vector: what travels beside a message of secure aggregation.
        masked: whether it is one.
    """

    before: bytes
    message: bytes
    vector: bytes
    masked: bool

    @classmethod
    def of(
        cls, before: bytes, totals: Totals, members: Sequence[ParticipantId], told: Announcement | None
    ) -> LastOpened:
        """Return what sites are told of a sum.

        Args:
            before: digest of the state that it was about, 32 bytes.
            totals: what it came to.
            members: who contributed.
            told: what secure aggregation tells; None where sums are plain.
        """
        if told is not None:
            return cls(before, told.message, told.vector, masked=True)
        return cls(before, OpenedTotals(before, tuple(members), totals).encode(), b"", masked=False)

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
        last: the sum that was opened last, if it led to the present state.
        initial: the digest of the state in which the run began.
    """

    def __init__(
        self, training_run: TrainingRun, plan_digest: bytes, last: LastOpened | None, *, masked: bool
    ) -> None:
        self._training_run = training_run
        self._plan_digest = plan_digest
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

    def lacks(self, held: bytes) -> LastOpened | None:
        """Return the sum that a copy with this digest lacks; None where it lacks nothing, or more than one."""
        last = self.last
        return last if last is not None and held == last.before and not self.is_present(held) else None

    def reaches(self, held: bytes) -> bool:
        """Return whether a copy with this digest is at the present state, or one sum behind it."""
        return self.is_present(held) or self.lacks(held) is not None

    def is_present(self, held: bytes) -> bool:
        """Return whether a copy with this digest is at the present state, or will be with the next request."""
        return held in (self.present, self._after_last)
