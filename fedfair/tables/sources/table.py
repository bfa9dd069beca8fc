"""`{csv: ...}`: a site's own table, in files whatever their form, or in a database.

Decides which reader takes a file, by its first bytes: Parquet is read with its types, anything else as text. A
workbook is refused in words. What a site's own marks and names mean is `site_form.py`'s business.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.task import TaskSection
from fedfair.policy.site_sql import SqlSection
from fedfair.tables.dataset import Splits
from fedfair.tables.feature_coding import CsvRecords, csv_schema
from fedfair.tables.feature_storage import FeatureStorage
from fedfair.tables.few_records import unless_few
from fedfair.tables.file_kinds import is_parquet
from fedfair.tables.profile import merged
from fedfair.tables.site_form import SiteTable, site_table
from fedfair.tables.source_modules import DataPaths, FileRecords
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
    path: Path, spec: CsvData, classes: int | None, extra: Collection[str], storage: FeatureStorage | None = None
) -> CsvRecords:
    """Return the records of a file; arguments and faults as of `open_table` and `read_records`."""
    return read_records(open_table(path, spec), spec, classes, extra, where=path, storage=storage)


def planned_schema(stated: CsvData, task: TaskSection) -> FeatureSchema | None:
    """Return the schema of the columns that the plan lists; None under `numeric: all`."""
    return None if isinstance(stated.numeric, str) else csv_schema(stated, task.classes, stated.numeric)


def read(stated: CsvData, task: TaskSection, paths: DataPaths, extra: tuple[str, ...]) -> FileRecords:
    """Return the records of the files, or of the database in their place, under the plan's names."""
    table = site_table(stated, paths.form, extra)
    if paths.sql is not None:
        return _from_database(table, paths.sql, task.classes, extra, paths)
    train = _from_file(_named(paths.train), table, task.classes, extra, paths)
    test = None if paths.test is None else _from_file(paths.test, table, task.classes, extra, paths)
    return _both(train, test)


def _from_file(
    path: Path, table: SiteTable, classes: int | None, extra: tuple[str, ...], paths: DataPaths
) -> CsvRecords:
    """Return the records of one file, which may have marks and names of its own."""
    reading = partial(read_csv, path, table.file, classes, table.in_file(extra), paths.storage)
    return table.in_plan(unless_few(reading, paths.fewest if table.plan.rows else 0), classes)


def _from_database(
    table: SiteTable, section: SqlSection, classes: int | None, extra: tuple[str, ...], paths: DataPaths
) -> FileRecords:
    from fedfair.tables.sql_table import TEST, TRAIN, read_sql

    found = read_sql(section, table, classes, extra, storage=paths.storage, fewest=paths.fewest)
    test = found[TEST].records if TEST in found else None
    return replace(_both(found[TRAIN].records, test), digests={key: one.digest for key, one in found.items()})


def _both(train: CsvRecords, test: CsvRecords | None) -> FileRecords:
    """Return the records of one table, or of two with the same features; one without records has no counts."""
    if test is None:
        return FileRecords(Splits(train.dataset), train.columns)
    # Only tables with the same features get past this line.
    splits = Splits(train.dataset, test=test.dataset)
    if not train.columns or not test.columns:
        return FileRecords(splits, train.columns or test.columns)
    return FileRecords(splits, merged(train.columns, test.columns))


def _named(path: Path | None) -> Path:
    if path is None:
        raise DataError(
            "no file with training records is named",
            "set data.train in collaborator.yaml, or task.data.csv.train in the plan of a simulation",
        )
    return path
