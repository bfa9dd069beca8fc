"""Tracks a run in a file of JSON lines: one for its beginning, each notice, each evaluation, and its end.

Only the owner of the file can read it, for a site's own figures may be in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from fedfair.news.event import LoggedEvent
from fedfair.process.log_lines import log_line
from fedfair.store.line_end import is_cut
from fedfair.tracking.tracker import Figures, TrackedEnd, TrackedRun


class JsonlTracker:
    """Appends to a file; several runs may share it, for every line names its run.

    Args:
        path: the file; its folder is made.
    """

    faults: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run_id = ""
        self._is_torn = False

    def begin(self, run: TrackedRun) -> None:
        """Make the folder and write whose run follows."""
        self._run_id = run.run_id
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._is_torn = is_cut(self._path)
        about = {"federation": run.federation, "role": run.role, "facts": dict(run.facts)}
        self._append(datetime.now(UTC), {"event": "tracking_begun", **about})

    def event(self, when: datetime, event: LoggedEvent) -> None:
        """Write one notice, as the JSON log has it."""
        own = {key: value for key, value in event.fields.items() if key != "run_id"}
        said = {"level": event.level.value, "message": event.words}
        self._append(when, {"event": event.name, **said, **own})

    def figures(self, when: datetime, number: int, figures: Figures) -> None:
        """Write the figures of one evaluation."""
        self._append(when, {"event": "figures", "round": number, "figures": dict(figures)})

    def end(self, when: datetime, end: TrackedEnd) -> None:
        """Write how the run ended."""
        told = {"state": end.state, "message": end.words, "rounds_done": end.rounds}
        self._append(when, {"event": "tracking_ended", **told, "figures": dict(end.figures)})

    def _append(self, when: datetime, fields: Mapping[str, object]) -> None:
        # A line that a full disk has cut is ended before the next one, so that a reader loses it alone.
        line = ("\n" if self._is_torn else "") + log_line(when, self._run_id, fields) + "\n"
        self._is_torn = True
        with open(self._path, "a", encoding="utf-8", opener=_for_its_owner) as target:
            target.write(line)
        self._is_torn = False


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
