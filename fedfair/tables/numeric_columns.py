"""Numeric columns before they are trained on: what fills a gap, what a declared range makes of a value, what fits.

Decides the filling that a site does alone: its own means, of its own training records, so that nothing about a
missing value is sent. Where the plan standardises, such a value stays open until the scaling has arrived and is
then the overall mean (`feature_scaling.py`). Which values count as missing is each source's decision; here they
are NaN.

Decides what a value becomes under `standardize: ranges`: the least value of its column's range becomes -1, the
greatest 1, one beyond them the nearer of both, and one that is missing the middle, 0. Each record is scaled by
itself, so that nothing is summed, nothing is released, and no record changes another: what differential privacy of
single records needs. Who declares ranges is the plan (csv) or the source.

Decides too whether columns fit into the standardisation sum, before anything is added to it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.feature_scaling import MAX_SQUARES, MIN_VALUE
from fedfair.aggregation.target_scaling import summed_units
from fedfair.errors import DataError, PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import CROSS_ENTROPY, Loss, predicts_number
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.feature_storage import blocks_of, changed, column_of, first_of
from fedfair.tables.pixels import are_pixels, feature_values

_RANGES = "declare its least and greatest value under ranges in the plan's csv"
_TARGET_RANGE = "declare its least and greatest value as task.loss.target_range"


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


def refuse_missing(splits: Splits, participant: ParticipantId) -> None:
    """Refuse a NaN in any of a collaborator's records, where the plan does not fill it in.

    Raises:
        DataError: there is one.
    """
    for name, part in splits.parts.items():
        found = None if are_pixels(part.features) else first_of(part.features, np.isnan)
        if found is not None:
            record, place, count = found
            more = f", and {count - 1} more values are missing" if count > 1 else ""
            raise DataError(
                f"the {'training' if name == 'train' else name} records of {participant}: "
                f"{part.schema.name_of(place)} of record {record} is missing{more}",
                "fill in or remove such records, or choose another policy for missing values",
            )


def filled_with_means(splits: Splits, participant: ParticipantId) -> Splits:
    """Return a collaborator's splits with every NaN filled with its column's mean over the training records.

    Raises:
        DataError: a column has no value to take the mean of.
    """
    if all(are_pixels(part.features) for part in splits.parts.values()):
        return splits
    fills = _column_means(splits.train, participant)
    return splits.changed(lambda part: _filled(part, fills))


def _column_means(train: Dataset, participant: ParticipantId) -> NDArray[np.float64]:
    counts, sums = _counts_and_sums(feature_values(train.features))
    if not counts.all():
        place = tuple(int(i) for i in np.argwhere(counts == 0)[0])
        raise DataError(
            f"column {train.schema.name_of(place)} has no value in any of the {len(train)} training records "
            f"of {participant}",
            "use standardize: secure, which fills in the overall mean, or missing: zero, or omit the column "
            "from the plan",
        )
    means: NDArray[np.float64] = sums / counts
    return means


def _counts_and_sums(features: NDArray[np.floating]) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """Return how many values of each column there are, and their sum, added row by row as in memory."""
    counts, sums = np.zeros(features.shape[1:], np.int64), None
    for block in blocks_of(features):
        known = ~np.isnan(block)
        counts += known.sum(axis=0)
        present = np.where(known, block, 0.0)
        sums = (present if sums is None else np.concatenate([sums[np.newaxis], present])).sum(axis=0)
    return counts, np.zeros(features.shape[1:]) if sums is None else sums


def _filled(part: Dataset, fills: NDArray[np.float64]) -> Dataset:
    if not any(np.isnan(block).any() for block in blocks_of(part.features)):
        return part

    def filled(block: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.where(np.isnan(block), fills, block).astype(block.dtype)

    return replace(part, features=changed(feature_values(part.features), filled))


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
