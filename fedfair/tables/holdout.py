"""Holds test and validation records out of a site's own.

The split is seeded by the site's own name, so that a deployed site makes the same split as the simulation, and no
site needs to know another's size. Where a person has several records, the side is a function of the person:
the same at every site, so that nobody is trained on at one and tested on at another. Where single records are
protected, it is a function of the record: one more of them must not move any other.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.ids import ParticipantId
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.pixels import feature_values
from fedfair.tables.seeds import derived_seed, generator

SEED_RANGE = 2.0**64


class NothingLeftError(DataError):
    """Holding out leaves nothing to train on."""


def hold_out(
    dataset: Dataset,
    test_fraction: float,
    validation_fraction: float,
    seed: int,
    participant: ParticipantId,
    test_fold: int = 1,
    *,
    by_record: bool = False,
) -> Splits:
    """Split one collaborator's records.

    Args:
        dataset: all its records.
        test_fraction: share of them for testing, in [0, 1).
        validation_fraction: share of them for choosing the best round, in [0, 1).
        seed: the plan's seed.
        participant: whose records these are.
        test_fold: which share of the records is tested on, from 1; the folds of one seed are disjoint, and each
            record is in one of the first 1 / test_fraction.
        by_record: whether a record's side depends on nothing but itself; equal records are then on the same side.

    Returns:
        The splits; None for a part whose fraction is 0. The sizes are within one record of exact, or random
        with those means where whole persons are held out, or every record by itself.

    Raises:
        NothingLeftError: nothing is left to train on.
    """
    if test_fraction == 0 and validation_fraction == 0:
        return Splits(dataset)
    # Turned so far that the fold comes first; the next records, from the start again at the end, validate.
    drawn = _positions(dataset, seed, participant, by_record=by_record)
    position = (drawn - (test_fold - 1) * test_fraction) % 1.0
    test = position < test_fraction
    validation = ~test & (position < test_fraction + validation_fraction)
    train = ~test & ~validation
    if not train.any():
        raise NothingLeftError(
            f"{participant} has {len(dataset)} records, and holding out leaves none to train on",
            "lower test_fraction and validation_fraction",
        )
    return Splits(
        dataset.take(np.flatnonzero(train)),
        dataset.take(np.flatnonzero(validation)) if validation_fraction else None,
        dataset.take(np.flatnonzero(test)) if test_fraction else None,
    )


def _positions(dataset: Dataset, seed: int, participant: ParticipantId, *, by_record: bool) -> NDArray[np.float64]:
    """Return a position in [0, 1) for every record: evenly spread in random order, or drawn for each by itself."""
    if dataset.person_column is not None:
        persons, index = np.unique(dataset.columns[dataset.person_column], return_inverse=True)
        drawn = np.array([derived_seed(seed, "hold out", str(person)) / SEED_RANGE for person in persons])
        return drawn[index]
    if by_record:
        digests = record_digests(dataset)
        return np.array([derived_seed(seed, "hold out", participant, digest) / SEED_RANGE for digest in digests])
    order = torch.randperm(len(dataset), generator=generator(seed, "hold out", participant))
    positions: NDArray[np.float64] = (order.double() + 0.5).numpy() / len(dataset)
    return positions


def record_digests(dataset: Dataset) -> list[str]:
    """Return for each record 64 hexadecimal digits that equal records share, and no others."""
    records = zip(np.ascontiguousarray(dataset.features), dataset.labels, strict=True)
    return [
        hashlib.sha256(feature_values(values).tobytes() + label.tobytes()).hexdigest() for values, label in records
    ]
