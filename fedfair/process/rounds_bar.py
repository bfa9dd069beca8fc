"""A progress bar over the rounds of a run, with the last evaluation beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TaskID, TimeRemainingColumn

from fedfair.plan.description import percent
from fedfair.process.bars import FIGURES, drawn
from fedfair.results.loss_text import loss_text
from fedfair.run.training_run import Progress as RoundProgress


@contextmanager
def rounds_bar(
    rounds: int, worst_group_size: float, console: Console, *, quiet: bool = False, title: str = "rounds"
) -> Iterator[RoundsBar]:
    """Show how far a run is.

    Args:
        rounds: training rounds in all.
        worst_group_size: the group size whose risk stands beside the bar.
        console: where to draw.
        quiet: draw nothing.
        title: what stands in front of the bar.
    """
    columns = (MofNCompleteColumn(), TimeRemainingColumn(), FIGURES)
    with drawn(console, *columns, quiet=quiet) as bar:
        yield RoundsBar(bar, bar.add_task(title, total=rounds, figures=""), worst_group_size)


class RoundsBar:
    """The bar of a run.

    Args:
        bar: what is drawn.
        task: of the run.
        worst_group_size: the group size whose risk stands beside the bar.
    """

    def __init__(self, bar: Progress, task: TaskID, worst_group_size: float) -> None:
        self._bar, self._task, self._worst_group_size = bar, task, worst_group_size

    def progressed(self, progress: RoundProgress) -> None:
        """Take one applied sum."""
        self._bar.update(self._task, completed=progress.round)
        if progress.evaluation is not None:
            train = progress.evaluation.splits["train"]
            self._show(train.mean, train.by_group_size[self._worst_group_size].worst)

    def take_line(self, line: Mapping[str, object]) -> None:
        """Take one line of an aggregator's `progress_lines`."""
        rounds, train = line["round"], line.get("train")
        if isinstance(rounds, int):
            self._bar.update(self._task, completed=rounds)
        if isinstance(train, Mapping):
            self._show(float(train["mean"]), float(train["worst"]))

    def _show(self, mean: float, worst: float) -> None:
        figures = f"mean loss {loss_text(mean)}, worst {percent(self._worst_group_size)} {loss_text(worst)}"
        self._bar.update(self._task, figures=figures)
