"""Fills in missing values.

Decides the filling that a site does alone: its own means, of its own training records, so that nothing about a
missing value is sent. Where the plan standardises, such a value stays open until the scaling has arrived and is
then everybody's mean (`feature_scaling.py`). Which values count as missing is each source's decision; here they
are NaN.
"""

from __future__ import annotations

import enum
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.ids import ParticipantId
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.feature_storage import blocks_of, changed
from fedfair.tables.pixels import are_pixels, feature_values


class Filling(enum.Enum):
    """The treatment of values that are still missing when a site's records have been read."""

    REFUSED = "refused"
    OWN_MEAN = "mean of the column over the site's training records"
    EVERYBODYS_MEAN = "mean of the column over everybody's training records"


def fill_missing(splits: Splits, filling: Filling, participant: ParticipantId) -> Splits:
    """Return the splits with every NaN filled that is filled before the first sum.

    Args:
        splits: one collaborator's records.
        filling: what becomes of missing values.
        participant: whose records these are, for the faults.

    Raises:
        DataError: a value is missing and is refused, or a column has no value to take the mean of.
    """
    if filling is Filling.REFUSED:
        for name, part in splits.parts.items():
            _refuse_missing(part, f"{'training' if name == 'train' else name} records of {participant}")
    if filling is not Filling.OWN_MEAN or all(are_pixels(part.features) for part in splits.parts.values()):
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
            "use standardize: secure, which fills in everybody's mean, or missing: zero, or omit the column "
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


def _refuse_missing(part: Dataset, whose: str) -> None:
    if are_pixels(part.features):
        return
    first, count, before = None, 0, 0
    for block in blocks_of(part.features):
        missing = np.argwhere(np.isnan(block))
        if len(missing) and first is None:
            first = (before + int(missing[0][0]), tuple(int(i) for i in missing[0][1:]))
        count, before = count + len(missing), before + len(block)
    if first is None:
        return
    more = f", and {count - 1} more values are missing" if count > 1 else ""
    raise DataError(
        f"the {whose}: {part.schema.name_of(first[1])} of record {first[0]} is missing{more}",
        "fill in or remove such records, or choose another policy for missing values",
    )


def _filled(part: Dataset, fills: NDArray[np.float64]) -> Dataset:
    if not any(np.isnan(block).any() for block in blocks_of(part.features)):
        return part

    def filled(block: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.where(np.isnan(block), fills, block).astype(block.dtype)

    return replace(part, features=changed(feature_values(part.features), filled))
