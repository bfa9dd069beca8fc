"""`fedfair certificate`, as a person types it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

import fedfair
from fedfair.aggregation import model_file
from fedfair.certificate.document import parse_certificate
from fedfair.certificate.issue import MIN_RECORDS, IssueTerms
from fedfair.cli.commands import app
from fedfair.errors import CertificateError, FedfairError, IdentityError, PlanError
from fedfair.fairness.population_bounds import METHODS
from fedfair.identity.certificate import parse_participant
from fedfair.identity.store import create_site
from fedfair.plan.public_keys import format_public_key
from fedfair.workspace.create import create_workspace
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace after a short simulated run of its plan, with the aggregator's keys."""
    folder = tmp_path_factory.mktemp("heart")
    create_workspace(folder, "heart", "breast-cancer")
    plan = folder / "plan" / "plan.yaml"
    short = plan.read_text().replace("rounds: 100", "rounds: 3")
    plan.write_text(short.replace("  measure: excess", "  reference: {rounds: 3}\n  measure: excess"))
    create_site(folder / "cert", parse_participant("heart", "aggregator"))
    words = ["simulate", "-p", str(plan), "--save", str(folder / "save"), "--quiet"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def workspace(evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of one's own that shares the plan, the run and the keys."""
    for name in ("plan", "save", "cert"):
        (tmp_path / name).symlink_to(evaluated / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def attempt(*words: str) -> Result:
    return CliRunner().invoke(app, ["certificate", *words])


def run(*words: str) -> str:
    outcome = attempt(*words)
    if outcome.exception is not None:
        raise outcome.exception
    return " ".join(outcome.output.split())


@pytest.mark.usefixtures("workspace")
def test_a_run_is_certified_and_the_certificate_verified_without_an_option() -> None:
    said = run()
    assert "No group making up at least 10% of the 114 evaluated people" in said
    assert "What this does not mean:" in said
    assert "written: certificate.json, certificate.html" in said
    assert "NOT SIGNED" not in said
    checked = run("verify", "certificate.json")
    assert "every figure follows from the histogram; signed by aggregator" in checked
    assert "not compared (--plan)" in checked
    everything = run("verify", "certificate.json", "--plan", "plan/plan.yaml", "--model", "save/last.safetensors")
    assert "the plan is this one; the model is this one" in everything
    found = fedfair.verify_certificate("certificate.json", plan="plan/plan.yaml", model="save/last.safetensors")
    assert found.signed_by == "aggregator"
    assert " ".join(f"checked: {'; '.join(found.checked)}".split()) in everything
    assert all(sentence in everything for sentence in found.sentences)
    assert "Fairness certificate of heart" in Path("certificate.html").read_text()


@pytest.mark.usefixtures("workspace")
def test_the_choices_of_the_issuer_stand_in_the_certificate() -> None:
    run(
        "--split", "train", "--group-sizes", "0.5,0.25", "--fewest", "30", "-o", "own.json", "--page", "own.html",
        "-q",
    )  # fmt: skip
    made = parse_certificate(Path("own.json").read_bytes(), "own.json")
    assert (made.split, made.population, made.histogram.fewest) == ("train", None, 30)
    assert [statement.group_size for statement in made.statements] == [0.25, 0.5]
    run("--delta", "0.01", "--method", "dkw", "-q")
    made = parse_certificate(Path("certificate.json").read_bytes(), "certificate.json")
    assert made.population is not None
    assert (made.population.delta, made.population.method) == (0.01, "dkw")


@pytest.mark.usefixtures("workspace")
def test_without_a_key_nothing_is_certified_unless_nobody_is_to_vouch_for_it() -> None:
    with pytest.raises(IdentityError, match="the signing key of clinic-z is missing"):
        run("--name", "clinic-z")
    assert not Path("certificate.json").exists()
    assert "NOT SIGNED: anybody could have made this certificate" in run("--unsigned")
    assert "NOT SIGNED" in Path("certificate.html").read_text()
    with pytest.raises(CertificateError, match="not signed: anybody could have written it"):
        run("verify", "certificate.json")
    said = run("verify", "certificate.json", "--unsigned")
    assert "NOT SIGNED" in said
    assert "the signature was NOT checked" in said


def test_whose_key_it_is_comes_from_elsewhere_than_the_certificate(workspace: Path, tmp_path: Path) -> None:
    run("--quiet")
    nowhere = ("--cert-folder", str(tmp_path / "none"))
    with pytest.raises(CertificateError, match="this folder does not tell which key aggregator has"):
        run("verify", "certificate.json", *nowhere)
    public = (workspace / "cert" / "aggregator" / "signing.pub").read_text().strip()
    assert "signed by aggregator" in run("verify", "certificate.json", *nowhere, "--key", public)
    assert "signed by aggregator" in run("verify", "certificate.json", "--key", "cert/aggregator/signing.pub")
    with pytest.raises(CertificateError, match="was issued with the key"):
        run("verify", "certificate.json", "--key", format_public_key(bytes(range(32))))
    with pytest.raises(IdentityError, match="'nonsense' is not 'ed25519:'"):
        run("verify", "certificate.json", "--key", "nonsense")


@pytest.mark.usefixtures("workspace")
def test_a_site_that_the_plan_pins_can_issue_too() -> None:
    plan = Path("own-plan.yaml")
    create_site(Path("site"), parse_participant("heart", "clinic-a"))
    key = Path("site/clinic-a/signing.pub").read_text().strip()
    run("--name", "clinic-a", "--cert-folder", "site", "--quiet")
    plan.write_text(
        Path("plan/plan.yaml").read_text().replace("federation:", f"federation:\n  roster: {{clinic-a: '{key}'}}")
    )
    # The roster is part of a plan's digest, so this is another plan; its key is the right one nevertheless.
    with pytest.raises(CertificateError, match="is about the plan sha256:"):
        run("verify", "certificate.json", "--plan", str(plan))
    plan.write_text(plan.read_text().replace(key, format_public_key(bytes(31) + b"\1")))
    with pytest.raises(CertificateError, match="was issued with the key"):
        run("verify", "certificate.json", "--plan", str(plan))


@pytest.mark.usefixtures("workspace")
def test_files_of_others_or_of_something_else_are_refused() -> None:
    run("--quiet")
    Path("long.json").write_bytes(b" " * (2 << 20))
    Path("binary").write_bytes(bytes(range(256)))
    with pytest.raises(CertificateError, match="so it is not a certificate"):
        run("verify", "long.json")
    with pytest.raises(CertificateError, match="is no fairness certificate"):
        run("verify", "binary")
    with pytest.raises(IdentityError, match="is not 'ed25519:'"):
        run("verify", "certificate.json", "--key", "binary")
    with pytest.raises(IdentityError, match="so it is not a key"):
        run("verify", "certificate.json", "--key", "long.json")
    with pytest.raises(FileNotFoundError):
        run("verify", "nowhere.json")
    run("--quiet")
    layout, vector, _ = model_file.load(Path("save/last.safetensors"))
    model_file.save(Path("other.safetensors"), layout, np.nextafter(vector, np.inf), {})
    with pytest.raises(CertificateError, match="this model is sha256:"):
        run("verify", "certificate.json", "--model", "other.safetensors")
    Path("other.yaml").write_text(Path("plan/plan.yaml").read_text().replace("rounds: 3", "rounds: 4"))
    with pytest.raises(CertificateError, match="this plan is sha256:"):
        run("verify", "certificate.json", "--plan", "other.yaml")
    with pytest.raises(CertificateError, match="is of a run of the plan sha256:"):
        run("--plan", "other.yaml")
    text = Path("certificate.json").read_text()
    Path("edited.json").write_text(text.replace('"participants": 2', '"participants": 3'))
    with pytest.raises(CertificateError, match="something in it was changed after it was signed"):
        run("verify", "edited.json")


def test_nothing_of_somebody_else_s_is_replaced(workspace: Path) -> None:
    (workspace / "mine.txt").write_text("mine")
    with pytest.raises(CertificateError, match=r"mine\.txt, which would be replaced, is no fairness certificate"):
        run("-o", "mine.txt")
    with pytest.raises(FedfairError, match="no page of fedfair's"):
        run("--page", "mine.txt")
    with pytest.raises(CertificateError, match="is a folder"):
        run("-o", "save")
    assert (workspace / "mine.txt").read_text() == "mine"
    run("--quiet")
    run("--quiet")


def test_the_document_names_no_option_that_does_not_exist() -> None:
    text = " ".join((REPOSITORY / "docs" / "explain" / "certificate.md").read_text().split())
    helped = "".join(attempt(*words, "--help").output for words in ((), ("verify",)))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - {"--save"}  # which is `fedfair simulate`'s
    assert {"--delta", "--method", "--split", "--fewest", "--key", "--unsigned"} <= named
    assert [option for option in sorted(named) if option not in helped] == []
    assert CliRunner().invoke(app, ["simulate", "--help"]).output.count("--save") == 1
    for fact in (f"at least {MIN_RECORDS} losses", f"(`--delta`, {IssueTerms('test', (1.0,)).delta})", *METHODS):
        assert fact in text


@pytest.mark.usefixtures("workspace")
def test_mistakes_on_the_line_and_options_before_verify_are_refused() -> None:
    for words in (["--split", "all"], ["--method", "luck"], ["--group-sizes", "0.1;0.2"], ["--fewest", "0"]):
        assert attempt(*words).exit_code == 2
    with pytest.raises(PlanError, match=r"delta is 0\.7"):
        run("--delta", "0.7")
    with pytest.raises(PlanError, match="group size is 2"):
        run("--group-sizes", "2")
    with pytest.raises(CertificateError, match="there is no evaluation nowhere"):
        run("--evaluation", "nowhere")
    with pytest.raises(CertificateError, match="both name certificate"):
        run("--page", "certificate.json")
    for option in ("--output", "--page"):
        with pytest.raises(CertificateError, match="folder none does not exist"):
            run(option, "none/file")
    assert not Path("certificate.json").exists()
    run("--quiet")
    for words in (("--plan", "plan/plan.yaml"), ("--unsigned",), ("--cert-folder", "cert")):
        outcome = attempt(*words, "verify", "certificate.json")
        assert outcome.exit_code == 2
        assert words[0] in outcome.output
        assert "write it after verify" in " ".join(outcome.output.split())


@pytest.mark.usefixtures("workspace")
def test_json_is_the_certificate_and_an_unchecked_signature_is_told_of_even_quietly() -> None:
    document = json.loads(run("--json"))
    assert document == json.loads(Path("certificate.json").read_text())
    assert document["format"] == "fedfair/certificate/2"
    assert [statement["group_size"] for statement in document["statements"]][-1] == 1.0
    assert json.loads(run("verify", "certificate.json", "--json")) == document
    assert run("verify", "certificate.json", "--quiet") == ""
    run("--quiet")
    assert "SIGNATURE WAS NOT CHECKED" in run("verify", "certificate.json", "--unsigned", "--quiet")
    assert run("verify", "certificate.json", "--quiet") == ""
