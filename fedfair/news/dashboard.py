"""The live display of the aggregator: rounds, the last evaluation, and whom we wait for since when."""

from __future__ import annotations

import time

from rich import progress as bars
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fedfair.news.event import LogLevel, News, StatusUpdate
from fedfair.news.figures import Attendance
from fedfair.news.sums import RoundEvaluated, SumApplied

REFRESHES_PER_SECOND = 4


class TerminalDashboard:
    """The processor that shows a progress bar with two lines beneath it; sentences scroll above.

    Args:
        console: where to.
        rounds_total: training rounds of the plan.
        rounds_done: training rounds that are done already.
        level: the least whose sentence is shown.
    """

    def __init__(self, console: Console, rounds_total: int, rounds_done: int, level: LogLevel) -> None:
        self._level = level
        self._bar = bars.Progress(
            bars.TextColumn("round"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TimeElapsedColumn(),
            bars.TextColumn("left"),
            bars.TimeRemainingColumn(),
            console=console,
        )
        self._rounds = self._bar.add_task("rounds", total=rounds_total, completed=rounds_done)
        self._figures = Text("no evaluation yet")
        self._attendance = Attendance((), ())
        self._since = time.monotonic()
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
            redirect_stderr=False,
            redirect_stdout=False,
        )
        self._live.start()

    def __call__(self, update: StatusUpdate) -> None:
        """Show an update; attendance is shown at the next refresh."""
        match update:
            case Attendance():
                if update.awaited != self._attendance.awaited:
                    self._since = time.monotonic()
                self._attendance = update
            case SumApplied(progress):
                self._bar.update(self._rounds, completed=int(progress.round))
            case RoundEvaluated():
                self._figures = Text(f"round {update.round}: {update.figures}")
            case News() if self._level.includes(update.level):
                self._live.console.print(Text(update.sentence))

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._live.stop()

    def _render(self) -> Group:
        seconds = time.monotonic() - self._since
        people = f"connected: {', '.join(self._attendance.present) or 'nobody'}"
        if self._attendance.awaited:
            people += f" · waiting for {', '.join(self._attendance.awaited)} for {seconds:.0f} s"
        return Group(self._bar, self._figures, Text(people, style="dim"))
