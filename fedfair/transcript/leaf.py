"""One leaf of a run's transcript: which sum was asked about which state, what it opened to, and who is in it.

    label "fedfair/transcript-leaf/1", then, each with its length in front:
    kind (32 bytes, the word of the statistic padded with zeros), round (8 bytes) and contributors (4 bytes),
    digests of the request, of the opened totals and of the names of the members, and of the state before the sum
    and the model in it

Every leaf has the same length, so a file of them has a leaf at every multiple of it. The state is the digest of
`RunState` under no plan (32 zero bytes in the place of the plan's digest): the plan is bound by the first leaf and
by every site's statement. The first leaf, and the first one of a plan that continues an earlier run, is of the
kind "begin": in place of request and totals it has the digests of the canonical plan and of the model's layout.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import SumRequest, vector_sha256
from fedfair.aggregation.round_subject import request_digest
from fedfair.aggregation.running_sum import Totals
from fedfair.plan.digest import canonical_plan
from fedfair.plan.schema import Plan
from fedfair.signed_message import labelled_message
from fedfair.statistics.statistic import When
from fedfair.statistics.table import Purpose
from fedfair.transcript.merkle import MerkleFrontier, leaf_hash

LABEL = "fedfair/transcript-leaf/1"
BEGIN = "begin"
NO_PLAN = bytes(32)
"""Stands in the place of a plan's digest in the digest of a state."""

_KIND_BYTES = 32
_ROUND = next(purpose.value for purpose in Purpose if purpose.statistic.when is When.ROUND)
_PLACE = struct.Struct(">QI")
_DIGEST_BYTES = 32
_DIGESTS = 5
_MEMBERS_LABEL, _TOTALS_LABEL = "fedfair/sum-members/1", "fedfair/opened-sum/1"


@dataclass(frozen=True, slots=True)
class TranscriptLeaf:
    """One leaf.

    Attributes:
        kind: the word of the statistic, at most 32 characters; `BEGIN` where a plan begins.
        round: the training round, from 1; of any other sum, and of a beginning, the rounds done.
        contributors: how many sites are in the sum; 0 for a beginning.
        request: 32 bytes, what was asked; of a beginning, digest of the canonical plan.
        totals: 32 bytes, the opened totals; of a beginning, digest of the model's layout.
        members: 32 bytes, of the members' names; of a beginning, of nobody's.
        state: 32 bytes, the state that the sum was about, or that the plan begins with.
        model: 32 bytes, SHA-256 of the vector of the global model in that state.
    """

    kind: str
    round: int
    contributors: int
    request: bytes
    totals: bytes
    members: bytes
    state: bytes
    model: bytes

    def encode(self) -> bytes:
        """Return the `LEAF_BYTES` bytes of the leaf."""
        place = _PLACE.pack(self.round, self.contributors)
        kind = self.kind.encode("ascii").ljust(_KIND_BYTES, b"\0")
        return labelled_message(
            LABEL, [kind, place, self.request, self.totals, self.members, self.state, self.model]
        )


@dataclass(frozen=True, slots=True)
class AddedLeaves:
    """What one sum has added to the transcript of a run.

    Attributes:
        before: the tree before it.
        leaves: in order; with the first sum of a run also the leaf of its beginning.
    """

    before: MerkleFrontier
    leaves: tuple[TranscriptLeaf, ...]

    @property
    def tree(self) -> MerkleFrontier:
        """Return the tree after them."""
        tree = self.before
        for leaf in self.leaves:
            tree = tree.including(leaf_hash(leaf.encode()))
        return tree


_NOTHING = TranscriptLeaf("", 0, 0, *[bytes(_DIGEST_BYTES)] * _DIGESTS)
LEAF_BYTES = len(_NOTHING.encode())
_LENGTH = struct.calcsize(">I")
_KIND_AT = len(LABEL) + 1 + 2 * _LENGTH
_ROUND_AT = struct.Struct(">Q")


def decode_leaf(raw: bytes) -> TranscriptLeaf:
    """Return the leaf that has these bytes.

    Raises:
        ValueError: no leaf has.
    """
    at, fields = len(LABEL) + 1 + _LENGTH, list[bytes]()
    for length in (_KIND_BYTES, _PLACE.size, *[_DIGEST_BYTES] * _DIGESTS):
        fields.append(raw[at + _LENGTH : at + _LENGTH + length])
        at += _LENGTH + length
    if len(raw) != LEAF_BYTES:
        raise ValueError(f"a leaf of {len(raw)} bytes, not {LEAF_BYTES}")
    kind, place, *digests = fields
    counts: tuple[int, int] = _PLACE.unpack(place)
    leaf = TranscriptLeaf(kind.rstrip(b"\0").decode("ascii"), *counts, *digests)
    if leaf.encode() != raw:
        raise ValueError("not the bytes of a leaf")
    return leaf


def summed_in(raw: bytes) -> tuple[str, int]:
    """Return kind and round of a leaf, of whose bytes nothing else is read.

    Args:
        raw: the bytes of a leaf.
    """
    kind = raw[_KIND_AT : _KIND_AT + _KIND_BYTES].rstrip(b"\0").decode("ascii", "replace")
    (number,) = _ROUND_AT.unpack_from(raw, _KIND_AT + _KIND_BYTES + _LENGTH)
    return kind, number


def leaf_of_sum(
    request: SumRequest, totals: Totals, members: Collection[str], state: bytes, model: bytes
) -> TranscriptLeaf:
    """Return the leaf of an opened sum.

    Args:
        request: what was asked.
        totals: what it opened to.
        members: who is in it.
        state: digest of the state that it is about, 32 bytes.
        model: SHA-256 of the global model of that state, 32 bytes.
    """
    return TranscriptLeaf(
        request.purpose.value,
        int(request.round),
        totals.contributors,
        request_digest(request),
        totals_digest(totals.header, totals.body),
        members_digest(members),
        state,
        model,
    )


def leaf_of_model(number: int, made: bytes, contributors: int, state: bytes, model: bytes) -> TranscriptLeaf:
    """Return the leaf of a training round that no weighted sum carried; only a simulation can have one.

    Args:
        number: of the training round, from 1.
        made: SHA-256 of the model after it, 32 bytes; nothing was asked of sites, so it stands for that too.
        contributors: how many took part.
        state: as for `leaf_of_sum`.
        model: as for `leaf_of_sum`.
    """
    return TranscriptLeaf(_ROUND, number, contributors, made, made, members_digest(()), state, model)


def leaf_of_beginning(plan: Plan, layout: Layout, rounds_done: int, state: bytes, model: bytes) -> TranscriptLeaf:
    """Return the leaf with which a plan begins.

    Args:
        plan: the plan.
        layout: of its model.
        rounds_done: training rounds that are behind it.
        state: digest of the state that it begins with, 32 bytes.
        model: SHA-256 of the model before round 1, 32 bytes.
    """
    digest = hashlib.sha256(canonical_plan(plan)).digest()
    return TranscriptLeaf(BEGIN, rounds_done, 0, digest, layout.digest, members_digest(()), state, model)


def totals_digest(header: NDArray[np.float64], body: NDArray[np.floating]) -> bytes:
    """Return the 32 bytes that stand for opened totals.

    Args:
        header: (header length,).
        body: (body length,), in the plan's width; empty of any sum but a training round's.
    """
    opened = [vector_sha256(header), body.dtype.newbyteorder("<").str.encode(), vector_sha256(body)]
    return _digest(_TOTALS_LABEL, opened)


def members_digest(members: Collection[str]) -> bytes:
    """Return the 32 bytes that stand for the names of members, in whatever order."""
    return _digest(_MEMBERS_LABEL, [name.encode() for name in sorted(members)])


def _digest(label: str, fields: list[bytes]) -> bytes:
    return hashlib.sha256(labelled_message(label, fields)).digest()
