"""Proofs of a run: what they show to who has the sites' keys and nothing else, and that no other is believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedfair.aggregation.model_file import save
from fedfair.cli.audit import app
from fedfair.errors import AuditError
from fedfair.identity.signing import format_signing_key
from fedfair.plan.approval import approve
from fedfair.transcript.evidence import read_evidence
from fedfair.transcript.leaf_file import Leaves
from fedfair.transcript.proof import RunProof, leaves_of, make_proof, members_of, read_proof, write_proof
from fedfair.transcript.proof_check import check_proof
from fedfair.transcript.statement import parse_statement, sign_statement
from tests.transcript.played import FEDERATION, KEYS, LAYOUT, PLAN_DIGEST, RUN, SITES, plan_of
from tests.transcript.test_witnessed_run import PUBLIC, Federation

A, B = SITES


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """Return a finished run that both sites have signed."""
    found = Federation(tmp_path_factory.mktemp("run"), plan_of(rounds=40, every=5))
    found.finish()
    return found


def proof_of(run: Federation, *places: int, since: tuple[int, ...] = ()) -> RunProof:
    save_folder = run.folder / "save"
    evidence = read_evidence(save_folder / "transcript.json")
    return make_proof(evidence, Leaves(save_folder / "leaves.bin"), places, since)


def test_a_proof_shows_model_plan_sums_and_who_has_signed(run: Federation) -> None:
    proof = proof_of(run, 7, since=(20,))
    again = read_proof(write_proof(proof).encode(), "proof.json")
    assert again == proof
    model = run.lead.run.model.vector_sha256
    found = check_proof(again, PUBLIC, plan=run.lead.plan, model=model)
    assert (found.run, found.plan_digest, found.rounds, found.leaves) == (RUN, PLAN_DIGEST, 40, 50)
    assert (list(found.signed), found.gone, found.unsigned) == ([A, B], {}, ())
    assert found.sums == {place: run.lead.leaves[place] for place in (0, 7)}
    assert found.members == {0: (), 7: SITES}
    assert (found.sums[7].kind, found.sums[7].round) == ("evaluation", 5)
    # Nothing but the statements and approvals of the sites, and paths as long as the tree is deep.
    assert len(write_proof(proof)) < 6000


def test_a_sum_is_found_by_its_kind_and_round(run: Federation) -> None:
    leaves = Leaves(run.folder / "save" / "leaves.bin")
    assert leaves_of(leaves, "evaluation", 5) == [7]
    assert leaves_of(leaves, "training", 40) == [48]
    for kind, number in (("training", 41), ("training", 0), ("survey", 0)):
        with pytest.raises(AuditError, match=f"the transcript has no {kind} sum of round {number}"):
            leaves_of(leaves, kind, number)


def test_members_are_found_where_few_sets_are_possible(run: Federation) -> None:
    leaf = run.lead.leaves[7]
    assert members_of(leaf, ["clinic-b", "clinic-x", "clinic-a"]) == ("clinic-b", "clinic-a")
    assert members_of(leaf, ["clinic-b", "clinic-x"]) is None
    assert members_of(leaf, ["clinic-b"]) is None
    assert members_of(leaf, [f"clinic-{number}" for number in range(300)]) is None


def test_a_site_that_was_gone_at_the_end_is_said_to_have_signed_up_to_a_leaf(run: Federation) -> None:
    evidence = read_evidence(run.folder / "save" / "transcript.json")
    kept = (run.folder / B / RUN / "statements.jsonl").read_text().splitlines()
    evidence.statements[B] = kept[3]
    leaves = Leaves(run.folder / "save" / "leaves.bin")
    proof = make_proof(evidence, leaves)
    size = parse_statement(kept[3].encode()).leaves
    with pytest.raises(AuditError, match="signatures: the end is signed by clinic-a, and not by clinic-b"):
        check_proof(proof, PUBLIC)
    found = check_proof(proof, PUBLIC, needed=1)
    assert (list(found.signed), found.gone, found.unsigned) == ([A], {B: size}, ())
    for earlier in ((), (replace(proof.earlier[0], path=()),), (replace(proof.earlier[0], leaves=size + 1),)):
        with pytest.raises(AuditError, match="earlier: the run "):
            check_proof(replace(proof, earlier=earlier), PUBLIC, needed=1)
    evidence.statements[B] = signed(kept[3], root=bytes(32))
    with pytest.raises(
        AuditError, match="earlier: the run is not shown to continue from what clinic-b has signed"
    ):
        check_proof(make_proof(evidence, leaves), PUBLIC, needed=1)
    del evidence.statements[B]
    found = check_proof(make_proof(evidence, leaves), PUBLIC, needed=1)
    assert (found.gone, found.unsigned) == ({}, (B,))
    evidence.statements.clear()
    with pytest.raises(AuditError, match="signatures: no site has signed anything"):
        check_proof(make_proof(evidence, leaves), PUBLIC, needed=1)


# ------------------------------------------------------------------ forgeries


def signed(raw: str, **other: object) -> str:
    said = parse_statement(raw.encode())
    return sign_statement(replace(said, **other), KEYS[said.participant]).decode()  # type: ignore[arg-type]


def in_the_name_of_a(raw: str) -> str:
    said = replace(parse_statement(raw.encode()), participant=A)
    return sign_statement(said, KEYS[B]).decode()


def both(proof: RunProof, **other: object) -> RunProof:
    return replace(proof, statements={who: signed(raw, **other) for who, raw in proof.statements.items()})


OTHER = approve(PLAN_DIGEST, FEDERATION, B, KEYS[A], approved_at="2031-05-04T12:00:00+00:00").decode()
FORGERIES: dict[str, tuple[str, Callable[[RunProof], RunProof]]] = {
    "another root": ("root: clinic-a has signed the root", lambda p: replace(p, root=bytes(32))),
    "another size": ("root: clinic-a has signed the root", lambda p: replace(p, leaves=49)),
    "another model": ("root: clinic-a has signed another model", lambda p: replace(p, model=bytes(32))),
    "one site's other model": (
        "root: clinic-b has signed another model",
        lambda p: replace(p, statements={**p.statements, B: signed(p.statements[B], model=bytes(32))}),
    ),
    "one site's other state": (
        "root: the sites have signed different states",
        lambda p: replace(p, statements={**p.statements, B: signed(p.statements[B], state=bytes(32))}),
    ),
    "a statement of another run": (
        "run: the statement of clinic-b is of run a",
        lambda p: replace(p, statements={**p.statements, B: signed(p.statements[B], run="a" * 32)}),
    ),
    "a statement in another's name": (
        "run: the statement of clinic-b is of run 0f.*, or in another name",
        lambda p: replace(p, statements={**p.statements, B: in_the_name_of_a(p.statements[B])}),
    ),
    "another's statement twice": (
        "signature: clinic-b",
        lambda p: replace(p, statements={A: p.statements[A], B: p.statements[A]}),
    ),
    "a statement of nobody": (
        "signature: clinic-x is not among the sites",
        lambda p: replace(p, statements={**p.statements, "clinic-x": p.statements[A]}),  # type: ignore[dict-item]
    ),
    "a statement that was changed": (
        "signature: clinic-b: the statement of clinic-b was not signed",
        lambda p: replace(
            p, statements={**p.statements, B: p.statements[B].replace('"rounds":40', '"rounds":41')}
        ),
    ),
    "a statement less": (
        "signatures: the end is signed by clinic-a, and not by clinic-b",
        lambda p: replace(p, statements={A: p.statements[A]}),
    ),
    "an approval less": (
        "approval: the approval of clinic-b",
        lambda p: replace(p, approvals={A: p.approvals[A]}),
    ),
    "an approval by another key": (
        "approval: the approval of clinic-b is not",
        lambda p: replace(p, approvals={**p.approvals, B: OTHER}),
    ),
    "a plan that was not approved": (
        "approval: clinic-a has approved plan",
        lambda p: both(p, plan_digest=bytes(32)),
    ),
    "a cut path": ("sum: leaf 7 is not in the tree", lambda p: replace(p, sums=(p.sums[0], cut(p.sums[1])))),
    "another place": ("sum: leaf 8 is not", lambda p: replace(p, sums=(replace(p.sums[1], place=8),))),
    "another leaf": ("sum: leaf 7 is not", lambda p: replace(p, sums=(replace(p.sums[1], raw=p.sums[0].raw),))),
    "other members": (
        "sum: other sites are in leaf 7 than clinic-a",
        lambda p: replace(p, sums=(p.sums[0], replace(p.sums[1], members=("clinic-a",)))),
    ),
    "a leaf twice": ("sum: one leaf is in the proof twice", lambda p: replace(p, sums=(p.sums[0], p.sums[0]))),
    "no beginning": ("plan: the proof does not have the beginning", lambda p: replace(p, sums=p.sums[1:])),
    "a wrong way from an earlier root": (
        "earlier: the run does not continue from the given root of 20",
        lambda p: replace(p, earlier=(replace(p.earlier[0], root=bytes(32)),)),
    ),
}


def cut(one: Any) -> Any:  # noqa: ANN401 - a proven sum
    return replace(one, path=one.path[1:])


@pytest.mark.parametrize("forgery", FORGERIES)
def test_each_forgery_is_named_by_the_check_that_finds_it(run: Federation, forgery: str) -> None:
    words, forged = FORGERIES[forgery]
    proof = proof_of(run, 7, since=(20,))
    with pytest.raises(AuditError, match=words):
        check_proof(forged(proof), PUBLIC, plan=run.lead.plan)


def test_another_model_another_plan_and_other_keys_are_named(run: Federation) -> None:
    proof = proof_of(run)
    with pytest.raises(AuditError, match=r"model: this model is sha256:0{64}, the run gives out"):
        check_proof(proof, PUBLIC, model=bytes(32))
    with pytest.raises(AuditError, match="plan: the run began with another plan"):
        check_proof(proof, PUBLIC, plan=plan_of(rounds=40, every=4))
    with pytest.raises(AuditError, match="signature: clinic-a"):
        check_proof(proof, {A: PUBLIC[B], B: PUBLIC[A]})


def leaves_of_json(told: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every value of a text in JSON that holds no others."""
    if not isinstance(told, dict | list):
        yield place
        return
    for key, inner in told.items() if isinstance(told, dict) else enumerate(told):
        yield from leaves_of_json(inner, (*place, key))


def test_whatever_is_changed_in_a_proof_it_is_not_believed(run: Federation) -> None:
    raw = write_proof(proof_of(run, 7, since=(20,)))
    places = list(leaves_of_json(json.loads(raw)))
    assert len(places) > 25
    for place in places:
        for change in ("shorter", "other"):
            told = json.loads(raw)
            holder = told
            for key in place[:-1]:
                holder = holder[key]
            value = holder[place[-1]]
            if isinstance(value, int):
                holder[place[-1]] = value + (1 if change == "other" else -1)
            else:
                at = len(value) // 2
                other = f"{value[:at]}{'01'[value[at] == '0']}{value[at + 1 :]}"
                holder[place[-1]] = value[:-1] if change == "shorter" else other
            with pytest.raises(AuditError):
                check_proof(read_proof(json.dumps(told).encode(), "it"), PUBLIC, plan=run.lead.plan)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"\xff", b'{"format": "fedfair/run-proof/2"}', b"[" * 9000])
def test_a_file_that_is_no_proof_is_named(raw: bytes) -> None:
    with pytest.raises(AuditError, match=r"proof\.json"):
        read_proof(raw, "proof.json")


def test_files_that_do_not_belong_together_prove_nothing(run: Federation, tmp_path: Path) -> None:
    evidence = read_evidence(run.folder / "save" / "transcript.json")
    other = Federation(tmp_path, plan_of(rounds=2))
    other.finish()
    with pytest.raises(AuditError, match="do not have the root"):
        make_proof(evidence, Leaves(tmp_path / "save" / "leaves.bin"))
    with pytest.raises(AuditError, match="cannot be proven from these leaves"):
        proof_of(run, 50)
    with pytest.raises(AuditError, match="cannot be proven"):
        proof_of(run, since=(51,))


# ------------------------------------------------------------------ the commands


def told_by(*words: str) -> str:
    outcome = CliRunner().invoke(app, words, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return " ".join(outcome.stdout.split())


def test_the_commands_prove_and_check_without_a_workspace(
    run: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = [f"--key={name}={format_signing_key(key.public_key())}" for name, key in KEYS.items()]
    save(tmp_path / "m.safetensors", LAYOUT, run.lead.run.model.vector, {})
    save(tmp_path / "other.safetensors", LAYOUT, run.lead.run.model.vector + 1, {})
    place = str(run.folder / "save")
    assert "50 leaves, 2 proven, signed by clinic-a, clinic-b" in told_by("prove", place, "--sum", "training:12")
    said = told_by("check-proof", "proof.json", "m.safetensors", *keys)
    assert "the end is signed by clinic-a, clinic-b" in said
    assert "the training sum of round 12 over clinic-a, clinic-b" in said
    assert said.endswith("m.safetensors is that model")
    told = json.loads(told_by("check-proof", "proof.json", *keys, "--json"))
    assert (told["ok"], told["leaves"], told["signed"][A]["release"]) == (True, 50, "not asked")
    told_by("prove", place, "--since", "proof.json", "-o", "later.json")
    told_by("check-proof", "later.json", "--earlier", "proof.json", *keys)
    for arguments, words in (
        (("check-proof", "proof.json", "other.safetensors", *keys), "model: this model is"),
        (("check-proof", "proof.json"), "no site's public key is known here"),
        (("check-proof", "proof.json", keys[0]), "clinic-b is not among the sites"),
        (("check-proof", "none.json", *keys), r"none\.json cannot be read"),
        (("check-proof", "proof.json", "--earlier", "later.json", *keys), "earlier: the proof does not show"),
        (("prove", place, "--sum", "training:99"), "no training sum of round 99"),
        (("prove", str(tmp_path)), r"leaves\.bin cannot be read"),
        (("prove", place, "-o", "no/proof.json"), "cannot be written"),
    ):
        with pytest.raises(AuditError, match=words):
            CliRunner().invoke(app, arguments, catch_exceptions=False)
    for arguments in (("check-proof", "proof.json", "--key", "x"), ("prove", place, "--sum", "12")):
        assert CliRunner().invoke(app, arguments).exit_code == 2
