"""Whole federations that measure the excess over references, which they train before round 1."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
import torch

from fedfair.aggregation.evaluation_file import parse_evaluation
from fedfair.aggregation.reference import References
from fedfair.certificate.issue import IssueTerms, draft
from fedfair.certificate.page import certificate_page
from fedfair.cli.loopback import Workspace, prepare
from fedfair.plan.loading import load_plan
from fedfair.run.progress import Progress
from fedfair.run.reference_file import FILE, read_references
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.simulate import play as simulated
from fedfair.statistics.table import Purpose
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from tests.interop.federation_kit import Federation, metrics, model_files_agree, play, prepared, states_agree
from tests.plans import small_plan

SUMS = 5
REFERENCE = {"hidden": [8], "rounds": SUMS, "local_steps": 4}
MASKED = {"mode": "malicious", "most_records": 512}


def workspace_of(folder: Path, protection: dict[str, object] | None) -> Workspace:
    """Return a federation whose reference is small; all local batches are drawn, as for any user."""
    plan = small_plan(rounds=4, protection=protection)
    objective = dict(plan["objective"]) | {"measure": "excess", "reference": REFERENCE}  # type: ignore[call-overload]
    return prepare(folder, {**plan, "objective": objective})


def in_memory(workspace: Workspace) -> References | None:
    """Return the references of the same plan in one process."""
    plan = load_plan(workspace.plan)
    sites = load_federation(plan, workspace.folder)
    schema = next(iter(sites.values())).train.schema
    flat = flat_model(plan, schema, torch.device("cpu"), workspace.folder)
    run = TrainingRun(plan, flat.layout, schema, flat.vector())
    simulated(run, LoopClients({name: TrainingClient(plan, name, own, flat) for name, own in sites.items()}))
    return run.state.references


def assert_evaluated_again_by_its_losses(workspace: Workspace) -> None:
    """A saved model is evaluated without references, which belong to a run."""
    before = json.loads(workspace.result.read_text())
    model = workspace.folder / "save" / "last.safetensors"
    assert play(workspace, Federation.everybody, model=model).state.value == "finished"
    again = json.loads((workspace.folder / "evaluation" / "result.json").read_text())
    # What masks take from a sum is 2^-56 of an addend.
    assert again["train"]["mean"] == pytest.approx(before["train"]["mean"], rel=1e-12)
    assert "mean_excess" in before["train"]["metrics"]
    assert again["train"].get("metrics") is None


def assert_certified_by_its_losses(workspace: Workspace) -> None:
    """A certificate says what training followed, and speaks of losses."""
    kept = parse_evaluation((workspace.folder / "save" / "evaluation.json").read_bytes(), "evaluation.json")
    terms = IssueTerms("train", (0.3,))
    found = draft(kept, load_plan(workspace.plan), terms, issued_at="2026-01-01T00:00:00Z")
    result = json.loads(workspace.result.read_text())
    assert found.training.measure == "excess"
    assert "by the excess over what a reference attains" in certificate_page(found)
    assert found.mean == pytest.approx(result["train"]["mean"], rel=1e-9)


@pytest.mark.parametrize(("protection", "tolerance"), [(None, 1e-9), (MASKED, 1e-4)])
def test_a_federation_trains_its_references_and_then_the_model_of_the_simulation(
    tmp_path: Path, protection: dict[str, object] | None, tolerance: float
) -> None:
    workspace = workspace_of(tmp_path, protection)
    assert play(workspace, Federation.everybody).state.value == "finished"
    deployed, alone = model_files_agree(workspace, tolerance)
    purposes = [line["purpose"] for line in metrics(workspace)]
    assert purposes[: SUMS + 3] == ["standardisation", *["reference"] * SUMS, "evaluation", "training"]
    states_agree(workspace)
    # Sums of whole steps are exact in any order, so the references are those of a run in the clear, bit for bit.
    run = prepared(workspace)
    run.records.close()
    reached, known = run.training_run.state.references, in_memory(workspace)
    assert reached is not None
    assert known is not None
    assert reached.digest == known.digest
    for result in (deployed, alone):
        told = json.loads(json.dumps(result))["train"]["metrics"]
        assert 0.0 < told["mean_excess"] < told["worst_group_excess"] < 1.0
    # Their digest covers the scaling too, which is rounded: under masks, and in the clear by the order of arrival.
    kept = read_references(workspace.folder / "save" / FILE)
    assert deployed["references"].pop("digest") == kept.digest
    alone["references"].pop("digest")
    # What they said of the records is the same, and how often it came true.
    assert deployed["references"] == alone["references"]
    assert sum(tenth["records"] for tenth in deployed["references"]["checked"]["train"]) > 0
    told = json.loads(json.dumps(deployed))["train"]["metrics"]
    exact = json.loads(json.dumps(alone))["train"]["metrics"]
    lower, upper = told["worst_group_excess_bound"]
    assert lower <= exact["worst_group_excess"] <= upper
    if protection is not None:
        assert_certified_by_its_losses(workspace)
        assert_evaluated_again_by_its_losses(workspace)


@pytest.mark.parametrize("protection", [None, MASKED])
def test_a_site_that_leaves_while_references_are_trained_returns_to_them(
    tmp_path: Path, protection: dict[str, object] | None
) -> None:
    workspace = workspace_of(tmp_path, protection)

    async def one_returns(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in ("clinic-a", "clinic-b")]
        leaving = asyncio.create_task(federation.take_part("clinic-c"))
        await federation.watching.until(
            lambda: any(one.purpose is Purpose.REFERENCE for one in federation.watching.progress)
        )
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await federation.watching.until_said("clinic-c disconnected")
        await asyncio.gather(*others, federation.take_part("clinic-c"))

    assert play(workspace, one_returns).state.value == "finished"
    assert {line["contributors"] for line in metrics(workspace)} == {3}
    states_agree(workspace)


def test_a_run_that_is_stopped_while_references_are_trained_continues_with_them(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, None)

    def references(federation: Federation) -> list[Progress]:
        return [one for one in federation.watching.progress if one.purpose is Purpose.REFERENCE]

    async def stopped(federation: Federation) -> None:
        everybody = [asyncio.create_task(federation.take_part(name)) for name in workspace.collaborators]
        await federation.watching.until(lambda: len(references(federation)) >= 2)
        os.kill(os.getpid(), signal.SIGTERM)
        await federation.serving
        for one in everybody:
            one.cancel()

    assert play(workspace, stopped).state.value == "stopped"

    async def continued(federation: Federation) -> None:
        await federation.everybody()
        assert len(references(federation)) <= SUMS - 2
        assert federation.watching.progress[0].purpose in {Purpose.REFERENCE, Purpose.EVALUATION}

    assert play(workspace, continued).state.value == "finished"
    model_files_agree(workspace, 1e-9)
    states_agree(workspace)
