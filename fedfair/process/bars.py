"""Progress bars: how each is drawn, and that of many fits; those of runs and sweeps have modules of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from fedfair.extras import is_installed
from fedfair.process.terminal import error_console

FIGURES = TextColumn("[dim]{task.fields[figures]}")
"""The figures beside a bar."""


def drawn(console: Console, *columns: ProgressColumn, quiet: bool) -> Progress:
    """Return a bar for a terminal or a notebook with widgets, undrawn where `quiet`; a context manager."""
    title = TextColumn("{task.description}")
    shown = console.is_terminal or (console.is_jupyter and is_installed("ipywidgets"))
    return Progress(title, BarColumn(), *columns, console=console, disable=quiet or not shown)


@contextmanager
def fits_bar(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show how many models are fitted; yields what takes their number, and of how many."""
    with drawn(error_console, MofNCompleteColumn(), TimeRemainingColumn(), quiet=quiet) as bar:
        task = bar.add_task("models", total=None)

        def fitted(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield fitted
