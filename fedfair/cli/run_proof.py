"""`fedfair audit prove` and `check-proof`: that a model is the one a run came to, and that a sum is in the run."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedfair.errors import AuditError
from fedfair.process.terminal import console, say, warn

if TYPE_CHECKING:
    from fedfair.plan.schema import Plan
    from fedfair.transcript.proof import RunProof
    from fedfair.transcript.proof_check import Keys, ProvenRun

_SUM = re.compile(r"([a-z-]{1,32}):([0-9]{1,15})")
_KEY = re.compile(r"([a-z0-9-]{1,40})=(\S+)")


def prove(
    folder: Path = typer.Argument(Path("save"), help="The lead's folder with transcript.json and leaves.bin."),
    sums: list[str] = typer.Option(
        [], "--sum", help="KIND:ROUND of a sum to prove, such as training:12 or evaluation:0. Repeatable."
    ),
    since: list[Path] = typer.Option(
        [], "--since", help="An earlier proof, from which the run is shown to have continued. Repeatable."
    ),
    output: Path = typer.Option(Path("proof.json"), "--output", "-o", help="Where to write the proof."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print warnings only."),
) -> None:
    """Prove what a finished run came to: one file that anybody checks with the sites' public keys."""
    from fedfair.store.atomic_file import write_whole
    from fedfair.transcript.evidence import FILE, read_evidence
    from fedfair.transcript.leaf_file import FILE as LEAVES
    from fedfair.transcript.leaf_file import Leaves
    from fedfair.transcript.proof import leaves_of, make_proof, write_proof

    leaves = Leaves(folder / LEAVES)
    places = [place for stated in sums for place in leaves_of(leaves, *_parsed(stated))]
    evidence = read_evidence(folder / FILE)
    proof = make_proof(evidence, leaves, places, [_read(earlier).leaves for earlier in since])
    try:
        write_whole(output, write_proof(proof))
    except OSError as error:
        raise AuditError(f"{output} cannot be written: {error.strerror}", "choose another --output") from error
    for who in sorted(evidence.differing):
        warn(f"{who} has signed another transcript of this run; its statement is in {folder / FILE}")
    if not quiet:
        signed = ", ".join(sorted(proof.statements)) or "nobody"
        say(f"{output}: {proof.leaves} leaves, {len(proof.sums)} proven, signed by {signed}")


def check_proof(
    file: Path = typer.Argument(..., metavar="PROOF", help="The proof."),
    model: Path = typer.Argument(None, help="A model file that must be the one that the run gives out."),
    plan_file: Path = typer.Option(
        None, "--plan", "-p", help="The plan that must have been run; its roster has the sites' keys."
    ),
    keys: list[str] = typer.Option(
        [],
        "--key",
        help="NAME=ed25519:..., a site's public key. Repeatable. It counts before the roster's.",
    ),
    needed: int = typer.Option(
        None, "--needed", min=1, help="How many sites must have signed the end.", show_default="all"
    ),
    earlier: Path = typer.Option(None, "--earlier", help="A proof from which the run must have continued."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print warnings only."),
) -> None:
    """Check a proof offline, with keys that are never taken from it; exits with 1 where a check fails."""
    from fedfair.plan.loading import load_plan
    from fedfair.transcript import proof_check

    proof = _read(file)
    plan = None if plan_file is None else load_plan(plan_file)
    digest = None if model is None else _digest_of(model)
    found = proof_check.check_proof(proof, _keys(plan, keys), plan=plan, model=digest, needed=needed)
    if earlier is not None:
        before = _read(earlier)
        if (before.leaves, before.root) not in {(one.leaves, one.root) for one in proof.earlier}:
            raise AuditError(
                f"earlier: the proof does not show that the run continued from {earlier}",
                "make it again with `fedfair audit prove --since`; if that fails, the history was rewritten",
            )
    if as_json:
        console.print_json(json.dumps(_facts(found, proof, has_model=digest is not None)))
    elif not quiet:
        for line in _lines(found, proof, model):
            say(line)
    for who, verdict in found.signed.items():
        if verdict.reasons:
            reasons = ", ".join(reason.value for reason in verdict.reasons)
            warn(f"{who} withholds its agreement to the release of this model: {reasons}")
    for who in found.unsigned:
        warn(f"{who} has signed nothing of this run")


def _parsed(stated: str) -> tuple[str, int]:
    match = _SUM.fullmatch(stated)
    if match is None:
        raise typer.BadParameter(f"{stated!r} is not KIND:ROUND", param_hint="--sum")
    return match[1], int(match[2])


def _read(file: Path) -> RunProof:
    from fedfair.transcript.proof import MAX_PROOF_BYTES, read_proof

    try:
        with file.open("rb") as source:
            raw = source.read(MAX_PROOF_BYTES + 1)
    except OSError as error:
        remedy = "give the file of `fedfair audit prove`"
        raise AuditError(f"{file} cannot be read: {error.strerror}", remedy) from error
    return read_proof(raw, str(file))


def _digest_of(model: Path) -> bytes:
    from fedfair.aggregation import model_file
    from fedfair.aggregation.requests import vector_sha256

    return vector_sha256(model_file.load(model)[1])


def _keys(plan: Plan | None, stated: Sequence[str]) -> Keys:
    from fedfair.identity.roster import parse_roster

    known = {} if plan is None else dict(plan.federation.roster)
    for text in stated:
        match = _KEY.fullmatch(text)
        if match is None:
            raise typer.BadParameter(f"{text!r} is not NAME=KEY", param_hint="--key")
        known[match[1]] = match[2]
    if not known:
        raise AuditError(
            "no site's public key is known here, and none is ever taken from the proof",
            "give the plan whose roster has them with --plan, or each with --key NAME=ed25519:...",
        )
    return parse_roster(known)


def _lines(found: ProvenRun, proof: RunProof, model: Path | None) -> list[str]:
    from fedfair.plan.digest import format_digest

    lines = [
        f"run {found.run}: {found.rounds} rounds, {found.leaves} leaves; plan {format_digest(found.plan_digest)}",
        f"the end is signed by {', '.join(found.signed)}: model {format_digest(proof.model)}",
    ]
    lines += [
        f"{who} was gone at the end, and has signed up to leaf {leaves}" for who, leaves in found.gone.items()
    ]
    lines += [_sum_words(found, place) for place in found.sums]
    return lines if model is None else [*lines, f"{model} is that model"]


def _sum_words(found: ProvenRun, place: int) -> str:
    from fedfair.transcript.leaf import BEGIN

    leaf, members = found.sums[place], found.members[place]
    if leaf.kind == BEGIN:
        return f"leaf {place} is the beginning of the plan after {leaf.round} rounds"
    who = f"{leaf.contributors} sites" if members is None else ", ".join(members)
    return f"leaf {place} is the {leaf.kind} sum of round {leaf.round} over {who}"


def _facts(found: ProvenRun, proof: RunProof, *, has_model: bool) -> dict[str, object]:
    from fedfair.plan.digest import format_digest

    return {
        "ok": True,
        "run": found.run,
        "plan_digest": format_digest(found.plan_digest),
        "rounds": found.rounds,
        "leaves": found.leaves,
        "root": format_digest(proof.root),
        "model": format_digest(proof.model),
        "model_matches": True if has_model else None,
        "signed": {
            who: {"release": verdict.release.value, "reasons": [reason.value for reason in verdict.reasons]}
            for who, verdict in found.signed.items()
        },
        "gone": dict(found.gone),
        "unsigned": list(found.unsigned),
        "sums": [
            {"leaf": place, "kind": leaf.kind, "round": leaf.round, "members": found.members[place]}
            for place, leaf in found.sums.items()
        ],
    }
