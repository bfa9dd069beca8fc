"""Compares the records of two runs, in words for the site that holds them.

Decides what is worth a word: numbers of records, columns and labels whose share moved by a hundredth or from or to
nothing, columns that came or went, and files with other bytes. Pure functions of two summaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from fedfair.tables.profile import DataProfile, share

FORMAT: Final = "fedfair/data-profile/1"
_FILE_ROLES = frozenset({"train", "test"})

MIN_SHIFT = 0.01
"""The smallest change of a share that is named."""


@dataclass(frozen=True, slots=True)
class ColumnCounts:
    """Of a column's records, at least 1, those without a value and those with one that the plan does not name."""

    records: int
    missing: int
    other: int


@dataclass(frozen=True, slots=True)
class DataSummary:
    """The part of a profile that is kept between two runs; it holds no value of any record.

    Attributes:
        format: the format's name.
        written: when the run was started, ISO 8601 in UTC.
        splits: number of records by split.
        columns: counts by column.
        labels: number of records by class.
        files: digest of every data file by its role (train, test), or of the records of every query in their order
            (query, test_query), such as "sha256:..."; empty for folders.
    """

    format: Literal["fedfair/data-profile/1"]
    written: str
    splits: Mapping[str, int]
    columns: Mapping[str, ColumnCounts]
    labels: Mapping[str, int]
    files: Mapping[str, str]


def summary_of(profile: DataProfile, files: Mapping[str, str], written: str) -> DataSummary:
    """Return what to keep of a profile.

    Args:
        profile: what the records look like.
        files: digest of every data file by its role.
        written: the present time, ISO 8601 in UTC.
    """
    columns = {one.name: ColumnCounts(one.records, one.missing, one.other) for one in profile.columns}
    return DataSummary(FORMAT, written, profile.splits, columns, profile.labels, files)


def changes(before: DataSummary, now: DataSummary) -> tuple[str, ...]:
    """Return one phrase for each change; none where both are of the same records."""
    named = (*_size_changes(before, now), *_column_changes(before, now), *_label_changes(before, now))
    if before.files != now.files:
        of_files = now.files.keys() <= _FILE_ROLES
        return (*named, "the file changed" if of_files else "the records or their order changed")
    if not named and (before.columns, before.labels) != (now.columns, now.labels):
        return ("shares changed by less than 1%",)
    return named


def _size_changes(before: DataSummary, now: DataSummary) -> Iterator[str]:
    sizes = sum(before.splits.values()), sum(now.splits.values())
    if sizes[0] != sizes[1]:
        yield f"records {sizes[0]} -> {sizes[1]}"
        return
    for name in dict.fromkeys((*before.splits, *now.splits)):
        old, new = before.splits.get(name, 0), now.splits.get(name, 0)
        if old != new:
            yield f"{name} records {old} -> {new}"


def _column_changes(before: DataSummary, now: DataSummary) -> Iterator[str]:
    for name, new in now.columns.items():
        old = before.columns.get(name)
        if old is None:
            yield f"column {name}: was not used"
            continue
        shifts = (
            _shift("missing", (old.missing, old.records), (new.missing, new.records)),
            _shift("other", (old.other, old.records), (new.other, new.records)),
        )
        told = ", ".join(shift for shift in shifts if shift)
        if told:
            yield f"column {name}: {told}"
    for name in before.columns:
        if name not in now.columns:
            yield f"column {name}: is no longer used"


def _label_changes(before: DataSummary, now: DataSummary) -> Iterator[str]:
    totals = sum(before.labels.values()), sum(now.labels.values())
    for name in dict.fromkeys((*before.labels, *now.labels)):
        old, new = before.labels.get(name, 0), now.labels.get(name, 0)
        told = _shift(name, (old, totals[0]), (new, totals[1]))
        if told:
            yield f"label {told}"


def _shift(name: str, before: tuple[int, int], now: tuple[int, int]) -> str:
    """Return how a share, as (part, whole), has moved; nothing where that is not worth a word."""
    old, new = (part / whole if whole else 0.0 for part, whole in (before, now))
    if abs(old - new) < MIN_SHIFT and (old == 0) == (new == 0):
        return ""
    return f"{name} {share(*before)} -> {share(*now)}"
