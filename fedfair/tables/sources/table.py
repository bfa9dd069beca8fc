"""`{csv: ...}`: a site's own table, in files whatever their form, or in a database.

Decides which reader takes a file, by its first bytes: Parquet is read with its types, anything else as text. A
workbook is refused in words. What a site's own marks and names mean is `site_form.py`'s business.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from pathlib import Path

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.task import TaskSection
from fedfair.tables.dataset import Splits
from fedfair.tables.feature_storage import FeatureStorage
from fedfair.tables.file_kinds import is_parquet
from fedfair.tables.profile import merged
from fedfair.tables.site_form import site_table
from fedfair.tables.source_modules import DataPaths, FileRecords
from fedfair.tables.table_reader import CsvRecords, TableSource, csv_schema, read_records
from fedfair.tables.text_file import TextFile, form_of_file
from fedfair.withdrawal.owners import RecordOwners


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
    path: Path,
    spec: CsvData,
    classes: int | None,
    extra: Collection[str],
    storage: FeatureStorage | None = None,
    fewest: int = 0,
    owners: RecordOwners | None = None,
) -> CsvRecords:
    """Return the records of a file; arguments and faults as of `open_table` and `read_records`."""
    source = open_table(path, spec)
    return read_records(source, spec, classes, extra, where=path, storage=storage, fewest=fewest, owners=owners)


def planned_schema(stated: CsvData, task: TaskSection) -> FeatureSchema | None:
    """Return the schema of the columns that the plan lists; None under `numeric: all`."""
    return None if isinstance(stated.numeric, str) else csv_schema(stated, task.classes, stated.numeric)


def read(stated: CsvData, task: TaskSection, paths: DataPaths, extra: tuple[str, ...]) -> FileRecords:
    """Return the records of the files, or of the database in their place, under the plan's names."""
    table, classes = site_table(stated, paths.form, extra), task.classes
    if paths.sql is not None:
        from fedfair.tables.sql_table import read_sql

        read = read_sql(
            paths.sql,
            table,
            classes,
            extra,
            storage=paths.storage,
            fewest=paths.fewest,
            owners=paths.owners,
        )
    elif paths.train is None:
        raise DataError(
            "no file with training records is named",
            "set data.train in collaborator.yaml, or task.data.csv.train in the plan of a simulation",
        )
    else:
        read = {}
        for name, path in (("train", paths.train), ("test", paths.test)):
            if path is not None:
                own = read_csv(
                    path, table.file, classes, table.in_file(extra), paths.storage, paths.fewest, paths.owners
                )
                read[name] = table.in_plan(own, classes)
    train, *test = read.values()
    # Only tables with the same features get past this line.
    splits = Splits(train.dataset, test=test[0].dataset if test else None)
    digests = {key: one.digest for key, one in read.items() if one.digest}
    return FileRecords(splits, reduce(merged, (one.columns for one in read.values())), digests)
