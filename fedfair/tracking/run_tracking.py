"""The processors that have a run tracked, by the aggregator and at a site.

The aggregator tracks its news, and its evaluations as the history has them; a site what its notes hold, its own
figures among it. A tracker's store is the site's own choice. Nothing of it goes through the link, so the record of
what left a site does not know it. There, tracking begins when the aggregator has named the run; what was said
before follows then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from fedfair.news.event import LoggedEvent, News, StatusUpdate
from fedfair.news.site import OwnRecordsEvaluated, RunJoined
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
    own_risk_figures,
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
        self._trackers.tell_failures(self._failed)

    def finish(self, state: str, words: str, result: ResultDocument | UnfinishedResult) -> None:
        """Track how the run ended.

        Args:
            state: finished, stopped or aborted.
            words: the same, for people.
            result: with the figures.
        """
        self._trackers.finish(TrackedEnd(state, words, result.rounds, result_figures(result)))
        self._trackers.tell_failures(self._failed)


class SiteTracking:
    """Hands the trackers what the other processors get, and these what a tracker cannot do.

    Args:
        targets: where to.
        run: what is tracked; the aggregator will name it.
        failed: takes the news that a tracker cannot write.
    """

    def __init__(
        self, targets: Iterable[TrackTarget], run: TrackedRun, failed: Callable[[StatusUpdate], None]
    ) -> None:
        self._targets = tuple(targets)
        self._run = run
        self._failed = failed
        self._trackers: Trackers | None = None
        self._earlier: list[LoggedEvent] = []
        self._rounds = 0

    def __call__(self, update: StatusUpdate) -> None:
        """Track news, and the figures of an evaluation."""
        if not isinstance(update, News):
            return
        if isinstance(update, RunJoined):
            self._join(update)
        event = update.logged()
        if self._trackers is None:
            self._earlier.append(event)
            return
        self._trackers.event(event)
        # The evaluation of a model that is returned is among those on the way.
        if isinstance(update, OwnRecordsEvaluated) and not update.figures.is_returned:
            self._rounds = update.figures.round
            self._trackers.figures(update.figures.round, own_risk_figures(update.figures))
        self._trackers.tell_failures(self._failed)

    def finish(self, state: str, words: str, rounds: int | None = None) -> None:
        """Track how the run ended for this site.

        Args:
            state: finished, stopped or aborted.
            words: the same, for people.
            rounds: training rounds done; None where only those of the last evaluation are known.
        """
        if self._trackers is not None:
            self._trackers.finish(TrackedEnd(state, words, self._rounds if rounds is None else rounds, {}))
            self._trackers.tell_failures(self._failed)

    def _join(self, joined: RunJoined) -> None:
        self._rounds = joined.rounds_done
        if self._run.run_id == joined.run_id and self._trackers is not None:
            return
        if self._trackers is not None:
            # The aggregator has begun another run.
            self._trackers.finish(TrackedEnd("aborted", "the aggregator began another run", self._rounds, {}), 0.0)
        self._run = replace(self._run, run_id=joined.run_id)
        self._trackers = Trackers(self._targets, self._run)
        for event in self._earlier:
            self._trackers.event(event)
        self._earlier.clear()
