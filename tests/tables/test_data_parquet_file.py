import contextlib
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.tables import parquet_file
from fedfair.tables.parquet_file import ParquetTable
from fedfair.tables.sources.table import read_csv
from fedfair.tables.typed_values import numbers_of

COLUMNS = {
    "age": pa.array([41, 50, None, 7], pa.int32()), "dose": pa.array([1.5, None, -2e3, 0.1], pa.float64()),
    "sex": pa.array(["F", "M", None, "x"]).dictionary_encode(), "died": pa.array([False, True, True, False]),
    "born": pa.array([0, 1, None, 365], pa.date32()), "notes": pa.array([["a"], [], None, ["b"]]),
    "a.b": pa.array([1, 2, 3, 4]),
}  # fmt: skip


def spec(**fields: object) -> CsvData:
    usual = {"label": "died", "numeric": ["dose", "age"], "categorical": {"sex": ["F", "M"]}, "missing": "mean"}
    return CsvData.model_validate({**usual, **fields})


def write(folder: Path, name: str = "t.csv", columns: dict[str, pa.Array] | None = None, **how: object) -> Path:
    path = folder / name
    pq.write_table(pa.table(columns or COLUMNS), path, **how)
    return path


@pytest.mark.parametrize("rows", [1, 3, 1 << 20])
def test_parquet_is_known_by_its_bytes(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "BATCH_ROWS", 2)
    stated = spec(missing_of={"sex": "own"}, keep=["sex"])
    read = read_csv(write(tmp_path, row_group_size=rows), stated, None, ())
    expected = [[1.5, 41, 1, 0, 0, 0], [np.nan, 50, 0, 1, 0, 0], [-2e3, np.nan, 0, 0, 0, 1], [0.1, 7, 0, 0, 1, 0]]
    np.testing.assert_array_equal(read.dataset.features, expected)
    assert read.dataset.labels.tolist() == [0, 1, 1, 0]
    assert read.dataset.columns["sex"].tolist() == ["F", "M", "", "x"]
    assert [column.missing for column in read.columns] == [1, 1, 1]


def test_a_parquet_file_means_what_the_csv_file_of_it_means(tmp_path: Path) -> None:
    columns = {name: COLUMNS[name] for name in ("age", "dose", "sex")} | {"died": pa.array([0, 1, 1, 0])}
    table = pa.table(columns)
    table.to_pandas(types_mapper=None).astype(object).to_csv(tmp_path / "t.csv", index=False)
    typed = read_csv(write(tmp_path, "t.parquet", columns), spec(), None, ())
    texts = read_csv(tmp_path / "t.csv", spec(), None, ())
    np.testing.assert_array_equal(typed.dataset.features, texts.dataset.features)
    assert typed.dataset.schema == texts.dataset.schema
    assert typed.columns == texts.columns


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"numeric": ["notes"]}, "column 'notes' holds list<.*>, not one value in each row"),
        ({"numeric": ["agee"]}, r"has no column 'agee' \(did you mean 'age'\?\)"),
        ({"numeric": ["sex"], "categorical": {}}, r"column 'sex': not a finite number in 3 rows \(row 1: 'F'"),
        ({"missing": "refuse"}, r"column 'dose': missing values in 1 row \(row 2: ''\)"),
    ],
)
def test_an_undeclared_file_is_refused(tmp_path: Path, fields: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_csv(write(tmp_path), spec(**fields), None, ())


def test_a_damaged_a_cut_off_and_an_encrypted_file_are_one_clear_fault(tmp_path: Path) -> None:
    raw = write(tmp_path).read_bytes()
    path = tmp_path / "d.parquet"
    for length in (4, 7, len(raw) // 2, len(raw) - 1):
        path.write_bytes(raw[:length])
        with pytest.raises(DataError, match=r"d\.parquet is a Parquet file that is cut off: its end is missing"):
            read_csv(path, spec(), None, ())
    path.write_bytes(raw[:4] + b"\xff" * 400 + raw[404:])
    with pytest.raises(DataError, match=r"d\.parquet is a damaged Parquet file"):
        read_csv(path, spec(), None, ())
    path.write_bytes(b"PARE" + raw[4:-4] + b"PARE")
    with pytest.raises(DataError, match=r"d\.parquet is an encrypted Parquet file"):
        read_csv(path, spec(), None, ())


NOT_UTF_8 = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (NOT_UTF_8, "column 'x' holds a text that is no UTF-8"),
        (NOT_UTF_8.dictionary_encode(), "column 'x' holds a text that is no UTF-8"),
        (pa.array([10**8, 1], pa.int32()).cast(pa.date32()), "column 'x' holds a date after the year 9999"),
        (pa.array([-(10**8), 1], pa.int32()).cast(pa.date32()), "column 'x' holds a date before the year 1"),
        (pa.array([10**17, None]).cast(pa.timestamp("ms")), "column 'x' holds a date after the year 9999"),
        (pa.array([-(10**17), 5]).cast(pa.timestamp("us", "UTC")), "column 'x' holds a date before the year 1"),
        (pa.array([10**10 * 86_400_000, 0]).cast(pa.date64()), "column 'x' holds a date after the year 9999"),
    ],
)
@pytest.mark.parametrize("role", ["numeric", "dates", "categorical", "keep", "label"])
def test_values_without_a_word_are_one_fault(tmp_path: Path, column: pa.Array, said: str, role: str) -> None:
    path = write(tmp_path, columns={"x": column, "age": pa.array([1, 2]), "died": pa.array([0, 1])})
    stated = {
        "numeric": {"numeric": ["x"]}, "dates": {"numeric": ["x"], "dates": {"x": "%Y-%m-%d"}},
        "categorical": {"categorical": {"x": ["a"]}}, "keep": {"keep": ["x"]},
        "label": {"label": "x", "label_values": ["a", "b"]},
    }[role]  # fmt: skip
    with pytest.raises(DataError) as fault:
        read_csv(path, spec(**{"numeric": ["age"], "categorical": {}, **stated}), None, ())
    assert said in fault.value.message
    read_csv(path, spec(numeric=["age"], categorical={}), None, ())


def test_dates_of_a_file_are_years_by_their_form_only_first_and_last_included(tmp_path: Path) -> None:
    path = write(tmp_path)
    read = read_csv(path, spec(numeric=["born"], dates={"born": "%Y-%m-%d"}), None, ())
    np.testing.assert_array_equal(read.dataset.features[:, 0], [1970, 1970 + 1 / 365, np.nan, 1971])
    with pytest.raises(DataError, match=r'they look like dates: state dates: {born: "%Y-%m-%d"}'):
        read_csv(path, spec(numeric=["born"]), None, ())
    with pytest.raises(DataError, match=r"outside of 1970 to 1970.5, its range in 1 row .row 4: '1971-01-01'"):
        read_csv(
            path, spec(numeric=["born"], dates={"born": "%Y-%m-%d"}, ranges={"born": [1970, 1970.5]}), None, ()
        )
    columns = {"born": pa.array([1958, 2020]), "died": pa.array([0, 1])}
    stated = spec(numeric=["born"], categorical={}, dates={"born": "%Y"})
    assert read_csv(write(tmp_path, columns=columns), stated, None, ()).dataset.features.tolist() == [
        [1958],
        [2020],
    ]
    days = pa.array([parquet_file.FIRST_DAY, parquet_file.LAST_DAY], pa.int32()).cast(pa.date32())
    for column in (days, days.cast(pa.timestamp("ms"))):
        path = write(tmp_path, columns={"x": column, "died": pa.array([0, 1])})
        stated = spec(numeric=["x"], categorical={}, dates={"x": "%Y-%m-%d"})
        assert read_csv(path, stated, None, ()).dataset.features[:, 0].astype(int).tolist() == [1, 9999]


def test_any_changed_byte_of_a_file_gives_records_or_one_clear_fault(tmp_path: Path) -> None:
    raw, draws = write(tmp_path).read_bytes(), np.random.default_rng(1)
    path = tmp_path / "changed.parquet"
    for _ in range(200):
        damaged = bytearray(raw)
        for place in draws.integers(4, len(raw) - 4, draws.integers(1, 9)):
            damaged[place] = draws.integers(0, 256)
        path.write_bytes(damaged)
        with contextlib.suppress(DataError):
            read_csv(path, spec(), None, ())


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "is_installed", lambda name: name != "pyarrow")
    with pytest.raises(DataError, match=r"this needs pyarrow, .* -r requirements/extras/parquet\.txt"):
        read_csv(write(tmp_path), spec(), None, ())


def test_columns_are_taken_by_their_exact_names_and_no_others(tmp_path: Path) -> None:
    columns = COLUMNS | {"a": pa.array([{"b": 1}] * 4)}
    read = read_csv(write(tmp_path, columns=columns), spec(numeric=["a.b"]), None, ())
    assert read.dataset.features[:, 0].tolist() == [1, 2, 3, 4]
    frames = list(ParquetTable(write(tmp_path)).frames({"age", "died"}))
    assert [list(frame.columns) for frame in frames] == [["age", "died"]]
    columns = {"x": pa.array([1.5, 2.0]), "died": pa.array([0, 1])}
    stated = spec(numeric=[], categorical={"x": [1.5, 2]}, decimal=",", separator=";")
    features = read_csv(write(tmp_path, columns=columns), stated, None, ()).dataset.features
    assert features.tolist() == [[1, 0, 0], [0, 1, 0]]


@given(st.lists(st.decimals(-(10**20), 10**20, places=9, allow_nan=False), min_size=1))
def test_a_decimal_is_the_nearest_number(values: list[Decimal]) -> None:
    import pandas as pd

    column = pd.Series(values, dtype=pd.ArrowDtype(pa.decimal128(38, 9)))
    found = numbers_of(column, "x")
    assert found is not None
    assert found.tolist() == [float(value) for value in values]
