"""Runs `fedfair reproduce` once its options are parsed: run, read, write the page and the tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from fedfair.cli.points_bar import points_bar
from fedfair.process.terminal import error_console
from fedfair.report.reproduction.page import reproduction_page, reproduction_summary
from fedfair.report.reproduction.tables import Rows, verdict_counts, worst_groups
from fedfair.store.atomic_file import write_whole
from fedfair.studies.reproduction.claims import CLAIMS
from fedfair.studies.reproduction.conclusions import Conclusions, conclude
from fedfair.studies.reproduction.execution import Done, PreparedStudy
from fedfair.studies.reproduction.studies import STUDIES

Finished = list[tuple[Done, Conclusions]]


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary that is shown at the end.

    Attributes:
        tables: for the terminal.
        failures: runs that failed.
        unfinished: runs that were not begun, because the time was up.
    """

    tables: tuple[Table, ...]
    failures: int
    unfinished: int


def reproduce(
    data_set: str,
    data: Path,
    out: Path,
    *,
    quick: bool,
    workers: int,
    command: str,
    quiet: bool,
    is_over: Callable[[], bool] = lambda: False,
) -> Summary:
    """Run the studies of a data set, and write index.html, README.md, marks.json and claims.json.

    Args:
        data_set: a name of `STUDIES`.
        data: the folder of the published files.
        out: where everything goes.
        quick: the small size.
        workers: processes.
        command: how it was called, for the summary.
        quiet: show no progress.
        is_over: asked whenever a run has ended; true starts no further one.

    Raises:
        FedfairError: the data are not what was published, or `out` belongs to other settings.
    """
    done: Finished = []
    for study in STUDIES[data_set]:
        prepared = PreparedStudy(study, study.quick if quick else study.full, data, out)
        points, before = len(prepared.runs.points), prepared.finished()
        with points_bar(points, before, error_console, quiet=quiet, title=study.name) as bar:
            finished = prepared.run(workers, bar.take, is_over)
        done.append((finished, conclude(finished)))
    title = f"{data_set}: the paper's experiments again ({'quick' if quick else 'full'} size)"
    write_whole(out / "index.html", reproduction_page(title, done))
    write_whole(out / "README.md", reproduction_summary(title, command, done))
    write_whole(out / "marks.json", json.dumps(_marks(done), indent=1) + "\n")
    write_whole(out / "claims.json", json.dumps(_claims(done), indent=1, ensure_ascii=False) + "\n")
    tables = [
        _terminal(rows) for one, shown in done for rows in (worst_groups(one), verdict_counts(shown.decisions))
    ]
    failures = sum(len(one.failures) for one, _ in done)
    return Summary(tuple(tables), failures, sum(one.unfinished for one, _ in done))


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
            "uniform_floor": mark.uniform_floor,
            "settings": [dict(settings) for settings in mark.settings],
            **{
                split: {name: [value.mean, value.standard_error] for name, value in figures.items()}
                for split, figures in (("train", mark.train), ("test", mark.test))
            },
        }
        for one, _ in done
        for mark in one.evidence.marks
    ]


def _claims(done: Finished) -> list[dict[str, object]]:
    """Return what became of every claim as JSON, with every comparison and its two p values."""
    return [
        {
            "study": one.study.name,
            "claim": decision.claim,
            "words": CLAIMS[decision.claim].words,
            "verdict": decision.verdict.value,
            "reason": decision.reason,
            "comparisons": [
                {"sentence": made.sentence, "p_if_false": made.holds, "p_if_true": made.fails}
                for made in decision.comparisons
            ],
        }
        for one, shown in done
        for decision in shown.decisions
    ]
