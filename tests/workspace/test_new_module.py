"""A module of own code: the template runs as it is, simulated and approved, and no file is replaced."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fedfair.api.simulation import simulate
from fedfair.cli.commands import app
from fedfair.errors import PlanError
from fedfair.plan.loading import load_plan
from fedfair.training.binding import plan_binding
from fedfair.workspace.create import task_text, write_module


def workspace(folder: Path, name: str) -> Path:
    (folder / "plan").mkdir(parents=True)
    plan = {
        "federation": {"name": "own", "collaborators": ["clinic-a", "clinic-b"]},
        "training": {"rounds": 30},
        **yaml.safe_load(task_text(name)),
    }
    (folder / "plan" / "plan.yaml").write_text(yaml.safe_dump(plan))
    return folder / "plan" / "plan.yaml"


def test_the_module_runs_as_it_is_under_the_plan_s_digest(tmp_path: Path) -> None:
    plan = workspace(tmp_path, "own_template")
    ran = CliRunner().invoke(app, ["plan", "new-module", "own_template", "--plan", str(plan)])
    assert ran.exit_code == 0, ran.output
    assert "data: own_template:records" in ran.output
    outcome = simulate(plan)
    assert outcome.result.test is not None
    assert outcome.result.test.accuracy > 0.85
    assert outcome.model.predict([[1.0] * 13]).shape == (1,)
    other = tmp_path / "other"
    plan = workspace(other, "own_digested")
    place = write_module(other, "own_digested")
    before = plan_binding(load_plan(plan), other).digest
    assert plan_binding(load_plan(plan), other).digest == before
    place.write_text(place.read_text() + "# one more line\n")
    assert plan_binding(load_plan(plan), other).digest != before
    place = write_module(tmp_path, "own")
    place.write_text("# mine\n")
    with pytest.raises(PlanError, match="exists and is not replaced"):
        write_module(tmp_path, "own")
    assert place.read_text() == "# mine\n"


@pytest.mark.parametrize("name", ["Own", "a-b", "", "class", "json", "torch", "x" * 41, "../own", "own.py"])
def test_a_name_that_cannot_be_imported_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PlanError, match=r"is (no name of a|the name of another) module"):
        write_module(tmp_path, name)
