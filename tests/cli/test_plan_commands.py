"""`fedfair plan`, as a person types it."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from typer.testing import CliRunner

from fedfair.cli.commands import app as commands
from fedfair.cli.plan import app
from fedfair.errors import ApprovalError, DataError, FedfairError, IdentityError, PlanError, StateError
from fedfair.identity.certificate import parse_participant
from fedfair.identity.store import create_site
from fedfair.ids import FederationName, ParticipantId
from fedfair.plan.approval import verify_approval
from fedfair.plan.digest import parse_digest
from fedfair.plan.loading import load_plan
from fedfair.plan.public_keys import parse_public_key
from fedfair.plan.schema import Plan
from fedfair.workspace.create import create_workspace


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a new workspace whose two sites have made their requests."""
    folder = tmp_path / "heart"
    create_workspace(folder, "heart", "breast-cancer")
    monkeypatch.chdir(folder)
    for name in ("clinic-a", "clinic-b"):
        request = create_site(Path("cert"), parse_participant("heart", name))
        Path(f"{name}.request.json").write_bytes(request)
    return folder


def run(*words: str, answer: str | None = None) -> str:
    outcome = CliRunner().invoke(app, list(words), input=answer)
    if outcome.exception is not None:
        raise outcome.exception
    return outcome.output


@pytest.fixture
def enrolled(workspace: Path) -> Path:
    run("enroll", "clinic-a.request.json", "clinic-b.request.json", "--yes")
    return workspace


@pytest.mark.usefixtures("enrolled")
def test_check_says_what_the_plan_does_and_warns() -> None:
    output = " ".join(run("check").split())
    assert (
        "95 % the mean loss of the worst 10 % plus 5 % the mean loss of everybody; the loss is the excess"
        in output
    )
    promised = "an aggregator that may do anything, alone, learns one sum over at least 2 sites a round"
    assert promised in output
    assert "warning" not in output
    plan = Path("plan/plan.yaml")
    plan.write_text(plan.read_text().replace("mode: malicious", 'mode: "off"'))
    output = " ".join(run("check").split())
    assert "NONE: secure aggregation is OFF" in output
    assert "warning: secure_aggregation.mode is off" in output
    assert "no signing key is pinned" not in output
    assert "minimises" not in run("check", "--quiet")


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("task", "hidden"), [({"data": "own:records", "input_shape": [1, 64, 64], "classes": 2}, [32]), ({}, [1000])]
)
def test_check_refuses_references_that_fit_into_no_masked_sum(task: dict[str, object], hidden: list[int]) -> None:
    plan = Path("plan/plan.yaml")
    values = yaml.safe_load(plan.read_text())
    values["task"] |= task
    values["objective"]["reference"] = {"hidden": hidden}
    plan.write_text(yaml.safe_dump(values))
    with pytest.raises(PlanError, match=r"objective\.measure.* is excess, .* numbers into a sum") as caught:
        run("check")
    assert "set measure: loss, or narrower layers" in caught.value.diagnostics()


@pytest.mark.usefixtures("workspace")
def test_check_reports_as_json() -> None:
    report = json.loads(run("check", "--json"))
    assert report["format"] == "fedfair/plan-check/1"
    assert report["summary"]["code of its own"] == "none"
    assert report["errors"] == report["warnings"] == []
    assert any("no signing key is pinned for clinic-a, clinic-b" in note for note in report["notes"])


@pytest.mark.usefixtures("workspace")
def test_check_leads_with_what_masks_leave_open_for_so_many_sites() -> None:
    begins = " ".join(run("check").split())
    assert begins.startswith(
        "know first: one site that sides with the aggregator, such as the hospital that runs it"
    )
    assert "Two neighbouring rounds" not in begins
    plan = Path("plan/plan.yaml")
    stated = yaml.safe_load(plan.read_text())
    stated["federation"] |= {"collaborators": ["clinic-a", "clinic-b", "clinic-c"], "min_collaborators": 2}
    plan.write_text(yaml.safe_dump(stated))
    begins = " ".join(run("check").split())
    assert begins.startswith("know first: federation.min_collaborators: 2 lets a sum leave out 1 of 3 sites. Two ")
    assert [said.partition(" ")[0] for said in json.loads(run("check", "--json"))["know_first"]] == [
        "federation.min_collaborators:",
        "one",
    ]
    path = Path("plan/plan.yaml")
    plan = yaml.safe_load(path.read_text())
    plan["federation"]["collaborators"] = [f"clinic-{number}" for number in range(1000)]
    path.write_text(yaml.safe_dump(plan))
    output = " ".join(run("check").split())
    assert "at most 1000 sites can add under masks; with 1000, a site sends 5.5 kB a round" in output
    assert "to set up a session the aggregator carries 37.6 MB and a site computes for some 29 ms" in output
    assert "each shares masks with 40 others, 22 of these and itself open its mask" in output
    assert json.loads(run("check", "--json"))["masks"].startswith("at most 1000 sites can add under masks")
    plan["federation"]["collaborators"].append("clinic-1000")
    path.write_text(yaml.safe_dump(plan))
    with pytest.raises(PlanError, match="names 1001, and at most 1000 can add under masks"):
        run("check")


@pytest.mark.usefixtures("workspace")
def test_what_show_prints_is_the_plan_and_a_mistake_ends_every_command() -> None:
    plan = load_plan(Path("plan/plan.yaml"))
    Path("shown.yaml").write_text(run("show"))
    assert load_plan(Path("shown.yaml")) == plan
    assert Plan.model_validate(json.loads(run("show", "--json"))) == plan
    assert yaml.safe_load(run("show"))["training"]["local_steps"] == 1
    path = Path("plan/plan.yaml")
    path.write_text(path.read_text().replace("rounds: 100", "rouds: 100"))
    for command in ("check", "show", "digest"):
        with pytest.raises(PlanError, match="unknown key -> did you mean 'rounds'"):
            run(command)


@pytest.mark.usefixtures("enrolled")
def test_the_digest_ignores_comments_and_sees_values() -> None:
    path = Path("plan/plan.yaml")
    before = run("digest").strip()
    assert len(parse_digest(before)) == 32
    path.write_text("# another comment\n" + path.read_text())
    assert run("digest").strip() == before
    assert json.loads(run("digest", "--json"))["plan_digest"] == before
    path.write_text(path.read_text().replace("rounds: 100", "rounds: 101"))
    assert run("digest").strip() != before


@pytest.mark.usefixtures("enrolled")
def test_an_approval_is_of_the_shown_digest_and_verifies() -> None:
    output = run("approve", "--name", "clinic-a", answer="y\n")
    digest = run("digest").strip()
    assert f"digest {digest}" in output
    assert "minimises" in output
    key = parse_public_key(load_plan(Path("plan/plan.yaml")).federation.roster["clinic-a"])
    raw = Path("approvals/clinic-a.json").read_bytes()
    verify_approval(
        raw, plan_digest=parse_digest(digest), federation=FederationName("heart"),
        participant=ParticipantId("clinic-a"), public_key=Ed25519PublicKey.from_public_bytes(key),
    )  # fmt: skip
    assert datetime.fromisoformat(json.loads(raw)["approved_at"]).tzinfo == UTC


@pytest.mark.usefixtures("enrolled")
def test_nothing_is_approved_without_a_yes() -> None:
    with pytest.raises(ApprovalError, match="nothing was approved"):
        run("approve", "--name", "clinic-a", answer="n\n")
    assert not Path("approvals/clinic-a.json").exists()


@pytest.mark.usefixtures("workspace")
def test_an_approval_that_nobody_could_verify_is_refused() -> None:
    with pytest.raises(ApprovalError, match="pins no signing key for clinic-a"):
        run("approve", "--name", "clinic-a", "--yes")
    with pytest.raises(IdentityError, match="clinic-z"):
        run("approve", "--name", "clinic-z", "--yes")
    run("enroll", "clinic-a.request.json", "--yes")
    create_site(Path("elsewhere"), parse_participant("heart", "clinic-a"))
    with pytest.raises(ApprovalError, match="pins another signing key for clinic-a"):
        run("approve", "--name", "clinic-a", "--cert-folder", "elsewhere", "--yes")


@pytest.mark.usefixtures("enrolled")
def test_the_code_that_would_run_is_shown_before_it_is_approved() -> None:
    Path("src/fedfair_test_linear.py").write_text(
        "from torch import nn\n\ndef build(schema):\n    return nn.Linear(schema.input_shape[0], schema.classes)\n"
    )
    Path("src/fedfair_test_neighbour.py").write_text("X = 1\n")
    path = Path("plan/plan.yaml")
    path.write_text(path.read_text().replace("model: {name: linear}", "model: fedfair_test_linear:build"))
    output = run("approve", "--name", "clinic-b", "--yes")
    assert "runs src/fedfair_test_linear.py, SHA-256 " in output
    before = run("digest")
    Path("src/fedfair_test_neighbour.py").write_text("X = 2\n")
    assert run("digest") != before


RUN = Path("the-code-has-run")


@pytest.fixture
def telltale(enrolled: Path) -> Path:
    """Work in a plan of clinic-a's whose code leaves a file behind as soon as it is imported."""
    module = f"telltale_of_{enrolled.parent.name}"  # One process can import a name from one workspace only.
    Path(f"src/{module}.py").write_text(
        f"import pathlib\nfrom torch import nn\n\npathlib.Path({str(RUN)!r}).touch()\n\n"
        "def build(schema):\n    return nn.Linear(schema.input_shape[0], schema.classes)\n"
    )
    path = Path("plan/plan.yaml")
    path.write_text(path.read_text().replace("model: {name: linear}", f"model: {module}:build"))
    return enrolled


def _allow_code() -> None:
    path = Path("collaborator.yaml")
    path.write_text(path.read_text().replace("allow_module_code: false", "allow_module_code: true"))


@pytest.mark.usefixtures("telltale")
def test_code_that_the_site_s_policy_refuses_does_not_run_for_an_approval() -> None:
    with pytest.raises(ApprovalError, match=r"policy in collaborator\.yaml refuses module code"):
        run("approve", "--name", "clinic-a", "--yes")
    assert not RUN.exists()
    _allow_code()
    run("approve", "--name", "clinic-a", "--yes")
    assert RUN.exists()


@pytest.mark.usefixtures("telltale")
def test_code_runs_for_an_approval_only_after_a_yes() -> None:
    _allow_code()
    with pytest.raises(ApprovalError, match="nothing was run"):
        run("approve", "--name", "clinic-a", answer="n\n")
    assert not RUN.exists()
    assert "approved: " in run("approve", "--name", "clinic-a", answer="y\ny\n")


@pytest.mark.usefixtures("workspace")
def test_nothing_is_approved_or_enrolled_without_a_yes_and_fingerprints() -> None:
    with pytest.raises(ApprovalError, match="nobody was enrolled"):
        run("enroll", "clinic-a.request.json", answer="n\n")
    assert not Path("plan/roster.yaml").exists()
    output = run("enroll", "clinic-a.request.json", answer="y\n")
    assert "clinic-a: ed25519:" in output
    assert set(load_plan(Path("plan/plan.yaml")).federation.roster) == {"clinic-a"}
    other = create_site(Path("other"), parse_participant("lungs", "clinic-a"))
    Path("other.request.json").write_bytes(other)
    with pytest.raises(ApprovalError, match="is for federation 'lungs', the plan is of 'heart'"):
        run("enroll", "other.request.json", "--yes")
    with pytest.raises(ApprovalError, match="second request of clinic-a"):
        run("enroll", "clinic-a.request.json", "clinic-a.request.json", "--yes")
    Path("aggregator.request.json").write_bytes(
        create_site(Path("cert"), parse_participant("heart", "aggregator"))
    )
    with pytest.raises(FedfairError, match="'aggregator' is no collaborator"):
        run("enroll", "aggregator.request.json", "--yes")


def _name_code(digest: str) -> None:
    path = Path("collaborator.yaml")
    path.write_text(path.read_text().replace("module_code: []", f"module_code: [{digest}]"))


@pytest.mark.usefixtures("telltale")
def test_only_code_whose_digest_the_site_names_runs_for_an_approval() -> None:
    _name_code("sha256:" + 64 * "0")
    with pytest.raises(ApprovalError, match="runs other code here") as caught:
        run("approve", "--name", "clinic-a", "--yes")
    assert not RUN.exists()
    digest = re.findall(r"sha256:[0-9a-f]{64}", caught.value.remedy)[0]
    path = Path("collaborator.yaml")
    path.write_text(path.read_text().replace("sha256:" + 64 * "0", digest))
    assert "approved: " in run("approve", "--name", "clinic-a", "--yes")
    assert RUN.exists()


@pytest.mark.usefixtures("telltale")
def test_check_prints_the_digest_of_the_code_to_copy_and_runs_none_of_it() -> None:
    digest = re.findall(r"code, for policy.module_code: (sha256:[0-9a-f]{64})", run("check"))[0]
    with pytest.raises(SystemExit):
        run("check", "-c", "collaborator.yaml")
    _name_code(digest)
    output = "".join(run("check", "-c", "collaborator.yaml").split())
    assert digest in output
    assert "✗" not in output
    assert not RUN.exists()


@pytest.mark.usefixtures("workspace")
def test_check_holds_a_plan_against_a_sites_policy_term_by_term() -> None:
    path = Path("collaborator.yaml")
    path.write_text(path.read_text().replace("max_rounds: null", "max_rounds: 50"))
    outcome = CliRunner().invoke(app, ["check", "-c", "collaborator.yaml", "--json"])
    assert outcome.exit_code == 2
    report = json.loads(outcome.stdout)
    assert report["collaborator"] == "clinic-a"
    held = {(row["term"], row["asked"]): row for row in report["policy"]}
    rounds = held["max_rounds", "100"]
    assert (rounds["allowed"], rounds["ok"]) == ("at most 50", False)
    assert rounds["remedy"] == "set policy.max_rounds: 100 or more"
    assert held["mode", "malicious"]["ok"]
    path.write_text(path.read_text().replace("max_rounds: 50", "max_rounds: 100"))
    assert all(row["ok"] for row in json.loads(run("check", "-c", "collaborator.yaml", "--json"))["policy"])


def _saved_model() -> Path:
    """Train the workspace's plan on this machine, in two rounds, and return the model's file."""
    path = Path("plan/plan.yaml")
    short = path.read_text().replace("rounds: 100", "rounds: 2")
    path.write_text(short.replace("  measure: excess", "  reference: {rounds: 8}\n  measure: excess"))
    done = CliRunner().invoke(commands, ["simulate", "-q", "--save", "save"])
    assert done.exit_code == 0, done.output
    return Path("save/last.safetensors")


@pytest.mark.usefixtures("enrolled")
def test_a_saved_model_is_approved_by_its_digest_and_copied_into_the_sites_folder() -> None:
    model = _saved_model()
    with pytest.raises(ApprovalError, match="nothing was approved"):
        run("approve", "-n", "clinic-a", "--model", str(model), answer="n\n")
    assert not list(Path("approvals").glob("*.model-*"))
    output = run("approve", "-n", "clinic-a", "--model", str(model), answer="y\n")
    assert "model of round 2 of 2" in output
    found = re.search(r"model digest sha256:([0-9a-f]{64})", output)
    assert found
    stem = f"clinic-a.model-{found[1]}"
    approved = sorted(path.name for path in Path("approvals").glob("*.model-*"))
    assert approved == [f"{stem}.json", f"{stem}.safetensors"]
    assert json.loads(Path(f"approvals/{stem}.json").read_text())["plan_digest"] == run("digest").strip()


@pytest.mark.usefixtures("enrolled")
def test_a_model_that_is_missing_of_another_plan_or_of_other_columns_is_not_approved() -> None:
    model = _saved_model()
    with pytest.raises(ApprovalError, match=r"there is no model nothing\.safetensors"):
        run("approve", "-n", "clinic-a", "--model", "nothing.safetensors", "--yes")
    with pytest.raises(ApprovalError, match="clinic-z is no collaborator"):
        run("approve", "-n", "clinic-z", "--model", str(model), "--yes")
    path = Path("plan/plan.yaml")
    text = path.read_text()
    path.write_text(text.replace("rounds: 2", "rounds: 3"))
    with pytest.raises(DataError, match="was trained by the plan"):
        run("approve", "-n", "clinic-a", "--model", str(model), "--yes")
    path.write_text(text.replace("model: {name: linear}", "model: {name: mlp, hidden: [3]}"))
    with pytest.raises(DataError, match="holds no model of this plan: its architecture is"):
        run("approve", "-n", "clinic-a", "--model", str(model), "--yes")
    path.write_text(text.replace("data: breast-cancer", "data: digits"))
    with pytest.raises(
        DataError, match="its column 1 is the number 'mean radius', the plan's is the number 'pixel"
    ):
        run("approve", "-n", "clinic-a", "--model", str(model), "--yes")
    assert not list(Path("approvals").glob("*.model-*"))


@pytest.mark.usefixtures("workspace")
def test_plans_for_simulations_and_extensions_without_a_run_are_refused() -> None:
    path = Path("plan/plan.yaml")
    path.write_text(
        path.read_text()
        .replace("algorithm: fedsrcvar", "algorithm: drfa")
        .replace("measure: excess", "measure: loss")
    )
    assert "simulation only: training.algorithm: drfa is for simulation only" in " ".join(run("check").split())
    with pytest.raises(PlanError, match="drfa is for simulation only"):
        run("check", "-c", "collaborator.yaml")
    assert not Path("plan/plan.initial.safetensors").exists()
    found = CliRunner().invoke(app, ["extend", "--rounds", "5"]).exception
    assert isinstance(found, StateError)
    assert "journal.sqlite is missing" in found.message
    assert "--folder" in found.remedy
