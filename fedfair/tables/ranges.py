"""Numeric columns scaled by what everybody knows of them beforehand: their declared ranges.

Decides what a value becomes under `standardize: ranges`: the least value of its column's range becomes -1, the
greatest 1, one beyond them the nearer of both, and one that is missing the middle, 0. Each record is scaled by
itself, so that nothing is summed, nothing is released, and no record changes another: what differential privacy of
single records needs. Who declares ranges is the plan (csv) or the source.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import PlanError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.feature_storage import changed
from fedfair.tables.pixels import feature_values


def scaled_by_ranges(splits: Splits) -> Splits:
    """Return the splits with every numeric column in [-1, 1] and no number missing.

    Raises:
        PlanError: the source declares no ranges.
    """
    if not splits.train.schema.numeric:
        return splits
    if len(splits.train.schema.ranges) != len(splits.train.schema.numeric):
        raise PlanError(
            "task.standardize: is ranges, and these data declare none",
            "list the numeric columns of a csv with their ranges, or use standardize: secure or none",
        )
    return splits.changed(_scaled)


def _scaled(part: Dataset) -> Dataset:
    return replace(
        part, features=changed(feature_values(part.features), lambda block: scaled_features(block, part.schema))
    )


def scaled_features(features: NDArray[np.floating], schema: FeatureSchema) -> NDArray[np.floating]:
    """Return a copy of features (n, columns) with every numeric column in [-1, 1] and no number missing.

    Args:
        features: NaN where a number is missing.
        schema: of the features, with a range for each numeric column.
    """
    columns = list(schema.numeric)
    least, greatest = np.array(schema.ranges, np.float64).reshape(-1, 2).T
    # Halved first: the ends of a range may be as far apart as no float64 is.
    middle, half = least / 2 + greatest / 2, greatest / 2 - least / 2
    scaled = np.clip((features[:, columns] - middle) / half, -1.0, 1.0)
    found = features.copy()
    found[:, columns] = np.where(np.isnan(scaled), 0.0, scaled)
    return found
