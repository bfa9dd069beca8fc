"""Has a simulation logged as JSON lines and tracked; such a run has no name but the one that it is given here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from fedfair.news.event import LoggedEvent, LogLevel
from fedfair.news.log import JsonLog
from fedfair.news.sums import news_of_sum
from fedfair.plan.schema import Plan
from fedfair.process.terminal import tell
from fedfair.results.document import Json, ResultDocument
from fedfair.results.writing import Setting, past_moment
from fedfair.run.training_run import Progress
from fedfair.tracking.background import Trackers
from fedfair.tracking.targets import TrackTarget
from fedfair.tracking.tracker import TrackedEnd, TrackedRun, moment_figures, result_figures, tracked_facts


class SimulationWatch:
    """Takes every applied sum, and the end.

    Args:
        plan: what is simulated.
        log: of programs; None where people read.
        targets: where the run is tracked.
        shown: whether sums are logged.

    Attributes:
        rounds: training rounds of the plan.
        worst_group_size: of the plan.
    """

    def __init__(self, plan: Plan, log: JsonLog | None, targets: Sequence[TrackTarget], *, shown: bool) -> None:
        self._plan, self._log, self._shown = plan, log, shown
        self.rounds, self.worst_group_size = plan.training.rounds, plan.objective.worst_group_size
        run_id = uuid.uuid4().hex
        if log is not None:
            log.run_id = run_id
        run = TrackedRun(run_id, plan.federation.name, "simulation", tracked_facts(plan))
        self._trackers = Trackers(targets, run)

    def together(self, other: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return what takes a sum for another one and for this one."""

        def progressed(progress: Progress) -> None:
            other(progress)
            self._progressed(progress)

        return progressed

    def _progressed(self, progress: Progress) -> None:
        if self._log is not None and self._shown:
            for news in news_of_sum(progress, self.rounds, self.worst_group_size):
                self._log.event(news.logged())
        if progress.evaluation is not None:
            moment = past_moment(progress.evaluation, self._plan, Setting.SIMULATION)
            self._trackers.figures(moment.round, moment_figures(moment))

    def lost(self, worker: int, reason: str) -> None:
        """Take the loss of a worker, which is replaced."""
        words = f"worker {worker + 1} was lost and is replaced: {reason}"
        if self._log is not None:
            self._log.doubt("worker_lost", words)
        elif self._shown:
            tell(words, "yellow")

    def ended(self, result: ResultDocument) -> list[str]:
        """Take the end of the run; return what is to be said about trackers."""
        words = f"finished after {result.rounds} rounds"
        self._trackers.finish(TrackedEnd("finished", words, result.rounds, result_figures(result)))
        failures = self._trackers.take_failures()
        if self._log is None:
            return [failure.sentence for failure in failures]
        for failure in failures:
            self._log.event(failure.logged())
        if self._shown:
            fields: dict[str, Json] = {"state": "finished", "rounds_done": result.rounds}
            self._log.event(LoggedEvent("run_ended", LogLevel.INFO, words, fields))
        return []
