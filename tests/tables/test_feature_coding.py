from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.tables.dataset import Dataset
from fedfair.tables.sources.table import read_csv
from fedfair.tables.table_reader import csv_schema
from fedfair.tables.text_file import BLOCK_ROWS

PATIENTS = "age,sex,died,clinic\n41,F,0,a\n50.5,M,1,b\n7,X,1,a\n"


def load_csv(path: Path, stated: CsvData, classes: int | None, extra: Collection[str]) -> Dataset:
    return read_csv(path, stated, classes, extra).dataset


def write(folder: Path, text: str = PATIENTS) -> Path:
    path = folder / "patients.csv"
    path.write_text(text)
    return path


def spec(**fields: object) -> CsvData:
    return CsvData.model_validate({"label": "died", "numeric": ["age"], **fields})


def test_columns_of_features_follow_the_plan_and_sites_agree_on_them(tmp_path: Path) -> None:
    dataset = load_csv(write(tmp_path), spec(categorical={"sex": ["F", "M"]}, keep=["sex"]), None, ("clinic",))
    assert dataset.schema.names == ("age", "sex=F", "sex=M", "sex=other")
    assert dataset.schema.numeric == (0,)
    assert dataset.features.tolist() == [[41, 1, 0, 0], [50.5, 0, 1, 0], [7, 0, 0, 1]]
    assert dataset.labels.tolist() == [0, 1, 1]
    assert {name: column.tolist() for name, column in dataset.columns.items()} == {
        "sex": ["F", "M", "X"],
        "clinic": ["a", "b", "a"],
    }
    stated = spec(numeric="all", collaborator="clinic")
    first = load_csv(write(tmp_path, "b,a,clinic,died\n1,2,x,0\n"), stated, None, ())
    second = load_csv(write(tmp_path, "died,a,b\n0,2,1\n"), stated, None, ())
    assert first.schema == second.schema
    assert first.schema.names == ("a", "b")
    assert first.features.tolist() == second.features.tolist() == [[2, 1]]
    stated = spec(categorical={"sex": ["F", "M"]})
    assert load_csv(write(tmp_path), stated, None, ()).schema == csv_schema(stated, None, ("age",))


def test_labels_are_values_groups_of_values_or_numbers_above_another(tmp_path: Path) -> None:
    path = write(tmp_path, "x,died\n1,yes\n2,no\n")
    assert load_csv(path, spec(numeric=["x"], label_values=["no", "yes"]), None, ()).labels.tolist() == [1, 0]
    assert load_csv(path, spec(numeric=["x"], label_values=["yes", "no"]), None, ()).labels.tolist() == [0, 1]
    path = write(tmp_path, "x,died\n1,0\n2,3\n3,<=50K.\n4,<=50K\n5,1.0\n")
    stated = spec(numeric=["x"], label_values=[0, [1, 3], ["<=50K", "<=50K."]])
    dataset = load_csv(path, stated, None, ())
    assert dataset.labels.tolist() == [0, 1, 2, 2, 1]
    assert dataset.schema.classes == 3
    with pytest.raises(DataError, match=r"in 1 row \(line 3: '3'\); the plan allows 0, 1, 2"):
        load_csv(path, spec(numeric=["x"], label_values=[0, [1, 2], ["<=50K", "<=50K."]]), None, ())
    path = write(tmp_path, "x,died\n1,50000\n2,50000.5\n3,-1\n")
    assert load_csv(path, spec(numeric=["x"], label_above=50000), None, ()).labels.tolist() == [0, 1, 0]
    path = write(tmp_path, "x,died\n1,50000\n2,?\n")
    with pytest.raises(DataError, match=r"column 'died': not a finite number in 1 row \(line 3: '\?'\)"):
        load_csv(path, spec(numeric=["x"], label_above=50000), None, ())
    path = write(tmp_path, "x,died\n1,0\n2,2\n")
    assert load_csv(path, spec(numeric=["x"]), 3, ()).labels.tolist() == [0, 2]
    with pytest.raises(DataError, match=r"line 3: '2'.*the plan allows 0, 1"):
        load_csv(path, spec(numeric=["x"]), None, ())


def test_files_without_a_header_and_policies_of_single_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "|1x3 Cross validator\n\n41, F, 0.\n7, M, 1.\n")
    stated = spec(columns=["age", "sex", "died"], comment="|", label_values=["0.", "1."], keep=["sex"])
    dataset = load_csv(path, stated, None, ())
    assert dataset.features.tolist() == [[41], [7]]
    assert dataset.labels.tolist() == [0, 1]
    assert dataset.columns["sex"].tolist() == ["F", "M"]
    with pytest.raises(DataError, match=r"in 2 rows \(line 3: '0\.', line 4: '1\.'\)"):
        load_csv(path, spec(columns=["age", "sex", "died"], comment="|", label_values=["no", "yes"]), None, ())
    path = write(tmp_path, "age,chol,dose,died\n?,0.0,?,0\n3,0,0,1\n")
    stated = spec(
        numeric=["age", "chol", "dose"], missing="mean", missing_of={"dose": "zero"},
        missing_values_of={"chol": [0]},
    )  # fmt: skip
    features = load_csv(path, stated, None, ()).features
    assert np.isnan(features).tolist() == [[True, True, False], [False, True, False]]
    assert features[:, 2].tolist() == [0, 0]
    with pytest.raises(
        DataError, match=r"column 'chol': missing values in 2 rows \(line 2: '0\.0', line 3: '0'\)"
    ):
        load_csv(path, spec(numeric=["chol"], missing_values_of={"chol": [0]}), None, ())


def test_a_missing_category_may_be_a_column_of_its_own_or_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "age,sex,thal,died\n1,?,3,0\n2,F,0,1\n3,X,7,1\n")
    stated = spec(
        categorical={"sex": ["F", "M"], "thal": [3]},
        missing_of={"sex": "own", "thal": "own"},
        missing_values_of={"thal": [0]},
    )
    dataset = load_csv(path, stated, None, ())
    assert dataset.schema.names == (
        "age", "sex=F", "sex=M", "sex=other", "sex=missing", "thal=3", "thal=other", "thal=missing",
    )  # fmt: skip
    assert dataset.features[:, 1:].tolist() == [
        [0, 0, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 1, 0],
    ]  # fmt: skip
    assert dataset.schema == csv_schema(stated, None, ("age",))
    with pytest.raises(
        DataError, match=r"column 'sex': missing values in 1 row \(line 2: '\?'\); fill them in, or"
    ):
        load_csv(path, spec(categorical={"sex": ["F"]}, missing_of={"sex": "refuse"}), None, ())


def test_missing_numbers_and_categories_and_ranges_are_coded(tmp_path: Path) -> None:
    path = write(tmp_path, "age,died\n?,0\n,1\nNA,1\n3,1\n")
    features = load_csv(path, spec(missing="mean"), None, ()).features[:, 0]
    assert np.isnan(features).tolist() == [True, True, True, False]
    assert load_csv(path, spec(missing="zero"), None, ()).features[:, 0].tolist() == [0, 0, 0, 3]
    dataset = load_csv(write(tmp_path, "age,sex,died\n1,?,0\n"), spec(categorical={"sex": ["F"]}), None, ())
    assert dataset.features.tolist() == [[1, 0, 1]]
    stated = spec(numeric=["age", "dose"], ranges={"dose": [-1e-6, 3e-6]})
    # 2^-19 < 3e-6 < 2^-18.
    assert csv_schema(stated, None, ("age", "dose")).units == (1.0, 2.0**-18)
    assert csv_schema(spec(), None, ("age",)).units == ()
    path = write(tmp_path, "ca,flag,died\n1.0,TRUE,0.0\n1,False,1\nx,no,1\n")
    stated = CsvData.model_validate({"label": "died", "categorical": {"ca": [1], "flag": [True, False]}})
    dataset = load_csv(path, stated, None, ())
    assert dataset.features.tolist() == [[1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1]]
    assert dataset.labels.tolist() == [0, 1, 1]


def test_faults_of_a_file_are_reported_together_with_lines_and_ranges(tmp_path: Path) -> None:
    path = write(tmp_path, "age,died\n?,0\n0,1\n120,1\n121,1\n-0.5,0\n")
    with pytest.raises(DataError) as caught:
        load_csv(path, spec(missing="mean", ranges={"age": [0, 120]}), None, ())
    assert (
        "'age': outside of 0 to 120, its range in 2 rows (line 5: '121', line 6: '-0.5')" in caught.value.message
    )
    path = write(tmp_path, "age,bmi,died\n?,22,0\nold,23,1\n50,inf,2\n51,24,\n")
    with pytest.raises(DataError) as caught:
        load_csv(path, spec(numeric=["age", "bmi"]), None, ())
    message = caught.value.message
    assert "patients.csv cannot be used as it is" in message
    assert "column 'age': missing values in 1 row (line 2: '?'); fill them in, or set missing" in message
    assert "column 'age': not a finite number in 1 row (line 3: 'old')" in message
    assert "column 'bmi': not a finite number in 1 row (line 4: 'inf')" in message
    assert "column 'died': a label that the plan does not name in 2 rows (line 4: '2', line 5: '')" in message


def test_only_rows_of_the_plan_are_read_block_by_block(tmp_path: Path) -> None:
    path = write(tmp_path, "age,year,state,died\nold,2017,x,?\n50,2018,a,1\n51,2018.0,b,0\n52,2018,c,1\n")
    dataset = load_csv(path, spec(rows={"year": [2018], "state": ["a", "b"]}), None, ())
    assert dataset.features.tolist() == [[50], [51]]
    assert dataset.labels.tolist() == [1, 0]
    with pytest.raises(DataError, match=r"not a finite number in 1 row \(line 2: 'old'\)"):
        load_csv(path, spec(rows={"state": ["x"]}, label_values=["?", 1]), None, ())
    with pytest.raises(DataError, match=r"none of its 4 rows has year \[2020\]") as caught:
        load_csv(path, spec(rows={"year": [2020]}), None, ())
    assert "rows in the plan's csv" in caught.value.remedy
    count = 2 * BLOCK_ROWS + 5
    path = write(tmp_path, "age,died\n" + "".join(f" {i} ,{i % 2}\n" for i in range(count)))
    dataset = load_csv(path, spec(), None, ())
    assert dataset.features[:, 0].tolist() == list(range(count))
    assert dataset.labels.sum() == count // 2
    (tmp_path / "patients.csv").write_text(path.read_text().replace(f" {count - 1} ,0", "old,0"))
    with pytest.raises(DataError, match=rf"in 1 row \(line {count + 1}: 'old'\)"):
        load_csv(path, spec(), None, ())


def test_columns_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'dead' .*, 'agee' \(did you mean 'age'\?\), 'race'"):
        load_csv(write(tmp_path), spec(label="dead", numeric=["agee"], keep=["race"]), None, ())
    with pytest.raises(DataError, match="no column left for numeric: all"):
        load_csv(write(tmp_path, "died\n1\n"), spec(numeric="all"), None, ())
