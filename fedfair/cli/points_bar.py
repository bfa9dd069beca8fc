"""A progress bar over many points: those that have ended, and the share of those that are running."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedfair.studies.sweep.events import Event, PointAdvanced, PointFailed


class PointsBar:
    """Shows how far a sweep is, with the share of points that are running; a context manager.

    Args:
        points: points in all.
        finished: how many of them are finished already.
        console: where to draw; nothing is drawn unless it is a terminal.
        quiet: draw nothing.
        title: what stands in front of the bar.
    """

    def __init__(
        self, points: int, finished: int, console: Console, *, quiet: bool = False, title: str = "points"
    ) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[ended]}/{task.total:.0f}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("[dim]{task.fields[figures]}"),
        )
        self._ended, self._failed = finished, 0
        self._running: dict[str, float] = {}
        self._bar = Progress(*columns, console=console, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task(title, total=points, completed=finished, ended=finished, figures="")

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the last state on the screen."""
        self._bar.stop()

    def take(self, event: Event) -> None:
        """Take what an engine reports."""
        if isinstance(event, PointAdvanced):
            self._running[event.point.id] = event.rounds / event.point.plan.training.rounds
        else:
            self._running.pop(event.point.id, None)
            self._ended += 1
            self._failed += isinstance(event, PointFailed)
        done = self._ended + sum(self._running.values())
        figures = f"{len(self._running)} running" + (f", {self._failed} failed" if self._failed else "")
        self._bar.update(self._task, completed=done, ended=self._ended, figures=figures)
