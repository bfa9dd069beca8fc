"""Runs trackers beside a run, each in a thread of its own, so that no store that is slow, away or full delays it.

A call that fails is repeated, later each time, and what has to wait too long is forgotten, the oldest first. The
operator is notified of the first fault of each tracker, once. At the end trackers get a few seconds; one that has
not written everything by then is left behind, and that is reported if no fault was.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial

from fedfair.news.event import LoggedEvent, StatusUpdate
from fedfair.news.tracker import TrackerFailed
from fedfair.tracking.stores import JsonlTracker, MlflowTracker, TensorboardTracker
from fedfair.tracking.targets import TrackerKind, TrackTarget
from fedfair.tracking.tracker import Figures, TrackedEnd, TrackedRun, Tracker

MAX_WAITING = 10_000
"""Calls that wait for a store; the next one makes the oldest be forgotten."""

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0
LAST_SECONDS = 10.0
"""How long a run that is over waits for its trackers, all together."""


def make_tracker(target: TrackTarget) -> Tracker:
    """Return the tracker of a target; its library is loaded here, which may take seconds."""
    return _STORES[target.kind](target.place)


_STORES: Mapping[TrackerKind, Callable[[str], Tracker]] = {
    TrackerKind.MLFLOW: MlflowTracker,
    TrackerKind.TENSORBOARD: TensorboardTracker,
    TrackerKind.JSONL: JsonlTracker,
}


class BackgroundTracker:
    """One tracker in its thread.

    Args:
        name: the target as it is shown.
        make: makes the tracker, in the thread.
        first_pause_seconds: after a fault; it doubles up to `MAX_PAUSE_SECONDS`.
    """

    def __init__(
        self, name: str, make: Callable[[], Tracker], first_pause_seconds: float = FIRST_PAUSE_SECONDS
    ) -> None:
        self._name = name
        self._make = make
        self._first_pause = first_pause_seconds
        self._calls: deque[Callable[[Tracker], None]] = deque()
        self._changed = threading.Condition()
        self._ends = False
        self._fault: str | None = None
        self._is_reported = False
        self._thread = threading.Thread(target=self._work, name=f"track {name}", daemon=True)
        self._thread.start()

    def put(self, call: Callable[[Tracker], None]) -> None:
        """Have a call made as soon as the store allows it; returns at once."""
        with self._changed:
            if len(self._calls) >= MAX_WAITING:
                # The first call begins the run: nothing can be written without it.
                del self._calls[1]
                self._fault = self._fault or f"more than {MAX_WAITING} entries wait, the oldest are forgotten"
            self._calls.append(call)
            self._changed.notify()

    def take_failure(self) -> TrackerFailed | None:
        """Return the first fault, once."""
        with self._changed:
            if self._fault is None or self._is_reported:
                return None
            self._is_reported = True
            return TrackerFailed(self._name, self._fault)

    def finish(self, seconds: float) -> None:
        """Wait so long at most until everything is written; what is not is given up."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(max(0.0, seconds))
        with self._changed:
            if self._thread.is_alive() or self._calls:
                self._fault = self._fault or f"{len(self._calls) or 'some'} entries were not written in time"

    def _work(self) -> None:
        try:
            self._write_all(self._make())
        except Exception as fault:
            # Nobody has foreseen it; a library's own mistake must not reach the run, and is no traceback either.
            with self._changed:
                self._fault = self._fault or _in_words(fault)
            raise SystemExit from fault

    def _write_all(self, tracker: Tracker) -> None:
        pause, begin = self._first_pause, None
        while (call := self._next()) is not None:
            try:
                if begin is not None and pause > self._first_pause:
                    begin(tracker)
                call(tracker)
            except tracker.faults as fault:
                with self._changed:
                    self._fault = self._fault or _in_words(fault)
                    if self._ends:
                        return
                    self._changed.wait_for(lambda: self._ends, pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
                continue
            begin, pause = begin or call, self._first_pause
            with self._changed:
                if self._calls and self._calls[0] is call:
                    self._calls.popleft()

    def _next(self) -> Callable[[Tracker], None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._calls or self._ends)
            return self._calls[0] if self._calls else None


class Trackers:
    """All trackers of one run.

    Args:
        targets: where to.
        run: what is tracked.
    """

    def __init__(self, targets: Iterable[TrackTarget], run: TrackedRun) -> None:
        self._trackers = [BackgroundTracker(target.shown, partial(make_tracker, target)) for target in targets]
        self._put(lambda tracker: tracker.begin(run))

    def event(self, event: LoggedEvent) -> None:
        """Track one notice."""
        now = datetime.now(UTC)
        self._put(lambda tracker: tracker.event(now, event))

    def figures(self, number: int, figures: Figures) -> None:
        """Track the figures of the evaluation after a training round."""
        now = datetime.now(UTC)
        self._put(lambda tracker: tracker.figures(now, number, figures))

    def finish(self, end: TrackedEnd, seconds: float = LAST_SECONDS) -> None:
        """Track the end of the run, and wait a little for the stores."""
        now, until = datetime.now(UTC), time.monotonic() + seconds
        self._put(lambda tracker: tracker.end(now, end))
        for tracker in self._trackers:
            tracker.finish(until - time.monotonic())

    def take_failures(self) -> list[TrackerFailed]:
        """Return the first fault of each tracker, once."""
        return [failure for tracker in self._trackers if (failure := tracker.take_failure()) is not None]

    def report_failures(self, failed: Callable[[StatusUpdate], None]) -> None:
        """Hand over the first fault of each tracker, once."""
        for failure in self.take_failures():
            failed(failure)

    def _put(self, call: Callable[[Tracker], None]) -> None:
        for tracker in self._trackers:
            tracker.put(call)


def _in_words(fault: Exception) -> str:
    """Return a library's words in one line, without passwords, or the kind of its fault where it has none."""
    line = re.sub(r"//[^/@\s]+@", "//", str(fault).split("\n")[0]).strip()
    return line or type(fault).__name__
