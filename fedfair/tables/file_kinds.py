"""The kind of a file that somebody has named, seen from its first bytes and never from its name.

Decides how a file is opened (plain or gzip), and which files are no text at all (Parquet, workbooks of Excel and
of OpenDocument, packed files, databases). Of text in another encoding it tells where it stands, and which encoding
was probably meant.
"""

from __future__ import annotations

import codecs
import gzip
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from fedfair.errors import DataError
from fedfair.tables.number_texts import IN_A_PLAN

GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"
ENCRYPTED_PARQUET_MAGIC = b"PARE"
_ZIP_MAGIC = b"PK\x03\x04"
_OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_UNPACK_IT = "unpack it, and name the file within; gzip alone is read as it is"
_EXPORT_IT = "write its table as CSV (UTF-8) or as Parquet, and name that file"
_OTHER_KINDS = (
    (b"BZh91AY&SY", "is packed with bzip2", _UNPACK_IT),
    (b"\xfd7zXZ\0", "is packed with xz", _UNPACK_IT),
    (b"\x28\xb5\x2f\xfd", "is packed with zstd", _UNPACK_IT),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive", _UNPACK_IT),
    (
        b"SQLite format 3\0",
        "is a SQLite database",
        "state it under data.sql in collaborator.yaml, or export a table",
    ),
    (b"ARROW1\0\0", "is an Arrow (Feather) file", _EXPORT_IT),
    (b"\x89HDF\r\n\x1a\n", "is an HDF5 file", _EXPORT_IT),
    (b"$FL2@(#)", "is an SPSS file", _EXPORT_IT),
)
"""First bytes with which no text begins, what they tell, and what to do."""

NUL = "\0"

READ_ERRORS = (OSError, EOFError, zlib.error)
"""Exceptions that a missing, unreadable or damaged file raises while it is read, plain or gzip."""

_MAGIC_BYTES = 16
_MARKS_OF_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_MARKS_OF_UTF_32 = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")
_NEVER_READ = "utf-32"
_SAMPLE = 4096
_LONGEST_LINE = 1 << 20
_MOST_BYTES = 1 << 26
_SAVE_AS = "save the sheet as CSV (UTF-8) or as Parquet, and name that file"


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading, unpacking gzip, known by its first two bytes; raises one of READ_ERRORS."""
    packed = first_bytes(path, len(GZIP_MAGIC)) == GZIP_MAGIC
    return cast("BinaryIO", gzip.open(path, "rb")) if packed else path.open("rb")


def first_bytes(path: Path, count: int) -> bytes:
    """Return the first bytes of a file, as many as there are; raises OSError."""
    with path.open("rb") as file:
        return file.read(count)


def is_parquet(path: Path) -> bool:
    """Return whether a file is a Parquet file; a file that cannot be read is none."""
    return _magic(path).startswith((PARQUET_MAGIC, ENCRYPTED_PARQUET_MAGIC))


def _magic(path: Path) -> bytes:
    """Return the bytes that tell the kind of a file; none of one that cannot be read."""
    try:
        return first_bytes(path, _MAGIC_BYTES)
    except OSError:
        return b""


def refuse_workbook(path: Path) -> None:
    """Raise a DataError in words for a file of a known kind that is no text; return for any other.

    A file that cannot be read is not judged here.
    """
    magic = _magic(path)
    for known, what, remedy in _OTHER_KINDS:
        if magic.startswith(known):
            raise DataError(f"{path} {what}, not a text file", remedy)
    if magic.startswith(GZIP_MAGIC):
        _refuse_packed_kinds(path)
    if magic.startswith(_OLE_MAGIC):
        raise DataError(f"{path} is an Excel workbook of the old form (.xls), not a text file", _SAVE_AS)
    if magic.startswith(_ZIP_MAGIC):
        kind = _kind_of_archive(path)
        raise DataError(f"{path} is {kind}, not a text file", _SAVE_AS if "workbook" in kind else _UNPACK)


def _refuse_packed_kinds(path: Path) -> None:
    """Raise a DataError for a gzip file that holds no text; one that cannot be unpacked is not judged here."""
    try:
        with gzip.open(path, "rb") as file:
            within = file.read(len(PARQUET_MAGIC))
    except READ_ERRORS:
        return
    for known, what in ((PARQUET_MAGIC, "a Parquet file"), (GZIP_MAGIC, "another gzip file")):
        if within.startswith(known):
            raise DataError(f"{path} is a gzip file that holds {what}", "unpack it once, and name the file within")


_UNPACK = "unpack it and name the table within; gzip alone is read as it is"


def _kind_of_archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return "a damaged workbook or zip archive"
    if any(name.startswith("xl/") for name in names):
        return "an Excel workbook (.xlsx)"
    if "mimetype" in names and "content.xml" in names:
        return "an OpenDocument workbook (.ods)"
    return "a zip archive"


def nul_fault(path: Path, line: int, column: int, encoding: str) -> DataError:
    """Return the fault of a NUL character in a text file, at a line and a place in it, both from 1."""
    guess = guessed_encoding(path, encoding)
    if guess in {"utf-16", _NEVER_READ}:
        return _other_encoding(path, f"line {line}, character {column}: a NUL", encoding, guess, fixed=False)
    return DataError(
        f"{path} line {line}, character {column}: a NUL character, which no text has",
        "write the file again from its source: it is damaged, or is no text file",
    )


def encoding_fault(path: Path, encoding: str, *, fixed: bool = False) -> DataError:
    """Return the fault of a text file that is not of its encoding: the first place, and what it probably is.

    Args:
        path: the file, plain or gzip, which cannot be decoded.
        encoding: in which it was to be read.
        fixed: whether the form is that of a saved model, which nobody can change any more.
    """
    guess = guessed_encoding(path, encoding)
    place = _place_of_fault(path, encoding)
    if not guess and encoding != "utf-16" and _begins_with_nul(path):
        said = f"{path} {place}, and NUL bytes near its beginning: it is no text file"
        return DataError(said, "name the file of the records")
    return _other_encoding(path, place, encoding, guess, fixed=fixed)


def _begins_with_nul(path: Path) -> bool:
    """Return whether a NUL is among the first bytes of a file; not where it cannot be read."""
    try:
        with open_binary(path) as file:
            return b"\0" in file.read(_SAMPLE)
    except READ_ERRORS:
        return False


def _other_encoding(path: Path, place: str, encoding: str, guess: str, *, fixed: bool) -> DataError:
    wanted = encoding.upper()
    seen = f", the file is probably {guess}" if guess else ""
    remedy = f"write the file as {wanted} text"
    if guess and guess != _NEVER_READ:
        stated = f"give --format 'encoding: {guess}'" if fixed else f"state encoding: {guess} {IN_A_PLAN}"
        remedy = f"{stated}, or {remedy}"
    return DataError(f"{path} {place}, which is no {wanted} text{seen}", remedy)


def _place_of_fault(path: Path, encoding: str) -> str:
    """Return line, character and byte of the first place that cannot be decoded."""
    if encoding == "utf-16":
        return "holds bytes"
    with open_binary(path) as file:
        for line, raw in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
            try:
                raw.decode("utf-8-sig" if encoding == "utf-8" and line == 1 else encoding)
            except UnicodeDecodeError as error:
                before = raw[: error.start].decode(encoding, errors="replace")
                return f"line {line}, character {len(before) + 1}: the byte 0x{raw[error.start]:02x}"
    return "holds bytes"


def guessed_encoding(path: Path, encoding: str = "utf-8") -> str:
    """Return the encoding that a text file probably has, none that it was already read in; empty where unknown."""
    try:
        with open_binary(path) as file:
            whole = file.read(_MOST_BYTES)
    except READ_ERRORS:
        return ""
    if whole.startswith(_MARKS_OF_UTF_32):
        return _NEVER_READ
    if _is_utf_16(whole[:_SAMPLE]):
        return "" if encoding == "utf-16" else "utf-16"
    if _decodes(whole, "utf-8"):
        return "" if encoding == "utf-8" else "utf-8"
    if encoding != "utf-8" or b"\0" in whole[:_SAMPLE]:
        return ""
    # The bytes 0x80 to 0x9f are letters and marks in Windows' own encoding, and no characters in latin-1.
    controls = any(0x80 <= byte < 0xA0 for byte in set(whole))
    return "cp1252" if controls and _decodes(whole, "cp1252") else "latin-1"


def _is_utf_16(sample: bytes) -> bool:
    """Return whether bytes are UTF-16: by its mark, or because every other byte of plain letters is zero."""
    if sample.startswith(_MARKS_OF_UTF_16):
        return True
    even, odd = sample[0::2], sample[1::2]
    return len(sample) > 3 and max(even.count(0), odd.count(0)) > 0.4 * len(even) > 2 * min(
        even.count(0), odd.count(0)
    )


def _decodes(whole: bytes, encoding: str) -> bool:
    try:
        # The last character may be cut where only the beginning of a file was read.
        codecs.getincrementaldecoder(encoding)().decode(whole)
    except UnicodeDecodeError:
        return False
    return True
