"""Numeric columns scaled by what everybody knows of them beforehand: their declared ranges.

Decides what a value becomes under `standardize: ranges`: the least value of its column's range becomes -1, the
greatest 1, one beyond them the nearer of both, and one that is missing the middle, 0. Each record is scaled by
itself, so that nothing is summed, nothing is released, and no record changes another: what differential privacy of
single records needs. Who declares ranges is the plan (csv) or the source.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedfair.data.dataset import Dataset, Splits
from fedfair.errors import PlanError


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
    return Splits(
        _scaled(splits.train),
        None if splits.validation is None else _scaled(splits.validation),
        None if splits.test is None else _scaled(splits.test),
    )


def _scaled(part: Dataset) -> Dataset:
    columns = list(part.schema.numeric)
    least, greatest = np.array(part.schema.ranges, np.float64).reshape(-1, 2).T
    # Halved first: the ends of a range may be as far apart as no float64 is.
    middle, half = least / 2 + greatest / 2, greatest / 2 - least / 2
    scaled = np.clip((part.features[:, columns] - middle) / half, -1.0, 1.0)
    features = part.features.copy()
    features[:, columns] = np.where(np.isnan(scaled), 0.0, scaled)
    return replace(part, features=features)
