"""The source modules: what a module in `fedfair.tables.sources` offers, and which one reads a plan's source.

Decides how a source is found: the keys of the plan name its module. A module is imported when a plan needs it,
because some bring large libraries with them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from fedfair.plan.data_section import DataSection
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.sources import BUILT_IN, DataSource, section_of
from fedfair.plan.task import TaskSection
from fedfair.policy.site_format import FormatSection
from fedfair.policy.site_sql import SqlSection
from fedfair.tables.dataset import Splits
from fedfair.tables.feature_storage import FeatureStorage
from fedfair.tables.profile import ColumnProfile


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
    """

    workspace: Path
    folder: Path
    train: Path | None
    test: Path | None
    storage: FeatureStorage | None = None
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
