import copy
import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import PlanError
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.report.sweeps import sweep_drawing
from fedfair.results.document import ResultDocument
from fedfair.results.risks import ReportedGroupRisk, SplitRisk
from fedfair.studies.sweep.execution import run_points
from fedfair.studies.sweep.figures import Spread
from fedfair.studies.sweep.folder import SweepFolder
from fedfair.studies.sweep.grid import Point
from fedfair.studies.sweep.selection import Criterion
from fedfair.studies.sweep.table import Rule, SweepTable, check_comparable, table_csv, table_json, tabulate
from tests.result_files import small
from tests.studies.sweep_kit import PLAN, document, grid, in_order, untimed

BASE = validated(Plan, document())
SIZES = ("0.1", "0.3")


def split(mean: float, worst: float | None, accuracy: float = 0.9) -> SplitRisk:
    risk = ReportedGroupRisk(worst=worst, best=0.0, disparity=worst, bound=None)
    return SplitRisk(n=10, mean=mean, accuracy=accuracy, by_group_size=dict.fromkeys(SIZES, risk))


def result(validation: SplitRisk | None, test: SplitRisk | None = None, threshold: float = 0.5) -> ResultDocument:
    """Return a result with what a table reads."""
    return small(validation=validation, test=test, threshold=threshold)


def table_of(
    points: tuple[Point, ...], results: list[ResultDocument | None], rule: Rule | None = None
) -> SweepTable:
    held = {point.id: own for point, own in zip(points, results, strict=True) if own is not None}
    return tabulate(points, held, BASE, rule or Rule())


def selected(table: SweepTable) -> list[Mapping[str, object]]:
    return [row.settings for row in table.rows if row.selected]


def test_the_best_row_of_a_hand_worked_table_comes_first() -> None:
    # The base plan weighs 0.9 worst + 0.1 mean: 1.8 + 0.1 = 1.9, 0.9 + 0.3 = 1.2 and 1.35 + 0.05 = 1.4.
    points = grid("learning_rate=0.1,0.2,0.3")
    held = [result(split(1, 2)), result(split(3, 1)), result(split(0.5, 1.5))]
    table = table_of(points, held)
    assert [row.settings["learning_rate"] for row in table.rows] == [0.2, 0.3, 0.1]
    assert [row.score for row in table.rows] == pytest.approx([1.2, 1.4, 1.9], rel=1e-15)
    assert [row.selected for row in table.rows] == [True, False, False]
    by_mean = table_of(points, held, Rule(Criterion.MEAN))
    assert selected(by_mean) == [{"learning_rate": 0.3}]
    assert selected(table_of(points, held, Rule(Criterion.WORST))) == [{"learning_rate": 0.2}]


def test_seeds_are_averaged_and_one_has_no_error() -> None:
    points = grid("seed=1,2,3")
    (row,) = table_of(points, [result(split(mean, 1.0), threshold=mean) for mean in (1.0, 2.0, 3.0)]).rows
    assert row.validation is not None
    # The sample standard deviation of 1, 2, 3 is 1, over the square root of three seeds.
    assert row.validation["mean"].mean == 2.0
    assert row.validation["mean"].standard_error == pytest.approx(1 / math.sqrt(3), rel=1e-15)
    assert row.validation["worst_0.1"] == Spread(1.0, 0.0)
    assert row.run["threshold"].mean == 2.0
    assert row.settings == {}
    assert len(row.points) == row.finished == 3
    (row,) = table_of(grid("seed=1"), [result(split(1, 2))]).rows
    assert row.run["seconds"] == Spread(2.0, None)
    points = grid("learning_rate=0.1,0.2", "seed=1,2")
    held = [result(split(1, 1)), None, result(split(2, 2)), result(split(2, 2))]
    table = table_of(points, held)
    assert selected(table) == [{"learning_rate": 0.2}]
    last = table.rows[-1]
    assert (last.finished, len(last.points), last.score) == (1, 2, None)
    assert last.validation is not None


def test_rows_are_selected_by_one_yardstick_for_each_size() -> None:
    # Each point's own objective would be smallest for the largest group and the largest weight of the mean.
    points = grid("worst_group_size=0.1,0.3", "tradeoff=0.1,1")
    held = [result(split(1, 2.0)), result(split(1, 1.9)), result(split(1, 2.1)), result(split(1, 2.2))]
    table = table_of(points, held)
    assert {(row.yardstick.group_size, row.yardstick.tradeoff) for row in table.rows} == {(0.1, 0.1)}
    assert selected(table) == [{"worst_group_size": 0.1, "tradeoff": 1}]
    points = grid("worst_group_size=0.1,0.3", "learning_rate=0.1,0.2")
    held = [result(split(1, worst)) for worst in (2.0, 1.0, 4.0, 5.0)]
    table = table_of(points, held, Rule(per=("worst_group_size",)))
    assert selected(table) == [
        {"worst_group_size": 0.1, "learning_rate": 0.2},
        {"worst_group_size": 0.3, "learning_rate": 0.1},
    ]
    assert [row.yardstick.group_size for row in table.rows] == [0.1, 0.1, 0.3, 0.3]


NUMBERS = (
    PLAN.replace("data: breast-cancer", "data: {csv: {target: y, numeric: [x], train: t.csv}}")
    .replace("{scheme: dirichlet, alpha: 0.5}", "{scheme: random}")
    .replace("  model:", "  loss: {name: huber, delta: 1.0, target_range: [0, 9]}\n  model:")
)
"""The same plan, which predicts a number."""


def test_losses_of_other_measures_and_units_are_not_compared() -> None:
    text = PLAN.replace("worst_group_size: 0.1", "worst_group_size: 0.15")
    points, base = grid("worst_group_size=0.15,0.3", text=text), validated(Plan, document(text))
    with pytest.raises(PlanError, match=r"worst group of 0\.15") as refusal:
        check_comparable(points, base, Rule())
    assert "evaluation.group_sizes" in refusal.value.remedy
    check_comparable(points, base, Rule(Criterion.MEAN))
    check_comparable(points, base, Rule(per=("worst_group_size",)))
    base = validated(Plan, document(NUMBERS))
    points = grid("task.loss.delta=0.5,2", "learning_rate=0.1,0.2", text=NUMBERS)
    with pytest.raises(PlanError, match=r"Huber loss with delta 0\.5 .*; Huber loss with delta 2 ") as refusal:
        check_comparable(points, base, Rule())
    assert "--per" in refusal.value.remedy
    check_comparable(points, base, Rule(per=("task.loss.delta",)))
    check_comparable(points[:2], base, Rule())
    points = grid("task.loss=cross_entropy,binary")
    check_comparable(points, BASE, Rule())
    points = grid("learning_rate=0.1,0.2", text=NUMBERS)
    held = {point.id: result(split(1, 2)) for point in points}
    table = tabulate(points, held, validated(Plan, document(NUMBERS)), Rule())
    assert str(sweep_drawing(table, 9).title).startswith(
        "Mean loss (squared units of the target) over all records"
    )


def test_what_cannot_be_selected_says_why() -> None:
    table = table_of(grid("learning_rate=0.1,0.2"), [result(None, split(2, 2)), result(None, split(1, 1))])
    assert selected(table) == []
    (note,) = table.notes
    assert "task.validation_fraction" in note
    assert [row.settings["learning_rate"] for row in table.rows] == [0.1, 0.2]
    assert [row.test for row in table.rows] == [None, None]
    diverged = split(1, None)
    table = table_of(grid("learning_rate=0.1,0.2"), [result(diverged), result(split(5, 5))])
    assert selected(table) == [{"learning_rate": 0.2}]
    assert "worst_0.1" not in (table.rows[1].validation or {})
    points = grid("worst_group_size=0.1,0.3", "learning_rate=0.1,0.2")
    few = split(1, None)
    table = table_of(points, [result(few), result(few), None, None], Rule(per=("worst_group_size",)))
    assert len(table.notes) == 2
    assert "worst_group_size=0.1: nothing is selected" in table.notes[0]
    assert "evaluation.min_group" in table.notes[0]
    assert "worst_group_size=0.3: nothing is selected: no setting has finished" in table.notes[1]
    assert json.loads(json.dumps(table_json(table)))["select"]["notes"] == list(table.notes)


finite = st.floats(0, 100)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(finite, finite), min_size=4, max_size=4),
    st.lists(st.one_of(st.none(), st.tuples(finite, finite)), min_size=8, max_size=8),
    st.sampled_from(Criterion),
)
def test_no_test_figure_ever_changes_what_is_selected(
    validation: list[tuple[float, float]], test: list[tuple[float, float] | None], criterion: Criterion
) -> None:
    points = grid("learning_rate=0.1,0.2", "seed=1,2")
    tables = [
        table_of(
            points,
            [
                result(split(*own), None if other is None else split(*other))
                for own, other in zip(validation, half, strict=True)
            ],
            Rule(criterion),
        )
        for half in (test[:4], test[4:])
    ]
    assert [(row.points, row.score, row.selected) for row in tables[0].rows] == [
        (row.points, row.score, row.selected) for row in tables[1].rows
    ]
    # The slow obvious version: average the seeds, weigh, take the smallest.
    weights = {Criterion.MEAN: (1, 0), Criterion.WORST: (0, 1), Criterion.OBJECTIVE: (0.1, 0.9)}[criterion]
    scores = [
        sum(weights[0] * mean + weights[1] * worst for mean, worst in validation[start : start + 2]) / 2
        for start in (0, 2)
    ]
    chosen = [row.score for row in tables[0].rows if row.selected]
    # Sums of two products of numbers up to 100 in another order: a few roundings of 2^-53 * 100 each.
    assert chosen == pytest.approx([min(scores)], abs=1e-12)


def test_test_figures_stand_only_in_selected_rows_unless_they_are_asked_for() -> None:
    points = grid("learning_rate=0.1,0.2")
    held = [result(split(1, 1), split(7.25, 7.25)), result(split(2, 2), split(8.25, 8.25))]
    hidden, shown = table_of(points, held), table_of(points, held, Rule(show_test=True))
    assert [row.test is not None for row in hidden.rows] == [True, False]
    assert [row.test is not None for row in shown.rows] == [True, True]
    assert "8.25" not in json.dumps(table_json(hidden))
    assert "8.25" not in table_csv(hidden)
    assert "8.25" in table_csv(shown)


def test_the_files_of_a_table_say_the_same() -> None:
    points = grid("learning_rate=0.1,0.2", "seed=1,2")
    held = [result(split(mean, 1), split(1, 1)) for mean in (1.0, 2.0, 3.0, 5.0)]
    table = table_of(points, held)
    lines = list(csv.DictReader(io.StringIO(table_csv(table))))
    written = json.loads(json.dumps(table_json(table), allow_nan=False))
    assert written["format"] == "fedfair/sweep-table/1"
    assert len(lines) == len(written["rows"]) == 2
    for line, row in zip(lines, written["rows"], strict=True):
        assert float(line["learning_rate"]) == row["settings"]["learning_rate"]
        assert float(line["validation_mean"]) == row["validation"]["mean"]["mean"]
        assert float(line["validation_mean_standard_error"]) == row["validation"]["mean"]["standard_error"]
        assert line["selected"] == ("yes" if row["selected"] else "no")
        assert row["points"] == [
            point.id for point in points if point.settings["learning_rate"] == row["settings"]["learning_rate"]
        ]
    drawing = sweep_drawing(table, most_rows=1)
    assert drawing.row_count == 1
    assert drawing.caption == "and 1 more rows"


LOADER = """
import numpy as np
from sklearn.datasets import load_breast_cancer
from fedfair.tables.dataset import Dataset, FeatureSchema, Splits

def load(folder):
    bunch = load_breast_cancer()
    features = (bunch.data - bunch.data.mean(axis=0)) / bunch.data.std(axis=0)
    labels = bunch.target.astype(np.int64)
    schema = FeatureSchema((30,), 2, tuple(range(30)))
    parts = [Dataset(features[i::3], labels[i::3], schema) for i in range(3)]
    if (folder / "flipped").exists():
        parts[2] = Dataset(parts[2].features, 1 - parts[2].labels, schema)
    return Splits(*parts)
"""


def test_changing_every_test_label_changes_test_figures_and_no_selection(tmp_path: Path) -> None:
    text = (
        PLAN.replace("data: breast-cancer", 'data: "records:load"')
        .replace("standardize: secure", "classes: 2")
        .replace("test_fraction: 0.2", "test_fraction: 0")
        .replace("validation_fraction: 0.2", "validation_fraction: 0")
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "records.py").write_text(LOADER)
    points, base = grid("learning_rate=0.01,0.3", "tradeoff=0,1", text=text), validated(Plan, document(text))
    tables = []
    for name in ("straight", "flipped"):
        (tmp_path / name).touch()
        folder = SweepFolder(tmp_path / f"sweep-{name}")
        folder.open(base, tmp_path)
        outcome = run_points(points, folder, lambda left: in_order(left, tmp_path), lambda _: None)
        assert outcome.failures == {}
        tables.append(untimed(table_json(tabulate(points, outcome.results, base, Rule(show_test=True)))))
    tests = [[row.pop("test") for row in table["rows"]] for table in copy.deepcopy(tables)]  # type: ignore[call-overload, index]
    for table in tables:
        for row in table["rows"]:  # type: ignore[call-overload, index]
            del row["test"]
    assert tables[0] == tables[1]
    for straight, flipped in zip(*tests, strict=True):
        assert straight["accuracy"]["mean"] == pytest.approx(1 - flipped["accuracy"]["mean"], abs=1e-12)
