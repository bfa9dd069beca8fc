"""What `fedfair data check` finds in a site's own records."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.ids import ParticipantId
from fedfair.policy.site_config import SiteConfig
from fedfair.tables.column_check import DataCheck, check_data
from tests import plans

TABLE = {
    "label": "died", "label_values": ["no", "yes"], "numeric": ["glucose", "age"],
    "categorical": {"sex": ["F", "M"]}, "ranges": {"glucose": [2, 30]}, "missing": "mean",
}  # fmt: skip
HEADER = "id,glucose,age,sex,died"
SOUND = [f"{row},{5 + row % 4},{30 + row},{'FM'[row % 2]},{'no' if row % 3 else 'yes'}" for row in range(40)]


def checked(folder: Path, rows: list[str], **table: object) -> DataCheck:
    (folder / "a.csv").write_text("\n".join((HEADER, *rows)) + "\n")
    plan = plans.parsed(task={"data": {"csv": TABLE | table}})
    site = SiteConfig.model_validate({"collaborator": "clinic-a", "data": {"train": "a.csv"}})
    return check_data(plan, site, ParticipantId("clinic-a"), folder)


def with_cells(place: int, *cells: str) -> list[str]:
    """Return sound rows with another column, repeated over the rows."""
    made = []
    for row, text in enumerate(SOUND):
        fields = text.split(",")
        fields[place] = cells[row % len(cells)]
        made.append(",".join(fields))
    return made


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        (with_cells(1, "90", "126", "144"), "glucose': all values are outside of its range, 2 to 30; they fit in"),
        (with_cells(2, "50"), "age': is 50 in all 40 records"),
        (with_cells(2, ""), "age': has no value in any record"),
        (with_cells(2, *[str(age) for age in range(30, 67)], "999", "999", "999"), "age': is 999 in"),
        (with_cells(3, "F", "m"), "sex': 'm' in 20 records differs only in case from 'M'"),
        (SOUND[:1] * 200, "all 200 records are the same, in every column that the plan uses"),
        ([*SOUND[:1] * 60, *SOUND], "61 of 100 records are the same"),
        (with_cells(3, "M"), "sex': is M in all 40 records that have a value"),
        (with_cells(4, "no"), "all records are of class no; check the label column"),
    ],
)
def test_an_odd_thing_is_a_warning(tmp_path: Path, rows: list[str], warning: str) -> None:
    found = checked(tmp_path, rows)
    assert [each for each in found.warnings if warning in each], found.warnings


@pytest.mark.filterwarnings("error")
def test_a_number_near_the_greatest_that_there_is_gets_one_sentence(tmp_path: Path) -> None:
    found = checked(tmp_path, [*SOUND[1:], SOUND[0].replace(",30,", ",1e300,")])
    assert found.numeric[1].greatest == 1e300


def test_one_sentence_for_a_huge_number_or_another_unit(tmp_path: Path) -> None:
    found = checked(tmp_path, with_cells(1, "90", "126", "144"))
    (error,) = found.errors
    assert "column 'glucose': outside of 2 to 30, its range in 40 rows" in error
    (warning,) = found.numeric[0].odd
    assert "mg/dl against mmol/l of glucose, with the larger numbers here" in warning
    assert found.numeric[0].outside == 40
    assert found.splits == {}
    rows = with_cells(3, *["Female", "Male"] * 17, "Femle", "Femle", "other", "male")
    found = checked(tmp_path, rows, categorical={"sex": ["Female", "Male"]})
    assert found.categories[0].odd == (
        "'Femle' in 2 records is very like 'Female': is it misspelt?",
        "'male' in 1 record differs only in case from 'Male'",
    )
    rows = with_cells(2, "31.02.1958")
    found = checked(tmp_path, rows, dates={"age": "%d.%m.%Y"})
    (error,) = found.errors
    assert error.count("31.02.1958") == 3
    assert "in 40 rows (line 2: '31.02.1958', line 3: '31.02.1958', line 4: '31.02.1958' and 37 more)" in error
    assert "they have this form, and no calendar has such a day" in error


@pytest.mark.parametrize(("greatest", "outside"), [(120.0, 0), (60.0, 9)])
def test_a_target_is_described_so_that_a_range_is_known(tmp_path: Path, greatest: float, outside: int) -> None:
    table = {key: value for key, value in TABLE.items() if not key.startswith("label")} | {
        "target": "age", "numeric": ["glucose"],
    }  # fmt: skip
    (tmp_path / "a.csv").write_text("\n".join((HEADER, *SOUND)) + "\n")
    task = {"data": {"csv": table}, "loss": {"name": "squared", "target_range": [0, greatest]}}
    site = SiteConfig.model_validate({"collaborator": "clinic-a", "data": {"train": "a.csv"}})
    found = check_data(plans.parsed(task=task), site, ParticipantId("clinic-a"), tmp_path)
    (target,) = (column for column in found.numeric if column.name == "age")
    assert (target.least, target.greatest, target.range, target.outside) == (30.0, 69.0, (0.0, greatest), outside)
    assert not found.warnings
    assert bool(found.errors) == bool(outside)


def test_sound_records_missing_values_and_unreadable_ones_are_told(tmp_path: Path) -> None:
    found = checked(tmp_path, SOUND)
    assert (found.errors, found.warnings, found.unused) == ((), (), ("id",))
    assert (found.records, found.splits, found.labels) == (40, {"train": 40}, {"no": 26, "yes": 14})
    glucose, age = found.numeric
    assert (glucose.least, glucose.quartiles, glucose.greatest) == (5.0, (5.75, 6.5, 7.25), 8.0)
    assert (age.mean, age.missing, age.outside, glucose.range) == (49.5, 0, 0, (2.0, 30.0))
    assert (found.categories[0].counts, found.categories[0].missing) == ({"F": 20, "M": 20, "other": 0}, 0)
    rows = with_cells(1, "", "5", "6", "7")
    for policy in ("mean", "zero"):
        found = checked(tmp_path, rows, missing=policy)
        assert (found.numeric[0].present, found.numeric[0].missing, found.numeric[0].least) == (30, 10, 5.0)
    found = checked(tmp_path, with_cells(3, "F", "?", "x", "M"))
    sex = found.categories[0]
    assert (sex.counts, sex.missing) == ({"F": 10, "M": 10, "other": 10}, 10)
    found = checked(tmp_path, with_cells(2, "abc"))
    assert found.records == 0
    assert "not a finite number in 40 rows" in found.errors[0]


def test_the_command_needs_neither_keys_nor_an_approval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan").mkdir()
    stated = plans.stated(task={"data": {"csv": TABLE}})
    (tmp_path / "plan" / "plan.yaml").write_text(yaml.safe_dump(stated))
    (tmp_path / "collaborator.yaml").write_text("collaborator: clinic-a\ndata: {train: a.csv}\n")
    (tmp_path / "a.csv").write_text("\n".join((HEADER, *SOUND)) + "\n")
    shown = CliRunner().invoke(app, ["data", "check"])
    assert shown.exit_code == 0, shown.output
    assert "not used by the plan: id" in shown.output
    assert "Nothing was sent." in shown.output
    (tmp_path / "a.csv").write_text("\n".join((HEADER, *with_cells(1, "90"))) + "\n")
    refused = CliRunner().invoke(app, ["data", "check", "--json"])
    assert refused.exit_code == 2
    document = json.loads(refused.stdout)
    assert not document["ok"]
    assert document["numeric"][0]["outside"] == 40
    assert {path.name for path in tmp_path.iterdir()} == {"plan", "collaborator.yaml", "a.csv"}
