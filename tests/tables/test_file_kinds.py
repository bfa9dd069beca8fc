"""Files that are no table in text: each is told by what it is, and what to do with it."""

import bz2
import gzip
import io
import lzma
import sqlite3
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.tables.sources.table import read_csv

TEXT = b"age,died\n41,0\n50,1\n"
SPEC = CsvData(label="died", numeric=("age",))


def _archive(*names: str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return held.getvalue()


def _parquet() -> bytes:
    held = io.BytesIO()
    pq.write_table(pa.table({"age": [41, 50], "died": [0, 1]}), held)
    return held.getvalue()


def _feather() -> bytes:
    held = io.BytesIO()
    feather.write_feather(pa.table({"age": [41, 50], "died": [0, 1]}), held)
    return held.getvalue()


def _sqlite() -> bytes:
    made = sqlite3.connect(":memory:")
    made.execute("CREATE TABLE t (age, died)")
    raw = made.serialize()
    made.close()
    return raw


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (_archive("xl/workbook.xml"), "is an Excel workbook (.xlsx)"),
        (_archive("mimetype", "content.xml"), "is an OpenDocument workbook (.ods)"),
        (_archive("patients.csv"), "is a zip archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "is an Excel workbook of the old form (.xls)"),
        (bz2.compress(TEXT), "is packed with bzip2"), (lzma.compress(TEXT), "is packed with xz"),
        (pa.Codec("zstd").compress(TEXT).to_pybytes(), "is packed with zstd"),
        (gzip.compress(gzip.compress(TEXT)), "is a gzip file that holds another gzip file"),
        (gzip.compress(_parquet()), "is a gzip file that holds a Parquet file"),
        (_sqlite(), "is a SQLite database"), (_feather(), "is an Arrow (Feather) file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(500), "is an HDF5 file"),
        (b"$FL2@(#) SPSS DATA FILE" + bytes(500), "is an SPSS file"),
    ],
)  # fmt: skip
def test_another_kind_of_file_is_told_and_never_as_an_encoding(tmp_path: Path, raw: bytes, said: str) -> None:
    path = tmp_path / "patients.csv"
    path.write_bytes(raw)
    with pytest.raises(DataError) as fault:
        read_csv(path, SPEC, None, ())
    assert said in fault.value.message
    assert "encoding" not in fault.value.diagnostics()


@pytest.mark.parametrize("raw", [TEXT, gzip.compress(TEXT), _parquet()])
def test_text_gzip_and_parquet_are_read_whatever_their_name(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "patients.xlsx"
    path.write_bytes(raw)
    assert read_csv(path, SPEC, None, ()).dataset.features[:, 0].tolist() == [41, 50]
