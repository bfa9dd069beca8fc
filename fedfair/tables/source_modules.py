"""The way from a plan's source to its records: the files on this machine, and the module that reads them.

Decides how a source is found: the keys of the plan name its module in `fedfair.tables.sources`. A module is
imported when a plan needs it, because some bring large libraries with them. Decides too the schema that aggregator
and collaborators agree on, from the plan alone, so that a model can be built before any record is read. A site's
data are checked against it when they are read; where neither source nor plan can tell (`numeric: all`, a
function), the plan states `input_shape` and `classes`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError, PlanError
from fedfair.plan.data_section import DataSection
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import HuberLoss, Loss, PinballLoss, SquaredLoss
from fedfair.plan.schema import Plan
from fedfair.plan.sources import BUILT_IN, CsvSource, DataSource, section_of
from fedfair.plan.task import TaskSection
from fedfair.plan.task_outputs import planned_targets, with_outputs
from fedfair.policy.site_config import SiteConfig
from fedfair.policy.site_format import FormatSection
from fedfair.policy.site_sql import SqlSection
from fedfair.tables.dataset import Dataset, Splits, kept
from fedfair.tables.feature_storage import FeatureStorage
from fedfair.tables.profile import ColumnProfile
from fedfair.tables.site_form import check_form
from fedfair.withdrawal.owners import RecordOwners
from fedfair.withdrawal.tombstone_file import owners_of


@dataclass(frozen=True, slots=True)
class DataPaths:
    """The paths of the records on this machine.

    Attributes:
        workspace: where a "module:function" is looked for.
        folder: the folder of a data set that has several files.
        train: the file of the training records; for images, the table of attributes.
        test: the file of the test records.
        storage: where features are held; None for memory, whatever there is of them.
        sql: the database that holds the records, in place of files.
        form: how the records are written where that is not as the plan says; None where it is.
        fewest: with fewer records that the plan's filters take, a table is one without any, whatever its values;
            0 takes every record, and refuses a table without one.
        owners: whose records count no longer: they are as if they were not there. None: all count.
    """

    workspace: Path
    folder: Path
    train: Path | None
    test: Path | None
    storage: FeatureStorage | None = None
    sql: SqlSection | None = None
    form: FormatSection | None = None
    fewest: int = 0
    owners: RecordOwners | None = None


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


class SourceModule(Protocol):
    """A module of `fedfair.tables.sources`.

    `stated` is the source's own section of the plan; of a source without one, its name.
    """

    def planned_schema(self, stated: DataSection | str, task: TaskSection) -> FeatureSchema | None:
        """Return what the plan alone says about the features; None where only the data can tell."""

    def read(
        self,
        stated: DataSection | str,
        task: TaskSection,
        paths: DataPaths,
        extra: tuple[str, ...],
    ) -> FileRecords:
        """Return everything that the paths name, whole.

        Args:
            stated: what the plan states of the source.
            task: the plan's task.
            paths: where the files are.
            extra: columns to keep raw beside those that the plan keeps.

        Raises:
            DataError: a file is missing or not what the plan declares.
        """


def source_module(data: DataSource) -> tuple[SourceModule, DataSection | str]:
    """Return the module that reads a source, and what the plan states of it."""
    section = section_of(data)
    name = section.reader if section is not None else "built_in" if data in BUILT_IN else "module"
    found = importlib.import_module(f"fedfair.tables.sources.{name}")
    return cast("SourceModule", found), data if isinstance(data, str) else data.section


def declared_schema(plan: Plan) -> FeatureSchema | None:
    """Return what the plan alone says about the features; None where only the data can tell.

    No file of a site is touched, so the aggregator's side can ask this before anybody has connected.
    """
    task = plan.task
    module, stated = source_module(task.data)
    schema = module.planned_schema(stated, task)
    if schema is not None:
        check_declared(task, schema)
        return with_outputs(task.loss, schema)
    if task.input_shape is None:
        return None
    by_shape = _stated_schema(task, task.input_shape)
    return None if by_shape is None else with_outputs(task.loss, by_shape)


def check_declared(task: TaskSection, schema: FeatureSchema) -> None:
    """Refuse data, or a source, that differ from what the plan states.

    Raises:
        PlanError: the shape or the number of classes differs.
    """
    if task.input_shape is not None and task.input_shape != schema.input_shape:
        raise PlanError(
            f"task.input_shape: is {list(task.input_shape)}, the data have {list(schema.input_shape)}",
            "correct or remove it",
        )
    if task.classes is not None and task.classes != schema.classes:
        raise PlanError(f"task.classes: is {task.classes}, the data have {schema.classes}", "correct or remove it")


def _stated_schema(task: TaskSection, input_shape: tuple[int, ...]) -> FeatureSchema | None:
    """Return the schema of `numeric: all` or of a function's records; None where the plan does not state it."""
    if not isinstance(task.data, CsvSource):
        columns = input_shape[0] if len(input_shape) == 1 else 0
        targets = planned_targets(task.loss, input_shape)
        if targets is None or (task.loss.answers in {"class", "pixels"} and task.classes is None):
            return None
        return FeatureSchema(input_shape, task.classes or 0, tuple(range(columns)), targets=targets)
    from fedfair.tables.table_reader import csv_schema

    declared = csv_schema(task.data.csv, task.classes, ())
    numeric = input_shape[0] - declared.input_shape[0]
    if len(input_shape) != 1 or numeric < 0:
        raise PlanError(
            f"task.input_shape: {list(input_shape)} cannot hold {declared.input_shape[0]} columns of categories",
            "state [numeric columns + all columns of categories]",
        )
    return FeatureSchema(input_shape, declared.classes, tuple(range(numeric)), targets=declared.targets)


def simulation_paths(task: TaskSection, root: Path) -> DataPaths:
    """Return the plan's own paths, which start from `root`; without any, the files are in `root` itself."""
    stated = section_of(task.data)
    folder, train, test = (getattr(stated, name, None) for name in ("folder", "train", "test"))
    train = train or getattr(stated, "attributes", None)
    return DataPaths(root, root / (folder or ""), _under(root, train), _under(root, test))


def site_paths(site: SiteConfig, root: Path) -> DataPaths:
    """Return the paths of `collaborator.yaml`, which start from `root`."""
    return DataPaths(
        root,
        root / (site.data.root or ""),
        _under(root, site.data.train),
        _under(root, site.data.test),
        sql=site.data.sql,
        form=site.data.format,
        owners=owners_of(site),
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
    check_form(task, paths.form)
    if paths.sql is not None and not isinstance(task.data, CsvSource):
        raise DataError(
            "data.sql: the records come from a database, and the plan describes no table",
            "name files in collaborator.yaml, or describe the columns in the plan under task.data.csv",
        )
    module, stated = source_module(task.data)
    if isinstance(task.data, CsvSource) or paths.owners is None:
        found = module.read(stated, task, paths, extra)
    else:
        owners = _by_column_of_the_data(task.data, paths.owners)
        columns = extra if owners.column is None else tuple(dict.fromkeys((*extra, owners.column)))
        found = module.read(stated, task, paths, columns)
        found = replace(found, splits=found.splits.changed(partial(still_counting, owners=owners)))
    splits = for_loss(task.loss, found.splits)
    return replace(found, splits=splits if paths.storage is None else kept(splits, paths.storage))


def _by_column_of_the_data(data: DataSource, owners: RecordOwners) -> RecordOwners:
    section = section_of(data)
    own = None if section is None else section.person_column
    return owners if owners.column is not None else replace(owners, column=own)


def still_counting(part: Dataset, owners: RecordOwners) -> Dataset:
    """Return the records of a part that still count, with whose they are.

    Args:
        part: records whose raw columns have the one by which owners are told, if there is one.
        owners: whose records count no longer.

    Raises:
        DataError: somebody has withdrawn, and no column says whose a record is.
    """
    column = owners.column
    if column is None or column not in part.columns:
        if owners.withdrawn:
            raise owners.unknown_owner("the records of this plan" if column is None else f"column '{column}'")
        return part
    names = owners.key.names(part.columns[column])
    staying = owners.remaining(names)
    found = replace(part, owners=names)
    return found if staying.all() else found.take(np.flatnonzero(staying))


def for_loss(loss: Loss, splits: Splits) -> Splits:
    """Return records whose schema says what the loss makes of it; unchanged under cross-entropy.

    Raises:
        DataError: an answer is outside of the range that the loss declares.
        PlanError: the answers are others than the loss takes.
    """
    schema = with_outputs(loss, splits.train.schema)
    if isinstance(loss, SquaredLoss | HuberLoss | PinballLoss) and loss.target_range is not None:
        for part in splits.parts.values():
            _check_range(part.labels, loss.target_range)
    return splits.changed(lambda part: part if part.schema == schema else replace(part, schema=schema))


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


def _under(root: Path, path: str | None) -> Path | None:
    return None if path is None else root / path
