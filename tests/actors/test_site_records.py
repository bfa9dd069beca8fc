"""A site alone uses a model of a plan that it has approved, and runs no code of any other plan."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import collaborator.commands
from collaborator.site_records import site_records
from fedfair.cli.commands import app
from fedfair.errors import ApprovalError, FedfairError
from fedfair.policy.plan_check import PolicyError
from fedfair.run.saved_model import read_saved, save_model
from tests.plans import small_plan
from tests.prediction.saved_runs import SavedRun, approved_run

MODULE = "fedfair_test_own_records"
CODE = """
from pathlib import Path

from torch import nn

(Path({place!r}) / "ran").write_text("ran")

def build(schema):
    return nn.Linear(schema.input_shape[0], schema.classes)
"""
SITE = "clinic-a"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SavedRun]:
    """Yield an approved run of a model of own code, which tells when it is imported."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / f"{MODULE}.py").write_text(CODE.format(place=str(tmp_path)))
    plan = small_plan(rounds=1)
    task = plan["task"]
    assert isinstance(task, dict)
    task |= {"model": f"{MODULE}:build", "validation_fraction": 0.2, "test_fraction": 0.2}
    made = approved_run(tmp_path, plan | {"task": task})
    allow(made, allow_module_code=True)
    forget(made)
    yield made
    forget(made)


def forget(run: SavedRun) -> None:
    sys.modules.pop(MODULE, None)
    (run.workspace / "ran").unlink(missing_ok=True)


def has_run(run: SavedRun) -> bool:
    return MODULE in sys.modules or (run.workspace / "ran").exists()


def allow(run: SavedRun, **terms: object) -> None:
    file = run.workspace / f"{SITE}.yaml"
    stated = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**stated, "policy": {**stated["policy"], **terms}}))


def change_code(run: SavedRun) -> None:
    """Change one byte."""
    source = run.workspace / "src" / f"{MODULE}.py"
    source.write_text(source.read_text().replace('"ran")\n', '"RAN")\n'))


def words_of(run: SavedRun, *command: str) -> list[str]:
    place = ["-c", str(run.workspace / f"{SITE}.yaml"), "-p", str(run.plan_file), "--model", str(run.model)]
    return [*command, *place]


def refused(run: SavedRun, command: str) -> FedfairError:
    more = ["--output", str(run.workspace / "own.safetensors")] if command == "personalise" else []
    program = app if command == "evaluate" else collaborator.commands.app
    fault = CliRunner().invoke(program, [*words_of(run, command), *more]).exception
    assert isinstance(fault, FedfairError), fault
    return fault


COMMANDS = ("evaluate", "compare", "personalise")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_plan_that_the_site_has_not_approved_runs_none_of_its_code(run: SavedRun, command: str) -> None:
    approval = run.workspace / "approvals" / f"{SITE}.json"
    approved = approval.read_bytes()
    approval.unlink()
    fault = refused(run, command)
    assert isinstance(fault, ApprovalError)
    assert f"{SITE} has not approved the plan" in fault.message
    assert "fedfair plan approve" in fault.remedy
    approval.write_bytes(approved)
    change_code(run)
    fault = refused(run, command)
    assert isinstance(fault, ApprovalError)
    assert f"{SITE} has approved plan {run.outcome.origin.plan_digest}, this plan is sha256:" in fault.message
    assert not has_run(run)


def test_the_approval_of_another_site_or_of_another_key_does_not_count(run: SavedRun) -> None:
    approvals = run.workspace / "approvals"
    (approvals / f"{SITE}.json").write_bytes((approvals / "clinic-b.json").read_bytes())
    assert "is for participant 'clinic-b'" in refused(run, "evaluate").message
    assert not has_run(run)


def test_an_approved_plan_is_evaluated_by_its_own_code(run: SavedRun) -> None:
    done = CliRunner().invoke(app, [*words_of(run, "evaluate"), "-q"], catch_exceptions=False)
    assert done.exit_code == 0
    assert has_run(run)


def test_a_model_without_its_initial_weights_needs_code_that_the_policy_names(run: SavedRun) -> None:
    found = read_saved(run.model)
    save_model(run.model, found.layout, found.saved, replace(found.origin, initial_weights=None))
    fault = refused(run, "compare")
    assert isinstance(fault, ApprovalError)
    assert not has_run(run)
    named = fault.remedy.split("name ")[1].split(" in ")[0]
    allow(run, module_code=[named])
    assert site_records(run.workspace / f"{SITE}.yaml", run.plan_file, run.model).participant == SITE
    forget(run)
    change_code(run)
    assert isinstance(refused(run, "compare"), PolicyError)
    assert not has_run(run)


def test_the_approval_of_a_model_lets_it_be_evaluated_and_nothing_else(run: SavedRun) -> None:
    (run.workspace / "approvals" / f"{SITE}.json").unlink()
    approve = ["plan", "approve", "-n", SITE, "-p", str(run.plan_file), "--model", str(run.model), "--yes"]
    assert CliRunner().invoke(app, approve, catch_exceptions=False).exit_code == 0
    forget(run)
    assert isinstance(refused(run, "personalise"), ApprovalError)
    assert isinstance(refused(run, "compare"), ApprovalError)
    assert not has_run(run)
    done = CliRunner().invoke(app, [*words_of(run, "evaluate"), "-q"], catch_exceptions=False)
    assert done.exit_code == 0
    forget(run)
    change_code(run)
    assert isinstance(refused(run, "evaluate"), ApprovalError)
    assert not has_run(run)
