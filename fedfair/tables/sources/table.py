"""A site's own table in a file, whatever its form.

Decides which reader takes a file, by its first bytes: Parquet is read with its types, anything else as text. A
workbook is refused in words.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fedfair.plan.csv_table import CsvData
from fedfair.tables.feature_coding import CsvRecords
from fedfair.tables.file_kinds import is_parquet
from fedfair.tables.room import RecordRoom
from fedfair.tables.table_reader import TableSource, read_records
from fedfair.tables.text_file import TextFile, form_of_file


def open_table(path: Path, spec: CsvData) -> TableSource:
    """Return the table in a file, whose columns are known.

    Args:
        path: the file: text, plain or gzip, or Parquet.
        spec: the plan's description of it.

    Raises:
        DataError: the file cannot be read, or is of a kind that holds no table.
    """
    if is_parquet(path):
        from fedfair.tables.parquet_file import ParquetTable

        return ParquetTable(path).typed
    return TextFile(path, form_of_file(spec))


def read_csv(
    path: Path, spec: CsvData, classes: int | None, extra: Collection[str], room: RecordRoom | None = None
) -> CsvRecords:
    """Return the records of a file; arguments and faults as of `open_table` and `read_records`."""
    return read_records(open_table(path, spec), spec, classes, extra, where=path, room=room)
