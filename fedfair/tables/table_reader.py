"""From the blocks of a table to its records by the schema that the plan declares, whichever source they come from.

A source knows its columns and yields blocks of them: a text file, the row groups of a Parquet file, the batches of
a database's cursor. Decides which columns are needed, and how one block after the other becomes features, labels
and kept columns: numeric columns as they are, then one column for each declared value of each categorical column,
one for any other value and, where the plan wants it, one for a missing value. Nothing is learnt from a table about
its own schema, so that every site's features mean the same; for that reason `numeric: all` takes the columns in
the order of their names. Of a block nothing stays but its records. Faults are gathered over all blocks and
reported with their places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.feature_moments import unit_of
from fedfair.errors import DataError
from fedfair.plan.csv_table import OTHER, CsvData
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.fields import Scalar
from fedfair.tables.dataset import Dataset, no_records
from fedfair.tables.feature_storage import FeatureStorage, RecordStore
from fedfair.tables.number_texts import NumberForm, form_of
from fedfair.tables.profile import ColumnProfile, case_variants, merged
from fedfair.tables.site_survey import mask_name
from fedfair.tables.text_table import (
    PLAIN_NUMBERS,
    FaultKind,
    Faults,
    TextTable,
    faults_of,
    numbers,
    refuse_twice,
    require_columns,
)
from fedfair.tables.typed_values import marks_as_numbers
from fedfair.withdrawal.owners import RecordOwners

BINARY = 2
SHOWN_LABELS = 10


@dataclass(frozen=True, slots=True)
class CsvRecords:
    """One file, read.

    Attributes:
        dataset: its records.
        columns: what was counted in the columns of its features, while their texts were known.
        digest: of the records of a database in their order, such as "sha256:...".
    """

    dataset: Dataset
    columns: tuple[ColumnProfile, ...]
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """The remedies for values that are refused.

    Attributes:
        number: for a missing number.
        category: for a missing category.
        range: for a number outside of its range.
        text: for a text where a number should be.
    """

    number: str
    category: str
    range: str
    text: str


PLAN_ADVICE = Advice(
    "fill them in, or set missing: mean or zero in the plan",
    "fill them in, or set missing_of: own or other in the plan",
    "correct it, or have the plan's ranges changed",
    "correct or declare as missing",
)
"""For records that are to train a model whose plan is not yet closed."""


def csv_schema(spec: CsvData, classes: int | None, numeric: Sequence[str]) -> FeatureSchema:
    """Return what the declared columns amount to.

    Args:
        spec: the plan's description of the table.
        classes: number of classes that the plan states, if any.
        numeric: the numeric columns, in order.
    """
    names = (*numeric, *(name for column in spec.categorical for name in spec.coding_of(column)))
    units = tuple(unit_of(*spec.ranges[name]) if name in spec.ranges else 1.0 for name in numeric)
    return FeatureSchema(
        (len(names),),
        _class_count(spec, classes),
        tuple(range(len(numeric))),
        names,
        units if spec.ranges else (),
        tuple(spec.ranges[name] for name in numeric) if set(numeric) <= set(spec.ranges) else (),
        targets={"labels": (len(spec.labels),), "time": (2,)}.get(spec.answers, ()),
    )


def coded_features(
    table: TextTable, spec: CsvData, numeric: Sequence[str], faults: Faults, advice: Advice = PLAN_ADVICE
) -> tuple[NDArray[np.float64], tuple[ColumnProfile, ...]]:
    """Return the features of a table, (n, features) with NaN where a mean is wanted, and what its columns hold.

    Args:
        table: it has every column of the features.
        spec: the plan's description of it.
        numeric: the numeric columns, in order.
        faults: takes every value that the plan does not allow.
        advice: what is to be done about them.
    """
    features: list[NDArray[np.float64]] = []
    columns: list[ColumnProfile] = []
    for column in numeric:
        missing = _missing(table, column, spec)
        features.append(_numeric(table, column, missing, spec, faults, advice))
        columns.append(ColumnProfile(column, len(table), int(missing.sum())))
    for column in spec.categorical:
        place, profile = _category(table, column, spec, faults, advice)
        # One for each value, one for all other texts, and one for none where that is asked.
        features += [(place == index).astype(np.float64) for index in range(len(spec.coding_of(column)))]
        columns.append(profile)
    return np.stack(features, axis=1), tuple(columns)


def rows_that_count(table: TextTable, spec: CsvData) -> NDArray[np.bool_]:
    """Return whether the plan takes each row of a table, (n,)."""
    wanted = np.ones(len(table), np.bool_)
    for column, values in spec.rows.items():
        wanted &= value_places(table.columns[column], [values], form_of(spec, column)) == 0
    return wanted


def numeric_columns(
    header: Collection[str], spec: CsvData, kept: Collection[str], where: Path | str
) -> tuple[str, ...]:
    """Return the numeric columns in the order of the features.

    Args:
        header: all columns of the table.
        spec: the plan's description of it.
        kept: columns that are kept raw.
        where: the table, for a fault.

    Raises:
        DataError: no column is left for `numeric: all`, and the plan has no category.
    """
    if not isinstance(spec.numeric, str):
        return spec.numeric
    named = {*spec.answer_columns, spec.collaborator, *spec.categorical, *spec.rows, *kept}
    columns = tuple(sorted(name for name in header if name not in named))
    if not columns and not spec.categorical:
        raise DataError(f"{where} has no column left for numeric: all", "check the file's columns")
    return columns


def _missing(table: TextTable, column: str, spec: CsvData) -> NDArray[np.bool_]:
    more = spec.missing_values_of.get(column, ())
    if column in table.numbers:
        numbers = table.numbers[column]
        marks = marks_as_numbers((*spec.missing_values, *more))
        return np.isnan(numbers) | np.isin(numbers, marks)
    texts = table.columns[column]
    words = (*spec.missing_values, "") if table.has_nulls else spec.missing_values
    missing: NDArray[np.bool_] = np.isin(texts, words)
    return missing | (value_places(texts, [more], form_of(spec, column)) == 0) if more else missing


def _numeric(
    table: TextTable, column: str, missing: NDArray[np.bool_], spec: CsvData, faults: Faults, advice: Advice
) -> NDArray[np.float64]:
    policy = spec.missing_of.get(column, spec.missing)
    if policy == "refuse":
        faults.add(column, "missing values", missing, advice.number)
    values = numbers(table, column, missing, faults, advice.text, form_of(spec, column))
    if column in spec.ranges:
        least, greatest = spec.ranges[column]
        outside = np.isfinite(values) & ((values < least) | (values > greatest))
        faults.add(column, f"outside of {least:g} to {greatest:g}, its range", outside, advice.range)
    return np.where(missing, 0.0, values) if policy == "zero" else values


def hidden_missing(table: TextTable, spec: CsvData, numeric: Sequence[str]) -> dict[str, NDArray[np.bool_]]:
    """Return where values are missing that the features have as zero or as any other value: (n,) by raw column."""
    zeros = [name for name in numeric if spec.missing_of.get(name, spec.missing) == "zero"]
    others = [name for name in spec.categorical if spec.missing_of.get(name, OTHER) == OTHER]
    masks = {name: _missing(table, name, spec) for name in (*zeros, *others)}
    for name in others:
        # A missing value that the plan names is a value.
        named = [(value,) for value in spec.categorical[name]]
        masks[name] &= value_places(table.columns[name], named, form_of(spec, name)) < 0
    return {mask_name(name): mask for name, mask in masks.items()}


def _category(
    table: TextTable, column: str, spec: CsvData, faults: Faults, advice: Advice
) -> tuple[NDArray[np.int64], ColumnProfile]:
    """Return (n,) numbers of the values, one more for another text, two more for a missing one; and the counts."""
    values, policy = spec.categorical[column], spec.missing_of.get(column, OTHER)
    missing = _missing(table, column, spec)
    if policy == "refuse":
        faults.add(column, "missing values", missing, advice.category)
    found = value_places(table.columns[column], [(value,) for value in values], form_of(spec, column))
    place = np.where(missing & (policy != OTHER), len(values) + 1, found)
    # A text that is none of the values has place -1: the column of all others, which comes after them.
    place = np.where(place < 0, len(values), place)
    # A missing value that the plan names is counted as a value.
    absent, other = (place >= len(values)) & missing, (place >= len(values)) & ~missing
    variants = case_variants(table.columns[column][other], values)
    return place, ColumnProfile(column, len(table), int(absent.sum()), int(other.sum()), variants)


def _class_count(spec: CsvData, classes: int | None) -> int:
    if spec.answers != "class":
        return 0
    if spec.label_values is not None:
        return len(spec.label_values)
    return BINARY if spec.label_above is not None else classes or BINARY


def measured_answers(spec: CsvData) -> tuple[str, ...]:
    """Return the columns of the answers that hold numbers, and not names of classes."""
    is_named = spec.label is not None and spec.label_above is None
    return () if is_named else spec.answer_columns


def answers_of(table: TextTable, spec: CsvData, count: int, faults: Faults) -> NDArray[Any]:
    """Return the answers of the rows: classes int64 (n,), numbers float64 (n,), labels (n, labels), or (n, 2).

    Args:
        table: it has every column of the answers.
        spec: the plan's description of it.
        count: how many classes there are; 0 where the answers are none.
        faults: takes every value that the plan does not allow.
    """
    columns = {
        name: _measured(table, spec, name, faults)
        for name in (spec.target, *spec.labels, spec.time, spec.event)
        if name
    }
    for name in (*spec.labels, spec.event):
        if name is not None:
            wrong = ~np.isin(columns[name], (0.0, 1.0))
            faults.add(name, "neither 0 nor 1", wrong, "code what was not seen as 0 and what was as 1")
    if spec.time is not None:
        faults.add(spec.time, "a time before 0", columns[spec.time] < 0.0, "count time from each record's start")
    if not spec.answer_columns:
        return np.zeros(len(table), np.int64)  # records without an answer are one class
    if spec.label is None:
        found = list(columns.values())
        return found[0] if spec.target is not None else np.stack(found, axis=1)
    return _labels(table, spec, spec.label, count, faults)


def _measured(table: TextTable, spec: CsvData, column: str, faults: Faults) -> NDArray[np.float64]:
    """Return a column of numbers in which nothing may be missing."""
    none = np.zeros(len(table), np.bool_)
    return numbers(table, column, none, faults, form=form_of(spec, column))


def _labels(table: TextTable, spec: CsvData, column: str, count: int, faults: Faults) -> NDArray[np.int64]:
    if spec.label_above is not None:
        return (_measured(table, spec, column, faults) > spec.label_above).astype(np.int64)
    classes = spec.label_classes or tuple((index,) for index in range(count))
    labels = value_places(table.columns[column], classes, form_of(spec, column))
    named = [str(value) for values in classes for value in values]
    shown = f"{', '.join(named[:SHOWN_LABELS])}{', ...' if len(named) > SHOWN_LABELS else ''}"
    if faults.fixed:
        faults.add(column, "a label that the model does not know", labels < 0, f"it knows {shown}")
        return labels
    spelt = case_variants(table.columns[column][labels < 0], (value for values in classes for value in values))
    case = "".join(f"; '{one.found}' {one.words}" for one in spelt[:SHOWN_LABELS])
    faults.add(
        column, "a label that the plan does not name", labels < 0, f"the plan allows {shown} (label_values){case}"
    )
    return labels


def value_places(
    texts: NDArray[np.str_], groups: Sequence[Sequence[Scalar]], form: NumberForm = PLAIN_NUMBERS
) -> NDArray[np.int64]:
    """Return for every text the number of the first group that has a value which it means; -1 for none.

    A text means a value if it is equal as a text, as a number (1 and 1.0), or as true or false in any case.

    Args:
        texts: array (n,).
        groups: of values.
        form: how a text writes a number.
    """
    import pandas as pd  # only who reads a table waits for it

    # Hashing finds the distinct texts of a million rows far sooner than sorting does.
    index, distinct = pd.factorize(texts.astype(np.object_))
    places = [
        next(
            (place for place, values in enumerate(groups) if any(_means(text, value, form) for value in values)),
            -1,
        )
        for text in distinct
    ]
    return np.array(places, np.int64)[index]


def _means(text: str, value: Scalar, form: NumberForm) -> bool:
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, str):
        return text == value
    return form.number(text) == value


class TableSource(Protocol):
    """A table whose columns are known, and whose rows are read in blocks."""

    @property
    def header(self) -> Sequence[str]:
        """The names of all its columns."""

    def blocks(self, wanted: Collection[str], spec: CsvData, numeric: Collection[str]) -> Iterator[TextTable]:
        """Yield its rows, once.

        Args:
            wanted: the columns that are read.
            spec: the plan's description of the table.
            numeric: columns that are used as numbers; where the source has them as such, it gives them so.
        """


def needed_columns(spec: CsvData, header: Sequence[str], extra: Collection[str] = ()) -> tuple[str, ...]:
    """Return which columns of a source are read, in its own order.

    Args:
        spec: the plan's description of the table.
        header: all columns that the source has.
        extra: columns to keep raw beside those that the plan keeps.
    """
    if isinstance(spec.numeric, str):
        spare = {spec.collaborator} - {None, *spec.rows, *spec.keep, *extra}
        return tuple(name for name in header if name not in spare)
    used = {*spec.answer_columns, *spec.numeric, *spec.categorical, *spec.rows, *spec.keep, *extra}
    return tuple(name for name in header if name in used)


def read_records(
    source: TableSource,
    spec: CsvData,
    classes: int | None = None,
    extra: Collection[str] = (),
    *,
    where: Path | str,
    storage: FeatureStorage | None = None,
    fewest: int = 0,
    owners: RecordOwners | None = None,
) -> CsvRecords:
    """Return the records of a table, and what was counted in its columns; both in one reading.

    A missing number is NaN where the plan wants a mean.

    Args:
        source: the table.
        spec: the plan's description of it.
        classes: number of classes that the plan states, if any.
        extra: columns to keep raw beside those that the plan keeps, such as the one that records are divided by.
        where: the file, or words for another source; faults begin with it.
        storage: where features go, to be `kept` there; None for memory, whatever there is of them.
        fewest: where the plan's filters take fewer records than this, a fault in their values leaves none of them:
            it must not stop a site whose few records count for nothing, for the plan may have been written so that
            only the holder of one record fails to start.
        owners: whose records count no longer: they are as if they were not in the table. None: all count.

    Raises:
        DataError: a column is missing or there twice, there is no record, or values are not what the plan allows;
            all of them are reported.
    """
    header = list(source.header)
    refuse_twice(f"{where} has", header)
    column = owner_column(owners, header, where)
    records = _Records(header, spec, classes, extra, where, storage)
    wanted = needed_columns(spec, header, extra)
    wanted = wanted if column is None or column in wanted else (*wanted, column)
    for block in source.blocks(wanted, spec, records.used_as_numbers):
        if owners is None or column is None:
            records.add(block)
            continue
        names = owners.key.names(block.columns[column])
        staying = owners.remaining(names)
        if staying.any():
            records.add(block if staying.all() else block.take(staying), names[staying])
    return records.whole(fewest if spec.rows else 0)


def owner_column(owners: RecordOwners | None, header: Collection[str], where: Path | str) -> str | None:
    """Return the column that says whose a record of a table is; None where that is not asked.

    Raises:
        DataError: the table has no such column, or nothing says whose records count no longer.
    """
    if owners is None:
        return None
    if owners.column is None and owners.withdrawn:
        raise owners.unknown_owner(where)
    require_columns(where, header, () if owners.column is None else (owners.column,))
    return owners.column


class _Records:
    """The records of the blocks that were read so far; arguments as of `read_records`."""

    def __init__(
        self,
        header: Sequence[str],
        spec: CsvData,
        classes: int | None,
        extra: Collection[str],
        where: Path | str,
        storage: FeatureStorage | None,
    ) -> None:
        listed = () if isinstance(spec.numeric, str) else spec.numeric
        self._kept = tuple(dict.fromkeys((*spec.keep, *extra)))
        used = (*spec.answer_columns, *listed, *spec.categorical, *spec.rows, *self._kept)
        require_columns(where, header, dict.fromkeys(used))
        self._spec, self._where = spec, where
        self._numeric = numeric_columns(header, spec, self._kept, where)
        self.used_as_numbers = (*self._numeric, *measured_answers(spec))
        self._schema = csv_schema(spec, classes, self._numeric)
        self._features = RecordStore(storage)
        self._kinds: dict[tuple[str, str], FaultKind] = {}
        self._labels: list[NDArray[Any]] = []
        self._raw: dict[str, list[NDArray[np.str_]]] = {name: [] for name in self._kept}
        self._masks: dict[str, list[NDArray[np.bool_]]] = {}
        self._columns: tuple[ColumnProfile, ...] = ()
        self._rows = 0
        self._owners: list[NDArray[np.int64]] = []

    def add(self, table: TextTable, owners: NDArray[np.int64] | None = None) -> None:
        """Take the next block, rows (n >= 1), and whose each of them is, (n,); None where nobody asks."""
        self._rows += len(table)
        if self._spec.rows:
            counted = rows_that_count(table, self._spec)
            table, owners = table.take(counted), None if owners is None else owners[counted]
            if not len(table):
                return
        if owners is not None:
            self._owners.append(owners)
        faults = Faults(table, self._kinds)
        features, columns = coded_features(table, self._spec, self._numeric, faults, PLAN_ADVICE)
        self._labels.append(answers_of(table, self._spec, self._schema.classes, faults))
        for name in self._kept:
            self._raw[name].append(table.columns[name])
        for name, mask in hidden_missing(table, self._spec, self._numeric).items():
            self._masks.setdefault(name, []).append(mask)
        self._columns = merged(self._columns, columns)
        # After a fault nothing is kept: the remaining blocks are read for their own faults.
        if not self._kinds:
            self._features.add(features)

    def whole(self, fewest: int) -> CsvRecords:
        """Return everything that was taken; no record where it is unusable and has fewer than `fewest`.

        Raises:
            DataError: there was no record, or values are not what the plan allows; all of them are reported.
        """
        fault, count = faults_of(self._where, self._kinds), sum(map(len, self._labels))
        if fault is None and not self._rows:
            fault = DataError(f"{self._where} has no records", "name a source with at least one record")
        if fault is None and not count:
            named = ", ".join(f"{column} {list(values)}" for column, values in self._spec.rows.items())
            found = f"{self._where}: none of its {self._rows} rows has {named}"
            fault = DataError(found, "check rows in the plan's csv")
        if fault is not None and count < fewest:
            return CsvRecords(no_records(self._schema), ())
        if fault is not None:
            raise fault
        raw: dict[str, NDArray[np.generic]] = {name: np.concatenate(parts) for name, parts in self._raw.items()}
        masks = {name: np.concatenate(parts) for name, parts in self._masks.items()}
        raw |= {name: mask for name, mask in masks.items() if mask.any()}
        owners = np.concatenate(self._owners) if self._owners else None
        dataset = Dataset(
            self._features.features(), np.concatenate(self._labels), self._schema, raw, owners=owners
        )
        return CsvRecords(dataset, self._columns)
