"""The processor that has the aggregator's run tracked: its news, and its evaluations as the history has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedfair.news.event import News, StatusUpdate
from fedfair.news.sums import RoundEvaluated
from fedfair.plan.schema import Plan
from fedfair.results.document import ResultDocument, UnfinishedResult
from fedfair.results.writing import Setting, past_moment
from fedfair.tracking.background import Trackers
from fedfair.tracking.targets import TrackTarget
from fedfair.tracking.tracker import (
    TrackedEnd,
    TrackedRun,
    moment_figures,
    result_figures,
    tracked_facts,
)


class RunTracking:
    """Hands the trackers what the other processors get, and these what a tracker cannot do.

    Args:
        targets: where to.
        run_id: names the run.
        plan: of the run.
        plan_digest: "sha256:" and 64 hex digits.
        failed: takes the news that a tracker cannot write.
    """

    def __init__(
        self,
        targets: Iterable[TrackTarget],
        run_id: str,
        plan: Plan,
        plan_digest: str,
        failed: Callable[[StatusUpdate], None],
    ) -> None:
        facts = tracked_facts(plan, plan_digest)
        self._trackers = Trackers(targets, TrackedRun(run_id, plan.federation.name, "aggregator", facts))
        self._plan = plan
        self._failed = failed

    def __call__(self, update: StatusUpdate) -> None:
        """Track news, and the figures of an evaluation."""
        if isinstance(update, RoundEvaluated):
            moment = past_moment(update.evaluation, self._plan, Setting.DEPLOYMENT)
            self._trackers.figures(moment.round, moment_figures(moment))
        elif isinstance(update, News) and update.is_notice:
            self._trackers.event(update.logged())
        self._trackers.report_failures(self._failed)

    def finish(self, state: str, words: str, result: ResultDocument | UnfinishedResult) -> None:
        """Track how the run ended.

        Args:
            state: finished, stopped or aborted.
            words: the same, for people.
            result: with the figures.
        """
        self._trackers.finish(TrackedEnd(state, words, result.rounds, result_figures(result)))
        self._trackers.report_failures(self._failed)
