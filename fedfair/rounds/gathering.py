"""Waiting for people: who must be connected before the next sum begins, and what follows where they do not come.

Before the first sum after a restart, what the sites know is compared with the journal (`continued`). Decides no
sum; that is `summing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fedfair.rounds.events import Checkpoint, CheckpointKind, DeadlineKind, Effect, SitesAhead, Waiting
from fedfair.rounds.exit_reasons import ExitReason
from fedfair.rounds.phases import Phase

if TYPE_CHECKING:
    from fedfair.ids import ParticipantId
    from fedfair.rounds.continued import Continued, Seen
    from fedfair.rounds.events import Skipped
    from fedfair.rounds.lost_sums import End
    from fedfair.rounds.run_under_way import RunUnderWay


class Gathering:
    """The waiting of one run.

    Args:
        run: the run.
        continued: what an earlier process that ran this training run has left; None for a new run.
        open_sum: opens the next sum over those who are connected.
    """

    def __init__(
        self, run: RunUnderWay, continued: Continued | None, open_sum: Callable[[], Iterator[Effect]]
    ) -> None:
        self._run = run
        self._continued = continued
        self._open_sum = open_sum
        self._seen: dict[ParticipantId, Seen] = {}
        self._interrupted = continued is not None
        self._told_waiting: Waiting | None = None

    def note(self, participant: ParticipantId, seen: Seen) -> None:
        """Note what a site that connects knows of the run."""
        self._seen[participant] = seen

    def begin(self) -> Iterator[Effect]:
        """Begin the run, or end it where nothing is left to sum."""
        if self._run.training_run.next_sum() is None:
            yield from self._run.finish()
            return
        if self._continued is None and self._run.trains:
            yield Checkpoint(CheckpointKind.INITIAL)
        self._run.lost.take_up()
        yield from self._wait()

    def start(self) -> Iterator[Effect]:
        """Begin the next sum, unless what the sites know ends the run."""
        yield from self._compare()
        if self._run.phase is not Phase.ABORTED:
            yield from self._open_sum()

    def start_if_enough(self) -> Iterator[Effect]:
        """While waiting: begin the next sum, or say whom we wait for."""
        if not self._run.next.absent and self._run.next.has_quorum:
            yield from self.start()
            return
        if self._interrupted and not self._run.next.is_fixed and self._run.next.has_quorum:
            if not self._run.deadlines.is_running(DeadlineKind.SETTLE):
                yield self._run.deadlines.set(DeadlineKind.SETTLE, self._run.patience.reconnect_grace_seconds)
        else:
            yield from self._run.deadlines.cancel(DeadlineKind.SETTLE)
        until = self._run.deadlines.running(DeadlineKind.JOIN, DeadlineKind.SETTLE)
        waiting = self._run.next.waiting(self._run.training_run.next_sum(), until, self._run.lost)
        if waiting != self._told_waiting:
            self._told_waiting = waiting
            yield waiting

    def proceed(self) -> Iterator[Effect]:
        """Continue after a sum: with the next one, with waiting, or to the end."""
        if self._run.training_run.next_sum() is None:
            yield from self._run.finish()
        elif self._run.next.is_enough:
            yield from self.start()
        else:
            self._interrupted = True
            yield from self._wait()

    def after_lost_sum(self, outcome: Skipped | End | None) -> Iterator[Effect]:
        """Do what follows a lost sum."""
        if isinstance(outcome, tuple):
            yield from self._run.abort(*outcome)
            return
        if outcome is not None:
            yield outcome
        yield from self.proceed()

    def give_up(self) -> Iterator[Effect]:
        """Decide without those who did not come, but never before the journal is known to be the newest."""
        if self._continued is not None and not self._run.next.others_suffice:
            yield from self._run.abort(*self._run.next.lack(self._run.lost.due), ExitReason.QUORUM_MISSING)
            return
        yield from self._compare()
        if self._run.phase is Phase.ABORTED:
            return
        if self._run.next.may_begin_late:
            return (yield from self.start())
        lost, outcome = self._run.lost.give_up(self._run.sum_number)
        yield from lost
        yield from self.after_lost_sum(outcome)

    def _wait(self) -> Iterator[Effect]:
        self._run.phase = Phase.WAITING
        yield self._run.deadlines.set(DeadlineKind.JOIN, self._run.patience.join_deadline_seconds)
        yield from self.start_if_enough()

    def _compare(self) -> Iterator[Effect]:
        """Before anything is decided in this process: hold the journal against what the connected sites know."""
        continued, self._continued = self._continued, None
        if continued is None:
            return
        seen = {who: self._seen[who] for who in self._run.members.connected}
        leads, rounds = continued.leads(seen), continued.vouched_lead(seen)
        self._run.sum_number = max(self._run.sum_number, continued.vouched_number(seen))
        if leads:
            yield SitesAhead(leads, rounds)
        if continued.stops(rounds):
            yield from self._run.abort(*continued.words(rounds), ExitReason.RESTORED)
        elif rounds:
            self._run.lost.forget()
