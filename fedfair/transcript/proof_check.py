"""Checks a proof of a run with keys that the verifier has, and says by name which check fails.

    signature   a statement is signed with the key that the roster pins for its site
    run         all statements are of one run, of one plan, each in its site's own name
    approval    each site that signs has approved this plan, and names that approval
    root        all sites that sign the end sign this root and this model
    signatures  enough sites have signed the end
    earlier     the run continued from each earlier root, and the last word of a site that was gone is one of them
    plan        the beginning of the run is in the tree, and is that of the plan at hand
    sum         a leaf is in the tree at its place, and its members are who it says
    model       the model at hand is the one that the run gives out

What holds after them: the holders of these keys say that their own copies of the run, moved by opened sums alone,
came to this model. A proof says nothing of sites whose signature is missing, and nothing about their records.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedfair.errors import ApprovalError, AuditError
from fedfair.ids import ParticipantId
from fedfair.plan.approval import verify_approval
from fedfair.plan.digest import canonical_plan, format_digest
from fedfair.plan.schema import Plan
from fedfair.transcript.leaf import BEGIN, TranscriptLeaf, decode_leaf, members_digest
from fedfair.transcript.merkle import is_consistent, is_included, leaf_hash
from fedfair.transcript.proof import ProvenSum, RunProof
from fedfair.transcript.statement import (
    ReleaseVerdict,
    SiteStatement,
    StatementKind,
    approval_digest,
    verify_statement,
)

Keys = Mapping[ParticipantId, Ed25519PublicKey]


class ProofCheck(enum.Enum):
    """The checks of a proof; the value is the name in messages."""

    SIGNATURE = "signature"
    RUN = "run"
    APPROVAL = "approval"
    ROOT = "root"
    SIGNATURES = "signatures"
    EARLIER = "earlier"
    PLAN = "plan"
    SUM = "sum"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class ProvenRun:
    """What a proof proves.

    Attributes:
        run: the run, 32 hexadecimal digits.
        plan_digest: 32 bytes, which every site has approved.
        rounds: training rounds done at the end.
        leaves: of the transcript.
        signed: who has signed the end, with their word on the release.
        gone: whose last signature is of a checkpoint, and of how many leaves.
        unsigned: who has signed nothing.
        sums: the sums that are in the run.
        members: of each of them, where the proof names them.
    """

    run: str
    plan_digest: bytes
    rounds: int
    leaves: int
    signed: Mapping[ParticipantId, ReleaseVerdict]
    gone: Mapping[ParticipantId, int]
    unsigned: tuple[ParticipantId, ...]
    sums: Mapping[int, TranscriptLeaf]
    members: Mapping[int, tuple[str, ...] | None]


def check_proof(
    proof: RunProof,
    keys: Keys,
    *,
    plan: Plan | None = None,
    model: bytes | None = None,
    needed: int | None = None,
) -> ProvenRun:
    """Return what a proof proves.

    Args:
        proof: as it was read.
        keys: of every site that may sign, which the verifier has by itself.
        plan: the plan at hand; None where there is none.
        model: SHA-256 of the vector of the model at hand, 32 bytes; None where there is none.
        needed: how many sites must have signed the end; None for all whose keys there are.

    Raises:
        AuditError: a check fails; the message begins with its name.
    """
    stated = {who: _statement(who, raw, keys) for who, raw in proof.statements.items()}
    if not stated:
        _fail(ProofCheck.SIGNATURES, "no site has signed anything of this run")
    _check_one_run(proof, stated, keys)
    final = {who: said for who, said in stated.items() if said.kind is StatementKind.FINAL}
    _check_root(proof, final)
    signed = ", ".join(sorted(final)) or "nobody"
    missing = sorted(set(keys) - set(final))
    if len(final) < (len(keys) if needed is None else max(needed, 1)):
        _fail(ProofCheck.SIGNATURES, f"the end is signed by {signed}, and not by {', '.join(missing)}")
    gone = {who: said.leaves for who, said in stated.items() if who not in final}
    _check_earlier(proof, stated, gone)
    sums = {one.place: _leaf(one, proof) for one in proof.sums}
    if len(sums) < len(proof.sums):
        _fail(ProofCheck.SUM, "one leaf is in the proof twice")
    if plan is not None:
        _check_plan(plan, sums)
    if model is not None and model != proof.model:
        words = f"this model is {format_digest(model)}, the run gives out {format_digest(proof.model)}"
        _fail(ProofCheck.MODEL, words)
    last = next(iter(final.values()))
    unsigned = tuple(ParticipantId(who) for who in sorted(set(keys) - set(stated)))
    verdicts = {who: said.verdict for who, said in sorted(final.items())}
    place = (last.run, last.plan_digest, last.rounds, proof.leaves)
    return ProvenRun(*place, verdicts, gone, unsigned, sums, {one.place: one.members for one in proof.sums})


def _statement(who: ParticipantId, raw: str, keys: Keys) -> SiteStatement:
    key = keys.get(who)
    if key is None:
        _fail(ProofCheck.SIGNATURE, f"{who} is not among the sites whose keys are known here")
    try:
        return verify_statement(raw.encode(), key)
    except AuditError as fault:
        _fail(ProofCheck.SIGNATURE, f"{who}: {fault.message}")


def _check_one_run(proof: RunProof, stated: Mapping[ParticipantId, SiteStatement], keys: Keys) -> None:
    first = next(iter(stated.values()))
    for who, said in stated.items():
        if said.participant != who or said.same_run != first.same_run:
            _fail(ProofCheck.RUN, f"the statement of {who} is of run {said.run}, or in another name")
        raw = proof.approvals.get(who, "").encode()
        if approval_digest(raw) != said.approval:
            _fail(ProofCheck.APPROVAL, f"the approval of {who} is not the one that its statement names")
        facts = {"federation": said.federation, "participant": who, "public_key": keys[who]}
        try:
            verify_approval(raw, plan_digest=said.plan_digest, **facts)  # type: ignore[arg-type]
        except ApprovalError as fault:
            _fail(ProofCheck.APPROVAL, fault.message)


def _check_root(proof: RunProof, final: Mapping[ParticipantId, SiteStatement]) -> None:
    for who, said in final.items():
        if (said.leaves, said.root) != (proof.leaves, proof.root):
            _fail(
                ProofCheck.ROOT,
                f"{who} has signed the root {format_digest(said.root)} of {said.leaves} leaves, the proof has "
                f"{format_digest(proof.root)} of {proof.leaves}",
            )
        if said.model != proof.model:
            _fail(ProofCheck.ROOT, f"{who} has signed another model, {format_digest(said.model)}")
    if len({said.same_state for said in final.values()}) > 1:
        _fail(ProofCheck.ROOT, "the sites have signed different states of the same leaves")


def _check_earlier(
    proof: RunProof, stated: Mapping[ParticipantId, SiteStatement], gone: Mapping[ParticipantId, int]
) -> None:
    for one in proof.earlier:
        if not is_consistent(one.leaves, proof.leaves, one.path, one.root, proof.root):
            _fail(ProofCheck.EARLIER, f"the run does not continue from the given root of {one.leaves} leaves")
    roots = {(one.leaves, one.root) for one in proof.earlier}
    for who, leaves in gone.items():
        if (leaves, stated[who].root) not in roots:
            _fail(ProofCheck.EARLIER, f"the run is not shown to continue from what {who} has signed at {leaves}")


def _leaf(one: ProvenSum, proof: RunProof) -> TranscriptLeaf:
    if not is_included(leaf_hash(one.raw), one.place, proof.leaves, one.path, proof.root):
        _fail(ProofCheck.SUM, f"leaf {one.place} is not in the tree of {proof.leaves} leaves with this root")
    try:
        leaf = decode_leaf(one.raw)
    except ValueError as error:
        _fail(ProofCheck.SUM, f"leaf {one.place} is none: {error}")
    if one.members is not None and members_digest(one.members) != leaf.members:
        _fail(ProofCheck.SUM, f"other sites are in leaf {one.place} than {', '.join(one.members) or 'nobody'}")
    return leaf


def _check_plan(plan: Plan, sums: Mapping[int, TranscriptLeaf]) -> None:
    begun = [leaf for _, leaf in sorted(sums.items()) if leaf.kind == BEGIN]
    if not begun:
        _fail(ProofCheck.PLAN, "the proof does not have the beginning of the run, which names its plan")
    if begun[-1].request != hashlib.sha256(canonical_plan(plan)).digest():
        _fail(ProofCheck.PLAN, "the run began with another plan than this one")


def _fail(check: ProofCheck, words: str) -> NoReturn:
    raise AuditError(
        f"{check.value}: {words}", "ask whoever made the proof, and the sites, which run this is; trust none of it"
    )
