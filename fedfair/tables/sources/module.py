"""Records from a function of the site's or the workspace's own: "module:function".

The function is called with one folder (where the data are) and returns features and labels, a `Dataset`, or
`Splits`. Features of bytes with more than one axis a record are images, and a byte x stands for x / 255. What it
returns is checked like any file. Whether its code may run at all is the business of the site's policy and
approval, and finding it that of `fedfair.plan.module_code`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedfair.errors import DataError, FedfairError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import CROSS_ENTROPY, Loss, takes_classes
from fedfair.plan.module_code import load_callable
from fedfair.plan.task import TaskSection
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.pixels import is_image
from fedfair.tables.source_modules import DataPaths, FileRecords

BINARY = 2


def planned_schema(stated: str, task: TaskSection) -> None:
    """Return None: only what the function returns can tell."""


def read(stated: str, task: TaskSection, paths: DataPaths, extra: tuple[str, ...]) -> FileRecords:
    """Return what a function returns."""
    return FileRecords(load_module(stated, paths.workspace, paths.folder, task.classes, task.loss))


def load_module(
    reference: str, workspace: Path, folder: Path, classes: int | None, loss: Loss = CROSS_ENTROPY
) -> Splits:
    """Return the records of a function.

    Args:
        reference: "module:function".
        workspace: where the module is.
        folder: what the function is called with.
        classes: number of classes that the plan states; without it, one more than the largest label.
        loss: the plan's, which says whether labels are classes.

    Raises:
        DataError: what it returns is no data set, or it raises.
        PlanError: there is no such function.
    """
    load = load_callable(reference, workspace)
    try:
        returned = load(folder)
    except FedfairError:
        raise
    except Exception as error:  # foreign code may raise anything; it becomes one clear fault
        raise DataError(
            f"{reference} fails: {type(error).__name__}: {error}", f"it was called with the folder {folder}"
        ) from error
    match returned:
        case Splits():
            return returned
        case Dataset():
            return Splits(returned)
        case (features, labels):
            return Splits(_from_arrays(reference, np.asarray(features), np.asarray(labels), classes, loss))
    raise DataError(
        f"{reference} returned {type(returned).__name__}", "return (features, labels), a Dataset, or Splits"
    )


def _from_arrays(
    reference: str, features: np.ndarray, labels: np.ndarray, classes: int | None, loss: Loss
) -> Dataset:
    has_classes, kinds = takes_classes(loss, classes), features.dtype.kind + labels.dtype.kind
    if has_classes and (features.dtype.kind not in "fiu" or labels.dtype.kind not in "iu"):
        raise DataError(
            f"{reference} returned features of {features.dtype} and labels of {labels.dtype}",
            "return numbers as features, and integers from 0 as labels",
        )
    if has_classes and features.ndim < 2:
        raise DataError(f"{reference} returned features of shape {features.shape}", "return (records, columns)")
    if not set(kinds) <= set("fiub") or features.ndim < 2 or not labels.ndim:
        raise DataError(
            f"{reference} returned features of {features.dtype} {features.shape} and answers of {labels.dtype} "
            f"{labels.shape}",
            "return numbers: features (records, columns), and an answer for each record as task.loss takes it",
        )
    count = (classes or max(BINARY, int(labels.max(initial=0)) + 1)) if has_classes else 0
    shape = tuple(features.shape[1:])
    numeric = tuple(range(shape[0])) if len(shape) == 1 else ()
    schema = FeatureSchema(shape, count, numeric, targets=tuple(labels.shape[1:]))
    if features.dtype != np.float32 and not is_image(features):
        features = features.astype(np.float64, copy=False)
    return Dataset(features, labels.astype(np.int64 if has_classes else np.float64), schema)
