"""Text that pandas parses against the same read field by field, and both against an oracle: equal to the bit."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.tables import plain_blocks as module
from fedfair.tables.plain_blocks import NotPlain
from fedfair.tables.sources.table import read_csv
from fedfair.tables.table_reader import CsvRecords
from fedfair.tables.text_file import TextFile
from fedfair.tables.text_table import TextTable
from tests.oracles.text_records import RefusedError, read_slowly

HEADER = ("age", "sex", "died", "dose", "clinic")
NUMBERS = (
    "1", "-2.5", "+3", "1e5", "1E-3", ".5", "5.", "007", "-0", "1e400", "0.1", "123456789012345678", "4.9e-324",
    "2.2250738585072011e-308", "9007199254740993", "0.30000000000000004", "1.7976931348623157e308",
    "72057594037927945", "1" + "0" * 400, "0." + "0" * 400 + "1",
    "1.00000000000000011102230246251565404236316680908203125",
)  # fmt: skip
ODD = (
    "", "?", "NA", "nan", "NaN", "-nan", "inf", "-Infinity", "0x10", "1_000", "True", "FALSE", "1e", "1e+",
    "e5", "-", "+", ".", "1.2.3", "1,5", "--1", "+-1", "1 000", "\u0661\u0662", "\u00a05", "5\u00a0", "1d5",
    "1f", "0b1", "1e5x", "\u22121", "-9", "-9.0", "-9e0", "0", "0.0", "null", "None", "#N/A", "1\u20090",
    "9007199254740992", " ", "1\t", "\x0b1", "1\x1c", "infinity", "+inf", "NAN", "0x1p3", "1e 5", "1.e5",
    "+.5e-1", "1__0", "_1", "1_",
)  # fmt: skip
TEXTS = (
    "F", "M", "f", "x y", 'a"b', "a,b", "a;b", "ä", "", "NA", "nan", "1", "1.0", "True", "\ufeffF", "a\nb", "#c",
    "'",
)  # fmt: skip


def spec(**fields: object) -> CsvData:
    usual = {"label": "died", "numeric": ["dose", "age"], "categorical": {"sex": ["F", "M", 1, True]}}
    return CsvData.model_validate({**usual, **fields})


SPECS = (
    spec(), spec(missing="mean", missing_of={"sex": "own"}, keep=["clinic"]),
    spec(missing="zero", missing_values=["", "nan", "-9"], keep=["age"]),
    spec(missing="mean", missing_values_of={"age": [0, -9], "dose": ["-9", 2**53 + 1, "x"], "sex": ["M", 1]}),
    spec(numeric="all", missing="zero", categorical={"sex": ["F"], "clinic": ["a"]}),
    spec(label_above=0.5, missing="mean", rows={"sex": ["F", "f"]}),
    spec(label_values=["yes", [0, "no"], [1, 2.5]], missing="mean", ranges={"age": [-10, 200]}),
    spec(comment="#", missing="mean"), spec(columns=HEADER, missing="mean"),
    spec(separator=";", decimal=",", missing="mean"),
    spec(separator=";", decimal=",", thousands=".", missing="mean", missing_values_of={"age": ["-9,0", -9]}),
    spec(separator="\t", missing="mean"), spec(separator=" ", missing="mean"),
    spec(encoding="latin-1", missing="mean"), spec(encoding="utf-16", missing="mean"),
    spec(dates={"age": "%Y"}, missing="mean"),
)  # fmt: skip


def bits(records: CsvRecords) -> tuple[object, ...]:
    dataset = records.dataset
    columns = {name: column.tolist() for name, column in dataset.columns.items()}
    return (
        dataset.features.view(np.uint64).tolist(), dataset.labels.tolist(), columns, dataset.schema,
        records.columns,
    )  # fmt: skip


def read(path: Path, stated: CsvData, *, parsed: bool = True) -> tuple[object, ...] | list[str]:
    """Return the bits of a file's records, or the words about its faults, in the order of the alphabet."""
    with pytest.MonkeyPatch.context() as patch:
        if not parsed:
            patch.setattr(module, "plain_blocks", not_plain)
        try:
            return bits(read_csv(path, stated, None, ()))
        except DataError as fault:
            # A kind of fault stands where it was found first, and blocks are of other sizes.
            return sorted((fault.message + str(fault.remedy)).splitlines())


def not_plain(*_: object) -> Iterator[TextTable]:
    raise NotPlain


def assert_read_alike(path: Path, stated: CsvData) -> None:
    """Compare what pandas parses with what is read field by field, and with the oracle."""
    found = read(path, stated)
    assert found == read(path, stated, parsed=False)
    raw = path.read_bytes()
    try:
        wanted = read_slowly(raw, stated, path_is_packed=raw.startswith(b"\x1f\x8b"))
    except RefusedError:
        assert isinstance(found, list)
        return
    assert isinstance(found, tuple), found
    assert found[0] == np.array(wanted.features).view(np.uint64).tolist()
    assert found[1] == wanted.labels
    kept = found[2]
    assert isinstance(kept, dict)
    assert {name: kept[name] for name in wanted.kept} == wanted.kept


def is_plain(path: Path, stated: CsvData) -> bool:
    """Return whether pandas parses all of a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextFile, "_by_field", not_plain)
        try:
            read_csv(path, stated, None, ())
        except NotPlain:
            return False
    return True


numbers = (
    st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.integers().map(str)
)
fields = st.one_of(
    numbers, numbers, numbers, st.sampled_from(ODD), st.sampled_from(TEXTS),
    st.text("0123456789.eE+-_ x", max_size=6),
)  # fmt: skip
odd_lines = st.lists(st.sampled_from(["", " ", "# c", '# "', "1,2", ",,,,", "\t", '"', "\f"]), max_size=1)
blanks = st.sampled_from(["", "", "", "", " ", "  ", "\t"])
quoting = st.sampled_from([False, False, False, True])
labels = st.sampled_from(["0", "1", "0", "1", "0.0", "1e0", "yes", "no", "2.5"])


@st.composite
def lines(draw: st.DrawFn, separator: str) -> str:
    parts = []
    for column in HEADER:
        text = draw(labels if column == "died" else st.sampled_from(TEXTS) if column == "sex" else fields)
        if draw(quoting):
            text = '"' + text.replace('"', '""') + '"'
        parts.append(draw(blanks) + text + draw(blanks))
    return separator.join(parts)


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, CsvData]:
    stated = draw(st.sampled_from(SPECS))
    body = draw(st.lists(lines(stated.separator), min_size=1, max_size=5))
    for odd in draw(
        st.lists(st.sampled_from(["", " ", "# c", '# "', "1,2", ",,,,", "\t", '"', "\f"]), max_size=1)
    ):
        body.insert(draw(st.integers(0, len(body))), odd)
    head = [] if stated.columns else [stated.separator.join(HEADER)]
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    text = end.join([*head, *body]) + draw(st.sampled_from(["", end]))
    raw = draw(st.sampled_from(["", "", "\ufeff"])).encode() if stated.encoding == "utf-8" else b""
    raw += text.encode(stated.encoding, errors="replace")
    return (gzip.compress(raw) if draw(st.booleans()) else raw), stated


@settings(deadline=None, max_examples=100)
@given(files(), st.sampled_from([7, 40, 1 << 22]))
def test_a_file_is_read_alike_in_blocks_of_any_size_and_field_by_field(
    tmp_path_factory: pytest.TempPathFactory, file: tuple[bytes, CsvData], block: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "fast.csv"
    path.write_bytes(file[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block)
        assert_read_alike(path, file[1])


@settings(deadline=None, max_examples=30)
@given(
    st.permutations(HEADER),
    st.permutations(["age", "dose", "clinic"]),
    st.lists(
        st.fixed_dictionaries(
            {
                "age": st.sampled_from(["0", "1", "-9", "9007199254740992", "2.5"]),
                "dose": st.sampled_from(["0", "1", "-9", "9007199254740992", "7"]),
                "sex": st.sampled_from(["F", "M", "true"]),
                "clinic": st.sampled_from(["0", "1"]),
                "died": st.sampled_from(["0", "1"]),
            }
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_numbers_whose_texts_are_looked_at_stay_in_their_columns(
    tmp_path_factory: pytest.TempPathFactory, header: list[str], numeric: list[str], rows: list[dict[str, str]]
) -> None:
    stated = spec(
        numeric=numeric, categorical={"sex": ["F", "M", True]}, missing="mean", missing_values_of={"age": ["-9"]}
    )
    path = tmp_path_factory.getbasetemp() / "orders.csv"
    path.write_text("\n".join([",".join(header), *(",".join(row[name] for name in header) for row in rows)]))
    fast = read_csv(path, stated, None, ())
    for place, name in enumerate(numeric):
        wanted = [np.nan if name == "age" and row[name] == "-9" else float(row[name]) for row in rows]
        np.testing.assert_array_equal(fast.dataset.features[:, place], wanted)
    assert is_plain(path, stated)
    assert_read_alike(path, stated)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=60) | st.text('age,died\n"1 \r#;\t', max_size=40).map(str.encode))
@example(b'age,died\n"1" ,0\n')
@example(b"age,died\n1,0,\n,1\n")
@example(b"age,died\n1\n2,0,1\n")
def test_any_bytes_after_a_header_are_read_alike(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.csv"
    for stated in (spec(numeric=["age"], categorical={}), spec(numeric=["age"], categorical={}, separator="\t")):
        for raw in (content, b"age,died\n" + content, b"age\tdied\n1\t0\n" + content):
            path.write_bytes(raw)
            assert_read_alike(path, stated)


PADS = ("{}", " {}", "{} ", '"{}"', '" {} "', "\t{}")


@pytest.mark.parametrize("pad", PADS)
def test_every_spelling_of_a_number_means_the_same_or_is_refused(tmp_path: Path, pad: str) -> None:
    path = tmp_path / "n.csv"
    marks = (["", "?", "NA"], [], ["nan", "-9"])
    specs = [spec(numeric=["age"], categorical={}, missing="mean", missing_values=each) for each in marks]
    for place, text in enumerate([*NUMBERS, *ODD], PADS.index(pad)):
        # Over the six paddings every text meets every set of marks, alone in its column and not.
        more = "" if place % 2 else "3,1\n"
        path.write_text(f"age,died\n{more}{pad.format(text)},0\n", newline="")
        assert_read_alike(path, specs[place % 3])


VALID = "age,sex,died,dose,clinic\n" + "41,F,0,1.5,a\n,M,1,-2e3,b\n" * 50


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        (VALID, {}), (VALID.replace("\n", "\r\n"), {}), ("\ufeff" + VALID, {}),
        (VALID.replace(",", ";"), {"separator": ";"}), (VALID.replace(",", "\t"), {"separator": "\t"}),
        (VALID.replace(",M", "NA,M").replace(",", "  "), {"separator": " "}),
        (VALID.replace(",", ";").replace(".", ","), {"separator": ";", "decimal": ","}),
        (VALID.replace("F", '"F"').replace("a\n", '"x, ""y"""\n').replace("41", '"41"'), {"keep": ["clinic"]}),
        ("# note\n\n" + VALID.replace("M", "M ").replace("\n41", '\n\n# "\n41'), {"comment": "#"}),
        (VALID.replace(",a", ",Nancy"), {}), (VALID.replace("41", "nan"), {"missing_values": ["", "nan"]}),
        (VALID.replace("41", "-9"), {"missing_values": ["", "-9"]}), (VALID.replace("41", "1_000"), {}),
        (VALID.partition("\n")[2], {"columns": HEADER}),
        (VALID, {"numeric": "all", "categorical": {"sex": ["F"], "clinic": ["a"]}}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_pandas_parses_valid_files(tmp_path: Path, content: str, fields: dict[str, object], packed: bool) -> None:
    path = tmp_path / "v.csv"
    raw = content.encode()
    path.write_bytes(gzip.compress(raw) if packed else raw)
    assert is_plain(path, spec(missing="mean", **fields))
    assert_read_alike(path, spec(missing="mean", **fields))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_other_encodings_are_parsed_by_pandas_too(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "v.csv"
    path.write_bytes(VALID.replace("a\n", "größe\n").encode(encoding))
    stated = spec(missing="mean", encoding=encoding, keep=["clinic"])
    assert is_plain(path, stated)
    assert_read_alike(path, stated)
    assert "größe" in read_csv(path, stated, None, ()).dataset.columns["clinic"]


def test_a_fault_is_told_with_its_line_and_pandas_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.csv"
    path.write_text(VALID.replace("1.5,a\n", '1.5,"a\nb"\n', 1) + "x,F,0,1,a\n")
    monkeypatch.setattr(TextFile, "_by_field", not_plain)
    with pytest.raises(DataError, match=r"column 'age': not a finite number in 1 row \(line 103: 'x'\)"):
        read_csv(path, spec(missing="mean"), None, ())


def test_after_a_block_that_is_not_plain_fields_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.csv"
    monkeypatch.setattr(module, "BLOCK_BYTES", 600)
    path.write_text(VALID + '41,F,0,1.5,a"b\n' + VALID.partition("\n")[2])
    lines = []

    def counted(self: TextFile, *arguments: object) -> Iterator[TextTable]:
        for block in by_field(self, *arguments):
            lines.extend(block.lines.tolist())
            yield block

    by_field = TextFile._by_field
    monkeypatch.setattr(TextFile, "_by_field", counted)
    assert len(read_csv(path, spec(missing="mean"), None, ()).dataset) == 201
    assert 2 < lines[0] <= 102
    assert lines == list(range(lines[0], 203))
    path.write_text(VALID + "41,F,0\n")
    with pytest.raises(DataError, match="line 102 has 3 fields, the header has 5"):
        read_csv(path, spec(missing="mean"), None, ())
