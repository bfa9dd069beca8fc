"""The live display of the aggregator: rounds, the last evaluation, and whom we wait for since when."""

from __future__ import annotations

import time
from collections.abc import Collection

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from aggregator.notice_words import notice_words
from aggregator.notices import Notice
from aggregator.observer import summary
from fedfair.ids import ParticipantId
from fedfair.run.training_run import Progress as SumProgress

REFRESHES_PER_SECOND = 4


class TerminalDashboard:
    """A progress bar with two lines beneath it; notes scroll above."""

    def __init__(self, console: Console, rounds_total: int, rounds_done: int, worst_group_size: float) -> None:
        self._worst_group_size = worst_group_size
        self._bar = Progress(
            TextColumn("round"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._rounds = self._bar.add_task("rounds", total=rounds_total, completed=rounds_done)
        self._figures = Text("no evaluation yet")
        self._present: tuple[ParticipantId, ...] = ()
        self._awaited: tuple[ParticipantId, ...] = ()
        self._since = time.monotonic()
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
            redirect_stderr=False,
            redirect_stdout=False,
        )
        self._live.start()

    def noticed(self, notice: Notice) -> None:
        """Print its sentence above the display."""
        self._live.console.print(Text(notice_words(notice)))

    def waiting(self, present: Collection[ParticipantId], awaited: Collection[ParticipantId]) -> None:
        """Remember who is connected and who is waited for; the display shows it at its next refresh."""
        self._present = tuple(present)
        if tuple(awaited) != self._awaited:
            self._awaited, self._since = tuple(awaited), time.monotonic()

    def progressed(self, progress: SumProgress) -> None:
        """Move the bar, and show the figures of an evaluation."""
        self._bar.update(self._rounds, completed=int(progress.round))
        if progress.evaluation is not None:
            self._figures = Text(f"round {progress.round}: {summary(progress, self._worst_group_size)}")

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._live.stop()

    def _render(self) -> Group:
        seconds = time.monotonic() - self._since
        people = f"connected: {', '.join(self._present) or 'nobody'}"
        if self._awaited:
            people += f" · waiting for {', '.join(self._awaited)} for {seconds:.0f} s"
        return Group(self._bar, self._figures, Text(people, style="dim"))
