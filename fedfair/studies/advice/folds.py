"""Divides training and validation records into folds, each held out once; test records are never among them.

A person's records are all in one fold. The parts are a function of the plan's seed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from fedfair.errors import DataError
from fedfair.ids import ParticipantId
from fedfair.tables.dataset import Dataset, Splits, pooled_features
from fedfair.tables.holdout import hold_out
from fedfair.tables.seeds import derived_seed, generator

_POOLED = ParticipantId("pooled")
_SAMPLE = ParticipantId("sample")


def pooled_records(sites: Mapping[ParticipantId, Splits]) -> Dataset:
    """Return all training and validation records as one data set, in order, with the person's column."""
    held = [part for site in sites.values() for part in (site.train, site.validation) if part is not None]
    person, schema = held[0].person_column, held[0].schema
    columns = {} if person is None else {person: np.concatenate([part.columns[person] for part in held])}
    labels = np.concatenate([part.labels for part in held])
    return Dataset(pooled_features(held), labels, schema, columns, person)


def sampled(records: Dataset, most: int, seed: int) -> Dataset:
    """Return the records, or a random share of about `most` of them where there are more."""
    if len(records) <= most:
        return records
    drawn = hold_out(records, most / len(records), 0.0, derived_seed(seed, "advice", "sample"), _SAMPLE).test
    return records if drawn is None else drawn


def pooled_folds(records: Dataset, folds: int, seed: int) -> list[tuple[Dataset, Dataset]]:
    """Return, for each fold, the records outside it and those in it.

    Raises:
        DataError: there are too few records for so many folds.
    """
    return [_parted(records, folds, fold, seed, _POOLED) for fold in range(1, folds + 1)]


def site_folds(sites: Mapping[ParticipantId, Splits], folds: int, seed: int) -> list[dict[ParticipantId, Splits]]:
    """Return, for each fold, the records of all sites: to train on, and held out as test records.

    A collaborator with fewer records than folds holds none out.

    Raises:
        DataError: no site has as many records as there are folds.
    """
    own = {name: pooled_records({name: site}) for name, site in sites.items()}
    if not any(len(records) >= folds for records in own.values()):
        raise DataError(
            f"no collaborator has the {folds} training records that {folds} folds need",
            "simulate with more records, or with fewer collaborators",
        )
    return [{name: _site_part(name, records, folds, fold, seed) for name, records in own.items()}
            for fold in range(1, folds + 1)]  # fmt: skip


def drawn_sites(sites: Mapping[ParticipantId, Splits], most: int, seed: int) -> dict[ParticipantId, Splits]:
    """Return the sites that have training records; of more than `most`, so many, drawn at random, in order."""
    held = [name for name, site in sites.items() if len(site.train)]
    order = torch.randperm(len(held), generator=generator(seed, "advice", "sites"))
    drawn = {held[int(place)] for place in order[:most]}
    return {name: sites[name] for name in held if name in drawn}


def trial_folds(
    sites: Mapping[ParticipantId, Splits], most: int, parts: int, seed: int
) -> list[dict[ParticipantId, Splits]]:
    """Return, for each part, the records of all sites as a run of the plan has them, the part as test records.

    A site holds out the share of validation records that it has now. One with fewer records than parts holds out
    none; one without any is left out.

    Args:
        sites: test records are not looked at.
        most: records of all sites together; of more, a random share of each site's.
        parts: how many, at least 2.
        seed: of the parts.

    Raises:
        DataError: no site has as many records as there are parts.
    """
    held = {name: (pooled_records({name: site}), len(site.validation or ())) for name, site in sites.items()}
    count = sum(len(whole) for whole, _ in held.values())
    few = {
        name: (sampled(whole, max(round(most / count * len(whole)), parts), seed), validating / len(whole))
        for name, (whole, validating) in held.items()
        if len(whole)
    }
    if not any(len(records) >= parts for records, _ in few.values()):
        raise DataError(f"no site has the {parts} training records that {parts} parts need", "give more records")
    return [
        {name: _trial_part(name, *own, parts, part, seed) for name, own in few.items()}
        for part in range(1, parts + 1)
    ]


def _trial_part(
    name: ParticipantId, records: Dataset, validating: float, parts: int, part: int, seed: int
) -> Splits:
    if len(records) < parts:
        return Splits(records)
    share = 1.0 / parts
    return hold_out(records, share, validating * (1.0 - share), derived_seed(seed, "advice", "trials"), name, part)


def _site_part(name: ParticipantId, records: Dataset, folds: int, fold: int, seed: int) -> Splits:
    if len(records) < folds:
        return Splits(records)
    train, held_out = _parted(records, folds, fold, seed, name)
    # In the place of test records, because a run may choose its model by validation records.
    return Splits(train, test=held_out if len(held_out) else None)


def _parted(records: Dataset, folds: int, fold: int, seed: int, name: ParticipantId) -> tuple[Dataset, Dataset]:
    # Where persons are held out whole, the plan's own seed would put those it has left to train on into few folds.
    parts = hold_out(records, 1.0 / folds, 0.0, derived_seed(seed, "advice", "folds"), name, fold)
    if parts.test is None or (name == _POOLED and not len(parts.test)):
        raise DataError(f"{len(records)} records are too few for {folds} folds", "give more records")
    return parts.train, parts.test
