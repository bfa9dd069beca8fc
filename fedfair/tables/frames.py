"""From blocks of typed columns to features: what every reader of tables has in common.

A source gives an iterator of data frames, such as the row groups of a Parquet file or the batches of a database's
cursor. Decides which of its columns are needed, and how one block after the other becomes features, labels and
kept columns, with the meaning that `csv_file.py` gives to texts. Of a block nothing stays but these. Faults are
gathered over all blocks and told with row and column. What a typed value means is `typed_values.py`'s business.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.tables.csv_file import (
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
from fedfair.tables.dataset import Dataset
from fedfair.tables.few_records import UnusableRecordsError
from fedfair.tables.profile import ColumnProfile, merged
from fedfair.tables.reading import FaultKind, Faults, TextTable, faults_of, require_columns
from fedfair.tables.typed_values import TypedTexts, typed_numbers

if TYPE_CHECKING:
    import pandas as pd


class FeatureStore(Protocol):
    """Where the features of a table go, block by block."""

    def add(self, block: NDArray[np.float64]) -> None:
        """Take the features of the next records, (rows, features)."""

    def features(self) -> NDArray[np.floating]:
        """Return the features of all records, (n, features)."""

    def restart(self) -> None:
        """Forget everything that was added: the records come again from the first."""


class MemoryStore:
    """Keeps features in memory as they come, in 64 bits."""

    def __init__(self) -> None:
        self._blocks: list[NDArray[np.float64]] = []

    def add(self, block: NDArray[np.float64]) -> None:
        """Take the features of the next records, (rows, features)."""
        self._blocks.append(block)

    def features(self) -> NDArray[np.floating]:
        """Return the features of all records, (n, features)."""
        if len(self._blocks) > 1:
            whole = np.empty((sum(map(len, self._blocks)), self._blocks[0].shape[1]))
            start, left = 0, self._blocks[::-1]
            # Each block is let go as soon as it is copied, so that not everything is there twice.
            self._blocks = []
            while left:
                block = left.pop()
                whole[start : start + len(block)] = block
                start += len(block)
            self._blocks = [whole]
        return self._blocks[0]

    def restart(self) -> None:
        """Forget everything that was added."""
        self._blocks = []


class ArrayStore:
    """Writes features into an array that somebody gives, such as a `numpy.memmap` of 32-bit numbers.

    Args:
        array: float array (rows, features), for at least as many records as will come.
        what: the records, for a fault.
    """

    def __init__(self, array: NDArray[np.floating], what: str = "the records") -> None:
        self._array = array
        self._what = what
        self._rows = 0

    def add(self, block: NDArray[np.float64]) -> None:
        """Write the features of the next records; raises DataError where the array has no room for them."""
        end = self._rows + len(block)
        if end > len(self._array) or block.shape[1:] != self._array.shape[1:]:
            raise DataError(
                f"{self._what}: {end} or more, of {block.shape[1]} features, where there is room for "
                f"{len(self._array)} of {self._array.shape[1]}",
                "count the records again: they have changed while they were read",
            )
        self._array[self._rows : end] = block
        self._rows = end

    def features(self) -> NDArray[np.floating]:
        """Return what was written, (n, features), which shares the array's memory."""
        return self._array[: self._rows]

    def restart(self) -> None:
        """Write the next features from the first row on."""
        self._rows = 0


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


def records_of_frames(
    frames: Iterable[pd.DataFrame],
    header: Sequence[str],
    spec: CsvData,
    classes: int | None = None,
    extra: Collection[str] = (),
    *,
    where: Path | str,
    store: FeatureStore | None = None,
) -> CsvRecords:
    """Return the records of a source of typed columns, and what was counted in its columns.

    Args:
        frames: its records, block by block, each at least with the columns of `needed_columns`.
        header: all columns that it has.
        spec: the plan's description of the table.
        classes: number of classes that the plan states, if any.
        extra: columns to keep raw beside those that the plan keeps.
        where: the file, or words for another source; faults begin with it.
        store: where the features go; None for memory.

    Raises:
        DataError: a column is missing, there is no record, or values are not what the plan allows; all of them
            are reported.
    """
    reader = BlockReader(header, spec, classes, extra, where=where, store=store)
    for frame in frames:
        reader.add(frame)
    return reader.records()


class BlockReader:
    """Takes the blocks of one source, in their order, and returns its records at the end.

    Args:
        header: all columns that the source has.
        spec: the plan's description of the table.
        classes: number of classes that the plan states, if any.
        extra: columns to keep raw beside those that the plan keeps.
        where: the file, or words for another source; faults begin with it.
        store: where the features go; None for memory.
        has_nulls: whether the source tells a missing value from an empty text, so that both are missing.

    Raises:
        DataError: a column that the plan uses is missing, or one is there twice.
    """

    def __init__(
        self,
        header: Sequence[str],
        spec: CsvData,
        classes: int | None = None,
        extra: Collection[str] = (),
        *,
        where: Path | str,
        store: FeatureStore | None = None,
        has_nulls: bool = True,
    ) -> None:
        twice = sorted({name for name in header if list(header).count(name) > 1})
        if twice:
            raise DataError(f"{where} has two columns called '{twice[0]}'", "give every column its own name")
        listed = () if isinstance(spec.numeric, str) else spec.numeric
        self._kept = tuple(dict.fromkeys((*spec.keep, *extra)))
        require_columns(
            where,
            header,
            dict.fromkeys((*spec.answer_columns, *listed, *spec.categorical, *spec.rows, *self._kept)),
        )
        self._spec = spec
        self._has_nulls = has_nulls
        self._numeric = numeric_columns(header, spec, self._kept, where)
        self._schema = csv_schema(spec, classes, self._numeric)
        self._where = where
        self._store: FeatureStore = MemoryStore() if store is None else store
        self._kinds: dict[tuple[str, str], FaultKind] = {}
        self._labels: list[NDArray[Any]] = []
        self._raw: dict[str, list[NDArray[np.str_]]] = {name: [] for name in self._kept}
        self._masks: dict[str, list[NDArray[np.bool_]]] = {}
        self._columns: tuple[ColumnProfile, ...] = ()
        self._rows = 0

    @property
    def numeric(self) -> tuple[str, ...]:
        """The numeric columns, in the order of the features."""
        return self._numeric

    @property
    def has_faults(self) -> bool:
        """Whether some value so far is not what the plan allows."""
        return bool(self._kinds)

    def add(self, frame: pd.DataFrame) -> None:
        """Take the next block, rows (n >= 0).

        Raises:
            DataError: a column holds what has no text, such as lists.
        """
        places = np.arange(self._rows + 1, self._rows + 1 + len(frame))
        self._rows += len(frame)
        if self._spec.rows:
            wanted = rows_that_count(self._table(frame, places), self._spec)
            frame, places = frame[wanted], places[wanted]
        if len(frame):
            self._take(self._table(frame, places, self._numbers(frame)))

    def add_texts(self, table: TextTable) -> None:
        """Take the next block as texts, which know their own places, rows (n >= 1)."""
        self._rows += len(table)
        if self._spec.rows:
            table = table.take(rows_that_count(table, self._spec))
        if len(table):
            self._take(table)

    def _take(self, table: TextTable) -> None:
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
            self._store.add(features)

    def records(self) -> CsvRecords:
        """Return everything that was taken.

        Raises:
            UnusableRecordsError: there was no record, or values are not what the plan allows; all of them are
                reported.
        """
        self._refuse()
        raw: dict[str, NDArray[np.generic]] = {name: np.concatenate(parts) for name, parts in self._raw.items()}
        masks = {name: np.concatenate(parts) for name, parts in self._masks.items()}
        raw |= {name: mask for name, mask in masks.items() if mask.any()}
        dataset = Dataset(self._store.features(), np.concatenate(self._labels), self._schema, raw)
        return CsvRecords(dataset, self._columns)

    def _refuse(self) -> None:
        fault, count = faults_of(self._where, self._kinds), sum(map(len, self._labels))
        if fault is None and not self._rows:
            fault = DataError(f"{self._where} has no records", "name a source with at least one record")
        if fault is None and not count:
            fault = no_row_counts(self._where, self._rows, self._spec)
        if fault is not None:
            raise UnusableRecordsError(fault, count, self._schema)

    def _numbers(self, frame: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
        return typed_numbers(frame, (*self._numeric, *measured_answers(self._spec)), self._spec, self._where)

    def _table(
        self,
        frame: pd.DataFrame,
        places: NDArray[np.int64],
        numbers: Mapping[str, NDArray[np.float64]] = MappingProxyType({}),
    ) -> TextTable:
        texts = TypedTexts(frame, self._spec, self._where)
        return TextTable(self._where, texts, places, "row", numbers, self._has_nulls)
