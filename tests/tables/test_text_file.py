import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import DataError
from fedfair.tables.sources.images import read_words
from fedfair.tables.text_file import TableForm, find_file, read_table
from fedfair.tables.text_table import Faults, numbers


def write(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_order_mark_line_ends_and_gzip_change_nothing(tmp_path: Path, prefix: bytes, packed: bool) -> None:
    raw = prefix + "größe,b\r\n1,2\r\n".encode()
    table = read_table(write(tmp_path, gzip.compress(raw) if packed else raw))
    assert list(table.columns) == ["größe", "b"]
    assert table.columns["b"].tolist() == ["2"]


@pytest.mark.parametrize(
    ("content", "message", "remedy"),
    [
        ("ag,sex\n1,2\n", r"no column 'age' \(did you mean 'ag'\?\)", "its columns are ag, sex"),
        ("age;sex\n1;2\n", "no column 'age'", "separate the columns by commas"),
        ("age\tsex\n1\t2\n", "no column 'age'", "separate the columns by commas"),
        ("age,sex\n1\n", "line 2 has 1 field, the header has 2", "double quotes"),
        ("age,sex\n1,2\n\n1,2,3\n", "line 4 has 3 fields, the header has 2", "double quotes"),
        ("age,age\n1,2\n", "two columns called 'age'", "its own name"),
        ("age,sex\n", "a header but no records", "at least one"),
        ("", "t.csv is empty", "at least one record"),
        ("\n , \n1,2\n", "no header in its first line", "first line"),
        ('age,sex\n1,"2\n', "cannot be read as a comma-separated table", "UTF-8"),
        (
            b"age,sex\n1,2\n3,\xe4\n", "line 3, character 3: the byte 0xe4, which is no UTF-8 text",
            "encoding: latin-1",
        ),
        (
            b"\xe0\0\0{weights", "line 1, character 1: the byte 0xe0, and NUL bytes .*: it is no text file",
            "records",
        ),
        (b"age,sex\n\x80,2\n", "line 2, character 1: .*, the file is probably cp1252", "encoding: cp1252"),
        ("age,sex\n1,2\n".encode("utf-16"), "the file is probably utf-16", "state encoding: utf-16 under csv"),
        ("age,sex\n1,2\n".encode("utf-32"), "the file is probably utf-32", "write the file as UTF-8 text"),
        ("age,sex\n1,2\n".encode("utf-16-le"), "line 1, character 2: a NUL, .* utf-16", "encoding: utf-16"),
        ("age,sex\n1,\x002\n", "line 2, character 3: a NUL character, which no text has", "damaged"),
        (gzip.compress(b"age,sex\n1,2\n", mtime=0)[:-9], "cannot be read as a comma-separated table", "UTF-8"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused(tmp_path: Path, content: str | bytes, message: str, remedy: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_table(write(tmp_path, content), ("age",))
    assert "t.csv" in caught.value.message
    assert remedy in caught.value.remedy


NAMES = ("age", "sex")


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_fields_may_be_separated_by_another_mark(tmp_path: Path, mark: str) -> None:
    table = read_table(write(tmp_path, f"age{mark}sex\n4,1{mark} F\n"), form=TableForm(separator=mark))
    assert {name: column.tolist() for name, column in table.columns.items()} == {"age": ["4,1"], "sex": ["F"]}


def test_a_table_is_its_wanted_columns_with_the_lines_they_stand_on(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, 'age, sex \n 41 ,F\n\n"5,0",  M\n'))
    assert {name: column.tolist() for name, column in table.columns.items()} == {
        "age": ["41", "5,0"],
        "sex": ["F", "M"],
    }
    assert table.lines.tolist() == [2, 4]
    assert len(table) == 2
    assert list(read_table(write(tmp_path, "a,b,c\n1,2,3\n"), {"c", "a"}).columns) == ["a", "c"]
    table = read_table(write(tmp_path, "41, F\n\n7, M\n"), form=TableForm(NAMES))
    assert {name: column.tolist() for name, column in table.columns.items()} == {
        "age": ["41", "7"],
        "sex": ["F", "M"],
    }
    assert table.lines.tolist() == [1, 3]
    path = write(tmp_path, '# a "note", and\nage,sex\n# "more\n41,F\n')
    table = read_table(path, form=TableForm(comment="#"))
    assert table.columns["age"].tolist() == ["41"]
    assert table.lines.tolist() == [4]


@pytest.mark.parametrize(
    ("content", "form", "message", "remedy"),
    [
        ("age,sex\n1,2\n", TableForm(NAMES), "line 1 names the columns, as the plan does", "remove `columns`"),
        (
            "1,2,3\n", TableForm(NAMES), "line 1 has 3 fields, the columns that the plan lists are 2",
            "double quotes",
        ),
        ("1;2\n", TableForm(NAMES), "line 1 has 1 field, the columns that the plan lists", 'state separator: ";"'),
        ("1\t2\n", TableForm(NAMES), "line 1 has 1 field, the columns", 'state separator: "\\t" under csv'),
        ("age,sex\n1,2\n", TableForm(separator=";"), "no column 'age'", "',' separates its fields: state"),
        ("\n\n", TableForm(NAMES), "is empty", "at least one record"),
        ('1;"2\n', TableForm(NAMES, ";"), "cannot be read as a semicolon-separated table", "a semicolon between"),
    ],
)  # fmt: skip
def test_another_form_is_refused(tmp_path: Path, content: str, form: TableForm, message: str, remedy: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_table(write(tmp_path, content), ("age",), form)
    assert "t.csv" in caught.value.message
    assert remedy in caught.value.remedy


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_table_or_a_data_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = write(tmp_path_factory.getbasetemp(), content, "fuzz.csv")
    try:
        table = read_table(path)
    except DataError:
        return
    assert all(len(column) == len(table) > 0 for column in table.columns.values())


def test_every_kind_of_fault_is_told_with_its_first_twenty_rows_and_their_count(tmp_path: Path) -> None:
    others = "".join(f"one{row},bad\n" for row in range(30))
    table = read_table(write(tmp_path, "x,y\n" + "nan,ok\n" * 3 + others))
    faults, none = Faults(table), np.zeros(33, np.bool_)
    numbers(table, "x", none, faults)
    faults.add("y", "not ok", table.columns["y"] != "ok", "write ok")
    with pytest.raises(DataError) as caught:
        faults.refuse()
    first, second = caught.value.message.splitlines()[1:]
    assert "column 'x': not a finite number in 33 rows (line 2: 'nan'" in first
    assert "line 21: 'one16' and 13 more)" in first
    # One text again and again is shown three times.
    assert "not ok in 30 rows (line 5: 'bad', line 6: 'bad', line 7: 'bad' and 27 more)" in second
    assert "write ok" in second


def test_separators_decimals_blanks_and_missing_numbers_are_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2 has 2 fields, the header has 1") as caught:
        read_table(write(tmp_path, "age;dose\n1;2,5\n"))
    assert 'state separator: ";"' in caught.value.remedy
    assert 'decimal: "," if its numbers have decimal commas' in caught.value.remedy
    table = read_table(write(tmp_path, "x,y\n1e3,0\n-2.5,0\n?,0\n"))
    faults = Faults(table)
    values = numbers(table, "x", table.columns["x"] == "?", faults)
    faults.refuse()
    assert values[:2].tolist() == [1000, -2.5]
    assert np.isnan(values[2])
    table = read_words(write(tmp_path, "2\nYoung Male\n1.jpg  1 -1\n2.jpg -1  1\n"))
    assert list(table.columns) == ["image", "Young", "Male"]
    assert table.columns["Male"].tolist() == ["-1", "1"]
    assert table.lines.tolist() == [3, 4]
    assert read_words(write(tmp_path, "1.jpg 0\n"), ("image", "part")).columns["part"].tolist() == ["0"]


@pytest.mark.parametrize(
    "content", ["", "1\n", "1\nYoung\n", "1\nYoung\n1.jpg\n", "1\nYoung\n1.jpg 1 1\n", b"\xff\xff"]
)
def test_words_that_are_no_table_are_refused(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(DataError, match=r"t\.csv"):
        read_words(write(tmp_path, content))


def test_files_are_found_under_any_name_and_long_values_shown_cut(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv cannot be read: No such file or directory$") as caught:
        read_table(tmp_path / "none.csv")
    assert "collaborator.yaml" in caught.value.remedy
    with pytest.raises(DataError, match=r"cannot be read: Is a directory$"):
        read_table(tmp_path)
    write(tmp_path, b"", "b.csv.gz")
    assert find_file(tmp_path, "a.csv", "b.csv").name == "b.csv.gz"
    with pytest.raises(DataError, match=r"holds no a\.csv or c\.csv \(plain or \.gz\)"):
        find_file(tmp_path, "a.csv", "c.csv")
    table = read_table(write(tmp_path, f'a\n"{"1" * 400}"\n"one\ntwo"\n'))
    faults = Faults(table)
    faults.add("a", "has no number", np.array([True, True]), "write one")
    with pytest.raises(DataError) as told:
        faults.refuse()
    cut = f"line 2: '{'1' * 60}...' (400 characters)"
    assert told.value.message.endswith(
        f"\n  column 'a': has no number in 2 rows ({cut}, line 3: 'one\\ntwo'); write one"
    )
