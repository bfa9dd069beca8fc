"""The one table that comes out of a sweep: a row for every setting, averaged over seeds, best first.

Decides what a row says and what it keeps back: test figures stand only in the rows that validation has chosen,
because to compare test figures is to choose by them. `show_test` opens them all, for curves. How a row is
drawn is `fedfair.report`'s business, what is best `selection.py`'s.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from fedfair.plan.schema import Plan
from fedfair.plan.yaml_reader import Value
from fedfair.results.document import JsonObject, ResultDocument
from fedfair.studies.sweep.figures import Figures, Spread, averaged, split_figures
from fedfair.studies.sweep.grid import SEED, Point, in_words, value_text
from fedfair.studies.sweep.selection import Criterion, Yardstick, best_of, yardstick_of

FORMAT = "fedfair/sweep-table/1"
RUN_FIGURES = ("threshold", "seconds")


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule by which points are compared and shown.

    Attributes:
        criterion: what is to be small on the validation records.
        per: axes for each value of which one point is selected; none selects one of all.
        show_test: show the test figures of every point and not only of the selected ones.
    """

    criterion: Criterion = Criterion.OBJECTIVE
    per: tuple[str, ...] = ()
    show_test: bool = False


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One setting of everything but the seed.

    Attributes:
        settings: by axis, in the order of the grid.
        points: identities, one for every seed.
        finished: how many of them have a result.
        run: threshold and seconds, over those.
        validation: figures on the validation records; None without any.
        test: figures on the test records; None without any, and where they are kept back.
        yardstick: how the row was compared with the others of its class.
        score: what was to be small; None for a row that cannot be selected.
        selected: whether it is the best of its class.
    """

    settings: Mapping[str, Value]
    points: tuple[str, ...]
    finished: int
    run: Figures
    validation: Figures | None
    test: Figures | None
    yardstick: Yardstick
    score: float | None = None
    selected: bool = False


@dataclass(frozen=True, slots=True)
class SweepTable:
    """All rows: class by class, and in a class by score, rows without one last.

    Attributes:
        axes: the names of the settings.
        rows: at least one.
        rule: how they were compared.
        averaged: whether the seed is an axis.
        notes: for each class in which nothing is selected, why, with a remedy.
        loss_unit: of the losses; several where the rows have several.
    """

    axes: tuple[str, ...]
    rows: tuple[SweepRow, ...]
    rule: Rule
    averaged: bool
    notes: tuple[str, ...]
    loss_unit: str


def classes_of(points: Sequence[Point], rule: Rule) -> list[list[Point]]:
    """Return the points that are compared with each other, class by class, in the order of the grid."""
    return _alike(points, rule.per)


def check_comparable(points: Sequence[Point], base: Plan, rule: Rule) -> None:
    """Refuse a grid whose points could not be compared when they have run.

    Raises:
        PlanError: points of one class do not report the group size that they would be compared by.
    """
    for members in classes_of(points, rule):
        yardstick_of(rule.criterion, [point.plan for point in members], base)


def tabulate(points: Sequence[Point], results: Mapping[str, ResultDocument], base: Plan, rule: Rule) -> SweepTable:
    """Return the table of a grid.

    Args:
        points: the grid.
        results: by identity, of the points that have one.
        base: the plan that the points vary.
        rule: how they are compared.

    Raises:
        PlanError: see `check_comparable`.
    """
    rows: list[SweepRow] = []
    notes: list[str] = []
    for members in classes_of(points, rule):
        yardstick = yardstick_of(rule.criterion, [point.plan for point in members], base)
        settings = [name for name in points[0].settings if name != SEED]
        scored = _scored([_row(own, results, yardstick) for own in _alike(members, settings)], rule)
        rows.extend(scored)
        if not any(row.selected for row in scored):
            place = in_words({name: scored[0].settings[name] for name in rule.per})
            notes.append(f"{place}{': ' if place else ''}nothing is selected: {_reason(scored)}")
    axes = tuple(name for name in points[0].settings if name != SEED)
    unit = " or ".join(dict.fromkeys(point.plan.task.loss.unit for point in points))
    return SweepTable(axes, tuple(rows), rule, SEED in points[0].settings, tuple(notes), unit)


def _reason(rows: Sequence[SweepRow]) -> str:
    """Return why none of the rows of a class could be selected, and what to do about it."""
    complete = [row for row in rows if row.finished == len(row.points)]
    if not complete:
        return "no setting has finished for every seed"
    if not any(row.validation for row in complete):
        return (
            "the plan keeps no validation records, and the test records must not choose"
            "\n  -> set task.validation_fraction, such as 0.2"
        )
    return (
        f"the worst {rows[0].yardstick.group_size} of the validation records have no figure: "
        "their loss is infinite, or they are fewer people than evaluation.min_group"
        "\n  -> keep more validation records, or select by mean"
    )


def table_json(table: SweepTable) -> JsonObject:
    """Return the table as JSON, `fedfair/sweep-table/1`; a figure is {mean, standard_error}."""
    rule = table.rule
    return {
        "format": FORMAT,
        "select": {
            "by": rule.criterion.value,
            "per": list(rule.per),
            "split": "validation",
            "notes": list(table.notes),
        },
        "test_shown": "all" if rule.show_test else "selected",
        "rows": [
            {
                "settings": dict(row.settings),
                "points": list(row.points),
                "finished": row.finished,
                "selected": row.selected,
                "score": row.score,
                "compared_at": {"group_size": row.yardstick.group_size, "tradeoff": row.yardstick.tradeoff},
                **{name: asdict(spread) for name, spread in row.run.items()},
                "validation": _figures_json(row.validation),
                "test": _figures_json(row.test),
            }
            for row in table.rows
        ],
    }


def table_csv(table: SweepTable) -> str:
    """Return the table as CSV, one column for every figure and, with seeds, one for its standard error."""
    lines = [dict(_cells(row, averaged=table.averaged)) for row in table.rows]
    names = list(dict.fromkeys(name for line in lines for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _alike(points: Sequence[Point], names: Sequence[str]) -> list[list[Point]]:
    """Return the points that have the same values of some settings, group by group."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(json.dumps([point.settings[name] for name in names]), []).append(point)
    return list(groups.values())


def _row(points: Sequence[Point], results: Mapping[str, ResultDocument], yardstick: Yardstick) -> SweepRow:
    held = [results[point.id] for point in points if point.id in results]
    return SweepRow(
        settings={name: value for name, value in points[0].settings.items() if name != SEED},
        points=tuple(point.id for point in points),
        finished=len(held),
        run=averaged([_run_figures(result) for result in held]),
        validation=split_figures(held, "validation") if held else None,
        test=split_figures(held, "test") if held else None,
        yardstick=yardstick,
    )


def _run_figures(result: ResultDocument) -> dict[str, float]:
    found = (result.threshold, None if result.timing is None else result.timing.seconds)
    return {name: value for name, value in zip(RUN_FIGURES, found, strict=True) if value is not None}


def _scored(rows: Sequence[SweepRow], rule: Rule) -> list[SweepRow]:
    """Return the rows of one class with scores, best first, and test figures where they may be seen.

    A setting that failed for a seed is not selected: its average would be over the seeds that it survived.
    """
    candidates = [row.validation if row.finished == len(row.points) else None for row in rows]
    chosen = best_of(candidates, rows[0].yardstick)
    scored = [
        replace(
            row,
            score=None if figures is None else row.yardstick.score(figures),
            selected=index == chosen,
            test=row.test if rule.show_test or index == chosen else None,
        )
        for index, (row, figures) in enumerate(zip(rows, candidates, strict=True))
    ]
    return sorted(scored, key=lambda row: (row.score is None, row.score or 0.0))


def _figures_json(figures: Figures | None) -> JsonObject | None:
    return None if figures is None else {name: asdict(spread) for name, spread in figures.items()}


def _cells(row: SweepRow, *, averaged: bool) -> Iterator[tuple[str, object]]:
    for name, value in row.settings.items():
        yield name, value_text(value)
    if averaged:
        yield "seeds", len(row.points)
    yield "finished", row.finished
    yield "selected", "yes" if row.selected else "no"
    yield "score", "" if row.score is None else row.score
    parts = (("", row.run), ("validation_", row.validation), ("test_", row.test))
    for prefix, figures in parts:
        for name, spread in (figures or {}).items():
            yield from _spread_cells(prefix + name, spread, averaged=averaged)


def _spread_cells(name: str, spread: Spread, *, averaged: bool) -> Iterator[tuple[str, object]]:
    yield name, spread.mean
    if averaged:
        yield f"{name}_standard_error", "" if spread.standard_error is None else spread.standard_error
