"""Checks that a site's numeric columns fit into the standardisation sum, before anything is added to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.feature_scaling import MAX_SQUARES, MIN_VALUE
from fedfair.aggregation.target_scaling import summed_units
from fedfair.errors import DataError
from fedfair.ids import ParticipantId
from fedfair.plan.losses import CROSS_ENTROPY, Loss, predicts_number
from fedfair.tables.dataset import Dataset
from fedfair.tables.feature_storage import column_of


def check_columns(records: Dataset, participant: ParticipantId, loss: Loss = CROSS_ENTROPY) -> None:
    """Refuse records of which a masked sum could not hold the sums: everything that a site ever adds fits then.

    Args:
        records: the site's.
        participant: whose they are.
        loss: the plan's, which says whether the target is summed too.

    Raises:
        DataError: a column has values that are too large, or all of them too small, for its unit.
    """
    schema, units = records.schema, summed_units(loss, records.schema)
    for place, unit in zip(schema.numeric, units, strict=False):
        name = f"numeric column {schema.name_of((place,))} of {participant}"
        _check_column(column_of(records.features, place), unit, name, _RANGES)
    if predicts_number(loss):
        _check_column(records.labels, units[-1], f"the target of {participant}", _TARGET_RANGE)


_RANGES = "declare its least and greatest value under ranges in the plan's csv"
_TARGET_RANGE = "declare its least and greatest value as task.loss.target_range"


def _check_column(values: NDArray[np.floating], unit: float, name: str, declared: str) -> None:
    size = np.abs(values) / unit
    size[np.isnan(size)] = 0.0
    # A float64 overflows to infinity, which is too large as well.
    with np.errstate(over="ignore"):
        too_large = float(np.sum(size * size)) > MAX_SQUARES
    if not too_large and not 0.0 < size.max(initial=0.0) < MIN_VALUE:
        return
    record = int(np.argmax(size))
    raise DataError(
        f"{name}: the greatest value, {values[record]:g} in record {record + 1} of {len(values)}, is too "
        f"{'large' if too_large else 'small'} for the standardisation sum",
        f"correct the value, or write the column in another unit, or {declared}",
    )
