"""Finds the files that hold the records of a plan's source on this machine, and the module that reads them.

Decides the way from the plan's (or the site's) paths to the whole data set, before it is divided or held out from.
The formats are the business of the modules beside this one; each is imported when a plan needs it, because some
bring large libraries with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.plan.losses import HuberLoss, Loss, PinballLoss, SquaredLoss
from fedfair.plan.sources import BUILT_IN, AcsEmploymentSource, CsvSource, EicuSource, ImageSource, MnistSource
from fedfair.plan.task import TaskSection
from fedfair.plan.task_outputs import with_outputs
from fedfair.policy.site_config import SiteConfig
from fedfair.policy.site_format import FormatSection
from fedfair.policy.site_sql import SqlSection
from fedfair.tables.dataset import Splits, kept
from fedfair.tables.few_records import unless_few
from fedfair.tables.own_form import check_form, own_table
from fedfair.tables.profile import ColumnProfile, merged
from fedfair.tables.room import RecordRoom

if TYPE_CHECKING:
    from fedfair.tables.feature_coding import CsvRecords


@dataclass(frozen=True, slots=True)
class DataPaths:
    """The paths of the records on this machine.

    Attributes:
        workspace: where a "module:function" is looked for.
        folder: the folder of a data set that has several files.
        train: the file of the training records; for images, the table of attributes.
        test: the file of the test records.
        room: where features are held; None for memory, whatever there is of them.
        sql: the database that holds the records, in place of files.
        form: how the records are written where that is not as the plan says; None where it is.
        fewest: with fewer records that the plan's filters take, a table is one without any, whatever its values;
            0 takes every record, and refuses a table without one.
    """

    workspace: Path
    folder: Path
    train: Path | None
    test: Path | None
    room: RecordRoom | None = None
    sql: SqlSection | None = None
    form: FormatSection | None = None
    fewest: int = 0


@dataclass(frozen=True, slots=True)
class FileRecords:
    """Everything that the paths name, whole.

    Attributes:
        splits: the records.
        columns: what the reader counted in the columns; None where it keeps missing numbers as NaN and no texts.
        digests: digest of the records in their order, where no file holds them, by query (query, test_query).
    """

    splits: Splits
    columns: tuple[ColumnProfile, ...] | None = None
    digests: Mapping[str, str] = field(default_factory=dict)


def simulation_paths(task: TaskSection, root: Path) -> DataPaths:
    """Return the plan's own paths, which start from `root`; without any, the files are in `root` itself."""
    match task.data:
        case CsvSource(csv=spec) | AcsEmploymentSource(acs_employment=spec):
            return DataPaths(root, root, _under(root, spec.train), _under(root, spec.test))
        case ImageSource(images=spec):
            return DataPaths(root, root / (spec.folder or ""), _under(root, spec.attributes), None)
        case MnistSource(mnist=spec) | EicuSource(eicu=spec):
            return DataPaths(root, root / (spec.folder or ""), None, None)
    return DataPaths(root, root, None, None)


def site_paths(site: SiteConfig, root: Path) -> DataPaths:
    """Return the paths of `collaborator.yaml`, which start from `root`."""
    return DataPaths(
        root,
        root / (site.data.root or ""),
        _under(root, site.data.train),
        _under(root, site.data.test),
        sql=site.data.sql,
        form=site.data.format,
    )


def read_files(task: TaskSection, paths: DataPaths, extra: tuple[str, ...]) -> FileRecords:
    """Return everything that the paths name, whole, and what was counted in its columns.

    Args:
        task: the plan's task.
        paths: where the files are.
        extra: columns to keep raw beside those that the plan keeps.

    Raises:
        DataError: a file is missing or not what the plan declares, or there is no room for the records.
        PlanError: the records have other answers than the plan's loss takes.
    """
    found = _read(task, paths, extra)
    answered = replace(found, splits=for_loss(task.loss, found.splits))
    return answered if paths.room is None else replace(answered, splits=kept(answered.splits, paths.room))


def for_loss(loss: Loss, splits: Splits) -> Splits:
    """Return records whose schema says what the loss makes of it; unchanged under cross-entropy.

    Raises:
        DataError: an answer is outside of the range that the loss declares.
        PlanError: the answers are others than the loss takes.
    """
    schema = with_outputs(loss, splits.train.schema)
    parts = (splits.train, splits.validation, splits.test)
    if isinstance(loss, SquaredLoss | HuberLoss | PinballLoss) and loss.target_range is not None:
        for part in parts:
            if part is not None:
                _check_range(part.labels, loss.target_range)
    if schema == splits.train.schema:
        return splits
    train, *others = (None if part is None else replace(part, schema=schema) for part in parts)
    validation, test = others
    return Splits(train or splits.train, validation, test, splits.survey)


def _check_range(answers: NDArray[Any], target_range: tuple[float, float]) -> None:
    least, greatest = target_range
    outside = (answers < least) | (answers > greatest)
    if outside.any():
        record = int(np.argmax(outside))
        raise DataError(
            f"{int(outside.sum())} targets are outside of task.loss.target_range [{least:g}, {greatest:g}], the "
            f"first is {answers[record]:g} of record {record}",
            "correct them, or have the plan's range changed",
        )


def _read(  # noqa: PLR0911 - one return for each source
    task: TaskSection, paths: DataPaths, extra: tuple[str, ...]
) -> FileRecords:
    """Return what each source reads, before the loss says what it makes of the answers."""
    if paths.form is not None:
        check_form(task, paths.form)
    if paths.sql is not None:
        return _read_database(task, paths.sql, extra, paths)
    match task.data:
        case CsvSource(csv=spec):
            first = _read_table(_named(paths.train), spec, task.classes, extra, paths)
            if paths.test is None:
                return FileRecords(Splits(first.dataset), first.columns)
            second = _read_table(paths.test, spec, task.classes, extra, paths)
            splits = Splits(first.dataset, test=second.dataset)
            # Only files with the same features get past the line above.
            return FileRecords(splits, _merged(first, second))
        case MnistSource():
            from fedfair.tables.sources.mnist import load_mnist

            return FileRecords(load_mnist(paths.folder))
        case ImageSource(images=spec):
            from fedfair.tables.sources.images import load_images

            return FileRecords(load_images(paths.folder, paths.train, spec, extra, paths.room))
        case AcsEmploymentSource(acs_employment=spec):
            from fedfair.tables.sources.acs_employment import load_acs_employment

            train = load_acs_employment(paths.train or paths.folder, spec, extra)
            test = None if paths.test is None else load_acs_employment(paths.test, spec, extra)
            return FileRecords(Splits(train, test=test))
        case EicuSource(eicu=spec):
            from fedfair.tables.sources.eicu import load_eicu

            return FileRecords(Splits(load_eicu(paths.folder, spec, extra)))
        case name if name in BUILT_IN:
            from fedfair.tables.sources.built_in import load_built_in

            return FileRecords(Splits(load_built_in(name)))
        case reference:
            from fedfair.tables.sources.module import load_module

            return FileRecords(load_module(reference, paths.workspace, paths.folder, task.classes, task.loss))


def _read_table(
    path: Path, spec: CsvData, classes: int | None, extra: tuple[str, ...], paths: DataPaths
) -> CsvRecords:
    """Return the records of one table, which may have marks and names of its own, under the plan's names."""
    from fedfair.tables.sources.table import read_csv

    table = own_table(spec, paths.form, extra)
    reading = partial(read_csv, path, table.file, classes, table.in_file(extra), paths.room)
    return table.in_plan(unless_few(reading, paths.fewest if spec.rows else 0), classes)


def _read_database(
    task: TaskSection, section: SqlSection, extra: tuple[str, ...], paths: DataPaths
) -> FileRecords:
    from fedfair.tables.sql_table import TEST, TRAIN, read_sql

    if not isinstance(task.data, CsvSource):
        raise DataError(
            "data.sql: the records come from a database, and the plan describes no table",
            "name files in collaborator.yaml, or describe the columns in the plan under task.data.csv",
        )
    table = own_table(task.data.csv, paths.form, extra)
    read = read_sql(section, table, task.classes, extra, room=paths.room, fewest=paths.fewest)
    train = read[TRAIN].records
    test = read[TEST].records if TEST in read else None
    return FileRecords(
        Splits(train.dataset, test=None if test is None else test.dataset),
        train.columns if test is None else _merged(train, test),
        {key: one.digest for key, one in read.items()},
    )


def _merged(first: CsvRecords, second: CsvRecords) -> tuple[ColumnProfile, ...]:
    """Return what was counted in two tables; one without records has no counts."""
    if not first.columns or not second.columns:
        return first.columns or second.columns
    return merged(first.columns, second.columns)


def _under(root: Path, path: str | None) -> Path | None:
    return None if path is None else root / path


def _named(path: Path | None) -> Path:
    if path is None:
        raise DataError(
            "no file with training records is named",
            "set data.train in collaborator.yaml, or task.data.csv.train in the plan of a simulation",
        )
    return path
