"""A result file as it is read back and checked at the border.

Reading is kinder than building: what older results lack has a default, fields that are not known are left alone,
so that a newer result still reads, and a number may be written as text. What people or peers wrote must not speak
to a terminal.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

from pydantic import JsonValue, ValidationError

from fedfair.errors import DataError
from fedfair.file_formats import REMEDY, other_version
from fedfair.results.document import FORMAT, ResultDocument

MAX_RESULT_BYTES = 64 << 20

_REMEDY = "give the result.json of a finished run"
_OPENING = b'{\n  "format": "fedfair/result/'
"""The first bytes of every result file, of any version."""


def _refuse_controls(value: JsonValue, place: str, where: str) -> None:
    """Refuse text that would speak to a terminal instead of a reader, wherever it stands."""
    match value:
        case str():
            if any(unicodedata.category(sign) == "Cc" and sign not in "\n\t" for sign in value):
                raise DataError(f"{place} is not a result file: {where} holds control characters", _REMEDY)
        case list():
            for item in value:
                _refuse_controls(item, place, where)
        case dict():
            for key, item in value.items():
                _refuse_controls(key, place, where)
                _refuse_controls(item, place, f"{where}.{key}" if where else key)


def parse_result(text: str | bytes, place: str) -> ResultDocument:
    """Return a result file's content.

    Raises:
        DataError: the text is not a result of the format that is read here; names the first fault.
    """
    if fault := other_version(text, FORMAT, place):
        raise DataError(fault, REMEDY)
    try:
        document = ResultDocument.model_validate_json(text, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise DataError(f"{place} is not a result file: {where}: {first['msg']}", _REMEDY) from error
    if document.train is None and document.statistics is None:
        raise DataError(
            f"{place} has no figures: its plan protects whole collaborators, so that nothing was evaluated",
            "evaluate the saved model with `fedfair evaluate`, and report on that",
        )
    _refuse_controls(document.model_dump(mode="json"), place, "")
    if document.format != FORMAT:
        raise DataError(f"{place} has format {document.format!r}, expected {FORMAT!r}")
    return document


def check_result_place(path: Path) -> None:
    """Refuse, before the work, a place where a result may not go.

    Raises:
        DataError: its folder does not exist, there is a folder, or a file that is no result of fedfair's.
    """
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist", "create it, or name another file")
    if path.is_dir():
        raise DataError(f"{path} is a folder", "name a file in it")
    if not path.is_file():
        return
    with path.open("rb") as source:
        begin = source.read(len(_OPENING))
    # An empty file is what `mktemp` makes.
    if begin and begin != _OPENING:
        raise DataError(f"{path} exists and is no result of fedfair's", "move it away, or name another file")


def read_result(path: Path) -> ResultDocument:
    """Return the result in a file.

    Raises:
        DataError: there is no such file, it is too large, or it is not a result.
    """
    if not path.is_file():
        raise DataError(f"there is no result file {path}", "run `fedfair simulate` or the aggregator first")
    if path.stat().st_size > MAX_RESULT_BYTES:
        raise DataError(f"{path} has {path.stat().st_size} bytes, more than a result can have")
    return parse_result(path.read_bytes(), str(path))
