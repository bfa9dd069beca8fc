"""From the blocks of a table to its records, whichever source they come from.

A source knows its columns and yields blocks of them: a text file, the row groups of a Parquet file, the batches of
a database's cursor. Decides which columns are needed, and how one block after the other becomes features, labels
and kept columns, with the meaning that `feature_coding.py` gives to them. Of a block nothing stays but these.
Faults are gathered over all blocks and told with their places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.tables.dataset import Dataset
from fedfair.tables.feature_coding import (
    PLAN_ADVICE,
    CsvRecords,
    answers_of,
    coded_features,
    csv_schema,
    hidden_missing,
    measured_answers,
    no_row_counts,
    numeric_columns,
    rows_that_count,
)
from fedfair.tables.feature_storage import FeatureStorage, RecordStore
from fedfair.tables.few_records import UnusableRecordsError
from fedfair.tables.profile import ColumnProfile, merged
from fedfair.tables.text_table import FaultKind, Faults, TextTable, faults_of, require_columns


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

    Raises:
        DataError: a column is missing or there twice, there is no record, or values are not what the plan allows;
            all of them are reported.
    """
    header = list(source.header)
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(f"{where} has two columns called '{twice[0]}'", "give every column its own name")
    records = _Records(header, spec, classes, extra, where, storage)
    for block in source.blocks(needed_columns(spec, header, extra), spec, records.numeric):
        records.add(block)
    return records.whole()


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
        self._schema = csv_schema(spec, classes, self._numeric)
        self._features = RecordStore(storage)
        self._kinds: dict[tuple[str, str], FaultKind] = {}
        self._labels: list[NDArray[Any]] = []
        self._raw: dict[str, list[NDArray[np.str_]]] = {name: [] for name in self._kept}
        self._masks: dict[str, list[NDArray[np.bool_]]] = {}
        self._columns: tuple[ColumnProfile, ...] = ()
        self._rows = 0

    @property
    def numeric(self) -> tuple[str, ...]:
        """The columns that are used as numbers."""
        return (*self._numeric, *measured_answers(self._spec))

    def add(self, table: TextTable) -> None:
        """Take the next block, rows (n >= 1)."""
        self._rows += len(table)
        if self._spec.rows:
            table = table.take(rows_that_count(table, self._spec))
            if not len(table):
                return
        faults = Faults(table, self._kinds)
        features, columns = coded_features(table, self._spec, self._numeric, faults, PLAN_ADVICE)
        self._labels.append(answers_of(table, self._spec, self._schema.classes, faults))
        for name in self._kept:
            self._raw[name].append(table.columns[name])
        for name, mask in hidden_missing(table, self._spec, self._numeric).items():
            self._masks.setdefault(name, []).append(mask)
        self._columns = merged(self._columns, columns) if self._columns else columns
        # After a fault nothing is kept: the remaining blocks are read for their own faults.
        if not self._kinds:
            self._features.add(features)

    def whole(self) -> CsvRecords:
        """Return everything that was taken.

        Raises:
            UnusableRecordsError: there was no record, or values are not what the plan allows; all of them are
                reported.
        """
        fault, count = faults_of(self._where, self._kinds), sum(map(len, self._labels))
        if fault is None and not self._rows:
            fault = DataError(f"{self._where} has no records", "name a source with at least one record")
        if fault is None and not count:
            fault = no_row_counts(self._where, self._rows, self._spec)
        if fault is not None:
            raise UnusableRecordsError(fault, count, self._schema)
        raw: dict[str, NDArray[np.generic]] = {name: np.concatenate(parts) for name, parts in self._raw.items()}
        masks = {name: np.concatenate(parts) for name, parts in self._masks.items()}
        raw |= {name: mask for name, mask in masks.items() if mask.any()}
        dataset = Dataset(self._features.features(), np.concatenate(self._labels), self._schema, raw)
        return CsvRecords(dataset, self._columns)
