"""Finished runs that continue with more rounds over real sockets, and lies about where they ended."""

import asyncio
import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from aggregator.finished_run import finished_run
from aggregator.preparation import initial_binding
from collaborator.plan_change import state_stem
from collaborator.preparation import make_ready
from collaborator.site_history import ANSWERED
from fedfair.aggregation.model_file import load
from fedfair.cli.commands import app
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import ApprovalError, PlanError, StateError
from fedfair.identity.roster import parse_roster
from fedfair.identity.store import load_signing_key
from fedfair.ids import RoundNumber, parse_federation_name, parse_participant_id
from fedfair.plan.approval import approve
from fedfair.plan.digest import parse_digest
from fedfair.plan.loading import load_plan
from fedfair.policy.answered_facts import number_row
from fedfair.policy.request_limits import _place_key, answers_in_round
from fedfair.run.initial_model import InitialModel, read_initial_model
from fedfair.run.state import RunState
from fedfair.simulation.simulate import simulate
from fedfair.store.table_file import TableFile
from fedfair.training.binding import plan_binding
from fedfair.transcript.evidence import read_evidence
from fedfair.transcript.leaf_file import Leaves
from fedfair.transcript.proof import make_proof
from fedfair.transcript.proof_check import check_proof
from fedfair.workspace.extension import FinishedRun, extension
from fedfair.workspace.update import apply_update
from tests.held_terms import holding
from tests.interop.federation_kit import Federation, play, prepared
from tests.plans import small_plan
from tests.site_reading import read_site

MASKED = {"mode": "malicious", "most_records": 512}
STEADY = {"schedule": "constant", "server_optimizer": {"name": "adam"}, "output": "best"}


def played(workspace: Workspace) -> None:
    assert play(workspace, Federation.everybody, binding=initial_binding).state.value == "finished"


def approved(workspace: Workspace) -> bytes:
    """Let every site approve the plan that is there now, as `fedfair plan approve` does without its checks."""
    plan = load_plan(workspace.plan)
    digest = plan_binding(plan, workspace.folder).digest
    for name in workspace.collaborators:
        key = load_signing_key(workspace.folder / "cert", name)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        federation = parse_federation_name(plan.federation.name)
        signed = approve(digest, federation, parse_participant_id(name), key, approved_at=now)
        (workspace.folder / "approvals" / f"{name}.json").write_bytes(signed)
    return digest


def extended(workspace: Workspace, rounds: int) -> None:
    done = CliRunner().invoke(app, ["plan", "extend", "-p", str(workspace.plan), "--rounds", str(rounds)])
    assert done.exit_code == 0, (done.output, done.exception)
    assert f"with rounds {load_plan(workspace.plan).training.rounds - rounds + 1} to" in done.output
    approved(workspace)


def final_state(workspace: Workspace) -> RunState:
    plan = load_plan(workspace.plan)
    return finished_run(workspace.folder, plan, read_initial_model(workspace.plan, plan)).state


CASES: dict[str, dict[str, object]] = {
    "in the clear": {},
    "masked": {"protection": MASKED},
    "variates": {
        "protection": MASKED, "control_variates": True, "local_steps": 3, "learning_rate": 0.02,
        # Adapters beside a frozen layer, whose variates are as short as they.
        "parameters": {"lora": {"layers": ["output"], "rank": 2}},
    },
    "parts that stay": {"protection": MASKED, "batch_size": "full", "parameters": {"keep": ["output.bias"]}},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_extended_run_ends_in_the_state_of_the_run_that_was_planned_that_long(
    tmp_path: Path, case: str
) -> None:
    keys = {**STEADY, "precision": "fp64", **CASES[case]}
    whole = prepare(tmp_path / "whole", small_plan(rounds=20, **keys))  # type: ignore[arg-type]
    played(whole)
    workspace = prepare(tmp_path / "parts", small_plan(rounds=10, **keys))  # type: ignore[arg-type]
    played(workspace)
    first = json.loads(workspace.result.read_text())
    extended(workspace, 10)
    played(workspace)
    # A masked number is rounded by chance, and floats add up in the order of arrival.
    difference = final_state(workspace).model.vector - final_state(whole).model.vector
    assert float(np.abs(difference).max()) < (1e-9 if case == "in the clear" else 1e-4)
    result = json.loads(workspace.result.read_text())
    assert (result["rounds"], len(result["history"])) == (20, len(json.loads(whole.result.read_text())["history"]))
    # What the first run left is where the second one has put it.
    kept = workspace.folder / "earlier" / parse_digest(first["plan_digest"]).hex()[:16]
    assert json.loads((kept / "result.json").read_text()) == first
    assert (kept / "save" / "last.safetensors").is_file()
    # The transcript goes on: it has a leaf for the new plan, continues what was signed before, and all sign it.
    plan, place = load_plan(workspace.plan), workspace.folder / "save"
    before = read_evidence(kept / "save" / "transcript.json").present
    leaves = Leaves(place / "leaves.bin")
    assert before is not None
    assert (leaves.begun.size, leaves.begun.root) == (before.leaves, before.root)
    proof = make_proof(read_evidence(place / "transcript.json"), leaves, since=[before.leaves])
    proven = check_proof(proof, parse_roster(plan.federation.roster), plan=plan)
    assert (list(proven.signed), [leaf.round for leaf in proven.sums.values()]) == (
        list(workspace.collaborators), [10],
    )  # fmt: skip
    assert proof.earlier[0].root == before.root
    if case not in {"variates", "parts that stay"}:
        simulated = simulate(load_plan(workspace.plan), workspace.folder, engine="loop")
        _, vector, _ = load(workspace.folder / "save" / "last.safetensors")
        assert float(np.abs(vector - simulated.model.vector).max()) < (1e-12 if case == "in the clear" else 1e-3)


def forged(workspace: Workspace, lie: Callable[[RunState], RunState], rounds: int = 4) -> None:
    """Write the plan that a lying lead makes: all digests in it fit each other, and the state is another one."""
    plan = load_plan(workspace.plan)
    before = read_initial_model(workspace.plan, plan)
    run = finished_run(workspace.folder, plan, before)
    made = extension(workspace.plan, before, FinishedRun(lie(run.state), run.lost_rounds), rounds)
    apply_update(made.update, workspace.folder)


def moved(state: RunState) -> RunState:
    model = replace(state.model, vector=state.model.vector + np.asarray(1e-3, state.model.vector.dtype))
    return replace(state, model=model, last=None, final=None)


def without_moments(state: RunState) -> RunState:
    assert state.terms["moments"] is not None
    return holding(state, moments=replace(state.terms["moments"], threshold_first=0.25))


def rolled_back(state: RunState) -> RunState:
    return replace(state, rounds_done=RoundNumber(state.rounds_done - 2), final=None)


LIES = {"another model": moved, "other moments": without_moments, "an earlier round": rolled_back}


def approve_by_command(workspace: Workspace, name: str) -> Result:
    words = ["plan", "approve", "-n", name, "-p", str(workspace.plan), "--yes"]
    return CliRunner().invoke(app, [*words, "--cert-folder", str(workspace.folder / "cert")])


@pytest.mark.slow
@pytest.mark.parametrize("protection", [{"mode": "off"}, MASKED])
def test_every_site_notices_a_plan_that_goes_on_from_another_state(
    tmp_path: Path, protection: dict[str, object]
) -> None:
    honest = prepare(
        tmp_path / "honest", small_plan(rounds=6, protection=protection, **{**STEADY, "output": "last"})
    )
    played(honest)
    for lie in LIES.values():
        folder = tmp_path / lie.__name__
        shutil.copytree(honest.folder, folder)
        workspace = Workspace(folder, honest.collaborators)
        forged(workspace, lie)
        digest = approved(workspace)
        # The plan is sound in itself, and whoever has no copy of the run could not tell.
        assert read_initial_model(workspace.plan, load_plan(workspace.plan)).plan_digest == digest
        for name in workspace.collaborators:
            refused = approve_by_command(workspace, name)
            assert isinstance(refused.exception, ApprovalError), refused.output
            assert f"in {name}'s own copy of that run the end is" in refused.exception.message
            # And a site that was made to approve it takes no part all the same.
            with pytest.raises(ApprovalError, match="own copy of that run the end is"):
                make_ready(read_site(name, folder / f"{name}.yaml", workspace.plan, None))


@pytest.mark.slow
def test_a_site_approves_the_end_that_it_has_seen_and_tells_when_it_has_seen_none(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=4, **STEADY))
    played(workspace)
    old = read_initial_model(workspace.plan, load_plan(workspace.plan)).plan_digest
    extended(workspace, 3)
    seen, new, lost = workspace.collaborators
    done = approve_by_command(workspace, seen)
    assert done.exit_code == 0, done.output
    assert f"is the one in which {seen} saw the earlier run end" in done.output
    for path in (tmp_path / "state").glob(f"{state_stem(new, old)}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = approve_by_command(workspace, new)
    assert done.exit_code == 0, done.output
    assert f"{new} has no copy of the earlier run" in done.output
    (tmp_path / "state" / f"{state_stem(lost, old)}.run").unlink()
    refused = approve_by_command(workspace, lost)
    assert isinstance(refused.exception, StateError)
    assert "cannot be read" in refused.exception.message
    assert "move these files away" in refused.exception.remedy


@pytest.mark.slow
def test_an_aggregator_that_begins_elsewhere_than_the_plan_says_gets_no_sum(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=4, protection=MASKED, **STEADY))
    played(workspace)
    shutil.copytree(tmp_path / "plan", tmp_path / "before")
    extended(workspace, 2)
    honest = read_initial_model(workspace.plan, load_plan(workspace.plan)).plan_digest
    ready = {
        name: make_ready(read_site(name, tmp_path / f"{name}.yaml", workspace.plan, None))
        for name in workspace.collaborators
    }
    # The aggregator has a plan of its own, with another state, and says that it runs the one that all approved.
    shutil.rmtree(tmp_path / "plan")
    shutil.copytree(tmp_path / "before", tmp_path / "plan")
    forged(workspace, moved, 2)

    def lying(plan_file: Path) -> InitialModel:
        return replace(read_initial_model(plan_file, load_plan(plan_file)), plan_digest=honest)

    async def until_it_gives_up(federation: Federation) -> None:
        federation.sites.update(ready)
        sites = [asyncio.create_task(federation.take_part(name)) for name in workspace.collaborators]
        await asyncio.wait({federation.serving})
        for site in sites:
            site.cancel()
        await asyncio.gather(*sites, return_exceptions=True)

    ending = play(workspace, until_it_gives_up, binding=lying)
    assert ending.state.value == "aborted"
    assert "0 of 3 contributed" in ending.words
    assert json.loads(workspace.result.read_text())["rounds"] == 4


@pytest.mark.slow
def test_what_cannot_be_extended_is_refused_in_words(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=3, **STEADY))
    words = ["plan", "extend", "-p", str(workspace.plan), "--rounds"]

    def refusal(*more: str) -> BaseException | None:
        return CliRunner().invoke(app, [*words, *more]).exception

    found = refusal("2")
    assert isinstance(found, StateError)
    assert "journal.sqlite is missing" in found.message
    run = prepared(workspace)
    run.records.close()
    found = refusal("2")
    assert isinstance(found, PlanError)
    assert "is not finished" in found.message
    played(workspace)
    for rounds in ("0", "-3"):
        found = refusal(rounds)
        assert isinstance(found, PlanError)
        assert "at least one round more" in found.message
    text = workspace.plan.read_text()
    workspace.plan.write_text(text.replace("rounds: 3", "rounds: 3\n  seed: 9"))
    found = refusal("2")
    assert isinstance(found, PlanError)
    assert "is out of date" in found.message
    workspace.plan.write_text(text.replace("rounds: 3", "rounds: 4"))
    found = refusal("2")
    assert isinstance(found, StateError)
    assert "belongs to another plan" in found.message
    workspace.plan.write_text(text)
    extended(workspace, 2)
    # Before its first round the longer plan cannot be extended once more.
    found = refusal("2")
    assert isinstance(found, StateError)
    # Fewer rounds than are done are no plan.
    workspace.plan.write_text(text)
    with pytest.raises(PlanError, match="is 3, and 3 rounds are done"):
        load_plan(workspace.plan)


@pytest.mark.slow
def test_no_plan_counts_fewer_attempts_at_noised_rounds_than_a_site_has_answered(tmp_path: Path) -> None:
    document = small_plan(rounds=3, protection={"mode": "malicious", "ring_bits": 24}, weights="uniform")
    document["task"] = {**document["task"], "standardize": "ranges"}  # type: ignore[dict-item]
    document["privacy"] = {"collaborator_level": {"noise_multiplier": 2.0, "clip": 0.2}}
    workspace = prepare(tmp_path, document)
    played(workspace)
    first = json.loads(workspace.result.read_text())
    name, digest = workspace.collaborators[0], parse_digest(first["plan_digest"])
    stem = tmp_path / "state" / state_stem(name, digest)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "plan").iterdir()}
    (run_id,) = {path.name for path in (tmp_path / "runs" / name).iterdir()}
    # The site has answered round 2 twice, and the aggregator's journal lost that.
    answered = stem.with_name(f"{stem.name}.answered")
    with closing(TableFile(answered, ANSWERED)) as table:
        assert [answers_in_round(table, run_id, number) for number in (1, 2, 3, 4)] == [1, 1, 1, 0]
        table.write([number_row(_place_key(run_id, "training", 2, 0, ""), 2)])
    extended(workspace, 2)
    refused = approve_by_command(workspace, name)
    assert isinstance(refused.exception, ApprovalError), refused.output
    assert (
        f"0 attempts at rounds of the earlier run were given up; {name} has answered 1"
        in refused.exception.message
    )
    with pytest.raises(ApprovalError, match="noise counts each of them"):
        make_ready(read_site(name, tmp_path / f"{name}.yaml", workspace.plan, None))
    assert approve_by_command(workspace, workspace.collaborators[1]).exit_code == 0
    for path, content in kept.items():
        (tmp_path / "plan" / path).write_bytes(content)
    for path in ("plan.initial.yaml", "plan.initial.state"):
        (tmp_path / "plan" / path).unlink()
    words = ["plan", "extend", "-p", str(workspace.plan), "--rounds", "2", "--lost-rounds"]
    assert isinstance(CliRunner().invoke(app, [*words, "-1"]).exception, PlanError)
    done = CliRunner().invoke(app, [*words, "1"])
    assert done.exit_code == 0, (done.output, done.exception)
    approved(workspace)
    assert approve_by_command(workspace, name).exit_code == 0
    played(workspace)
    told = json.loads(workspace.result.read_text())["privacy"]["collaborator_level"]
    # Five rounds, and the attempt that was lost.
    assert told["rounds"] == 6
    assert told["epsilon"] > first["privacy"]["collaborator_level"]["epsilon"]
    answered.unlink()
    with pytest.raises(StateError, match="cannot tell how often it answered"):
        make_ready(read_site(name, tmp_path / f"{name}.yaml", workspace.plan, None))
