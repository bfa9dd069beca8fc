"""A site's own table in a file, whatever its form.

Decides which reader takes a file, by its first bytes: Parquet is read with its types. Text goes to pandas first,
and to the reader that explains faults wherever it does not fit; both read block by block and mean the same. A
workbook is refused in words.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from pathlib import Path

from fedfair.plan.csv_table import CsvData
from fedfair.tables.csv_file import CsvRecords, csv_blocks
from fedfair.tables.fast_csv import NotPlain, read_plain
from fedfair.tables.file_kinds import is_parquet, refuse_workbook
from fedfair.tables.frames import BlockReader, FeatureStore, needed_columns, records_of_frames


def read_csv(
    path: Path,
    spec: CsvData,
    classes: int | None,
    extra: Collection[str],
    store: FeatureStore | None = None,
) -> CsvRecords:
    """Return the records of one file, and what was counted in its columns; both in one reading.

    A missing number is NaN where the plan wants a mean.

    Args:
        path: the file: text, plain or gzip, or Parquet.
        spec: the plan's description of it.
        classes: number of classes that the plan states, if any.
        extra: columns to keep raw beside those that the plan keeps, such as the one that records are divided by.
        store: where the features go; None for memory.

    Raises:
        DataError: the file cannot be read or has values that the plan does not allow; all of them are reported.
    """
    if is_parquet(path):
        return _read_parquet(path, spec, classes, extra, store)
    refuse_workbook(path)
    try:
        return read_plain(path, spec, classes, extra, store)
    except NotPlain:
        if store is not None:
            store.restart()
        return read_field_by_field(path, spec, classes, extra, store)


def _read_parquet(
    path: Path, spec: CsvData, classes: int | None, extra: Collection[str], store: FeatureStore | None
) -> CsvRecords:
    from fedfair.tables.parquet_file import ParquetTable

    table = ParquetTable(path)
    frames = table.frames(needed_columns(spec, table.header, extra))
    return records_of_frames(frames, table.header, spec, classes, extra, where=path, store=store)


def read_field_by_field(
    path: Path,
    spec: CsvData,
    classes: int | None,
    extra: Collection[str],
    store: FeatureStore | None = None,
) -> CsvRecords:
    """Return the records of a text file as `read_csv` does, slowly, with the place of every fault.

    Args:
        path: the file, plain or gzip.
        spec: the plan's description of it.
        classes: number of classes that the plan states, if any.
        extra: columns to keep raw beside those that the plan keeps.
        store: where the features go; None for memory.

    Raises:
        DataError: the file cannot be read or has values that the plan does not allow; all of them are reported.
    """
    tables = csv_blocks(path, spec, extra)
    # There is a first block: a file without records raises.
    first = next(tables)
    header = list(first.columns)
    reader = BlockReader(header, spec, classes, extra, where=path, store=store, has_nulls=False)
    for table in itertools.chain((first,), tables):
        reader.add_texts(table)
    return reader.records()
