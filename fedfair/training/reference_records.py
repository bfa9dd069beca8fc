"""Which records a site's references were trained on, so that none judges a record of a fold that it has seen.

A fold is a function of the seed, the site's name and the place of a record, so it is the same in a later run where
the site's training records are the same, in the same order. A site alone can tell that, by its own note.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedfair.errors import PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.digest import format_digest
from fedfair.run.reference_file import TRAIN_ANEW, KeptReferences
from fedfair.tables.dataset import Splits


def records_digest(splits: Splits) -> str:
    """Return a digest of a site's training records in their order, before anything scales them."""
    train = splits.train
    found = hashlib.sha256(struct.pack("<Q", len(train)))
    for values in (train.features, train.labels):
        found.update(np.ascontiguousarray(values).data.cast("B") if len(train) else b"")
    return format_digest(found.digest())


def of_records(kept: KeptReferences, sites: Mapping[ParticipantId, Splits]) -> KeptReferences:
    """Return references with a note of the training records of sites."""
    return with_digests(kept, {name: records_digest(splits) for name, splits in sites.items()})


def with_digests(kept: KeptReferences, sites: Mapping[ParticipantId, str]) -> KeptReferences:
    """Return references with a note of the digests of sites' training records."""
    return replace(kept, trained_on={str(name): digest for name, digest in sites.items()})


def check_records(kept: KeptReferences, sites: Mapping[ParticipantId, Splits]) -> None:
    """Refuse to be judged by references that may have seen a record in another fold.

    A site of which they have no note is new to them.

    Raises:
        PlanError: a site's training records are others than when the references were trained.
    """
    for name in kept.trained_on:
        splits = sites.get(ParticipantId(name))
        if splits is not None:
            check_digest(kept, ParticipantId(name), records_digest(splits))


def check_digest(kept: KeptReferences, name: ParticipantId, digest: str) -> None:
    """Refuse the same for one site, by the digest of its training records. Raises PlanError."""
    if kept.trained_on.get(name, digest) != digest:
        raise PlanError(
            f"the training records of {name} are others, or in another order, than those that trained the "
            f"references {kept.digest} (objective.reference.run): one could judge a record that it has seen",
            f"give {name} the records of that run; {TRAIN_ANEW}",
        )
