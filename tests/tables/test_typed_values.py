import datetime as dt
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.tables.sources.table import read_csv
from fedfair.tables.table_reader import CsvRecords, needed_columns, read_records
from fedfair.tables.typed_values import TypedSource

HEADER = ("age", "dose", "sex", "clinic", "died", "other")


def spec(**fields: object) -> CsvData:
    return CsvData.model_validate({"label": "died", "numeric": ["age"], **fields})


def read_frames(frames: Sequence[pd.DataFrame], header: Sequence[str], stated: CsvData) -> CsvRecords:
    source = TypedSource(header, lambda wanted: (frame[[*wanted]] for frame in frames), "the query")
    return read_records(source, stated, where="the query")


def read(frame: pd.DataFrame, stated: CsvData) -> CsvRecords:
    return read_frames([frame], list(frame.columns), stated)


def assert_same(one: CsvRecords, other: CsvRecords) -> None:
    """Compare to the bit; NaN equals NaN."""
    np.testing.assert_array_equal(one.dataset.features, other.dataset.features)
    np.testing.assert_array_equal(one.dataset.labels, other.dataset.labels)
    assert one.dataset.schema == other.dataset.schema
    assert one.columns == other.columns
    for name, column in other.dataset.columns.items():
        assert one.dataset.columns[name].tolist() == column.tolist()


finite = st.floats(allow_nan=False, allow_infinity=False)
rows = st.lists(
    st.tuples(
        st.none() | finite,
        # Beyond 2^53 a whole number is refused, because it would be rounded.
        st.none() | st.integers(-(2**53), 2**53),
        st.sampled_from(["F", "M", " F ", "f", "", None]),
        st.sampled_from(["a", "é", "x,y"]),
        st.integers(0, 1),
        st.text(max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@settings(deadline=None, max_examples=30)
@given(rows, st.integers(1, 7), st.booleans())
def test_typed_columns_mean_what_a_csv_file_of_them_means(
    tmp_path_factory: pytest.TempPathFactory, values: Sequence[tuple[object, ...]], block: int, objects: bool
) -> None:
    stated = spec(
        numeric=["dose", "age"], categorical={"sex": ["F", "M"]}, missing="mean", missing_of={"sex": "own"},
        missing_values_of={"dose": [0]}, keep=["clinic"],
    )  # fmt: skip
    frame = pd.DataFrame(values, columns=HEADER, dtype=object)
    if not objects:
        frame = frame.astype({"age": "float64", "dose": "Int64", "died": "int8"})
    path = tmp_path_factory.getbasetemp() / "frames.csv"
    pd.DataFrame(values, columns=HEADER, dtype=object).drop(columns="other").to_csv(path, index=False)
    frames = [frame.iloc[start : start + block] for start in range(0, len(frame), block)]
    typed = read_frames(frames, HEADER, stated)
    assert_same(typed, read_csv(path, stated, None, ()))


@pytest.mark.parametrize(
    ("ages", "kind"),
    [
        ([1, 2, 3], "int64"), ([1, 2, 3], "uint8"), ([1, 2, 3], "float32"), ([1, 2, 3], "Int16"),
        ([1, 2, 3], pd.ArrowDtype(pa.int32())), ([Decimal("1.00"), Decimal(2), Decimal(3)], "object"),
        ([Decimal(1), Decimal(2), Decimal(3)], pd.ArrowDtype(pa.decimal128(9, 2))),
        (["1", " 2 ", "3.0"], "object"), (["1", "2", "3"], "str"), (["1", "2", "3"], pd.ArrowDtype(pa.string())),
    ],
)  # fmt: skip
def test_a_number_is_the_same_number_in_every_type(ages: list[object], kind: Any) -> None:  # noqa: ANN401
    found = read(pd.DataFrame({"age": pd.Series(ages, dtype=kind), "died": [0, 1, 0]}), spec())
    assert found.dataset.features.tolist() == [[1], [2], [3]]


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA, ""])
@pytest.mark.parametrize("others", [[1.5, 2.5], [1, 2], [Decimal(1), Decimal(2)], ["1", "2"]])
def test_null_nan_and_an_empty_text_are_missing_whatever_the_plan_lists(gap: object, others: list[object]) -> None:
    frame = pd.DataFrame({"age": pd.Series([*others, gap], dtype=object), "died": [0, 1, 0]})
    found = read(frame, spec(missing="zero", missing_values=["?"]))
    assert found.dataset.features[2].tolist() == [0]
    assert found.columns[0].missing == 1
    with pytest.raises(DataError, match=r"column 'age': missing values in 1 row \(row 3: ''\); fill them in"):
        read(frame, spec())


@pytest.mark.parametrize("kind", ["bool", "boolean", "object", pd.ArrowDtype(pa.bool_())])
@pytest.mark.parametrize(
    ("label_values", "labels"),
    [(None, [1, 0]), ([True, False], [0, 1]), (["FALSE", "true"], [1, 0]), ([1, 0], [0, 1]), (["1", "0"], [0, 1])],
)
def test_a_boolean_is_as_the_plan_says(kind: Any, label_values: object, labels: list[int]) -> None:  # noqa: ANN401
    truths = pd.Series([True, False], dtype=kind)
    frame = pd.DataFrame({"age": truths, "sex": truths, "died": truths})
    stated = spec(label_values=label_values, categorical={"sex": [False, True]})
    found = read(frame, stated)
    assert found.dataset.labels.tolist() == labels
    assert found.dataset.features.tolist() == [[1, 0, 1, 0], [0, 1, 0, 0]]


def test_other_types_have_a_plain_text() -> None:
    moments = [pd.Timestamp("2020-01-31"), pd.Timestamp("2020-01-31 12:00", tz="Europe/Berlin")]
    name = uuid.UUID(int=7)
    frame = pd.DataFrame(
        {
            "age": [1, 2], "died": [0, 1], "code": pd.Series([7.0, 7.5]), "price": [Decimal("1.50"), Decimal(100)],
            "day": [dt.date(2020, 1, 31), dt.date(2021, 1, 31)], "moment": pd.Series(moments, dtype=object),
            "id": [name, name],
        }
    )  # fmt: skip
    kept = read(frame, spec(keep=["code", "price", "day", "moment", "id"])).dataset.columns
    assert {name: column.tolist() for name, column in kept.items()} == {
        "code": ["7", "7.5"], "price": ["1.5", "100"], "day": ["2020-01-31", "2021-01-31"],
        "moment": ["2020-01-31", "2020-01-31 11:00:00"], "id": [str(name)] * 2,
    }  # fmt: skip


def test_faults_of_all_blocks_are_told_at_once_with_their_rows() -> None:
    frames = [pd.DataFrame({"age": [1.0, float("inf")] * 15, "died": [0, 7] * 15}) for _ in range(2)]
    with pytest.raises(DataError) as caught:
        read_frames(frames, ("age", "died"), spec())
    first, second = (line.strip() for line in caught.value.message.splitlines()[1:])
    assert first.startswith("column 'age': not a finite number in 30 rows (row 2: 'inf', row 4: 'inf'")
    assert "row 6: 'inf' and 27 more)" in first
    assert second.startswith("column 'died': a label that the plan does not name in 30 rows (row 2: '7'")


@pytest.mark.parametrize(
    ("column", "words"),
    [([[1], [2]], "lists"), ([{}, {}], "records"), ([b"1", b"2"], "bytes"), ([1j, 2j], "complex numbers")],
)
def test_a_column_of_something_else_is_refused(column: list[object], words: str) -> None:
    with pytest.raises(DataError, match=f"the query, column 'age' holds {words}"):
        read(pd.DataFrame({"age": column, "died": [0, 1]}), spec())


def test_columns_of_typed_values_are_complete_unique_and_those_that_are_wanted() -> None:
    frame = pd.DataFrame({"agee": [1], "died": [0]})
    with pytest.raises(DataError, match=r"the query has no column 'age' \(did you mean 'agee'\?\)"):
        read(frame, spec())
    with pytest.raises(DataError, match="the query has two columns called 'died'"):
        read_frames([], ("age", "died", "died"), spec())
    with pytest.raises(DataError, match="the query has no records"):
        read_frames([], ("age", "died"), spec())
    frame = pd.DataFrame({"age": [1.0, 2.0, float("inf")], "died": [0, 1, 0], "year": [2018, 2019, 2018]})
    found = read(frame.iloc[:2], spec(rows={"year": [2018]}))
    assert found.dataset.features.tolist() == [[1]]
    with pytest.raises(DataError, match=r"not a finite number in 1 row \(row 3: 'inf'\)"):
        read(frame, spec(rows={"year": [2018]}))
    with pytest.raises(DataError, match=r"none of its 3 rows has year \[2020\]"):
        read(frame, spec(rows={"year": [2020]}))
    stated = spec(numeric="all", collaborator="clinic", keep=["sex"])
    assert needed_columns(stated, HEADER) == ("age", "dose", "sex", "died", "other")
    assert needed_columns(stated, HEADER, ("clinic",)) == HEADER
    assert needed_columns(spec(), HEADER) == ("age", "died")
    frame = pd.DataFrame({"b": [1.0], "a": [2], "clinic": ["x"], "sex": ["F"], "died": [0]})
    found = read(frame, stated)
    assert found.dataset.schema.names == ("a", "b")
