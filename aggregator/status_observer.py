"""An observer that keeps the status of a run, for those who watch it over HTTP.

It holds one value and replaces it with each piece of news; whoever reads it gets a value that changes no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from aggregator.notices import Notice
from aggregator.observer import Measure
from aggregator.preparation import Run
from aggregator.status_fold import News, fold
from fedfair.ids import AGGREGATOR, ParticipantId
from fedfair.run.training_run import Progress
from fedfair.watching.run_status import Attendance, RunStatus, over


def initial_status(run: Run, now: datetime) -> RunStatus:
    """Return the status of a run that is about to be driven."""
    return RunStatus(
        role="aggregator",
        name=AGGREGATOR,
        federation=run.plan.federation.name,
        rounds_total=0 if run.training_run.evaluation_only else run.plan.training.rounds,
        worst_group_size=run.plan.objective.worst_group_size,
        loss_unit=run.plan.task.loss.unit,
        sites=tuple(run.plan.federation.collaborators),
        started=now,
        run_id=run.records.run_id,
        rounds_done=int(run.training_run.rounds_done),
        certificate_ends=run.identity.certificate.not_valid_after_utc,
    )


MANY_AWAITED = 64
"""Up to so many awaited sites, each answer is folded in at once: it takes microseconds."""

COALESCED = timedelta(seconds=0.2)
"""The answers of more sites are folded in together, so that n answers do not take n² steps."""


class StatusObserver:
    """Keeps the status.

    Args:
        status: at the beginning.
        clock: the time, with a time zone.
    """

    def __init__(self, status: RunStatus, clock: Callable[[], datetime]) -> None:
        self._status = status
        self._clock = clock
        self._attendance: Attendance | None = None
        self._folded = status.started

    @property
    def status(self) -> RunStatus:
        """Return the present status."""
        self._take_attendance()
        return self._status

    def noticed(self, notice: Notice) -> None:
        """Fold it in."""
        self._take(notice)

    def waiting(self, present: Collection[ParticipantId], awaited: Collection[ParticipantId]) -> None:
        """Fold it in, or remember it for a moment."""
        self._attendance = Attendance(tuple(present), tuple(awaited))
        if len(awaited) <= MANY_AWAITED or self._clock() - self._folded >= COALESCED:
            self._take_attendance()

    def progressed(self, progress: Progress) -> None:
        """Fold it in."""
        self._take(progress)

    def measured(self, measure: Measure) -> None:
        """Fold it in."""
        self._take(measure)

    def close(self) -> None:
        """Note that the run is over."""
        self._status = over(self.status, self._clock())

    def _take(self, news: News) -> None:
        self._take_attendance()
        self._status = fold(self._status, news, self._clock())

    def _take_attendance(self) -> None:
        if self._attendance is not None:
            self._folded = self._clock()
            self._status = fold(self._status, self._attendance, self._folded)
            self._attendance = None
