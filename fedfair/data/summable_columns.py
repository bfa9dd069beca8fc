"""Checks that a site's numeric columns fit into the standardisation sum, before anything is added to it."""

from __future__ import annotations

import numpy as np

from fedfair.aggregation.feature_moments import units_of
from fedfair.aggregation.feature_scaling import MAX_SQUARES, MIN_VALUE
from fedfair.data.dataset import Dataset
from fedfair.data.room import column_of
from fedfair.errors import DataError
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema


def check_columns(records: Dataset, participant: ParticipantId) -> None:
    """Refuse records of which a masked sum could not hold the sums: everything that a site ever adds fits then.

    Raises:
        DataError: a numeric column has values that are too large, or all of them too small, for its unit.
    """
    schema = records.schema
    units = units_of(schema.units, len(schema.numeric))
    for column, place in enumerate(schema.numeric):
        size = np.abs(column_of(records.features, place)) / units[column]
        size[np.isnan(size)] = 0.0
        # A float64 overflows to infinity, which is too large as well.
        with np.errstate(over="ignore"):
            too_large = float(np.sum(size * size)) > MAX_SQUARES
        if too_large or 0.0 < size.max(initial=0.0) < MIN_VALUE:
            raise _misfit(records, schema, column, int(np.argmax(size)), participant, large=too_large)


def _misfit(
    records: Dataset, schema: FeatureSchema, column: int, record: int, participant: ParticipantId, *, large: bool
) -> DataError:
    place = schema.numeric[column]
    return DataError(
        f"numeric column {schema.name_of((place,))} of {participant}: the greatest value, "
        f"{records.features[record, place]:g} in record {record + 1} of {len(records)}, is too "
        f"{'large' if large else 'small'} for the standardisation sum",
        "correct the value, or write the column in another unit, or declare its least and greatest value under "
        "ranges in the plan's csv",
    )
