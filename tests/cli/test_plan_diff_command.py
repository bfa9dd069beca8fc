"""`fedfair plan diff` and a changed plan that travels, as a person types it."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedfair.cli.commands import app
from fedfair.errors import PlanError
from fedfair.identity.certificate import parse_participant
from fedfair.identity.store import create_site
from fedfair.plan.loading import load_plan
from fedfair.store.table_file import Content, TableFile
from fedfair.workspace.create import create_workspace

ESCAPES = "x = 1  # \x1b[2J\u202e\n"


def run(*words: str) -> Result:
    outcome = CliRunner().invoke(app, list(words))
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work beside a workspace and a changed copy of it."""
    monkeypatch.chdir(tmp_path)
    create_workspace(Path("old"), "heart", "breast-cancer")
    for name in ("clinic-a", "clinic-b"):
        request = create_site(Path("old/cert"), parse_participant("heart", name))
        Path(f"{name}.request.json").write_bytes(request)
    run("plan", "enroll", "clinic-a.request.json", "clinic-b.request.json", "-p", "old/plan/plan.yaml", "--yes")
    shutil.copytree("old", "new")
    change(Path("new"))
    return tmp_path


def change(folder: Path) -> None:
    plan = folder / "plan" / "plan.yaml"
    plan.write_text(plan.read_text().replace("rounds: 100", "rounds: 7"))


def test_the_status_is_that_of_diff_and_json_has_the_same_facts() -> None:
    assert run("plan", "diff", "old", "old").exit_code == 0
    assert run("plan", "diff", "old", "new").exit_code == 1
    with pytest.raises(PlanError):
        run("plan", "diff", "old", "missing")
    found = json.loads(run("plan", "diff", "old", "new", "--json").stdout)
    assert found["format"] == "fedfair/plan-diff/1"
    assert found["keys"] == [{"key": "training.rounds", "old": 100, "new": 7, "concern": "what is computed"}]
    assert (found["same"], found["approvals_stay_valid"]) == (False, False)
    assert found["old"]["plan_digest"] != found["new"]["plan_digest"]
    assert [one["heading"] for one in found["statements"]] == ["trains"]
    Path("new/src/own.py").write_text(ESCAPES)
    output = run("plan", "diff", "old", "new").output
    words = " ".join(output.split())
    assert "training.rounds 100 7 what is computed" in words
    assert "+x = 1" in output
    assert not {"\x1b", "\u202e"} & set(output)
    assert output.count("digest sha256:") == 2
    assert "to approve again: the plan, by every site" in words


def site() -> Path:
    """Make a site that has approved the old plan."""
    run("workspace", "export", "heart.zip", "-w", "old")
    run("workspace", "import", "heart.zip", "site", "--name", "clinic-a")
    shutil.copytree("old/cert", "site/cert")
    plan, keys = "site/plan/plan.yaml", "site/cert"
    run("plan", "approve", "--name", "clinic-a", "--yes", "-p", plan, "--cert-folder", keys)
    assert Path("site/approvals/clinic-a.json").exists()
    return Path("site")


def test_a_changed_plan_travels_and_voids_the_approval_of_the_old_one() -> None:
    folder = site()
    own = (folder / "collaborator.yaml").read_text().replace("train: null", "train: /srv/own.csv")
    (folder / "collaborator.yaml").write_text(own)
    exported = run("workspace", "export", "heart.zip", "-w", "new", "--update").output
    assert "training.rounds" in exported
    with pytest.raises(PlanError, match="no terminal to ask") as refusal:
        run("workspace", "import", "heart.zip", "site", "--update")
    assert "--yes" in refusal.value.remedy
    assert load_plan(folder / "plan" / "plan.yaml").training.rounds == 100
    output = " ".join(run("workspace", "import", "heart.zip", "site", "--update", "--yes").output.split())
    assert "training.rounds 100 7" in output
    assert "the approval of the old plan is void" in output
    assert load_plan(folder / "plan" / "plan.yaml").training.rounds == 7
    assert not (folder / "approvals" / "clinic-a.json").exists()
    assert len(list((folder / "approvals" / "void").iterdir())) == 1
    assert (folder / "collaborator.yaml").read_text() == own
    assert (folder / "cert" / "clinic-a" / "signing.key").exists()


def test_a_change_of_comments_keeps_the_approval() -> None:
    folder = site()
    plan = Path("old/plan/plan.yaml")
    plan.write_text(plan.read_text() + "# one more word\n")
    run("workspace", "export", "heart.zip", "-w", "old", "--update")
    assert "approvals stay valid" in run("workspace", "import", "heart.zip", "site", "--update", "--yes").output
    assert (folder / "approvals" / "clinic-a.json").exists()
    assert "one more word" in (folder / "plan" / "plan.yaml").read_text()


def begin(folder: Path, state: str) -> None:
    """Leave the files of a run of the approved plan."""
    digest = json.loads((folder / "approvals" / "clinic-a.json").read_text())["plan_digest"]
    (folder / "state").mkdir()
    stem = f"clinic-a-{digest.removeprefix('sha256:')[:16]}"
    with closing(TableFile(folder / "state" / f"{stem}.answered", Content("a record", ""))) as record:
        if state == "answered":
            record.write([(b"key", b"value")])
    # A connection alone keeps the state before the first sum.
    (folder / "state" / f"{stem}.run").write_bytes(b"round 0")
    (folder / "state" / f"{stem}.secagg").write_bytes(b"" if state in {"waits", "answered"} else b"a session")
    if state not in {"waits", "begun", "answered"}:
        (folder / "runs" / "clinic-a" / "0").mkdir(parents=True)
        result = json.dumps({"plan_digest": digest, "state": state})
        (folder / "runs" / "clinic-a" / "0" / "result.json").write_text(result)


@pytest.mark.parametrize("state", ["begun", "answered", "running", "stopped", "aborted"])
def test_a_run_that_has_begun_is_not_changed_under_its_sites(state: str) -> None:
    folder = site()
    begin(folder, state)
    with pytest.raises(PlanError, match="that run has begun; nothing was changed") as refusal:
        run("workspace", "import", str(archive()), "site", "--update", "--yes")
    assert "let it finish" in refusal.value.remedy
    assert load_plan(folder / "plan" / "plan.yaml").training.rounds == 100
    assert (folder / "approvals" / "clinic-a.json").exists()


def test_a_collaborator_that_runs_here_is_to_be_stopped_first() -> None:
    folder = site()
    begin(folder, "waits")
    (path,) = (folder / "state").glob("*.answered")
    with closing(TableFile(path, Content("a record", ""))), pytest.raises(PlanError, match="runs here") as refusal:
        run("workspace", "import", str(archive()), "site", "--update", "--yes")
    assert refusal.value.remedy.startswith("stop it")


@pytest.mark.parametrize("state", ["waits", "finished"])
def test_a_run_that_waits_or_is_over_blocks_nothing(state: str) -> None:
    folder = site()
    begin(folder, state)
    run("workspace", "import", str(archive()), "site", "--update", "--yes")
    assert load_plan(folder / "plan" / "plan.yaml").training.rounds == 7


def archive() -> Path:
    run("workspace", "export", "changed.zip", "-w", "new")
    return Path("changed.zip")


def test_an_archive_that_would_be_the_same_is_left_alone() -> None:
    run("workspace", "export", "heart.zip", "-w", "old")
    before = Path("heart.zip").stat().st_ino
    assert "it was left alone" in run("workspace", "export", "heart.zip", "-w", "old", "--update").output
    assert Path("heart.zip").stat().st_ino == before
