"""Profiles a site's own records, column by column, for the site alone, and compares those of two runs.

Decides what is counted: missing values, values of a category that the plan does not name, spellings that differ
from a named value only in case, and the records of each class. Decides what is worth a word: numbers of records,
columns and labels whose share moved by a hundredth or from or to nothing, columns that came or went, and files
with other bytes. Pure functions of what the readers know. A profile is shown and kept at the site; nothing of it
is ever sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from fedfair.likeness import misspelt
from fedfair.plan.fields import Scalar
from fedfair.plan.sources import CsvSource
from fedfair.plan.task import TaskSection
from fedfair.tables.dataset import Splits
from fedfair.tables.feature_storage import blocks_of

MAX_SHOWN = 10
"""The most spellings or classes that one line names."""


MAX_SPELLINGS = 200
"""The most values that the plan does not name which are compared with those that it names."""

FORMAT: Final = "fedfair/data-profile/1"
_FILE_ROLES = frozenset({"train", "test"})

MIN_SHIFT = 0.01
"""The smallest change of a share that is named."""


@dataclass(frozen=True, slots=True)
class CaseVariant:
    """A spelling that is nearly a value which the plan names: by case alone, or by a slip of the pen.

    Attributes:
        found: the spelling in the file.
        named: the value in the plan.
        records: the records that have it, at least 1.
    """

    found: str
    named: str
    records: int

    @property
    def words(self) -> str:
        """The words about it."""
        if self.found.casefold() == self.named.casefold():
            return f"differs only in case from '{self.named}'"
        return f"is very like '{self.named}': is it misspelt?"


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """The counts of one column.

    Attributes:
        name: the column.
        records: the records that were looked at.
        missing: those without a value.
        other: those with a value that the plan does not name; 0 where the plan names none.
        case_variants: spellings among `other` that are nearly a named value, most frequent first.
    """

    name: str
    records: int
    missing: int
    other: int = 0
    case_variants: tuple[CaseVariant, ...] = ()

    @property
    def words(self) -> str:
        """The sentence about the column; empty where nothing is missing and nothing is other."""
        parts = [f"missing {share(self.missing, self.records)}"] if self.missing else []
        if self.other:
            parts.append(f"other {share(self.other, self.records)}")
        parts += [f"'{one.found}' {one.words}" for one in self.case_variants[:MAX_SHOWN]]
        if len(self.case_variants) > MAX_SHOWN:
            parts.append(f"so do {len(self.case_variants) - MAX_SHOWN} more spellings")
        return "; ".join(parts)

    @property
    def is_doubtful(self) -> bool:
        """Whether somebody should look: no record has a usable value, or a spelling differs only in case."""
        return bool(self.case_variants) or self.missing + self.other == self.records > 0


@dataclass(frozen=True, slots=True)
class DataProfile:
    """The counts of a site's own records.

    Attributes:
        splits: number of records by the name of their split: train, and where there are any validation and test.
        columns: the columns that the model sees; of a csv as the files have them, before records are divided.
        labels: number of records of every class, by the class as the plan writes it; over all splits.
        digests: digest of the records in their order, where no file holds them, by query (query, test_query).
    """

    splits: Mapping[str, int]
    columns: tuple[ColumnProfile, ...]
    labels: Mapping[str, int]
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def one_class(self) -> str | None:
        """The class that all records are of; None where there are several."""
        present = [name for name, records in self.labels.items() if records]
        return present[0] if len(present) == 1 else None

    @property
    def label_words(self) -> str:
        """The share of every class in one line; of many classes the most frequent."""
        total = sum(self.labels.values())
        shown = list(self.labels.items())
        if len(shown) > MAX_SHOWN:
            shown = sorted(shown, key=lambda item: -item[1])[:MAX_SHOWN]
        more = f", and {len(self.labels) - MAX_SHOWN} more classes" if len(self.labels) > MAX_SHOWN else ""
        return ", ".join(f"{name} {share(records, total)}" for name, records in shown) + more


def share(part: int, whole: int) -> str:
    """Return a share in percent; 0% means none and 100% means all."""
    if part == 0:
        return "0%"
    if part == whole:
        return "100%"
    return "under 1%" if part < whole / 100 else "over 99%" if part > whole * 99 / 100 else f"{part / whole:.0%}"


def case_variants(texts: NDArray[np.str_], named: Iterable[Scalar]) -> tuple[CaseVariant, ...]:
    """Return the spellings that are nearly a named text, most frequent first.

    Args:
        texts: texts (n,) that are none of the named values.
        named: the values; only those that are texts can be misspelt.
    """
    import pandas as pd  # only who reads a table waits for it

    known = {value.casefold(): value for value in named if isinstance(value, str)}
    index, distinct = pd.factorize(texts.astype(np.object_))
    counts = np.bincount(index, minlength=len(distinct))
    found = []
    # Of very many spellings, a column of free texts, none is a slip of the pen.
    slips = known if len(distinct) <= MAX_SPELLINGS else {}
    for text, count in zip(distinct, counts, strict=True):
        value = known.get(text.casefold()) or misspelt(str(text), slips.values())
        if value is not None:
            found.append(CaseVariant(str(text), value, int(count)))
    return tuple(sorted(found, key=_frequent_first))


def merged(first: Sequence[ColumnProfile], second: Sequence[ColumnProfile]) -> tuple[ColumnProfile, ...]:
    """Return what was counted in the same columns of two blocks of records, one of which may have no counts."""
    if not first or not second:
        return tuple(first or second)
    return tuple(_added(one, other) for one, other in zip(first, second, strict=True))


def number_columns(splits: Splits) -> tuple[ColumnProfile, ...]:
    """Return the missing numbers of records whose source keeps them as NaN; none for images."""
    schema = splits.train.schema
    parts, missing = list(splits.parts.values()), np.zeros(len(schema.numeric), np.int64)
    for part in parts if schema.numeric else ():
        for block in blocks_of(part.features):
            missing += [int(np.isnan(block[:, column]).sum()) for column in schema.numeric]
    records = sum(len(part) for part in parts)
    return tuple(
        ColumnProfile(schema.names[column] if schema.names else f"feature {column}", records, int(count))
        for column, count in zip(schema.numeric, missing, strict=True)
    )


def data_profile(task: TaskSection, splits: Splits, columns: tuple[ColumnProfile, ...]) -> DataProfile:
    """Return the profile of one collaborator's splits.

    Args:
        task: the plan's task, for the names of the classes.
        splits: the records as they are trained and evaluated on.
        columns: what was counted where the values were still known.
    """
    parts, classes, labels = splits.parts, splits.train.schema.classes, dict[str, int]()
    is_answered = not isinstance(task.data, CsvSource) or bool(task.data.csv.answer_columns)
    if classes and is_answered and splits.train.labels.ndim == 1:
        counts = sum(np.bincount(part.labels, minlength=classes) for part in parts.values())
        labels = dict(zip(_class_names(task, classes), np.asarray(counts).tolist(), strict=True))
    return DataProfile({name: len(part) for name, part in parts.items()}, columns, labels)


def _class_names(task: TaskSection, classes: int) -> Iterator[str]:
    if isinstance(task.data, CsvSource) and task.data.csv.label_classes is not None:
        return ("/".join(str(value) for value in values) for values in task.data.csv.label_classes)
    if isinstance(task.data, CsvSource) and task.data.csv.label_above is not None:
        border = f"{task.data.csv.label_above:g}"
        return iter((f"not above {border}", f"above {border}"))
    return (str(label) for label in range(classes))


def _added(one: ColumnProfile, other: ColumnProfile) -> ColumnProfile:
    records: Counter[tuple[str, str]] = Counter()
    for variant in (*one.case_variants, *other.case_variants):
        records[variant.found, variant.named] += variant.records
    variants = sorted((CaseVariant(*pair, count) for pair, count in records.items()), key=_frequent_first)
    missing, others = one.missing + other.missing, one.other + other.other
    return ColumnProfile(one.name, one.records + other.records, missing, others, tuple(variants))


def _frequent_first(variant: CaseVariant) -> tuple[int, str]:
    return -variant.records, variant.found


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
