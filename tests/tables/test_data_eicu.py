import shutil
from pathlib import Path

import numpy as np
import pytest

from fedfair.errors import DataError
from fedfair.plan.sources import EicuData
from fedfair.tables.dataset import Dataset
from fedfair.tables.sources.eicu import FLAGS, MEASURED, NAMES, load_eicu

TABLES = ("patient", "apacheapsvar", "apachepredvar", "hospital")
STAYS = (
    {"patientunitstayid": "9", "age": "> 89", "hospitalid": "1", "uniquepid": "p1", "ph": "-1"},
    {"patientunitstayid": "10", "age": "40", "hospitalid": "2", "uniquepid": "p2", "ph": "7.3"}
    | {"hospitaldischargestatus": "Expired", "gender": "Male", "electivesurgery": "1"},
    {"patientunitstayid": "11", "age": "", "hospitalid": "2", "uniquepid": "p2", "hospitaldischargestatus": ""},
)
DEFAULTS = {"hospitaldischargestatus": "Alive", "gender": "Female", "ethnicity": "Asian", "electivesurgery": ""}
PATIENT = ("patientunitstayid", "gender", "age", "ethnicity", "hospitalid", "hospitaldischargestatus", "uniquepid",
           "admissionheight", "admissionweight")  # fmt: skip
VARIABLES = ("patientunitstayid", "intubated", "vent", "dialysis", *MEASURED[:21])
PREDICTORS = ("patientunitstayid", "gender", "age", "ph", *FLAGS[3:])


def write_table(
    folder: Path, name: str, columns: tuple[str, ...], stays: tuple[dict[str, str], ...] = STAYS
) -> None:
    rows = [",".join({**DEFAULTS, **stay}.get(column, "0") for column in columns) for stay in stays]
    (folder / f"{name}.csv").write_text("\n".join([",".join(columns), *rows]) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_table(tmp_path, "patient", PATIENT)
    write_table(tmp_path, "apacheapsvar", VARIABLES, STAYS[::-1])
    write_table(tmp_path, "apachepredvar", PREDICTORS, (*STAYS, {"patientunitstayid": "99"}))
    (tmp_path / "hospital.csv").write_text("hospitalid,region\n2,South\n1,\n")
    return tmp_path


def feature(dataset: Dataset, name: str) -> list[float]:
    return dataset.features[:, NAMES.index(name)].tolist()


def test_stays_are_joined_in_order_with_indicators_and_numbers_known_beforehand(folder: Path) -> None:
    dataset = load_eicu(folder, EicuData(), ())
    assert dataset.labels.tolist() == [0, 1]
    assert dataset.columns["region"].tolist() == ["unknown", "South"]
    assert dataset.columns["uniquepid"].tolist() == ["p1", "p2"]
    assert dataset.person_column == "uniquepid"
    assert np.isnan(feature(dataset, "ph")[0])
    assert feature(dataset, "ph")[1] == 7.3
    assert feature(dataset, "ph missing") == [1, 0]
    assert feature(dataset, "age") == [90, 40]
    assert feature(dataset, "electivesurgery") == [0, 1]
    assert feature(dataset, "female") == [1, 0]
    leaks = ("discharge", "died", "mortality", "los", "actual", "predicted", "status", "score")
    assert not [name for name in NAMES for leak in leaks if leak in name]
    assert not set(NAMES) & {"region", "ethnicity", "hospitalid", "uniquepid"}
    assert load_eicu(folder, EicuData(keep=("vent",)), ("age",)).columns["age"].tolist() == ["> 89", "40"]


def test_faults_are_told_with_their_place(folder: Path) -> None:
    text = (folder / "apacheapsvar.csv").read_text()
    (folder / "apacheapsvar.csv").write_text(text.replace("7.3", "acid"))
    with pytest.raises(
        DataError, match=r"apacheapsvar\.csv .*\n.*column 'ph': not a finite number .*line 3: 'acid'"
    ):
        load_eicu(folder, EicuData(), ())
    write_table(folder, "apacheapsvar", VARIABLES, (STAYS[0], STAYS[0]))
    with pytest.raises(DataError, match="patientunitstayid stands there twice"):
        load_eicu(folder, EicuData(), ())
    write_table(folder, "apacheapsvar", ("patientunitstayid", *VARIABLES[2:]))
    with pytest.raises(DataError, match="no column 'intubated'"):
        load_eicu(folder, EicuData(), ())
    write_table(folder, "apacheapsvar", VARIABLES)
    (folder / "hospital.csv").write_text("hospitalid,region\n1,\n")
    with pytest.raises(DataError, match="no hospital 2"):
        load_eicu(folder, EicuData(), ())
    (folder / "hospital.csv").unlink()
    with pytest.raises(DataError, match=r"holds no hospital\.csv"):
        load_eicu(folder, EicuData(), ())


def test_the_real_tables_have_the_published_counts_and_both_forms_agree(data_root: Path, tmp_path: Path) -> None:
    # The README beside the data set: 2,179 stays, 196 deaths, 1,765 patients; ph not measured in 1,776.
    joined = load_eicu(data_root / "eicu_demo", EicuData(), ())
    assert (len(joined), joined.labels.sum(), len(set(joined.columns["uniquepid"].tolist()))) == (2179, 196, 1765)
    assert sum(feature(joined, "ph missing")) == 1776
    for name in TABLES:
        shutil.copy(data_root / "eicu_demo" / f"{name}.csv.gz", tmp_path)
    tables = load_eicu(tmp_path, EicuData(), ())
    assert np.array_equal(joined.features, tables.features, equal_nan=True)
    assert np.array_equal(joined.labels, tables.labels)
    assert all(np.array_equal(joined.columns[name], tables.columns[name]) for name in joined.columns)
