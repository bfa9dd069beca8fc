"""The records of a text table, read the slow and obvious way: a field, a row, a rule after the other.

Written from the reference of `task.data.csv`, without the product's readers: Python's `csv` module divides lines,
`float` reads numbers. It refuses what a plan refuses, and does not say why.
"""

import csv
import gzip
import math
import re
import zlib
from dataclasses import dataclass, field

from fedfair.plan.csv_table import CsvData


class RefusedError(Exception):
    """The file is not what the plan declares."""


@dataclass
class Read:
    """Features by record, answers, and for each column kept raw its texts."""

    features: list[list[float]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    kept: dict[str, list[str]] = field(default_factory=dict)


def read_slowly(content: bytes, spec: CsvData, path_is_packed: bool = False) -> Read:
    """Return the records of a file whose label is a class."""
    try:
        header, rows = _table(gzip.decompress(content) if path_is_packed else content, spec)
    except (OSError, EOFError, zlib.error) as error:  # no whole gzip file
        raise RefusedError from error
    for name in (*spec.answer_columns, *_listed(spec), *spec.categorical, *spec.rows, *spec.keep):
        if name not in header:
            raise RefusedError
    numeric = _listed(spec) or sorted(set(header) - _others(spec))
    found = Read(kept={name: [] for name in spec.keep})
    for fields in rows:
        row = dict(zip(header, fields, strict=True))
        if all(_means_any(row[name], values, spec, name) for name, values in spec.rows.items()):
            _add(found, row, numeric, spec)
    if not found.labels:
        raise RefusedError
    return found


def _table(raw: bytes, spec: CsvData) -> tuple[list[str], list[list[str]]]:
    try:
        text = raw.decode("utf-8-sig" if spec.encoding == "utf-8" else spec.encoding)
    except UnicodeDecodeError as error:
        raise RefusedError from error
    if "\0" in text:
        raise RefusedError
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text)
    if spec.comment is not None:
        lines = ["\n" if line.startswith(spec.comment) else line for line in lines]
    try:
        if spec.separator == " ":
            rows = [_between_blanks(line.strip(" \t\r\n")) for line in lines]
        else:
            rows = list(csv.reader(lines, delimiter=spec.separator, skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise RefusedError from error
    rows = [[text.strip() for text in row] for row in rows if row]
    header = list(spec.columns or (rows.pop(0) if rows else ()))
    if not rows or len(set(header)) < len(header) or not any(header):
        raise RefusedError
    if any(len(row) != len(header) or (spec.columns and row == header) for row in rows):
        raise RefusedError
    return header, rows


def _between_blanks(line: str) -> list[str]:
    fields = re.findall(r'"(?:[^"]|"")*"(?=[ \t]|$)|[^" \t][^ \t]*', line)
    if re.sub(r"[ \t]", "", line) != re.sub(r"[ \t]", "", "".join(fields)):
        raise RefusedError
    return [one[1:-1].replace('""', '"') if one.startswith('"') else one for one in fields]


def _listed(spec: CsvData) -> list[str]:
    return [] if isinstance(spec.numeric, str) else list(spec.numeric)


def _others(spec: CsvData) -> set[str | None]:
    return {*spec.answer_columns, spec.collaborator, *spec.categorical, *spec.rows, *spec.keep}


def _add(found: Read, row: dict[str, str], numeric: list[str], spec: CsvData) -> None:
    features = [_feature(row[name], name, spec) for name in numeric]
    for name, values in spec.categorical.items():
        features += _indicators(row[name], name, values, spec)
    found.features.append(features)
    found.labels.append(_label(row[str(spec.label)], spec))
    for name, texts in found.kept.items():
        texts.append(row[name])


def _feature(text: str, name: str, spec: CsvData) -> float:
    policy = spec.missing_of.get(name, spec.missing)
    if _is_missing(text, name, spec):
        if policy == "refuse":
            raise RefusedError
        return 0.0 if policy == "zero" else math.nan
    number = _number(text, spec, spec.dates.get(name))
    least, greatest = spec.ranges.get(name, (-math.inf, math.inf))
    is_whole = re.fullmatch(r"[+-]?[0-9]+", text.replace(spec.thousands or " ", ""))
    if number is None or not math.isfinite(number) or not least <= number <= greatest:
        raise RefusedError
    if is_whole and name not in spec.dates and int(text.replace(spec.thousands or " ", "")) != int(number):
        raise RefusedError
    return number


def _indicators(text: str, name: str, values: tuple[object, ...], spec: CsvData) -> list[float]:
    policy = spec.missing_of.get(name, "other")
    if policy != "other" and _is_missing(text, name, spec):
        if policy == "refuse":
            raise RefusedError
        return [0.0] * (len(values) + 1) + [1.0]
    place = next((place for place, value in enumerate(values) if _means(text, value, spec, name)), len(values))
    width = len(values) + (2 if policy == "own" else 1)
    return [1.0 if place == each else 0.0 for each in range(width)]


def _label(text: str, spec: CsvData) -> int:
    if spec.label_above is not None:
        number = _number(text, spec, None)
        if number is None or not math.isfinite(number):
            raise RefusedError
        return int(number > spec.label_above)
    for place, values in enumerate(spec.label_classes or ((0,), (1,))):
        if _means_any(text, values, spec, str(spec.label)):
            return place
    raise RefusedError


def _is_missing(text: str, name: str, spec: CsvData) -> bool:
    return text in spec.missing_values or _means_any(text, spec.missing_values_of.get(name, ()), spec, name)


def _means_any(text: str, values: tuple[object, ...], spec: CsvData, name: str) -> bool:
    return any(_means(text, value, spec, name) for value in values)


def _means(text: str, value: object, spec: CsvData, name: str) -> bool:
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, str):
        return text == value
    return _number(text, spec, spec.dates.get(name)) == value


def _number(text: str, spec: CsvData, date: str | None) -> float | None:
    """Return the number that a text means; of dates this oracle knows years alone."""
    if date is not None:
        assert date == "%Y"
        return float(text) if re.fullmatch("[0-9]{4}", text) and int(text) else None
    if spec.decimal != "." or spec.thousands:
        mark, group = re.escape(spec.decimal), re.escape(spec.thousands or "")
        whole = rf"(?:[0-9]{{1,3}}(?:{group}[0-9]{{3}})+|[0-9]+)" if group else "[0-9]+"
        if not re.fullmatch(rf"[+-]?(?:{whole}(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]+)?", text):
            return None
        text = text.replace(spec.thousands or spec.decimal, "" if spec.thousands else ".").replace(
            spec.decimal, "."
        )
    try:
        return float(text)
    except ValueError:
        return None
