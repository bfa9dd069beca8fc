"""Whole numbers beyond 2^53 are exact or refused: a number is never rounded in silence."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.tables.number_texts import EXACT, NumberForm
from fedfair.tables.sources.table import read_csv
from fedfair.tables.typed_values import numbers_of

SPEC = CsvData.model_validate({"label": "died", "numeric": ["age", "dose"]})
ROUNDED = EXACT + 1


def read(path: Path, value: object) -> np.ndarray:
    path.write_text(f"age,dose,died\n1,2,0\n{value},3,1\n")
    return read_csv(path, SPEC, None, ()).dataset.features


@pytest.mark.parametrize("value", [ROUNDED, -ROUNDED, 10**20 + 1])
def test_a_whole_number_that_would_be_rounded_is_refused_with_place_and_remedy(tmp_path: Path, value: int) -> None:
    with pytest.raises(DataError, match=rf"column 'age': a whole number beyond 2\^53.*line 3: '{value}'") as fault:
        read(tmp_path / "a.csv", value)
    assert "declare it under categorical" in str(fault.value.diagnostics())


@pytest.mark.parametrize("value", [EXACT, -EXACT, EXACT + 2, "1e300", "123456789012345678.5", 4.5])
def test_what_is_exact_or_no_whole_number_is_read_as_ever(tmp_path: Path, value: object) -> None:
    assert read(tmp_path / "a.csv", value)[1, 0] == float(str(value))


@pytest.mark.parametrize("kind", ["int64", "uint64", "Int64", "object", "int64[pyarrow]"])
def test_a_typed_column_of_such_numbers_is_looked_at_as_texts(kind: str) -> None:
    assert numbers_of(pd.Series([1, ROUNDED], dtype=kind), "t") is None
    found = numbers_of(pd.Series([1, EXACT - 1], dtype=kind), "t")
    assert found is not None
    assert found.tolist() == [1.0, float(EXACT - 1)]


def test_a_form_with_marks_between_groups_rounds_as_one_without() -> None:
    assert NumberForm(",", ".").rounds("9.007.199.254.740.993", 9007199254740992.0)
    assert not NumberForm(",", ".").rounds("9.007.199.254.740.992", 9007199254740992.0)
    assert not NumberForm().rounds("9007199254740993.5", 9007199254740994.0)
