"""`fedfair reproduce`: the paper's experiments on data that are at hand, with figures, tables and what differs."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import typer

from fedfair.errors import FedfairError
from fedfair.process.terminal import console
from fedfair.processors import usable_processors
from fedfair.report.html import check_replaceable

DATA_SETS = ("acs-employment", "acs-income", "mnist", "eicu", "heart", "adult")


def reproduce_command(
    data_set: str = typer.Argument(..., help=f"One of {', '.join(DATA_SETS)}."),
    data: Path = typer.Option(..., "--data", help="The folder of the published files."),
    out: Path = typer.Option(
        None, "--output", "-o", help="Folder for everything that is written.", show_default="reproduction/DATA_SET"
    ),
    quick: bool = typer.Option(True, "--quick/--full", help="Take minutes, or hours."),
    workers: int = typer.Option(
        0, "--workers", min=0, help="Number of processes; 0 takes one for each processor."
    ),
    hours: float = typer.Option(
        None,
        "--hours",
        min=0,
        help="Start no run after so many hours, and report what there is.",
        show_default="no limit",
    ),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show neither progress nor table."),
) -> None:
    """Reproduce the paper's experiments. Finished runs are kept; the same command resumes."""
    if data_set not in DATA_SETS:
        raise typer.BadParameter(f"{data_set!r} is none of {', '.join(DATA_SETS)}", param_hint="DATA_SET")
    if not data.is_dir():
        raise FedfairError(f"{data} is no folder", f"name the folder of the {data_set} files by --data")
    place = out or Path("reproduction") / data_set
    if place.exists() and not place.is_dir():
        raise FedfairError(f"{place} is a file", "name a folder by --output")
    check_replaceable(place / "index.html")
    # Torch and its friends take seconds to load; a mistake on the command line should not have to wait.
    from fedfair.cli.reproduction import reproduce

    crew = workers or usable_processors()
    command = shlex.join(["fedfair", *sys.argv[1:]])
    began = time.monotonic()
    summary = reproduce(
        data_set,
        data,
        place,
        quick=quick,
        workers=crew,
        command=command,
        quiet=quiet,
        is_over=lambda: hours is not None and time.monotonic() - began >= 3600 * hours,
    )
    if not quiet:
        for table in summary.tables:
            console.print(table)
    console.print(f"The page: {place / 'index.html'}   the tables: {place / 'README.md'}")
    if summary.unfinished:
        console.print(f"{summary.unfinished} runs are left; the same command runs them")
    if summary.failures:
        raise FedfairError(f"{summary.failures} runs failed; the figures omit them", f"see {place}/*/runs/failed")
