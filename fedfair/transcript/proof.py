"""A proof, in one file of a few kilobytes, that a model is the one a run came to, and that a sum is in the run.

    {"format": "fedfair/run-proof/1", "leaves": ..., "root": "sha256:...", "model": "sha256:...",
     "statements": {NAME: "<fedfair/site-statement/1>"}, "approvals": {NAME: "<fedfair/approval/1>"},
     "earlier": [{"leaves", "root", "path"}], "sums": [{"leaf", "bytes", "members", "path"}]}

Every site signs the root of the run's transcript, with the model that the run gives out; a path of hashes leads
from a leaf to the root, another from an earlier root to it. So a verifier needs this file and the sites' public
keys, which it has from the plan's roster and never from the proof, and no network. Where a site was gone at the
end, its last checkpoint is in the file, and the path that shows that the run continued from it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedfair.errors import AuditError, FedfairError
from fedfair.file_formats import REMEDY, other_version
from fedfair.ids import ParticipantId, parse_participant_id
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.transcript.evidence import RunEvidence
from fedfair.transcript.leaf import BEGIN, TranscriptLeaf, members_digest
from fedfair.transcript.leaf_file import Leaves
from fedfair.transcript.merkle import LeafHashes
from fedfair.transcript.statement import parse_statement

FORMAT = "fedfair/run-proof/1"
MAX_PROOF_BYTES = 1 << 24
"""Of a thousand sites it is a megabyte and a half, nearly all of it statements and approvals."""

MAX_TRIED = 20_000
"""Sets of names that are tried to find out who is in a sum."""


@dataclass(frozen=True, slots=True)
class EarlierRoot:
    """The root of an earlier tree, and the proof that the run continued from it.

    Attributes:
        leaves: of the earlier tree.
        root: of it, 32 bytes.
        path: the consistency proof.
    """

    leaves: int
    root: bytes
    path: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProvenSum:
    """A leaf, and the proof that it is in the tree.

    Attributes:
        place: of the leaf, from 0.
        raw: its bytes.
        members: the names of the sites in the sum; None where the maker of the proof did not find them.
        path: the inclusion proof.
    """

    place: int
    raw: bytes = field(repr=False)
    members: tuple[str, ...] | None
    path: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunProof:
    """A proof; nothing of it is verified but its form.

    Attributes:
        leaves: of the tree at the end.
        root: of it, 32 bytes.
        model: SHA-256 of the vector of the model that the run gives out, 32 bytes.
        statements: the newest statement of each site, by name.
        approvals: the signed approval of each site.
        earlier: roots of checkpoints.
        sums: the sums that are proven, and the beginning of the plan.
    """

    leaves: int
    root: bytes
    model: bytes
    statements: Mapping[ParticipantId, str] = field(repr=False)
    approvals: Mapping[ParticipantId, str] = field(repr=False)
    earlier: tuple[EarlierRoot, ...]
    sums: tuple[ProvenSum, ...]


# ------------------------------------------------------------------ made


def make_proof(
    evidence: RunEvidence, leaves: Leaves, places: Iterable[int] = (), since: Iterable[int] = ()
) -> RunProof:
    """Return the proof of a finished run.

    Args:
        evidence: of the run.
        leaves: of its transcript.
        places: which leaves are proven, beside the beginning of the plan.
        since: sizes of earlier trees from which the run is shown to have continued.

    Raises:
        AuditError: the two files do not belong together, or what is to be proven is not in them.
    """
    present, tree = evidence.present, leaves.hashes
    if present is None or tree.size < present.leaves or tree.root(present.leaves) != present.root:
        raise AuditError(
            "the leaves do not have the root of the transcript",
            "take transcript.json and leaves.bin of one run, from the folder save/ of its lead",
        )
    stated = {who: parse_statement(raw.encode()) for who, raw in evidence.statements.items()}
    gone = {said.leaves for said in stated.values() if said.leaves < present.leaves}
    begun = [place for place in leaves.places(BEGIN) if place < present.leaves]
    names = sorted(evidence.approvals)
    try:
        sums = [_proven(leaves, tree, place, present.leaves, names) for place in sorted({*begun, *places})]
        earlier = [_earlier(tree, size, present.leaves) for size in sorted({*gone, *since})]
    except ValueError as error:
        raise AuditError(
            f"this cannot be proven from these leaves: {error}",
            f"they are {leaves.begun.size} to {tree.size - 1}; earlier ones are with the run before an extension",
        ) from error
    place = (present.leaves, present.root, present.model)
    return RunProof(*place, evidence.statements, evidence.approvals, tuple(earlier), tuple(sums))


def _proven(leaves: Leaves, tree: LeafHashes, place: int, size: int, names: Sequence[str]) -> ProvenSum:
    leaf = leaves.leaf(place)
    return ProvenSum(place, leaf.encode(), members_of(leaf, names), tuple(tree.inclusion(place, size)))


def _earlier(tree: LeafHashes, leaves: int, size: int) -> EarlierRoot:
    return EarlierRoot(leaves, tree.root(leaves), tuple(tree.consistency(leaves, size)))


def members_of(leaf: TranscriptLeaf, names: Sequence[str]) -> tuple[str, ...] | None:
    """Return who is in a sum, as its leaf has it; None where too many sets would have to be tried.

    Args:
        leaf: of the sum.
        names: all sites.
    """
    if leaf.contributors > len(names) or math.comb(len(names), leaf.contributors) > MAX_TRIED:
        return None
    tried = itertools.combinations(names, leaf.contributors)
    return next((found for found in tried if members_digest(found) == leaf.members), None)


def leaves_of(leaves: Leaves, kind: str, number: int) -> list[int]:
    """Return the places of the leaves of a sum, of which some statistics make several.

    Args:
        leaves: of the run.
        kind: the word of the statistic.
        number: the training round, from 1; of other sums the rounds done.

    Raises:
        AuditError: there is none.
    """
    found = leaves.places(kind, number)
    if not found:
        raise AuditError(
            f"the transcript has no {kind} sum of round {number}",
            "the kinds are those of `fedfair audit show`; an evaluation has the number of rounds done",
        )
    return found


# ------------------------------------------------------------------ the file


def write_proof(proof: RunProof) -> str:
    """Return the text of a proof."""
    told = {
        "format": FORMAT,
        "leaves": proof.leaves,
        "root": format_digest(proof.root),
        "model": format_digest(proof.model),
        "statements": dict(proof.statements),
        "approvals": dict(proof.approvals),
        "earlier": [
            {"leaves": one.leaves, "root": format_digest(one.root), "path": _texts(one.path)}
            for one in proof.earlier
        ],
        "sums": [
            {
                "leaf": one.place,
                "bytes": one.raw.hex(),
                "members": None if one.members is None else list(one.members),
                "path": _texts(one.path),
            }
            for one in proof.sums
        ],
    }
    return json.dumps(told, indent=1, sort_keys=True) + "\n"


def _texts(path: Sequence[bytes]) -> list[str]:
    return [node.hex() for node in path]


def read_proof(raw: bytes, place: str) -> RunProof:
    """Return a proof; nothing of it is verified but its form.

    Args:
        raw: the file's bytes; anything that somebody has sent.
        place: its name, for messages.

    Raises:
        AuditError: it is no proof.
    """
    if fault := other_version(raw, FORMAT, place):
        raise AuditError(fault, REMEDY)
    try:
        told = json.loads(raw)
        keys = {"format", "leaves", "root", "model", "statements", "approvals", "earlier", "sums"}
        _exactly(told, keys, len(raw))
        return RunProof(
            _count(told["leaves"]),
            parse_digest(str(told["root"])),
            parse_digest(str(told["model"])),
            _by_name(told["statements"]),
            _by_name(told["approvals"]),
            tuple(_read_earlier(one) for one in told["earlier"]),
            tuple(_read_sum(one) for one in told["sums"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, FedfairError) as error:
        raise AuditError(
            f"{place} is no proof of a run: {str(error)[:200]}", "ask whoever made it for the file again"
        ) from error


def _exactly(told: dict[str, Any], keys: set[str], length: int) -> None:
    if told.keys() != keys or told["format"] != FORMAT or length > MAX_PROOF_BYTES:
        raise ValueError(f"{length} bytes with the fields {', '.join(sorted(map(str, told)))}")


def _count(told: object) -> int:
    if type(told) is not int or not 0 <= told < 1 << 53:
        raise ValueError(f"{told!r:.40} is no number of leaves")
    return told


def _path(told: list[str]) -> tuple[bytes, ...]:
    return tuple(bytes.fromhex(node) for node in told)


def _by_name(told: dict[str, str]) -> dict[ParticipantId, str]:
    return {parse_participant_id(name): str(text) for name, text in told.items()}


def _read_earlier(told: dict[str, Any]) -> EarlierRoot:
    return EarlierRoot(_count(told["leaves"]), parse_digest(str(told["root"])), _path(told["path"]))


def _read_sum(told: dict[str, Any]) -> ProvenSum:
    members = None if told["members"] is None else tuple(str(parse_participant_id(one)) for one in told["members"])
    return ProvenSum(_count(told["leaf"]), bytes.fromhex(told["bytes"]), members, _path(told["path"]))
