"""A progress bar over the rounds of a run, with the last evaluation beside it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedfair.plan.description import percent
from fedfair.results.loss_text import loss_text
from fedfair.run.training_run import Progress as RoundProgress


class RoundsBar:
    """Shows how far a run is; a context manager.

    Args:
        rounds: training rounds in all.
        worst_group_size: the group size whose risk stands beside the bar.
        console: where to draw; nothing is drawn unless it is a terminal.
        quiet: draw nothing.
        title: what stands in front of the bar.
    """

    def __init__(
        self,
        rounds: int,
        worst_group_size: float,
        console: Console,
        *,
        quiet: bool = False,
        title: str = "rounds",
    ) -> None:
        self._worst_group_size = worst_group_size
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("[dim]{task.fields[figures]}"),
        )
        self._bar = Progress(*columns, console=console, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task(title, total=rounds, figures="")

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
