"""Runs `fedfair reproduce` once its options are parsed: run, read, write the page and the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from fedfair.atomic_file import write_whole
from fedfair.cli.points_bar import PointsBar
from fedfair.experiments.reproduction.claims import findings
from fedfair.experiments.reproduction.composition import Shares
from fedfair.experiments.reproduction.execution import Done, PreparedStudy
from fedfair.experiments.reproduction.membership import worst_group_shares
from fedfair.experiments.reproduction.studies import STUDIES
from fedfair.process.terminal import error_console
from fedfair.report.reproduction.page import reproduction_page, reproduction_summary
from fedfair.report.reproduction.tables import Rows, verdicts, worst_groups

Finished = list[tuple[Done, Mapping[str, Shares]]]


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary that is shown at the end.

    Attributes:
        tables: for the terminal.
        failures: runs without a result.
    """

    tables: tuple[Table, ...]
    failures: int


def reproduce(
    data_set: str, data: Path, out: Path, *, quick: bool, workers: int, command: str, quiet: bool
) -> Summary:
    """Run the studies of a data set, and write index.html, README.md and marks.json.

    Args:
        data_set: a name of `STUDIES`.
        data: the folder of the published files.
        out: where everything goes.
        quick: the small size.
        workers: processes.
        command: how it was called, for the summary.
        quiet: show no progress.

    Raises:
        FedfairError: the data are not what was published, or `out` belongs to other settings.
    """
    done: Finished = []
    for study in STUDIES[data_set]:
        prepared = PreparedStudy(study, study.quick if quick else study.full, data, out)
        points, before = len(prepared.runs.points), prepared.finished()
        with PointsBar(points, before, error_console, quiet=quiet, title=study.name) as bar:
            finished = prepared.run(workers, bar.take)
        done.append((finished, worst_group_shares(finished)))
    title = f"{data_set}: the paper's experiments again ({'quick' if quick else 'full'} size)"
    write_whole(out / "index.html", reproduction_page(title, done))
    write_whole(out / "README.md", reproduction_summary(title, command, done))
    write_whole(out / "marks.json", json.dumps(_marks(done), indent=1) + "\n")
    tables = [_terminal(rows) for one, _ in done for rows in (worst_groups(one), verdicts(findings(one.evidence)))]
    return Summary(tuple(tables), sum(len(one.failures) for one, _ in done))


def _terminal(rows: Rows) -> Table:
    table = Table(title=rows.caption, title_justify="left")
    for place, head in enumerate(rows.head):
        table.add_column(head, justify="right" if place else "left")
    for row in rows.body:
        table.add_row(*row)
    return table


def _marks(done: Finished) -> list[dict[str, object]]:
    """Return every mark as JSON: what the charts show, for other tools."""
    return [
        {
            "study": one.study.name,
            "figure": mark.cell.figure.value,
            "method": mark.cell.method,
            "worst_group_size": mark.cell.group_size,
            "tradeoff": mark.cell.tradeoff,
            "local_steps": mark.cell.local_steps,
            "settings": [dict(settings) for settings in mark.settings],
            **{
                split: {name: [value.mean, value.standard_error] for name, value in figures.items()}
                for split, figures in (("train", mark.train), ("test", mark.test))
            },
        }
        for one, _ in done
        for mark in one.evidence.marks
    ]
