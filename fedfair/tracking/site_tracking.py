"""The processor that has a run tracked at a site: what the site's notes hold, its own figures among it.

A tracker's store is the site's own choice. Nothing of it goes through the link, so the record of what left a site
does not know it. Tracking begins when the aggregator has named the run; what was said before follows then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from fedfair.news.event import LoggedEvent, News, StatusUpdate
from fedfair.news.site import OwnRecordsEvaluated, RunJoined
from fedfair.tracking.background import Trackers
from fedfair.tracking.targets import TrackTarget
from fedfair.tracking.tracker import TrackedEnd, TrackedRun, own_risk_figures


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
        self._trackers.report_failures(self._failed)

    def finish(self, state: str, words: str, rounds: int | None = None) -> None:
        """Track how the run ended for this site.

        Args:
            state: finished, stopped or aborted.
            words: the same, for people.
            rounds: training rounds done; None where only those of the last evaluation are known.
        """
        if self._trackers is not None:
            self._trackers.finish(TrackedEnd(state, words, self._rounds if rounds is None else rounds, {}))
            self._trackers.report_failures(self._failed)

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
