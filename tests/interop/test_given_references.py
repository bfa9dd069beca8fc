"""A whole federation whose second run judges by the references of its first, and trains none."""

import asyncio
import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collaborator.preparation import make_ready
from fedfair.aggregation.evaluation_file import parse_evaluation
from fedfair.certificate.check import check_plan
from fedfair.certificate.issue import IssueTerms, draft
from fedfair.certificate.page import certificate_page
from fedfair.cli.loopback import Workspace, prepare
from fedfair.cli.plan import app
from fedfair.errors import CertificateError, PlanError
from fedfair.plan.loading import load_plan
from fedfair.policy.plan_check import PolicyError
from fedfair.run.initial_model import read_initial_model
from fedfair.run.reference_file import FILE, read_references, write_references
from fedfair.training.binding import plan_binding
from fedfair.workspace.archive import exported
from tests.interop.federation_kit import Federation, metrics, model_files_agree, play, prepared
from tests.plans import small_plan
from tests.site_reading import read_site

REFERENCE = {"hidden": [8], "rounds": 4, "local_steps": 10}
BESIDE = "plan.references.safetensors"


def workspace_of(folder: Path, reference: dict[str, object]) -> Workspace:
    """Return a federation whose steps take all records: another attempt at a round would draw others."""
    plan = small_plan(rounds=4, protection={"mode": "malicious", "most_records": 512}, batch_size="full")
    objective = dict(plan["objective"]) | {"measure": "excess", "reference": reference}  # type: ignore[call-overload]
    return prepare(folder, {**plan, "objective": objective})


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Return a federation whose run has trained references."""
    workspace = workspace_of(tmp_path_factory.mktemp("first"), REFERENCE)
    assert play(workspace, Federation.everybody).state.value == "finished"
    return workspace


def second_of(first: Workspace, folder: Path, digest: str) -> Workspace:
    """Return the same sites, with their own copies of runs, and a plan that names the first run's references."""
    (folder / "plan").mkdir()
    shutil.copy(first.folder / "save" / FILE, folder / "plan" / BESIDE)
    shutil.copytree(first.folder / "runs", folder / "runs")
    return workspace_of(folder, {"run": digest, "hidden": [8]})


def digest_of(first: Workspace) -> str:
    return str(json.loads(first.result.read_text())["references"]["digest"])


def test_the_second_run_makes_no_sum_of_references_also_after_a_restart(first: Workspace, tmp_path: Path) -> None:
    digest = digest_of(first)
    copies = [*(first.folder / "runs").glob(f"*/*/save/{FILE}"), first.folder / "save" / FILE]
    assert len(copies) == len(first.collaborators) + 1
    kept = [read_references(path) for path in copies]
    assert {each.digest for each in kept} == {digest}
    # The aggregator knows no record, and each site its own.
    assert [len(each.trained_on) for each in kept] == [*[1] * len(first.collaborators), 0]
    second = second_of(first, tmp_path, digest)
    assert f"plan/{BESIDE}" in {str(name) for name in exported(second.folder)}

    async def stopped(federation: Federation) -> None:
        everybody = [asyncio.create_task(federation.take_part(name)) for name in second.collaborators]
        await federation.watching.until(lambda: len(federation.watching.progress) >= 2)
        os.kill(os.getpid(), signal.SIGTERM)
        await federation.serving
        for one in everybody:
            one.cancel()

    assert play(second, stopped).state.value == "stopped"
    assert play(second, Federation.everybody).state.value == "finished"
    assert {line["purpose"] for line in metrics(second)} == {"evaluation", "training"}
    deployed, alone = model_files_agree(second, 1e-4)
    before = json.loads(first.result.read_text())["references"]
    for key in ("digest", "sums", "best_after", "loss"):
        assert deployed["references"][key] == alone["references"][key] == before[key]
    run = prepared(second)
    run.records.close()
    held = run.training_run.result().kept_references
    assert held is not None
    assert held.digest == digest
    assert_told(second, digest)


def assert_told(second: Workspace, digest: str) -> None:
    """The check of a plan says what is saved, and a certificate names the run, which `verify` compares."""
    told = " ".join(CliRunner().invoke(app, ["check", "-p", str(second.plan)]).output.split())
    assert "which trained them in 4 sums: none of these is made" in told
    plan = load_plan(second.plan)
    kept = parse_evaluation((second.folder / "save" / "evaluation.json").read_bytes(), "evaluation.json")
    found = draft(kept, plan, IssueTerms("train", (0.3,)), issued_at="2026-01-01T00:00:00Z")
    assert f"(of an earlier run: {digest})" in certificate_page(found)
    check_plan(found, plan, kept.plan_digest)
    other = found.model_copy(update={"training": found.training.model_copy(update={"references": None})})
    with pytest.raises(CertificateError, match="the certificate says references None, the plan says sha256"):
        check_plan(other, plan, kept.plan_digest)


def test_a_site_refuses_references_that_it_does_not_know_or_that_its_other_records_trained(
    first: Workspace, tmp_path: Path
) -> None:
    digest = digest_of(first)
    second = second_of(first, tmp_path, digest)
    name = second.collaborators[0]
    config = second.folder / f"{name}.yaml"
    make_ready(read_site(name, config, second.plan, None))
    own = next((second.folder / "runs" / name).glob(f"*/save/{FILE}"))
    write_references(own, replace(read_references(own), trained_on={name: "sha256:" + "0" * 64}))
    with pytest.raises(PlanError, match=f"the training records of {name} are others"):
        make_ready(read_site(name, config, second.plan, None))
    own.unlink()
    with pytest.raises(PolicyError, match="of no run of which this site has a copy"):
        read_site(name, config, second.plan, None)
    config.write_text(config.read_text().replace("policy:\n", f"policy:\n  initial_weights: [seed, {digest}]\n"))
    make_ready(read_site(name, config, second.plan, None))


def test_nobody_starts_without_the_file_or_with_another(first: Workspace, tmp_path: Path) -> None:
    second = second_of(first, tmp_path, digest_of(first))
    place = second.folder / "plan" / BESIDE
    kept = read_references(place)
    write_references(place, replace(kept, seed=kept.seed + 1))
    plan = load_plan(second.plan)
    for begin in (lambda: read_initial_model(second.plan, plan), lambda: plan_binding(plan, second.folder)):
        with pytest.raises(PlanError, match=r"holds the references .*, the plan names"):
            begin()
    place.unlink()
    with pytest.raises(PlanError, match=f"{BESIDE} is missing"):
        read_initial_model(second.plan, plan)
