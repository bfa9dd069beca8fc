"""`fedfair sweep`: many plans that differ in a few values, in parallel, with one table at the end."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedfair.cli.points_bar import points_bar
from fedfair.errors import FedfairError
from fedfair.plan.deployment import check_trains
from fedfair.plan.loading import plan_document, workspace_of
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.process.terminal import console, error_console, say, tell
from fedfair.processors import usable_processors
from fedfair.report.sweeps import sweep_drawing
from fedfair.store.atomic_file import write_whole
from fedfair.studies.sweep.grid import SEED, Point, in_words, named_axis, parse_grid, points_of
from fedfair.studies.sweep.selection import Criterion
from fedfair.studies.sweep.table import Rule, SweepTable, check_comparable, table_csv, table_json, tabulate

if TYPE_CHECKING:
    from fedfair.studies.sweep.events import Engine
    from fedfair.studies.sweep.execution import Outcome
    from fedfair.studies.sweep.folder import SweepFolder

MAX_ROWS = 40
"""Rows in the terminal; the files have all."""

MAX_FAILURES = 10


class EngineName(enum.StrEnum):
    """The engine that runs the points."""

    LOCAL = "local"
    RAY = "ray"


def sweep_command(
    plan_file: Path = typer.Option(Path("plan/plan.yaml"), "--plan", "-p", help="The plan that all points vary."),
    grid: list[str] = typer.Option(
        ...,
        "--grid",
        "-g",
        help="KEY=VALUE,VALUE,... Repeatable. KEY is a short word or a plan key such as training.batch_size.",
    ),
    out: Path = typer.Option(Path("sweep"), "--output", "-o", help="Folder of the sweep, which resumes there."),
    engine: EngineName = typer.Option(EngineName.LOCAL, "--engine", help="Processes here, or a Ray cluster."),
    workers: int = typer.Option(
        None, "--workers", "-w", min=1, help="Number of points at a time.", show_default="the processors"
    ),
    select: Criterion = typer.Option(
        Criterion.OBJECTIVE, "--select", help="Criterion to minimise on the validation records."
    ),
    per: list[str] = typer.Option(
        None, "--per", help="Select one point for each value of this key. Repeatable.", show_default=False
    ),
    show_test: bool = typer.Option(False, "--show-test", help="Show test figures of all points, for curves."),
    as_json: bool = typer.Option(False, "--json", help="Print the table as JSON."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show neither progress nor table."),
) -> None:
    """Run the plan at every point of a grid and select the best on the validation records.

    The folder keeps finished points. The same command resumes a stopped or killed sweep.
    """
    document = plan_document(plan_file)
    base = check_trains(validated(Plan, document))
    axes = parse_grid(grid)
    points = points_of(document, axes)
    compared = [axis for axis in axes if axis.name != SEED]
    rule = Rule(select, tuple(named_axis(key, compared) for key in per or ()), show_test)
    check_comparable(points, base, rule)
    # Torch takes seconds to load; a grid with a mistake should not have to wait for it.
    from fedfair.studies.sweep.folder import SweepFolder

    workspace = workspace_of(plan_file)
    folder = SweepFolder(out)
    folder.open(base, workspace)
    outcome = _run(points, folder, _engine(engine, workspace, workers), quiet=quiet)
    table = tabulate(points, outcome.results, base, rule)
    _write(table, out)
    _show(table, out, as_json=as_json, quiet=quiet)
    if outcome.failures:
        raise _failed(points, outcome)


def _engine(name: EngineName, workspace: Path, workers: int | None) -> Engine:
    if name is EngineName.RAY:
        from fedfair.studies.sweep.cluster import run_on_ray

        return partial(run_on_ray, root=workspace, workers=workers)
    from fedfair.studies.sweep.local import run_locally

    return partial(run_locally, root=workspace, workers=workers or usable_processors())


def _run(points: Sequence[Point], folder: SweepFolder, engine: Engine, *, quiet: bool) -> Outcome:
    from fedfair.studies.sweep.execution import run_points

    there = len(folder.finished(points))
    if not quiet:
        finished = f", {there} of them finished before" if there else ""
        tell(f"{len(points)} points{finished}; results in {folder.path}")
    try:
        with points_bar(len(points), there, error_console, quiet=quiet) as bar:
            return run_points(points, folder, engine, bar.take)
    except KeyboardInterrupt:
        done = len(folder.finished(points))
        tell(f"stopped: {done} of {len(points)} points are finished; the same command runs the rest")
        raise


def _write(table: SweepTable, out: Path) -> None:
    write_whole(out / "table.csv", table_csv(table))
    write_whole(out / "table.json", json.dumps(table_json(table), indent=2) + "\n")


def _show(table: SweepTable, out: Path, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        console.print_json(json.dumps(table_json(table)))
    elif not quiet:
        console.print(sweep_drawing(table, MAX_ROWS))
        say(f"all figures: {out / 'table.csv'}, {out / 'table.json'}")
    for note in table.notes:
        tell(note)


def _failed(points: Sequence[Point], outcome: Outcome) -> FedfairError:
    """Return the fault of a sweep of which some points have no result."""
    failures = [(point, outcome.failures[point.id]) for point in points if point.id in outcome.failures]
    lines = [f"{in_words(point.settings)}: {failure.message}" for point, failure in failures[:MAX_FAILURES]]
    if len(failures) > MAX_FAILURES:
        lines.append(f"and {len(failures) - MAX_FAILURES} more")
    head = f"{len(failures)} of {len(points)} points failed:"
    remedies = dict.fromkeys(failure.remedy for _, failure in failures if failure.remedy)
    again = "the same command tries them again"
    return FedfairError("\n  ".join([head, *lines]), "; ".join([*list(remedies)[:3], again]))
