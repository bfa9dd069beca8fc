"""A schema drafted from a site's own file: what it guesses, what it says of it, and what it keeps to itself."""

import datetime as dt
import gzip
import random
import shutil
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.plan.loading import load_plan
from fedfair.plan.sources import CsvSource
from fedfair.tables.sources.table import read_csv
from fedfair.workspace.create import TWO_CLINICS, create_workspace
from fedfair.workspace.csv_draft import draft_schema

ROWS = [
    ("34", "F", "1.25", "no"), ("51", "M", "2.5", "yes"), ("34", "F", "1.25", "no"), ("51", "M", "2.75", "yes"),
]  # fmt: skip


def table(*rows: tuple[str, ...], separator: str = ",") -> str:
    return "".join(separator.join(row) + "\n" for row in rows)


def drafted(folder: Path, text: str | bytes, label: str | None = None) -> tuple[CsvData, str, str]:
    """Return the schema as a plan states it, the text of the plan, and what the terminal is told."""
    path = folder / "own.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    task, notes = draft_schema(path, label)
    shutil.rmtree(folder / "w", ignore_errors=True)
    create_workspace(folder / "w", "heart", "csv", TWO_CLINICS, task)
    source = load_plan(folder / "w" / "plan" / "plan.yaml").task.data
    assert isinstance(source, CsvSource)
    return source.csv, (folder / "w" / "plan" / "plan.yaml").read_text(), "\n".join(notes)


def test_identifiers_rare_values_and_numbers_stay_out_of_the_workspace(tmp_path: Path) -> None:
    rows = [(f"p{place:03}", str(1000 + place), f"{place % 5}.5", str(place % 2)) for place in range(20)]
    schema, text, told = drafted(tmp_path, table(("who", "visit", "dose", "died"), *rows))
    assert schema.numeric == ("dose",)
    assert schema.categorical == {}
    assert "p003" not in text
    assert "1003" not in text
    for name in ("who", "visit"):
        assert f"left out: column {name!r} is like an identifier: all its values are distinct" in told
        assert f"# left out: {name} is like an identifier" in text
    source = random.Random(3)  # noqa: S311 - made-up records
    rows = [(f"{source.uniform(100, 200):.6f}", source.choice("FM"), str(place % 2)) for place in range(200)]
    rows[7] = (rows[7][0], "rare-value", "1")
    _, text, told = drafted(tmp_path, table(("dose", "sex", "died"), *rows))
    workspace = "".join(path.read_text() for path in (tmp_path / "w").rglob("*") if path.is_file())
    assert not [value for value, _, _ in rows if value in workspace]
    assert "rare-value" not in workspace
    assert "200" not in text
    assert "1 values of one record each are not written down" in told
    rows = [(str(20 + place % 31), str(place % 2)) for place in range(100)]
    rows[3] = rows[4] = ("-9", "1")
    _, text, told = drafted(tmp_path, table(("age", "died"), *rows))
    assert "- age  # ambiguous: one number may mean a missing value" in text
    assert "-9" not in text
    assert "ambiguous: column 'age'" in told


def test_the_form_of_a_file_is_recognised_and_the_draft_reads_it(tmp_path: Path) -> None:
    def row(place: int) -> tuple[str, ...]:
        day = f"{place % 28 + 1:02}.0{place % 5 + 1}.1958"
        return (f"{place % 9 + 20},5", f"{place % 7 + 1}.234,50", day, "ä", "nein")

    rows = [*map(row, range(40)), *[("7", "999,00", "31.12.1960", "ö", "ja")] * 3]
    text = table(("größe", "kosten", "geboren", "ort", "died"), *rows, separator=";")
    schema, _, told = drafted(tmp_path, text.encode("latin-1"))
    assert "it is probably latin-1, which is stated as encoding" in told
    assert (schema.encoding, schema.separator, schema.decimal, schema.thousands) == ("latin-1", ";", ",", ".")
    assert schema.dates == {"geboren": "%d.%m.%Y"}
    features = read_csv(tmp_path / "own.csv", schema, None, ()).dataset.features
    assert features[-1, :2].tolist() == [7, 999]
    assert features[0, :2].tolist() == [20.5, 1234.5]


def test_marks_separators_and_decimals_are_recognised(tmp_path: Path) -> None:
    rows = [(str(30 + place % 17), "F" if place % 3 else "n/a", str(place % 2)) for place in range(60)]
    rows[4] = ("NaN", "F", "0")
    rows[5] = ("?", "M", "1")
    rows[6] = ("", "M", "0")
    schema, _, _ = drafted(tmp_path, table(("age", "sex", "died"), *rows))
    assert {"n/a", "NaN", "?", ""} <= set(schema.missing_values)
    assert schema.missing == "mean"
    assert schema.missing_of == {"sex": "own"}
    text = '\ufeff"Alter, Jahre";"Größe: cm";"died"\n' + table(
        *(("34.5", '"F;1"', "0"), ("51.5", "M", "1"), ("34.5", '"F;1"', "0"), ("51.5", "M", "1")), separator=";"
    )
    schema, _, _ = drafted(tmp_path, text)
    assert schema.separator == ";"
    assert schema.numeric == ("Alter, Jahre",)
    assert schema.categorical == {"Größe: cm": ("F;1", "M")}
    assert len(read_csv(tmp_path / "own.csv", schema, None, ()).dataset) == 4
    rows = [(f"{place},5", str(place % 7 + 20.5), str(place % 2)) for place in range(30)]
    schema, _, told = drafted(tmp_path, table(("dose", "age", "died"), *rows, separator=";"))
    assert schema.numeric == ("age",)
    assert "left out: column 'dose' has decimal commas and other columns have not" in told
    text = "age   died\n" + "".join(f"{place % 13 + 20.5}\t  {place % 2}\n" for place in range(30))
    schema, _, _ = drafted(tmp_path, text)
    assert schema.separator == " "
    assert read_csv(tmp_path / "own.csv", schema, None, ()).dataset.features[:2].tolist() == [[20.5], [21.5]]


def test_a_parquet_file_is_drafted_too(tmp_path: Path) -> None:
    columns = {
        "age": [20.5 + place % 13 for place in range(40)], "sex": ["F", "M"] * 20,
        "seen": [dt.date(2020, 1, 1 + place % 20) for place in range(40)],
        "died": [place % 2 == 0 for place in range(40)], "notes": [["a"]] * 40,
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "t")
    schema, _, _ = drafted(tmp_path, (tmp_path / "t").read_bytes())
    assert schema.numeric == ("age", "seen")
    assert schema.dates == {"seen": "%Y-%m-%d"}
    assert schema.categorical == {"sex": ("F", "M")}
    assert read_csv(tmp_path / "own.csv", schema, None, ()).dataset.labels[:2].tolist() == [1, 0]


def test_files_without_a_header_and_workbooks(tmp_path: Path) -> None:
    schema, text, told = drafted(tmp_path, table(*ROWS))
    assert schema.columns == ("column_1", "column_2", "column_3", "column_4")
    assert "line 1 looks like a record" in told
    assert "ambiguous: line 1 looks like a record" in text
    assert len(read_csv(tmp_path / "own.csv", schema, None, ()).dataset) == len(ROWS)
    rows = [("a", "x"), ("b", "y"), ("a", "y"), ("b", "x")] * 3
    assert drafted(tmp_path, table(*rows))[0].columns == ("column_1", "column_2")
    with zipfile.ZipFile(tmp_path / "own.csv", "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    with pytest.raises(DataError, match=r"own\.csv is an Excel workbook \(\.xlsx\), not a text file"):
        draft_schema(tmp_path / "own.csv")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is empty"), ("\n\n", "is empty"), ("age,died\n", "has a header but no records"),
        ("age\n1\n2\n", "has one column"), ("age,age,died\n1,2,0\n3,4,1\n", "two columns called 'age'"),
        ("age,died\n1,0\n2,1,7\n3,0\n4,1\n5,1\n6,0\n7,1\n8,1\n9,1\n10,1\n", "has 3 fields"),
        (b"age,died\n\x00,1\n2,0\n3,1\n", "line 2, character 1: a NUL character"),
        ("age,died\n" + "1,0\n" * 20 + '"2,1\n', "cannot be read as a comma-separated table"),
        ("age,dose\n1.5,2.5\n3.5,4.5\n", "no column is clearly the label"),
        ("who,died\na,0\nb,1\nc,0\nd,1\n", "no column that could be a feature"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused_in_words(tmp_path: Path, text: str | bytes, fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        drafted(tmp_path, text)
    assert not (tmp_path / "w").exists()


def test_columns_labels_and_marks_are_told_apart(tmp_path: Path) -> None:
    schema, text, _ = drafted(tmp_path, table(("age", "sex", "dose", "died"), *ROWS, *ROWS[:1]))
    assert schema.label == "died"
    assert schema.label_classes == (("no",), ("yes",))
    assert schema.categorical["sex"] == ("F", "M")
    assert "dose" in schema.numeric
    assert "ambiguous: guessed by its name" in text
    schema, _, _ = drafted(tmp_path, table(("age", "sex", "dose", "died"), *ROWS))
    assert len(read_csv(tmp_path / "own.csv", schema, None, ()).dataset) == len(ROWS)
    rows = [(str(place % 3 + 1), f"{place / 7:.4f}", str(place % 2)) for place in range(30)]
    schema, text, told = drafted(tmp_path, table(("stage", "dose", "died"), *rows))
    assert schema.categorical["stage"] == (1, 2, 3)
    assert "stage: [1, 2, 3]  # ambiguous: whole numbers" in text
    assert "ambiguous: column 'stage'" in told
    text = table(("age", "sex", "dose", "died"), *ROWS)
    assert drafted(tmp_path, text, "sex")[0].label == "sex"
    with pytest.raises(DataError, match="has no column 'gender'"):
        draft_schema(tmp_path / "own.csv", "gender")


def test_days_thousands_and_names_that_may_mean_otherwise_are_pointed_out(tmp_path: Path) -> None:
    rows = [(f"{place % 12 + 1}/{place % 9 + 1}/1958", str(place % 2)) for place in range(30)]
    schema, _, told = drafted(tmp_path, table(("born", "died"), *rows))
    assert schema.dates == {"born": "%d/%m/%Y"}
    assert "ambiguous: column 'born': its dates may be %m/%d/%Y as well" in told
    rows = [(f"{place % 12 + 1},500", str(place % 2)) for place in range(30)]
    schema, _, told = drafted(tmp_path, table(("cost", "died"), *rows, separator=";"))
    assert schema.decimal == ","
    assert "ambiguous: commas may be decimal marks, as is stated, or marks of thousands" in told
    rows = [
        (value, word, label) for (value, _, _, label), word in zip(ROWS, ("yes", "off", "yes", "off"), strict=True)
    ]
    schema, _, _ = drafted(tmp_path, table(("#age: x", "on", "died"), *rows))
    assert schema.label == "died"
    assert {*schema.numeric, *schema.categorical} == {"#age: x", "on"}
    assert schema.categorical["on"] == ("off", "yes")


def test_a_hundred_thousand_rows_are_drafted_whole(tmp_path: Path) -> None:
    rows = (f"{place},{place % 97 / 7:.5f},{'FM'[place % 2]},{place % 3 % 2}\n" for place in range(100_001))
    text = "visit,dose,sex,died\n" + "".join(rows)
    (tmp_path / "own.csv.gz").write_bytes(gzip.compress(text.encode(), 1))
    task, notes = draft_schema(tmp_path / "own.csv.gz")
    assert notes[0].startswith("100001 records, 4 columns")
    assert "- dose" in task
    assert "visit is like an identifier" in task


PUBLISHED = {
    "heart/processed.cleveland.data": None, "heart/processed.hungarian.data": "column_14",
    "heart/processed.switzerland.data": "column_14", "heart/processed.va.data": None, "adult/adult.data.gz": None,
    "adult/adult.test.gz": None, "eicu_demo/eicu_demo_mortality.csv.gz": "died",
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == "adult/adult.data.gz" else ()) for name in PUBLISHED],
)
def test_published_files_are_read_by_their_own_draft(tmp_path: Path, data_root: Path, name: str) -> None:
    task, notes = draft_schema(data_root / name, PUBLISHED[name])
    create_workspace(tmp_path / "w", "heart", "csv", TWO_CLINICS, task)
    source = load_plan(tmp_path / "w" / "plan" / "plan.yaml").task.data
    assert isinstance(source, CsvSource)
    read = read_csv(data_root / name, source.csv, None, ())
    assert notes[0].startswith(f"{len(read.dataset)} records")
