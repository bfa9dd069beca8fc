"""An order for records that come without one, and a digest of records in their order.

A database may return the same rows in another order each time. Who is held out, what a batch is and how a sum is
rounded depend on the order, so a restart must find the same one. Decides the order of such records: by a 64-bit
hash of all that a record holds, which neither the database nor a library's version can change. Records of one hash
are equal; that two different ones among n share one has a chance below n^2 / 2^65.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from fedfair.tables.dataset import Dataset
from fedfair.tables.feature_storage import forget, row_blocks

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MISSING = np.uint64(0x7FF8000000000000)

Hashes = NDArray[np.uint64]


def record_hashes(dataset: Dataset) -> Hashes:
    """Return a hash of each record's features, label and kept columns, uint64 array (n,)."""
    hashes = np.empty(len(dataset), np.uint64)
    texts = [_text_hashes(dataset.columns[name]) for name in sorted(dataset.columns)]
    for part in row_blocks(dataset.features):
        features = dataset.features[part].reshape(len(dataset.labels[part]), -1)
        answers = dataset.labels[part].reshape(len(features), -1)
        if dataset.schema.classes:
            found = _mixed(answers[:, 0].astype(np.uint64))
        else:
            found = _mixed(np.zeros(len(features), np.uint64))
            for column in range(answers.shape[1]):
                found = _mixed(found * _STEP + _bits(answers[:, column]))
        for column in range(features.shape[1]):
            found = _mixed(found * _STEP + _bits(features[:, column]))
        for each in texts:
            found = _mixed(found * _STEP + each[part])
        hashes[part] = found
        forget(dataset.features)
    return hashes


def in_canonical_order(dataset: Dataset, hashes: Hashes) -> tuple[Dataset, Hashes]:
    """Return records and hashes in the order of the hashes."""
    order = np.argsort(hashes, kind="stable")
    return dataset.take(order), hashes[order]


def digest_in_order(hashes: Hashes) -> str:
    """Return a digest of records in their order, such as "sha256:..."."""
    return f"sha256:{hashlib.sha256(np.ascontiguousarray(hashes, '<u8').data).hexdigest()}"


def _bits(values: NDArray[np.generic]) -> Hashes:
    """Return the bits of numbers in 64 bits; one pattern for every NaN, and one for both zeros."""
    wide = values.astype(np.float64) + 0.0
    return np.where(np.isnan(wide), _MISSING, wide.view(np.uint64))


def _text_hashes(texts: NDArray[np.generic]) -> Hashes:
    distinct, index = np.unique(texts.astype(np.str_), return_inverse=True)
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8] for text in distinct.tolist()]
    return np.array([int.from_bytes(digest, "little") for digest in digests], np.uint64)[index]


def _mixed(values: Hashes) -> Hashes:
    """Return numbers in which each bit depends on all of the given ones.

    Source: the finaliser of splitmix64; Steele, Lea and Flood 2014, "Fast splittable pseudorandom numbers".
    """
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
