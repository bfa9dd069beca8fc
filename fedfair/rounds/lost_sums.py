"""Decides about a lost sum: it is omitted, opened again or repeated, or the run ends in words.

Holds the record of an interrupted masked round until it is asked for again, by this process or by a later one.
Decides nothing about people who come and go; that is `federation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedfair.rounds.events import AfterWaiting, SaveUnfinished, Skipped, SumLost, UnfinishedSum
from fedfair.rounds.exit_reasons import ExitReason

if TYPE_CHECKING:
    from fedfair.ids import SumNumber
    from fedfair.rounds.cohort_selection import CohortSelection
    from fedfair.rounds.secagg_session import Interrupted, SecaggSession
    from fedfair.rounds.sum_round import SumRound
    from fedfair.run.training_run import TrainingRun

End = tuple[str, str, ExitReason]
"""Why the run ends, what to do about it, and what that means for the sites."""


_ATTEMPTS_REMEDY = (
    "check why collaborators were missing or abstained, then restart the aggregator: "
    "it resumes with this sum; the model is that of the last accepted sum"
)


class LostSums:
    """The rules of one run.

    Args:
        training_run: what is summed.
        cohort: who is asked next.
        protection: masks every sum; None where sums are plain.
        max_attempts: how often a sum is tried, and how often each attempt is opened again.
        unfinished: the sum that an earlier process had begun and the training run asks for next; None for none.
    """

    def __init__(
        self,
        training_run: TrainingRun,
        cohort: CohortSelection,
        protection: SecaggSession | None,
        max_attempts: int,
        unfinished: UnfinishedSum | None = None,
    ) -> None:
        self._training_run = training_run
        self._next = cohort
        self._protection = protection
        self._max_attempts = max_attempts
        self._unfinished = unfinished
        self._record = b""  # of the interrupted round that is asked for next
        self._reopened = 0  # how often the present attempt was opened again
        self._saved = b""

    @property
    def reopens(self) -> bool:
        """Return whether the next sum is one that was interrupted."""
        return bool(self._record)

    @property
    def due(self) -> str:
        """Return the sum that is due, in words."""
        request = self._training_run.next_sum()
        return "next sum" if request is None else f"{request.purpose.value} sum of round {request.round}"

    def take_up(self) -> None:
        """Resume the sum in which an earlier process was interrupted, at the attempt that it had reached."""
        unfinished, self._unfinished = self._unfinished, None
        if self._protection is None or unfinished is None:
            return
        while (request := self._training_run.next_sum()) is not None and request.attempt < unfinished.attempt:
            self._training_run.retry()
        self._reopen(self._protection.interrupted(unfinished.record))

    def take_record(self) -> bytes:
        """Return the record of the round that begins now, once; empty for a new one."""
        record, self._record = self._record, b""
        self._reopened = self._reopened + 1 if record else 0
        return record

    def unsaved(self, sum_round: SumRound) -> Iterator[SaveUnfinished]:
        """Yield what must be kept before the messages of a sum are sent, unless it is kept already."""
        record = sum_round.aftermath.record
        if record not in (b"", self._saved):
            self._saved = record
            yield SaveUnfinished(UnfinishedSum(sum_round.request.attempt, self._saved))

    def after(self, sum_round: SumRound, reason: str) -> Skipped | End | None:
        """Decide what follows a lost sum: None for another attempt or opening."""
        request, left = sum_round.request, sum_round.aftermath
        # What a site adds to any sum but training is always the same: the very same sites would open the same sum.
        is_known = bool(left.settled) and not request.purpose.statistic.draws_anew
        if (is_known or request.attempt >= self._max_attempts) and self._training_run.may_skip:
            return Skipped(request, reason, self._training_run.skip(reason))
        if left.reopens and self._reopened < self._max_attempts and self._protection is not None:
            self._reopen(self._protection.interrupted(left.record))
            return None
        if request.attempt >= self._max_attempts:
            why = f"the {self.due} failed {request.attempt} times; the last time, {reason}"
            return why, _ATTEMPTS_REMEDY, ExitReason.ATTEMPTS_SPENT
        self._training_run.retry()
        self._next.note_lost(sum_round)
        return None

    def follow(self, sum_round: SumRound) -> None:
        """Ask the same sites next where that sum is, to them, the one that is done: of the output model."""
        self._next.note_opened(sum_round, self._training_run.next_sum())

    @property
    def when_given_up(self) -> AfterWaiting:
        """Return what follows if those who are waited for do not come, as things stand."""
        request = self._training_run.next_sum()
        if request is None or not (self._record and self._next.is_fixed):
            return AfterWaiting.END
        if not request.purpose.statistic.draws_anew:
            return AfterWaiting.SKIP if self._training_run.may_skip else AfterWaiting.END
        return AfterWaiting.REPEAT if self._next.others_suffice else AfterWaiting.END

    def give_up(self, number: SumNumber) -> tuple[list[SumLost], Skipped | End | None]:
        """Decide what follows when those who were waited for did not come.

        Args:
            number: of the latest sum.

        Returns:
            The interrupted sum that is lost now, if any; and what follows.
        """
        request, (why, remedy), then = self._training_run.next_sum(), self._next.lack(self.due), self.when_given_up
        if request is None or then is AfterWaiting.END:
            # The next process begins with the same sum: what the sites have sent is still on their disks.
            return [], (why, remedy, ExitReason.QUORUM_MISSING)
        self._record = b""
        self._next.ask_anybody()
        lost = [SumLost(number, request, why)]
        if then is AfterWaiting.SKIP:
            return lost, Skipped(request, why, self._training_run.skip(why))
        self._training_run.retry()
        return lost, None

    def forget(self) -> None:
        """Ask for the next sum as for a new one: the sites have left the interrupted one behind long ago."""
        if self._record:
            self._record = b""
            self._next.ask_anybody()
            self._training_run.retry()

    def _reopen(self, interrupted: Interrupted) -> None:
        self._record = interrupted.record
        self._next.reopen_with(interrupted.asked, self.due, needs_all=interrupted.is_settled)
