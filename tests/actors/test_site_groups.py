"""A site looks at named groups of its own records: what a slow computation finds, and every likely mistake."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from collaborator.commands import app
from collaborator.site_records import site_records
from fedfair.errors import DataError, FedfairError
from fedfair.prediction.loaded_model import load_model
from tests import plans
from tests.prediction.saved_runs import SavedRun, approved_run

NAMES = ("clinic-a", "clinic-b")
SITE = "clinic-a"
ROWS = 160


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the records of a clinic; the plan uses neither the ward nor the number nor what a test says."""
    draws = np.random.default_rng(NAMES.index(name))
    rows = []
    for number in range(ROWS):
        age, sex = int(draws.integers(20, 90)), "fm"[int(draws.random() < 0.4)]
        died = int(age + 12 * (sex == "m") + draws.normal() * 20 > 60)
        ward = ("surgery", "surgery", "1", "1.0", "NA", "children")[int(draws.integers(0, 6))]
        rows.append(
            {"number": f"{number}", "age": f"{age}", "sex": sex, "died": f"{died}", "ward": ward, "same": "7"}
        )
    rows[0]["ward"] = "rare"
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    folder = tmp_path_factory.mktemp("groups")
    for name in NAMES:
        with (folder / f"{name}.csv").open("w", newline="") as file:
            lines = csv.DictWriter(file, [*rows_of(name)[0]])
            lines.writeheader()
            lines.writerows(rows_of(name))
    table = {
        "label": "died", "numeric": ["age"], "categorical": {"sex": ["f", "m"]},
        "train_of": {name: f"{name}.csv" for name in NAMES},
    }  # fmt: skip
    task = {"data": {"csv": table}, "standardize": "secure", "test_fraction": 0.5, "validation_fraction": 0.2}
    training = {"rounds": 12, "learning_rate": 0.5}
    return approved(folder, task=task, training=training, evaluation={"scores": True})


def approved(folder: Path, **sections: dict[str, object]) -> SavedRun:
    """Return an approved run of the clinics, each of which names its own file."""
    made = approved_run(folder, plans.stated(NAMES, **sections))
    for name in NAMES:
        stated = yaml.safe_load((folder / f"{name}.yaml").read_text())
        stated |= {"collaborator": name, "data": {"train": f"{name}.csv"}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(stated))
    return made


def words(run: SavedRun, *more: str) -> list[str]:
    place = ["-c", str(run.workspace / f"{SITE}.yaml"), "-p", str(run.plan_file), "--model", str(run.model)]
    return ["groups", *place, *more]


def told(run: SavedRun, *more: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, words(run, *more, "--json"), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def printed(run: SavedRun, *more: str) -> str:
    done = CliRunner().invoke(app, words(run, *more), catch_exceptions=False, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def held_out(run: SavedRun) -> list[dict[str, str]]:
    """Return the rows of the file that are this site's test records."""
    own = site_records(run.workspace / f"{SITE}.yaml", run.plan_file, run.model, keep=("number",))
    assert own.splits.test is not None
    by_number = {row["number"]: row for row in rows_of(SITE)}
    return [by_number[str(number)] for number in own.splits.test.columns["number"]]


def slowly(run: SavedRun, rows: list[dict[str, str]], threshold: float | None) -> dict[str, Any]:
    """Return the figures of some records, one by one, from the model's file and the rows alone."""
    model = load_model(run.model)
    columns = {name: np.array([row[name] for row in rows]) for name in ("age", "sex")}
    raw = {**columns, "age": columns["age"].astype(float)}
    scores = model.scores(raw)[:, 1].tolist()
    chances = scores if threshold is None else model.predict_proba(raw)[:, 1].tolist()
    loss = right = missed = alarmed = ill = better = pairs = 0.0
    for row, score, chance in zip(rows, scores, chances, strict=True):
        died, named = row["died"] == "1", chance > 0.5 if threshold is None else chance >= threshold
        loss -= math.log(score if died else 1.0 - score)
        ill += died
        right += named == died
        missed += died and not named
        alarmed += named and not died
        for other, lower in zip(rows, scores, strict=True):
            if died and other["died"] == "0":
                pairs += 1
                better += 1.0 if score > lower else 0.5 if score == lower else 0.0
    count = len(rows)
    return {
        "records": count, "mean": pytest.approx(loss / count, rel=1e-5), "accuracy": right, "positives": ill,
        "missed": missed, "alarmed": alarmed, "auc": pytest.approx(better / pairs) if pairs else None,
        "sensitivity": (ill - missed, ill), "specificity": (count - ill - alarmed, count - ill),
    }  # fmt: skip


def agrees(group: dict[str, Any], slow: dict[str, Any]) -> bool:
    for name in ("accuracy", "positives", "missed", "alarmed"):
        assert (group[name]["count"], group[name]["of"]) == (slow[name], slow["records"]), name
    for name in ("sensitivity", "specificity"):
        count, of = slow[name]
        assert (group[name] is None) if of == 0 else ((group[name]["count"], group[name]["of"]) == (count, of))
    return group["records"] == slow["records"] and group["mean"] == slow["mean"] and group["auc"] == slow["auc"]


@pytest.mark.parametrize("threshold", [None, 0.3])
def test_every_figure_is_that_of_a_slow_computation_from_the_rows_themselves(
    run: SavedRun, threshold: float | None
) -> None:
    more = () if threshold is None else ("--threshold", str(threshold))
    found = told(run, "--by", "ward", "--by", "sex", "--by", "age:3", "--min-group", "1", *more)
    rows = held_out(run)
    assert (found["collaborator"], found["split"], found["records"]) == (SITE, "test", len(rows))
    assert found["threshold"] == threshold
    wards, sexes, ages = (
        {group["group"]: group for group in each["groups"] if group["group"] != "everybody"}
        for each in found["columns"]
    )
    assert [each["column"] for each in found["columns"]] == ["ward", "sex", "age:3"]
    assert [*sexes] == ["f", "m"]
    # 1 and 1.0 are one value, and what the plan calls missing is none. Numbers come first, missing values last.
    first, *_, last = wards
    assert (first, last) == ("1", "(missing)")
    spelt = {"1.0": "1", "NA": "(missing)"}
    for name, group in wards.items():
        assert agrees(
            group, slowly(run, [row for row in rows if spelt.get(row["ward"], row["ward"]) == name], threshold)
        )
    for name, group in sexes.items():
        assert agrees(group, slowly(run, [row for row in rows if row["sex"] == name], threshold))
    for name, group in ages.items():
        low, _, high = name.partition(" to ")
        assert agrees(
            group, slowly(run, [row for row in rows if float(low) <= float(row["age"]) <= float(high)], threshold)
        )
    assert sum(group["records"] for group in ages.values()) == len(rows)
    assert max(group["records"] for group in ages.values()) < len(rows) / 2
    for each in found["columns"]:
        everybody = each["groups"][0]
        assert everybody["group"] == "everybody"
        assert agrees(everybody, slowly(run, rows, threshold))


def test_without_a_column_the_plans_categories_are_shown_and_few_people_are_hidden(run: SavedRun) -> None:
    found = told(run)
    assert [each["column"] for each in found["columns"]] == ["sex"]
    assert found["min_group"] == 5
    everything, usual = told(run, "--by", "ward", "--min-group", "1"), told(run, "--by", "ward")
    small = [group for group in everything["columns"][0]["groups"] if group["records"] < 5]
    (column,) = usual["columns"]
    assert (column["hidden_groups"], column["hidden_records"]) == (len(small), sum(g["records"] for g in small))
    assert all(group["records"] >= 5 for group in column["groups"])
    many = told(run, "--by", "sex", "--min-group", "79")["columns"][0]
    assert [group["group"] for group in many["groups"]] == ["everybody"]
    assert many["hidden_groups"] == 2


def test_the_terminal_says_whose_records_by_which_threshold_and_that_nothing_was_sent(run: SavedRun) -> None:
    shown = printed(run, "--by", "sex")
    everybody, female, _ = told(run, "--by", "sex")["columns"][0]["groups"]
    assert "sex: 80 test records of clinic-a" in shown
    low, high = female["missed"]["interval"]
    assert f"{100 * female['missed']['share']:.0f} ({100 * low:.0f}-{100 * high:.0f})" in shown
    assert f"{everybody['accuracy']['share']:.0%} (" in shown
    assert "class 1 where the model's score is above one half" in shown
    assert shown.endswith("Nothing was sent.")
    assert "calibrated probability is 0.3 or more" in printed(run, "--threshold", "0.3")
    assert "hidden: 2 groups of fewer than 79 records, 80 together" in printed(run, "--min-group", "79")


def test_a_file_of_figures_has_a_line_for_each_group(run: SavedRun, tmp_path: Path) -> None:
    out = tmp_path / "groups.csv"
    found = told(run, "--by", "sex", "--by", "ward", "--output", str(out))
    with out.open(newline="") as file:
        lines = [*csv.DictReader(file)]
    groups = [(each["column"], group) for each in found["columns"] for group in each["groups"]]
    assert [(line["column"], line["group"]) for line in lines] == [
        (name, group["group"]) for name, group in groups
    ]
    for line, (_, group) in zip(lines, groups, strict=True):
        assert float(line["missed"]) == group["missed"]["share"]
        assert [float(line["missed_low"]), float(line["missed_high"])] == group["missed"]["interval"]
        assert float(line["mean"]) == group["mean"]


@pytest.mark.parametrize(
    ("more", "fault", "remedy"),
    [
        (("--by", "sexx"), "has no column 'sexx' (did you mean 'sex'?)", "its columns are"),
        (("--by", "number"), "--by number: the column has 80 values", "write --by number:4 for quarters"),
        (
            ("--by", "ward:4"),
            "--by ward:4: the column holds 'children', which is no number",
            "write --by ward for",
        ),
        (("--by", "age:1"), "--by age:1: '1' is no number of parts", "age:4 for quarters"),
        (("--by", "age:many"), "'many' is no number of parts", "age:4 for quarters"),
        (("--by", "age:99"), "'99' is no number of parts", "2 to 50 parts"),
        (("--by", "same:2"), "all numbers of the column are alike", "name another column"),
        (("--by", ""), "names no column", "--by sex"),
        (("--by", ":4"), "names no column", "--by sex"),
        (("--by", "sex", "--by", "sex:2"), "names the column 'sex' twice", "once"),
        (("--output", "{}"), "exists", "name a new file"),
        (("--output", "{}/none/groups.csv"), "the folder {}/none does not exist", "name a new file"),
        (("--by", "age:4", "-c", "{}/nobody.yaml"), "nobody.yaml", ""),
    ],
)
def test_a_mistake_has_one_clear_error(
    run: SavedRun, tmp_path: Path, more: tuple[str, ...], fault: str, remedy: str
) -> None:
    filled = [word.format(tmp_path) for word in more]
    refused = CliRunner().invoke(app, words(run, *filled)).exception
    assert isinstance(refused, FedfairError | FileNotFoundError), refused
    if isinstance(refused, FedfairError):
        assert fault.format(tmp_path) in refused.message
        assert remedy in refused.remedy
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("more", [("--threshold", "1.5"), ("--min-group", "0"), ("--threshold", "half")])
def test_a_number_that_is_none_is_a_fault_of_the_line(run: SavedRun, more: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, words(run, *more)).exit_code == 2


def changed(run: SavedRun, folder: Path, **table: object) -> Path:
    stated = yaml.safe_load(run.plan_file.read_text())
    stated["task"]["data"]["csv"] |= table
    (folder / "plan.yaml").write_text(yaml.safe_dump(stated))
    return folder / "plan.yaml"


@pytest.mark.parametrize(
    ("table", "more", "fault"),
    [
        ({"categorical": {}}, (), "the plan declares no categories"),
        ({"numeric": "all"}, ("--by", "ward"), "under numeric: all the column 'ward' is a feature"),
    ],
)
def test_columns_that_no_plan_lets_be_kept_are_refused_before_the_records_are_read(
    run: SavedRun, tmp_path: Path, table: dict[str, object], more: tuple[str, ...], fault: str
) -> None:
    plan = changed(run, tmp_path, **table)
    refused = CliRunner().invoke(app, [*words(run, *more), "-p", str(plan)]).exception
    assert isinstance(refused, DataError)
    assert fault in refused.message
    assert refused.remedy


def test_other_tasks_have_the_figures_that_they_have(tmp_path: Path) -> None:
    rows = ["age,sex,ward,stay"]
    draws = np.random.default_rng(4)
    rows += [f"{draws.integers(20, 90)},{'fm'[place % 2]},{place % 3},{draws.random():.3f}" for place in range(60)]
    for name in NAMES:
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
    files = {name: f"{name}.csv" for name in NAMES}
    number = {"target": "stay", "numeric": ["age"], "train_of": files}
    task: dict[str, object] = {"data": {"csv": number}, "loss": {"name": "squared", "target_range": [0, 1]}}
    three = {"label": "ward", "numeric": ["age"], "categorical": {"sex": ["f", "m"]}, "train_of": files}
    for stated, more, shown, threshold in (
        (task, ("--by", "sex"), "mean loss", "without classes"),
        ({"data": {"csv": three}, "classes": 3}, (), "accuracy", "sums no scores of two classes"),
    ):
        folder = tmp_path / threshold.split()[0]
        folder.mkdir()
        for name in NAMES:
            (folder / f"{name}.csv").write_bytes((tmp_path / f"{name}.csv").read_bytes())
        made = approved(folder, task={**stated, "standardize": "secure"})
        text = printed(made, *more)
        assert shown in text
        assert "missed" not in text
        assert "The model was trained on these records" in text
        refused = CliRunner().invoke(app, words(made, *more, "--threshold", "0.4")).exception
        assert isinstance(refused, DataError)
        assert threshold in refused.message
