"""Intensive care stays are predicted from eICU's four tables, joined as in training."""

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import DataError
from fedfair.tables.sources.eicu import FLAGS, MEASURED
from tests import plans
from tests.prediction.saved_runs import SavedRun, saved_run

PATIENT = ("patientunitstayid", "gender", "age", "ethnicity", "hospitalid", "hospitaldischargestatus", "uniquepid",
           "admissionheight", "admissionweight")  # fmt: skip
VARIABLES = ("patientunitstayid", "intubated", "vent", "dialysis", *MEASURED[:21])
PREDICTORS = ("patientunitstayid", "gender", "age", *FLAGS[3:])


def write_tables(folder: Path, *, backwards: bool = False) -> None:
    """Write forty stays, and three whose outcome or whose APACHE variables are not known."""
    draws = np.random.default_rng(7)
    stays = []
    for number in range(95, 138):
        stay = {name: f"{value:.3f}" for name, value in zip(MEASURED, draws.normal(40, 9, 24), strict=True)}
        stay |= {name: str(draws.integers(2)) for name in FLAGS}
        stay |= {
            "patientunitstayid": str(number), "uniquepid": f"p{number}", "hospitalid": "1", "ethnicity": "Asian",
        }  # fmt: skip
        stay |= {"gender": ("Female", "Male")[draws.integers(2)], "ph": ("-1", "7.3")[draws.integers(2)]}
        stay["hospitaldischargestatus"] = ("Alive", "Expired")[int(float(stay["age"]) > 40)]
        stays.append(stay)
    stays[3]["age"] = "> 89"
    stays[5]["hospitaldischargestatus"] = stays[6]["hospitaldischargestatus"] = ""
    order = stays[::-1] if backwards else stays
    tables = {
        "patient": (PATIENT, order), "apacheapsvar": (VARIABLES, stays[:-1]), "apachepredvar": (PREDICTORS, order),
    }  # fmt: skip
    for name, (columns, rows) in tables.items():
        lines = [",".join(stay[column] for column in columns) for stay in rows]
        (folder / f"{name}.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")
    (folder / "hospital.csv").write_text("hospitalid,region\n1,South\n")


def trained(folder: Path, tables: Path, scaling: str) -> SavedRun:
    task = {
        "data": {"eicu": {"folder": str(tables)}}, "partition": {"scheme": "contiguous"}, "standardize": scaling,
    }  # fmt: skip
    return saved_run(folder, plans.stated(("a",), task=task))


def predict(run: SavedRun, tables: Path, *more: str) -> list[dict[str, str]]:
    output = run.workspace / "predicted.csv"
    words = ["predict", "--model", str(run.model), "--data", str(tables), "--output", str(output), "--replace"]
    done = CliRunner().invoke(app, [*words, *more])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    with output.open() as file:
        return list(csv.DictReader(file))


def losses_of(rows: list[dict[str, str]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    known = [row for row in rows if row["hospitaldischargestatus"] in ("Alive", "Expired")]
    chances = [float(row[f"probability_{row['hospitaldischargestatus']}"]) for row in known]
    return -np.log(np.array(chances))


@pytest.mark.parametrize("scaling", ["secure", "ranges"])
def test_four_tables_are_predicted_as_they_were_trained_on(tmp_path: Path, scaling: str) -> None:
    write_tables(tmp_path)
    run = trained(tmp_path, tmp_path, scaling)
    rows = predict(run, tmp_path, "--keep", "hospitaldischargestatus", "--keep", "region")
    assert [row["patientunitstayid"] for row in rows] == [str(number) for number in range(95, 137)]
    assert {row["region"] for row in rows} == {"South"}
    assert losses_of(rows) == pytest.approx(run.losses("a", "train"), abs=1e-6)
    write_tables(tmp_path, backwards=True)
    assert predict(run, tmp_path, "--keep", "hospitaldischargestatus", "--keep", "region") == rows


def test_stays_without_apache_variables_are_told_and_need_no_outcome(tmp_path: Path) -> None:
    write_tables(tmp_path)
    run = trained(tmp_path, tmp_path, "secure")
    with (tmp_path / "patient.csv").open() as file:
        stays = list(csv.DictReader(file))
    names = [name for name in PATIENT if name != "hospitaldischargestatus"]
    text = "\n".join([",".join(names), *(",".join(stay[name] for name in names) for stay in stays)])
    (tmp_path / "patient.csv").write_text(text + "\n")
    output = str(tmp_path / "new.csv")
    words = ["predict", "--model", str(run.model), "--data", str(tmp_path), "--output", output]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "1 stay of patient is not in apacheapsvar and apachepredvar" in " ".join(done.stderr.split())
    assert "42 records predicted" in " ".join(done.stderr.split())


def test_a_folder_without_a_table_and_a_value_that_is_no_number_are_refused_in_words(tmp_path: Path) -> None:
    write_tables(tmp_path)
    run = trained(tmp_path, tmp_path, "secure")
    with pytest.raises(DataError, match="'bed'"):
        predict(run, tmp_path, "--keep", "bed")
    text = (tmp_path / "patient.csv").read_text()
    (tmp_path / "patient.csv").write_text(text.replace("> 89", "old"))
    with pytest.raises(DataError, match=r"line 5\b.*age|age.*line 5\b"):
        predict(run, tmp_path)
    (tmp_path / "patient.csv").write_text(text)
    (tmp_path / "apachepredvar.csv").unlink()
    with pytest.raises(DataError, match=r"apachepredvar\.csv"):
        predict(run, tmp_path)


def test_the_four_tables_of_the_demo_are_predicted_as_their_one(data_root: Path, tmp_path: Path) -> None:
    demonstration = data_root.resolve() / "eicu_demo"
    tables = tmp_path / "tables"
    tables.mkdir()
    for name in ("patient", "apacheapsvar", "apachepredvar", "hospital"):
        (tables / f"{name}.csv.gz").symlink_to(demonstration / f"{name}.csv.gz")
    run = trained(tmp_path, tables, "secure")
    rows = predict(run, tables, "--keep", "hospitaldischargestatus")
    assert losses_of(rows) == pytest.approx(run.losses("a", "train"), abs=1e-6)
    one = predict(run, demonstration / "eicu_demo_mortality.csv.gz", "--keep", "patientunitstayid")
    chances = {row["patientunitstayid"]: float(row["probability_Alive"]) for row in rows}
    found = {row["patientunitstayid"]: float(row["probability_Alive"]) for row in one}
    # The model is of single precision, whose last bit depends on the place of a record in its batch.
    assert found == pytest.approx({stay: chances[stay] for stay in found}, abs=1e-6)
