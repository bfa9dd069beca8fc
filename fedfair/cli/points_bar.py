"""A progress bar over many points: those that have ended, and the share of those that are running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn, TimeRemainingColumn

from fedfair.process.bars import FIGURES, drawn
from fedfair.studies.sweep.events import Event, Failure


@contextmanager
def points_bar(
    points: int, finished: int, console: Console, *, quiet: bool = False, title: str = "points"
) -> Iterator[PointsBar]:
    """Show how far a sweep is, with the share of points that are running.

    Args:
        points: points in all.
        finished: how many of them are finished already.
        console: where to draw.
        quiet: draw nothing.
        title: what stands in front of the bar.
    """
    ended = TextColumn("{task.fields[ended]}/{task.total:.0f}")
    columns = (ended, TimeRemainingColumn(elapsed_when_finished=True), FIGURES)
    with drawn(console, *columns, quiet=quiet) as bar:
        task = bar.add_task(title, total=points, completed=finished, ended=finished, figures="")
        yield PointsBar(bar, task, finished)


class PointsBar:
    """The bar of a sweep.

    Args:
        bar: what is drawn.
        task: of the sweep.
        finished: points that are finished already.
    """

    def __init__(self, bar: Progress, task: TaskID, finished: int) -> None:
        self._bar, self._task = bar, task
        self._ended, self._failed = finished, 0
        self._running: dict[str, float] = {}

    def take(self, event: Event) -> None:
        """Take what an engine reports."""
        if isinstance(event.said, int):
            self._running[event.point.id] = event.said / event.point.plan.training.rounds
        else:
            self._running.pop(event.point.id, None)
            self._ended += 1
            self._failed += isinstance(event.said, Failure)
        done = self._ended + sum(self._running.values())
        figures = f"{len(self._running)} running" + (f", {self._failed} failed" if self._failed else "")
        self._bar.update(self._task, completed=done, ended=self._ended, figures=figures)
