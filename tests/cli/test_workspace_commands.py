"""`fedfair workspace`, as a person types it."""

import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.aggregation.calibration import Calibration
from fedfair.cli.workspace import app
from fedfair.errors import FedfairError, PlanError
from fedfair.plan.loading import load_plan
from fedfair.plan.sections import ReferenceSection
from fedfair.policy.disclosures import of_run
from fedfair.policy.plan_check import check_policy
from fedfair.policy.site_config import SitePolicy, load_site_config
from fedfair.policy.terms import AskedTerms
from fedfair.simulation.simulate import simulate


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> str:
    outcome = CliRunner().invoke(app, list(words))
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome.output


def test_a_new_workspace_has_a_good_plan_and_a_place_for_everything() -> None:
    assert "next: edit heart/plan/plan.yaml" in run("create", "heart")
    assert load_plan(Path("heart/plan/plan.yaml")).federation.name == "heart"
    assert {path.name for path in Path("heart").iterdir()} == {
        "plan", "src", "save", "logs", "data", "cert", "approvals", "collaborator.yaml", ".gitignore",
    }  # fmt: skip
    assert Path("heart/cert").stat().st_mode & 0o077 == 0
    assert {"cert/", "*.key", "data/"} <= set(Path("heart/.gitignore").read_text().split())


def test_a_new_workspace_gives_calibrated_probabilities_and_its_own_site_file_allows_them() -> None:
    run("create", "heart")
    plan = load_plan(Path("heart/plan/plan.yaml"))
    check_policy(AskedTerms(plan), load_site_config(Path("heart/collaborator.yaml")).policy, "clinic-a")
    assert "score-sums" in of_run(plan)
    assert "score-sums" not in SitePolicy().reveals  # a site allows them by name, and its new file does
    soon = plan.objective.model_copy(update={"reference": ReferenceSection(rounds=3)})
    rounds = plan.training.model_copy(update={"rounds": 2})
    done = simulate(plan.model_copy(update={"objective": soon, "training": rounds}), Path("heart"))
    assert isinstance(done.saved.calibration, Calibration)
    assert done.saved.calibration.split == "validation"


def test_unknown_templates_occupied_folders_and_unusable_names_are_refused() -> None:
    run("create", "My Folder", "--federation", "heart", "--template", "csv")
    assert load_plan(Path("My Folder/plan/plan.yaml")).federation.name == "heart"
    with pytest.raises(FedfairError, match="'Other Folder' is not usable"):
        run("create", "Other Folder")
    assert not Path("Other Folder").exists()
    assert "'mnist' is none of breast-cancer, csv" in " ".join(
        run("create", "heart", "--template", "mnist").split()
    )
    run("create", "heart")
    with pytest.raises(PlanError, match="nothing was written"):
        run("create", "heart")


def test_both_hosts_see_the_same_digest() -> None:
    run("create", "heart")
    exported = json.loads(run("export", "heart.zip", "--workspace", "heart", "--json"))
    imported = json.loads(run("import", "heart.zip", "copy", "--name", "clinic-b", "--json"))
    assert exported == imported
    assert exported["digest"] in run("import", "heart.zip", "second")
    assert load_plan(Path("copy/plan/plan.yaml")) == load_plan(Path("heart/plan/plan.yaml"))
    assert Path("copy/collaborator.yaml").read_text().startswith("# This site's own file")
    assert "collaborator: clinic-b" in Path("copy/collaborator.yaml").read_text()
    assert not Path("second/collaborator.yaml").exists()


def test_an_archive_is_imported_beside_keys_that_are_there_already() -> None:
    run("create", "heart")
    run("export", "heart.zip", "-w", "heart")
    Path("site/cert/clinic-a").mkdir(parents=True)
    Path("site/cert/clinic-a/signing.key").write_text("mine")
    run("import", "heart.zip", "site")
    assert Path("site/cert/clinic-a/signing.key").read_text() == "mine"
    with pytest.raises(PlanError, match="because these exist"):
        run("import", "heart.zip", "site")


def test_an_archive_never_overwrites_and_a_hostile_one_writes_nothing() -> None:
    run("create", "heart")
    run("export", "heart.zip", "-w", "heart")
    with pytest.raises(PlanError, match="it was left alone"):
        run("export", "heart.zip", "-w", "heart")
    with zipfile.ZipFile("heart.zip", "a") as archive:
        archive.writestr("../evil.yaml", "x: 1")
    with pytest.raises(PlanError, match="would write"):
        run("import", "heart.zip", "copy")
    assert not Path("copy").exists()
    assert not Path("evil.yaml").exists()
