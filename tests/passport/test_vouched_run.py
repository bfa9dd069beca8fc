"""A passport of a run that its sites have signed: their signatures reach from the model to every figure."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedfair
from fedfair.cli.loopback import prepare
from fedfair.errors import AuditError, PassportError
from fedfair.identity.roster import parse_roster
from fedfair.identity.store import load_signing_key
from fedfair.passport.evidence import ModelEvidence, evidence_in
from fedfair.passport.issue import made_statements
from fedfair.passport.statements.transcript import evaluation_leaf
from fedfair.transcript.proof_check import check_proof
from fedfair.transcript.statement import parse_statement, sign_statement
from tests.interop import federation_kit
from tests.passport.conftest import command
from tests.plans import small_plan

pytestmark = pytest.mark.usefixtures("undrawn")
NAMES = ("clinic-a", "clinic-b")


@pytest.fixture(scope="module")
def vouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a passport with all sums of a run over real sockets."""
    workspace = prepare(tmp_path_factory.mktemp("vouched"), small_plan(rounds=2, names=NAMES))
    federation_kit.play(workspace, lambda federation: federation.everybody())
    before = Path.cwd()
    os.chdir(workspace.folder)
    try:
        command("passport", "create", "--with-sums")
    finally:
        os.chdir(before)
    return workspace.folder


@pytest.fixture
def evidence(vouched: Path, tmp_path: Path) -> Path:
    """Return a copy of its evidence."""
    return Path(shutil.copytree(vouched / "passport" / "evidence", tmp_path / "evidence"))


def vouchers(evidence: Path) -> tuple[str, ...]:
    found = made_statements(ModelEvidence(evidence_in(evidence)))
    return next(one.sentences for one in found if one.id == "#transcript")


def test_every_site_vouches_for_the_model_and_the_figures_are_from_a_sum_that_they_signed(vouched: Path) -> None:
    found = fedfair.verify_passport(
        vouched / "passport", cert_folder=vouched / "cert", plan=vouched / "plan" / "plan.yaml"
    )
    told = next(one for one in found.passport.statements if one.id == "#transcript")
    assert (told.state, told.figures["signed"], told.figures["not signed"]) == ("shown", 2, 0)
    assert "clinic-a has signed that its own copy of the run came to this model." in told.sentences
    assert "which is about this model" in told.sentences[-1]


def test_an_evaluation_that_does_not_follow_from_the_signed_sum_is_refused(evidence: Path) -> None:
    place = evidence / "evaluation.json"
    record = json.loads(place.read_text())
    record["splits"]["train"]["smoothed"] += 0.5
    place.write_text(json.dumps(record))
    with pytest.raises(PassportError, match="does not follow from the sum that the sites have signed"):
        vouchers(evidence)


def test_a_sum_that_no_site_has_signed_is_refused(evidence: Path) -> None:
    place = evidence / "evaluation.bin"
    opened = np.frombuffer(place.read_bytes(), "<f8").copy()
    opened[0] += 1.0
    place.write_bytes(opened.tobytes())
    with pytest.raises(PassportError, match="is no sum of this model that the sites have signed"):
        vouchers(evidence)


def test_a_proof_without_the_sum_says_that_nothing_proves_the_figures(evidence: Path) -> None:
    place = evidence / "proof.json"
    proof = json.loads(place.read_text())
    proof["sums"] = proof["sums"][:1]
    place.write_text(json.dumps(proof))
    assert vouchers(evidence)[-1] == "Which sum the figures are from is not proven."


def test_a_site_that_has_not_signed_is_told(evidence: Path) -> None:
    place = evidence / "proof.json"
    proof = json.loads(place.read_text())
    del proof["statements"]["clinic-b"], proof["approvals"]["clinic-b"]
    place.write_text(json.dumps(proof))
    assert "clinic-b has signed nothing of this run." in vouchers(evidence)


def test_a_statement_by_another_key_is_refused(evidence: Path, vouched: Path) -> None:
    place = evidence / "proof.json"
    proof = json.loads(place.read_text())
    said = parse_statement(proof["statements"]["clinic-b"].encode())
    proof["statements"]["clinic-b"] = sign_statement(said, load_signing_key(vouched / "cert", "clinic-a")).decode()
    place.write_text(json.dumps(proof))
    with pytest.raises(AuditError, match="signature: clinic-b"):
        vouchers(evidence)


def test_another_model_than_the_signed_one_is_refused(evidence: Path, vouched: Path) -> None:
    shutil.copy(vouched / "save" / "init.safetensors", evidence / "model.safetensors")
    with pytest.raises((PassportError, AuditError)):
        vouchers(evidence)


def test_a_release_that_no_site_has_signed_is_refused(evidence: Path) -> None:
    place = evidence / "result.json"
    result = json.loads(place.read_text())
    assert "release" not in result
    result["release"] = {"state": "released", "by": {name: {"word": "agreed"} for name in NAMES}}
    place.write_text(json.dumps(result))
    with pytest.raises(PassportError, match="what its sites have not signed"):
        vouchers(evidence)
    (evidence / "proof.json").unlink()
    found = {one.id: one for one in made_statements(ModelEvidence(evidence_in(evidence)))}
    assert (found["#transcript"].state, found["#release"].state) == ("absent", "declared")
    assert (
        "No proof of the run is here, so nothing shows that the sites have said so." in found["#release"].sentences
    )


def test_an_evaluation_of_another_model_proves_nothing_of_this_one(evidence: Path) -> None:
    told = ModelEvidence(evidence_in(evidence))
    assert told.proof is not None
    found = check_proof(told.proof, parse_roster(told.agreed.plan.federation.roster))
    assert evaluation_leaf(told, found) is not None
    others = {place: replace(leaf, model=bytes(32)) for place, leaf in found.sums.items()}
    assert evaluation_leaf(told, replace(found, sums=others)) is None
