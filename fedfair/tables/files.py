"""Finds the files that hold the records of a plan's source on this machine, and the module that reads them.

Decides the way from the plan's (or the site's) paths to the whole data set, before it is divided or held out from.
Reading is the business of the modules in `sources`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.losses import HuberLoss, Loss, PinballLoss, SquaredLoss
from fedfair.plan.sources import CsvSource, section_of
from fedfair.plan.task import TaskSection
from fedfair.plan.task_outputs import with_outputs
from fedfair.policy.site_config import SiteConfig
from fedfair.tables.dataset import Splits, kept
from fedfair.tables.site_form import check_form
from fedfair.tables.source_modules import DataPaths, FileRecords, source_module


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
    return answered if paths.storage is None else replace(answered, splits=kept(answered.splits, paths.storage))


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


def _read(task: TaskSection, paths: DataPaths, extra: tuple[str, ...]) -> FileRecords:
    """Return what each source reads, before the loss says what it makes of the answers."""
    if paths.form is not None:
        check_form(task, paths.form)
    if paths.sql is not None and not isinstance(task.data, CsvSource):
        raise DataError(
            "data.sql: the records come from a database, and the plan describes no table",
            "name files in collaborator.yaml, or describe the columns in the plan under task.data.csv",
        )
    module, stated = source_module(task.data)
    return module.read(stated, task, paths, extra)


def _under(root: Path, path: str | None) -> Path | None:
    return None if path is None else root / path
