"""An observer that has a run tracked: its notices, and its evaluations as the history of the result has them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from aggregator.notice_events import event_of
from aggregator.notices import Notice
from aggregator.observer import RunObserver
from aggregator.outcome import Ending
from aggregator.preparation import Run
from fedfair.ids import ParticipantId
from fedfair.plan.digest import format_digest
from fedfair.results.document import ResultDocument, UnfinishedResult
from fedfair.results.writing import Setting, past_moment
from fedfair.run.training_run import Progress
from fedfair.tracking.background import Trackers
from fedfair.tracking.facts import tracked_facts
from fedfair.tracking.targets import TrackTarget
from fedfair.tracking.tracker import TrackedEnd, TrackedRun, moment_figures, result_figures


class RunTracking:
    """Tells the trackers what the other observers are told, and these what a tracker cannot do.

    Args:
        targets: where to.
        run: the run.
        told: the observers that have a tracker's failure told.
    """

    def __init__(self, targets: Iterable[TrackTarget], run: Run, told: RunObserver) -> None:
        plan = run.plan
        facts = tracked_facts(plan, format_digest(run.plan_digest))
        self._trackers = Trackers(
            targets, TrackedRun(run.records.run_id, plan.federation.name, "aggregator", facts)
        )
        self._plan = plan
        self._told = told

    def noticed(self, notice: Notice) -> None:
        """Track it."""
        self._trackers.event(event_of(notice))
        self._tell()

    def waiting(self, present: Collection[ParticipantId], awaited: Collection[ParticipantId]) -> None:
        """Track nothing, but tell what a tracker could not do."""
        del present, awaited
        self._tell()

    def progressed(self, progress: Progress) -> None:
        """Track the figures of an evaluation."""
        if progress.evaluation is not None:
            moment = past_moment(progress.evaluation, self._plan, Setting.DEPLOYMENT)
            self._trackers.figures(moment.round, moment_figures(moment))

    def close(self) -> None:
        """Track nothing more: `finish` follows, when the result is written."""

    def finish(self, ending: Ending, result: ResultDocument | UnfinishedResult) -> None:
        """Track how the run ended."""
        self._trackers.finish(TrackedEnd(ending.state.value, ending.words, result.rounds, result_figures(result)))
        self._tell()

    def _tell(self) -> None:
        for failure in self._trackers.take_failures():
            self._told.noticed(failure)
