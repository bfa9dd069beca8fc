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

from fedfair.data.dataset import Dataset, Splits
from fedfair.errors import DataError
from fedfair.ids import ParticipantId


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
    train = splits.train
    if filling is Filling.REFUSED:
        for name, part in (("training", train), ("validation", splits.validation), ("test", splits.test)):
            _refuse_missing(part, f"{name} records of {participant}")
    if filling is not Filling.OWN_MEAN:
        return splits
    fills = _column_means(train, participant)
    return Splits(
        _filled(train, fills),
        None if splits.validation is None else _filled(splits.validation, fills),
        None if splits.test is None else _filled(splits.test, fills),
    )


def _column_means(train: Dataset, participant: ParticipantId) -> NDArray[np.float64]:
    known = ~np.isnan(train.features)
    counts = known.sum(axis=0)
    if not counts.all():
        place = tuple(int(i) for i in np.argwhere(counts == 0)[0])
        raise DataError(
            f"column {train.schema.name_of(place)} has no value in any of the {len(train)} training records "
            f"of {participant}",
            "use standardize: secure, which fills in everybody's mean, or missing: zero, or omit the column "
            "from the plan",
        )
    means: NDArray[np.float64] = np.where(known, train.features, 0.0).sum(axis=0) / counts
    return means


def _refuse_missing(part: Dataset | None, whose: str) -> None:
    if part is None or not np.isnan(part.features).any():
        return
    missing = np.argwhere(np.isnan(part.features))
    record, *place = (int(i) for i in missing[0])
    more = f", and {len(missing) - 1} more values are missing" if len(missing) > 1 else ""
    raise DataError(
        f"the {whose}: {part.schema.name_of(tuple(place))} of record {record} is missing{more}",
        "fill in or remove such records, or choose another policy for missing values",
    )


def _filled(part: Dataset, fills: NDArray[np.float64]) -> Dataset:
    missing = np.isnan(part.features)
    if not missing.any():
        return part
    return replace(part, features=np.where(missing, fills, part.features).astype(part.features.dtype))
