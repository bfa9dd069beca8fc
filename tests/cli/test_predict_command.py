"""`fedfair predict`: raw records in, predictions out, and every fault in words."""

import csv
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import DataError, FedfairError
from tests import plans
from tests.prediction.saved_runs import SavedRun, saved_run

TABLE = {
    "columns": ["age", "ward", "site", "died"], "label": "died", "label_values": ["no", ["yes", "maybe"]],
    "numeric": ["age"], "ranges": {"age": [0, 120]}, "categorical": {"ward": ["A", "B"]}, "missing": "mean",
    "missing_of": {"ward": "own"}, "collaborator": "site", "train": "all.csv",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    folder = tmp_path_factory.mktemp("wards")
    draws = np.random.default_rng(5)
    rows = []
    for place in range(90):
        age = draws.integers(20, 100)
        ward = ("A", "B", "C", "?")[draws.integers(4)]
        died = "yes" if age + 20 * (ward == "A") > 70 else "no"
        rows.append(f"{'NA' if place == 7 else age},{ward},{plans.NAMES[place % 3]},{died}")
    (folder / "all.csv").write_text("\n".join(rows) + "\n")
    task = {"data": {"csv": TABLE}, "standardize": "secure"}
    return saved_run(folder, plans.stated(task=task, training={"rounds": 3, "local_steps": 4}))


def predict(run: SavedRun, data: Path, *more: str) -> Result:
    """Predict a file to out.csv beside it."""
    words = ["predict", "--model", str(run.model), "--data", str(data), "--output", str(data.parent / "out.csv")]
    return CliRunner().invoke(app, [*words, *more])


def refused(run: SavedRun, data: Path, *more: str) -> DataError:
    """Return why a file is not predicted; nothing is written then."""
    fault = predict(run, data, *more).exception
    assert isinstance(fault, DataError), fault
    assert not (data.parent / "out.csv").exists()
    return fault


def written(folder: Path) -> list[dict[str, str]]:
    with (folder / "out.csv").open() as file:
        return list(csv.DictReader(file))


def file_of(folder: Path, *lines: str) -> Path:
    path = folder / "new.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_every_score_gives_the_loss_that_the_evaluation_had(run: SavedRun, tmp_path: Path) -> None:
    whole = file_of(tmp_path, *(run.workspace / "all.csv").read_text().splitlines())
    done = predict(run, whole)
    assert done.exit_code == 0, done.exception
    rows = written(tmp_path)
    assert list(rows[0]) == ["predicted", "probability_no", "probability_yes or maybe"]
    labels = [line.rsplit(",", 1)[1] for line in whole.read_text().splitlines()]
    columns = {"no": "probability_no", "yes": "probability_yes or maybe"}
    for place, name in enumerate(plans.NAMES):
        own = list(zip(rows, labels, strict=True))[place::3]
        losses = [-np.log(float(row[columns[label]])) for row, label in own]
        assert sorted(losses) == pytest.approx(sorted(run.losses(name, "train")), abs=1e-6)
    assert {row["predicted"] for row in rows} <= {"no", "yes or maybe"}


def test_a_table_with_a_header_or_without_labels_or_either_is_read(run: SavedRun, tmp_path: Path) -> None:
    assert predict(run, file_of(tmp_path, "ward,age", "A,70", "B,NA")).exit_code == 0
    first = written(tmp_path)
    assert predict(run, file_of(tmp_path, "70,A,clinic-a", "NA,B,clinic-a"), "--replace").exit_code == 0
    assert written(tmp_path) == first


def test_a_column_is_kept_beside_the_predictions(run: SavedRun, tmp_path: Path) -> None:
    data = file_of(tmp_path, "age,ward,patient", "50,A,p1")
    assert predict(run, data, "--keep", "patient", "-q").stderr == ""
    assert list(written(tmp_path)[0])[:2] == ["patient", "predicted"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["age,ward,height", "50,A,1"], "has 1 column that the model does not know: 'height'"),
        (["agee,ward", "50,A"], "has no column 'age' (did you mean 'agee'?)"),
        (["age,ward", "old,A"], "column 'age': not a finite number in 1 row (line 2: 'old'); correct it"),
        (["age,ward", "50,A", "", "130,B"], "column 'age': outside of 0 to 120, its range in 1 row (line 4:"),
        (["age,ward"], "has a header but no records"),
        ([""], "is empty"),
        (["age;ward", "50;A"], "line 1 has 1 field"),
    ],
)
def test_unpredictable_files_are_refused(run: SavedRun, tmp_path: Path, lines: list[str], told: str) -> None:
    fault = refused(run, file_of(tmp_path, *lines))
    assert told in fault.message
    assert "plan" not in fault.remedy or "the model's plan" in fault.remedy


def test_values_that_training_never_saw_are_told_and_unknown_columns_named(run: SavedRun, tmp_path: Path) -> None:
    done = predict(run, file_of(tmp_path, "age,ward", "50,Z", "50,Y", "50,", "50,a"))
    unseen, other, missing, spelt = written(tmp_path)
    assert unseen == other == spelt
    assert missing != unseen
    assert "column 'ward': 3 values that training did not name count as other" in done.stderr
    assert "'a' differs only in case from 'A'" in done.stderr
    assert "4 records predicted" in done.stderr
    (tmp_path / "out.csv").unlink()
    fault = refused(run, file_of(tmp_path, "age,ward,height", "50,A,1"))
    assert fault.remedy.endswith("or give --ignore-unknown; the model takes age, ward")
    lacking = refused(run, file_of(tmp_path, "age,ward", "1,A"), "--keep", "weight")
    assert "has no column 'weight'" in lacking.message
    assert predict(run, file_of(tmp_path, "age,ward,height", "50,A,1"), "--ignore-unknown").exit_code == 0


def test_what_is_there_is_not_replaced_and_what_is_no_model_is_said(run: SavedRun, tmp_path: Path) -> None:
    data = file_of(tmp_path, "age,ward", "50,A")
    (tmp_path / "out.csv").write_text("mine")
    fault = predict(run, data).exception
    assert isinstance(fault, DataError)
    assert "--replace" in fault.remedy
    assert (tmp_path / "out.csv").read_text() == "mine"
    for model, told in (
        (data, "is not a model that can be read"),
        (tmp_path, "is a folder"),
        (tmp_path / "x", "not there"),
    ):
        words = ["predict", "--model", str(model), "--data", str(data), "--output", "-"]
        other = CliRunner().invoke(app, words).exception
        assert isinstance(other, DataError)
        assert told in other.message


@pytest.mark.parametrize("words", ["age", "age=", "=3", "age=nan", "age=old"])
def test_a_number_to_fill_in_is_a_column_and_a_number(run: SavedRun, tmp_path: Path, words: str) -> None:
    assert "is not COLUMN=NUMBER" in refused(run, file_of(tmp_path, "age,ward", "50,A"), "--fill", words).message


def test_a_site_states_its_own_mean_where_training_filled_that_in(tmp_path: Path) -> None:
    rows = [f"{20 + place},{place % 2}" for place in range(40)]
    (tmp_path / "all.csv").write_text("\n".join(["age,died", ",1", *rows]) + "\n")
    table = {"label": "died", "numeric": ["age"], "missing": "mean", "train": "all.csv"}
    task = {"data": {"csv": table}, "partition": {"scheme": "contiguous"}}
    run = saved_run(tmp_path, plans.stated(("a",), task=task, training={"learning_rate": 0.001}))
    data = file_of(tmp_path, "age", "30", "?", "NA")
    fault = refused(run, data)
    assert (
        "line 3: 'age' is missing" in fault.message or "line 3, 4" in fault.message or "missing" in fault.message
    )
    assert "--fill age=NUMBER" in fault.remedy
    assert predict(run, data, "--fill", "age=39.5").exit_code == 0
    chances = [float(row["probability_1"]) for row in written(tmp_path)]
    assert -np.log(chances[1]) == pytest.approx(run.losses("a", "train")[0], abs=1e-6)


GERMAN = """\
separator: ";"
decimal: ","
encoding: latin-1
columns: {age: Alter, ward: Stätion, died: tot}
missing_values: [k.A.]
"""


def german(folder: Path) -> Path:
    path = folder / "deutsch.csv"
    path.write_text("Fall;Stätion;Alter\n1;A;64,5\n2;B;k.A.\n3;Ä;30\n", encoding="latin-1")
    return path


def test_a_file_in_a_form_of_its_own_is_predicted_as_the_plain_one(run: SavedRun, tmp_path: Path) -> None:
    plain = file_of(tmp_path, "case,ward,age", "1,A,64.5", "2,B,NA", "3,Ä,30")
    assert predict(run, plain, "--ignore-unknown").exit_code == 0
    expected = written(tmp_path)
    (tmp_path / "collaborator.yaml").write_text(
        f"collaborator: clinic-a\ndata:\n  format:\n    {GERMAN.rstrip().replace(chr(10), chr(10) + '    ')}\n"
    )
    for form in (("--format", GERMAN), ("-c", str(tmp_path / "collaborator.yaml"))):
        (tmp_path / "out.csv").unlink()
        done = predict(run, german(tmp_path), *form, "--keep", "Fall")
        assert done.exit_code == 0, done.exception
        found = written(tmp_path)
        assert [row.pop("Fall") for row in found] == ["1", "2", "3"]
        assert found == expected


@pytest.mark.parametrize(
    ("form", "fault"),
    [
        ("columns: {Age: Alter}", "--format.columns: the plan has no column 'Age'; did you mean 'age'"),
        ("separatr: ';'", "--format:1: separatr: unknown key -> did you mean 'separator'"),
        ("separator: ';'", "deutsch.csv line 1, character 8: the byte 0xe4"),
        (GERMAN.replace("Alter", "alter"), "no column 'alter' (did you mean 'Alter'?)"),
    ],
)
def test_a_form_that_does_not_fit_is_told(run: SavedRun, tmp_path: Path, form: str, fault: str) -> None:
    done = predict(run, german(tmp_path), "--format", form)
    assert isinstance(done.exception, FedfairError)
    assert fault in done.exception.diagnostics().replace("\n  -> ", "; ")


def test_files_of_another_form_and_unwanted_numbers_are_refused(run: SavedRun, tmp_path: Path) -> None:
    fault = refused(run, file_of(tmp_path, "age,ward", ",A"), "--fill", "age=50")
    assert "fills in missing numbers itself" in fault.message
    fault = refused(run, file_of(tmp_path, "ward;age", "A;64,5"))
    assert "--format '{separator: \";\"}'" in fault.diagnostics()
    fault = refused(run, file_of(tmp_path, "ward,age", 'A,"64,5"'))
    assert "--format '{decimal: \",\"}'" in fault.diagnostics()
