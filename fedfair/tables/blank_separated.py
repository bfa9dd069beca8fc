"""Texts whose fields are separated by blanks, as CelebA writes its tables.

Decides how such a file becomes a `TextTable`. Files with a mark between fields are `text_file.py`'s.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedfair.errors import DataError
from fedfair.tables.file_kinds import READ_ERRORS, open_binary
from fedfair.tables.text_table import TextTable


def read_words(path: Path, header: Sequence[str] | None = None) -> TextTable:
    """Return the rows of a text whose fields are separated by blanks, as CelebA writes its tables.

    Args:
        path: the file, plain or gzip.
        header: names of all columns, in a file of rows only. None: the first line counts the rows and the second
            names every column but the first, which is called `image`.

    Raises:
        DataError: the file is missing, damaged, empty or ragged.
    """
    try:
        with io.TextIOWrapper(open_binary(path), encoding="utf-8-sig") as file:
            lines = [line.split() for line in file]
    except (*READ_ERRORS, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a text of fields separated by blanks: {error}") from error
    skipped = 0 if header is not None else 2
    names = list(header) if header is not None else ["image", *(lines[1] if len(lines) > 1 else [])]
    rows = [(number, fields) for number, fields in enumerate(lines[skipped:], start=skipped + 1) if fields]
    ragged = [number for number, fields in rows if len(fields) != len(names)]
    if ragged or not rows:
        place = f"line {ragged[0]} has another number of fields than the header's" if ragged else "has no records:"
        raise DataError(f"{path} {place} {len(names)}", "copy the file again; it may have been cut")
    columns = zip(*(fields for _, fields in rows), strict=True)
    texts = {name: np.array(column, np.str_) for name, column in zip(names, columns, strict=True)}
    return TextTable(path, texts, np.array([number for number, _ in rows]))
