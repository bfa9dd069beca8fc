"""`fedfair invite`, `join` and `admit`: the conversation, left, resumed and attacked at each step."""

import contextlib
import io
import json
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.answers import Answers
from fedfair.cli.commands import app
from fedfair.cli.join import JoinOptions, join
from fedfair.errors import ApprovalError, DataError, FedfairError, IdentityError, PlanError
from fedfair.identity.certificate import fingerprint, grouped
from fedfair.identity.files import read_certificate
from fedfair.plan.loading import load_plan
from fedfair.workspace.archive import certificates_of, pack, read_archive, read_contents
from fedfair.workspace.create import write_module

NO_OPTIONS = JoinOptions(None, None, None, None, None, None, None, encrypt=False)
NOBODY = Answers(None)
SHOWN = ("--yes", "--authority", "shown", "--code", "shown", "--approve", "shown")
"""What a rehearsal says in place of every person."""

OWN = "collaborator: clinic-a\n"
REVEALS = "reveals: [update-sums, loss-sums, feature-sums, score-sums, reference-sums]"
"""A site that writes its own file allows by name what a new workspace's plan asks for."""


def run(*words: str) -> str:
    outcome = CliRunner().invoke(app, list(words))
    if outcome.exception is not None and not (isinstance(outcome.exception, SystemExit) and not outcome.exit_code):
        raise outcome.exception
    return outcome.output


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with the lead's workspace, which has invited both sites."""
    monkeypatch.chdir(tmp_path)
    run("workspace", "create", "lead", "-f", "heart", "--host", "agg.example.org")
    with inside("lead"):
        run("invite", "../invitation.zip")
    return tmp_path


inside = contextlib.chdir


def requested(name: str = "clinic-a", *words: str) -> str:
    return run("join", "invitation.zip", "--name", name, "-w", name, *words)


def answered(*more: str) -> Path:
    """Have both sites ask and the lead answer; return the archive."""
    for name in ("clinic-a", "clinic-b"):
        requested(name, *more)
        shutil.copy(f"{name}/{name}.request.json", "lead")
    with inside("lead"):
        run("admit", "clinic-a.request.json", "clinic-b.request.json", "--archive", "../answer.zip", "--yes")
    return Path("answer.zip")


def authority() -> str:
    return fingerprint(read_certificate(Path("lead/cert/authority/ca.crt"), "the authority")).hex()


def joined(*words: str) -> str:
    return run("join", "answer.zip", "-w", "clinic-a", *words)


def changed(source: Path, name: str, content: bytes | None) -> Path:
    """Write an archive in which one file is another one, or none."""
    files = read_contents(read_archive(source))
    files.pop(name, None)
    if content is not None:
        files[name] = content
    target = Path("changed.zip")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    target.write_bytes(stream.getvalue())
    return target


def private_files(folder: str) -> list[bytes]:
    return [path.read_bytes() for path in Path(folder).rglob("*.key")]


def test_the_whole_way_in_takes_two_commands_and_no_key_leaves() -> None:
    answered()
    output = joined(*SHOWN)
    assert "approved: clinic-a/approvals/clinic-a.json" in output
    assert "next: fedfair -C clinic-a collaborator start" in output
    assert json.loads(Path("clinic-a/approvals/clinic-a.json").read_text())["participant"] == "clinic-a"
    sent = Path("clinic-a/clinic-a.request.json").read_bytes() + b"".join(
        content for path in (Path("invitation.zip"), Path("answer.zip"))
        for content in read_contents(read_archive(path)).values()
    )  # fmt: skip
    assert len(private_files("clinic-a")) == 2
    for key in private_files("clinic-a"):
        assert key not in sent
    assert b"PRIVATE KEY" not in sent
    assert "has approved this very plan" in joined()


def test_a_folder_of_the_federations_name_is_made_and_found_again(here: Path) -> None:
    run("join", "invitation.zip", "--name", "clinic-a")
    assert (here / "heart" / "clinic-a.request.json").is_file()
    assert "the same command continues" in run("join", "invitation.zip")
    with inside("heart"):
        assert "the same command continues" in run("join", "../invitation.zip")


def test_without_a_terminal_each_question_names_the_option_that_answers_it() -> None:
    with pytest.raises(PlanError, match="Which site is this: clinic-a, clinic-b") as fault:
        run("join", "invitation.zip")
    assert "--name" in fault.value.remedy
    answered()
    with pytest.raises(PlanError) as fault:
        joined()
    assert "--authority" in fault.value.remedy
    with pytest.raises(PlanError, match="approve exactly this") as fault:
        joined("--authority", authority())
    option, digest = fault.value.remedy.split()[-2:]
    assert option == "--approve"
    assert "approved: " in joined("--approve", digest)


def test_yes_vouches_for_no_authority_no_code_and_no_plan() -> None:
    """Whoever has scripted a yes has compared nothing; each of the three has an option that says so."""
    write_module(Path("lead"), "vouched_model")
    plan = Path("lead/plan/plan.yaml")
    plan.write_text(plan.read_text().replace("model: {name: linear}", 'model: "vouched_model:build"'))
    Path("own.yaml").write_text(f"{OWN}policy: {{allow_module_code: true, {REVEALS}}}\n")
    answered()
    # The site has a copy of its own, which is another module.
    sys.modules.pop("vouched_model", None)
    given = ["--yes", "--site-file", "own.yaml"]
    for question, option in (
        ("Does the lead read out the same", "--authority"),
        ("Run it here now", "--code"),
        ("approve exactly this", "--approve"),
    ):
        with pytest.raises(PlanError, match=question) as fault:
            joined(*given)
        assert f"answer with {option}" in fault.value.remedy
        assert not Path("clinic-a/approvals").exists()
        # The file is taken once; it is there from then on.
        given = [*(given if option == "--authority" else ["--yes", *given[3:]]), option, "shown"]
    assert "approved: " in joined(*given)


def test_a_conversation_is_left_at_every_question_and_resumed() -> None:
    answered()
    replies: Iterator[str] = iter(["n", "y", "n", "y"])
    asked: list[str] = []

    def person(question: str) -> str:
        asked.append(question)
        return next(replies)

    for step in ("nothing was installed", "nothing was approved"):
        with pytest.raises(PlanError, match=step):
            join(Path("answer.zip"), Path("clinic-a"), NO_OPTIONS, Answers(person))
    join(Path("answer.zip"), Path("clinic-a"), NO_OPTIONS, Answers(person))
    assert [question.split()[0] for question in asked] == ["Does", "Does", "Does", "Does"]
    assert Path("clinic-a/approvals/clinic-a.json").exists()
    join(Path("answer.zip"), Path("clinic-a"), NO_OPTIONS, NOBODY)


def test_an_invitation_makes_keys_and_a_request_that_can_be_made_again() -> None:
    output = requested()
    assert grouped(bytes.fromhex(authority())) in output
    assert "send clinic-a/clinic-a.request.json to the lead" in output
    assert "the same command continues" in requested()
    assert not Path("clinic-a/plan").exists()
    assert not Path("clinic-a/cert/ca.crt").exists()
    requested()
    keys = private_files("clinic-a")
    Path("clinic-a/clinic-a.request.json").unlink()
    assert "keys and request" in requested()
    assert private_files("clinic-a") == keys
    answered()
    joined(*SHOWN)


def test_keys_can_be_encrypted(here: Path) -> None:
    (here / "secret").write_text("long and random\n")
    answered("--passphrase-file", "secret")
    assert all(b"ENCRYPTED" in key for key in private_files("clinic-a"))
    with pytest.raises(IdentityError, match="are encrypted"):
        joined(*SHOWN)
    joined(*SHOWN, "--passphrase-file", "secret")


# ------------------------------------------------------------------------------------------------- attacks


def rogue_answer() -> Path:
    """Return the answer of somebody else's authority to the real requests."""
    run("workspace", "create", "rogue", "-f", "heart", "--host", "evil.example.org")
    with inside("rogue"):
        run("invite", "../rogue.zip")
        for name in ("clinic-a", "clinic-b"):
            shutil.copy(f"../{name}/{name}.request.json", ".")
        run("admit", "clinic-a.request.json", "clinic-b.request.json", "--archive", "../rogue.zip", "--yes")
    return Path("rogue.zip")


def test_an_answer_of_another_authority_than_the_invitations_is_refused_even_with_yes() -> None:
    answered()
    rogue_answer()
    with pytest.raises(IdentityError, match="is of the authority") as fault:
        run("join", "rogue.zip", "-w", "clinic-a", *SHOWN)
    assert "call the lead" in fault.value.remedy
    assert not Path("clinic-a/cert/ca.crt").exists()
    assert not Path("clinic-a/plan").exists()


def test_where_the_invitation_showed_no_authority_the_one_read_aloud_decides() -> None:
    Path("invitation.zip").write_bytes(pack(Path("lead")))
    answered()
    rogue_answer()
    with pytest.raises(IdentityError, match="you were told"):
        run("join", "rogue.zip", "-w", "clinic-a", *SHOWN, "--authority", authority())
    assert not Path("clinic-a/cert/ca.crt").exists()
    spoken = grouped(bytes.fromhex(authority())).upper()
    joined(*SHOWN, "--authority", spoken)


@pytest.mark.parametrize("words", ["", "abcd", "g" * 64, "0" * 63])
def test_what_is_no_fingerprint_is_refused(words: str) -> None:
    answered()
    with pytest.raises(IdentityError, match="is no fingerprint"):
        joined("--authority", words)


def test_archives_of_two_authorities_or_of_another_site_are_refused() -> None:
    answered()
    rogue = certificates_of(read_archive(rogue_answer()))
    archive = changed(Path("answer.zip"), "join/clinic-a.certificate.pem", rogue["clinic-a.certificate.pem"])
    with pytest.raises(IdentityError, match="shows two authorities"):
        run("join", str(archive), "-w", "clinic-a", *SHOWN)
    answered()
    files = certificates_of(read_archive(Path("answer.zip")))
    archive = changed(Path("answer.zip"), "join/clinic-a.certificate.pem", files["clinic-b.certificate.pem"])
    with pytest.raises(IdentityError, match="names somebody else"):
        run("join", str(archive), "-w", "clinic-a", *SHOWN)
    shutil.rmtree("clinic-a")
    requested()
    with pytest.raises(IdentityError, match="answers another request of clinic-a"):
        joined(*SHOWN)


def test_a_plan_that_changes_between_review_and_approval_is_not_approved() -> None:
    answered()
    with pytest.raises(PlanError, match="approve exactly this") as fault:
        joined("--authority", authority())
    reviewed = fault.value.remedy.split()[-1]
    plan = read_contents(read_archive(Path("answer.zip")))["plan/plan.yaml"]
    archive = changed(Path("answer.zip"), "plan/plan.yaml", plan.replace(b"rounds: 100", b"rounds: 101"))
    with pytest.raises(PlanError, match="Put this plan in the place"):
        run("join", str(archive), "-w", "clinic-a", "--approve", reviewed)
    assert load_plan(Path("clinic-a/plan/plan.yaml")).training.rounds == 100
    with pytest.raises(ApprovalError, match="nothing was approved"):
        run("join", str(archive), "-w", "clinic-a", *SHOWN, "--approve", reviewed)
    assert not Path("clinic-a/approvals").exists()


def test_a_changed_plan_comes_by_the_same_command_with_its_difference() -> None:
    answered()
    joined(*SHOWN)
    plan = Path("lead/plan/plan.yaml")
    plan.write_text(plan.read_text().replace("rounds: 100", "rounds: 7"))
    run("workspace", "export", "answer.zip", "-w", "lead", "--update")
    with pytest.raises(PlanError, match="Put this plan in the place"):
        joined()
    output = " ".join(joined(*SHOWN).split())
    assert "training.rounds 100 7" in output
    assert "the approval of the old plan is void" in output
    assert "approved: clinic-a/approvals/clinic-a.json" in output


def test_a_plan_that_pins_another_key_is_refused() -> None:
    answered()
    roster = read_contents(read_archive(Path("answer.zip")))["plan/roster.yaml"].decode().splitlines()
    turned = "\n".join(
        [roster[0], roster[1].replace("clinic-a", "clinic-b"), roster[2].replace("clinic-b", "clinic-a")]
    )
    archive = changed(Path("answer.zip"), "plan/roster.yaml", turned.encode())
    with pytest.raises(ApprovalError, match="pins another signing key"):
        run("join", str(archive), "-w", "clinic-a", *SHOWN)


@pytest.mark.parametrize(
    "name", ["../evil.yaml", "join/../cert/x.pem", "join/deep/x.pem", "join/x.key", "cert/ca.crt"]
)
def test_paths_in_an_archive_lead_nowhere(here: Path, name: str) -> None:
    archive = changed(Path("invitation.zip"), name, b"x: 1\n")
    before = {path for path in here.rglob("*") if path != here / "changed.zip"}
    with pytest.raises(PlanError, match="would write"):
        run("join", str(archive), "--name", "clinic-a", "-w", "clinic-a")
    assert {path for path in here.rglob("*") if path != here / "changed.zip"} == before


def test_archives_and_authorities_of_another_federation_are_refused() -> None:
    requested()
    run("workspace", "create", "other", "-f", "lung")
    with inside("other"):
        run("invite", "../other.zip")
    with pytest.raises(FedfairError, match="has asked to join 'heart'"):
        run("join", "other.zip", "-w", "clinic-a")
    foreign = certificates_of(read_archive(Path("other.zip")))["authority.pem"]
    with pytest.raises(IdentityError, match="shows the authority of 'lung'"):
        run("join", str(changed(Path("invitation.zip"), "join/authority.pem", foreign)), "-n", "clinic-a")


def test_names_that_steer_and_folders_of_others_are_left_alone() -> None:
    for name in ("../clinic-a", "clinic-a\x1b[2J", "CLINIC", "aggregator", "clinic-z"):
        with pytest.raises(FedfairError):
            run("join", "invitation.zip", "--name", name, "-w", "site")
        assert not Path("site").exists()
    with pytest.raises(PlanError, match="holds the federation's authority"):
        run("join", "invitation.zip", "--name", "clinic-a", "-w", "lead")
    requested()
    with pytest.raises(IdentityError, match="is the folder of clinic-a"):
        run("join", "invitation.zip", "--name", "clinic-b", "-w", "clinic-a")


# ---------------------------------------------------------------------------------------- policy, data and code


def refused_by_policy() -> None:
    plan = Path("lead/plan/plan.yaml")
    plan.write_text(plan.read_text().replace("evaluation:\n", "evaluation:\n  site_means: true\n"))
    answered()


def test_a_plan_that_the_policy_refuses_waits_until_the_site_has_changed_its_own_file() -> None:
    refused_by_policy()
    with pytest.raises(PlanError, match=r"set policy\.publish_site_means: true"):
        joined(*SHOWN)
    site_file = Path("clinic-a/collaborator.yaml")
    site_file.write_text(site_file.read_text().replace("publish_site_means: false", "publish_site_means: true"))
    assert "approved: " in joined(*SHOWN)


def test_a_prepared_site_file_answers_for_policy_and_data() -> None:
    refused_by_policy()
    Path("own.yaml").write_text(f"{OWN}policy: {{publish_site_means: true, {REVEALS}}}\n")
    assert "approved: " in joined(*SHOWN, "--site-file", "own.yaml")
    Path("own.yaml").write_text("collaborator: clinic-b\n")
    with pytest.raises(PlanError, match="it was left alone"):
        joined(*SHOWN, "--site-file", "own.yaml")


def test_the_file_of_the_records_is_asked_for_and_checked(here: Path) -> None:
    rows = [f"{20 + place % 40},{'FM'[place % 2]},{place % 3 % 2}\n" for place in range(90)]
    (here / "own file.csv").write_text("age,sex,died\n" + "".join(rows))
    shutil.rmtree("lead")
    Path("invitation.zip").unlink()
    run("workspace", "create", "lead", "-f", "heart", "--template", "csv", "--from", "own file.csv", "--no-look")
    with inside("lead"):
        run("invite", "../invitation.zip")
    answered()
    with pytest.raises(PlanError, match="Which file holds") as fault:
        joined(*SHOWN)
    assert "--data" in fault.value.remedy
    with pytest.raises(PlanError, match="does not exist"):
        joined(*SHOWN, "--data", "missing.csv")
    (here / "bad.csv").write_text("age,sex,died\n1,F,maybe\n")
    with pytest.raises(DataError, match="a label that the plan does not name"):
        joined(*SHOWN, "--data", "bad.csv")
    Path("clinic-a/collaborator.yaml").unlink()
    assert "training records" in joined(*SHOWN, "--data", "own file.csv")


def test_code_runs_only_after_policy_and_site_agree_to_its_digest() -> None:
    write_module(Path("lead"), "own_model")
    plan = Path("lead/plan/plan.yaml")
    plan.write_text(plan.read_text().replace("model: {name: linear}", 'model: "own_model:build"'))
    module = Path("lead/src/own_model.py")
    module.write_text(f"open({str(Path('ran').resolve())!r}, 'w').close()\n" + module.read_text())
    answered()
    digest = json.loads(run("plan", "digest", "-p", "lead/plan/plan.yaml", "--json"))["code_digest"]
    # The lead has run its own code; the site's copy of it is another module.
    sys.modules.pop("own_model")
    Path("ran").unlink()
    with pytest.raises(PlanError, match="this site's policy refuses module code"):
        joined(*SHOWN)
    site_file = Path("clinic-a/collaborator.yaml")
    site_file.write_text(site_file.read_text().replace("module_code: []", f"module_code: [{digest}]"))
    with pytest.raises(PlanError, match="Run it here now") as fault:
        joined()
    assert fault.value.remedy.endswith(f"--code {digest}")
    assert not Path("ran").exists()
    with pytest.raises(PlanError, match="approve exactly this"):
        joined("--code", digest)
    assert Path("ran").exists()


# ------------------------------------------------------------------------------------------------------- lead


def test_nobody_is_answered_before_every_site_is_admitted() -> None:
    requested()
    shutil.copy("clinic-a/clinic-a.request.json", "lead")
    with inside("lead"):
        assert "still to be admitted: clinic-b" in run("admit", "clinic-a.request.json", "--yes")
        assert not Path("heart.zip").exists()
    requested("clinic-b")
    shutil.copy("clinic-b/clinic-b.request.json", "lead")
    with inside("lead"):
        assert "wrote heart.zip" in run("admit", "clinic-b.request.json", "--yes")
        issued = Path("cert/authority/issued.jsonl").read_text()
        run("admit", "clinic-a.request.json", "clinic-b.request.json", "--yes")
        assert Path("cert/authority/issued.jsonl").read_text() == issued
    assert sorted(certificates_of(read_archive(Path("lead/heart.zip")))) == [
        "authority.pem", "clinic-a.certificate.pem", "clinic-b.certificate.pem",
    ]  # fmt: skip


def test_a_lead_s_invitation_replaces_nothing_and_names_the_present_host() -> None:
    before = authority()
    with inside("lead"):
        with pytest.raises(PlanError, match="it was left alone"):
            run("invite", "../invitation.zip")
        run("invite", "../second.zip")
    assert authority() == before
    plan = Path("lead/plan/plan.yaml")
    plan.write_text(plan.read_text().replace("agg.example.org", "new.example.org"))
    with inside("lead"), pytest.raises(IdentityError, match=r"not for new\.example\.org") as fault:
        run("invite", "again.zip")
    assert "--host new.example.org" in fault.value.remedy


def test_a_request_with_another_signing_key_is_not_admitted_twice() -> None:
    answered()
    shutil.rmtree("clinic-a")
    requested()
    shutil.copy("clinic-a/clinic-a.request.json", "lead")
    with inside("lead"), pytest.raises(IdentityError, match="had the signing key"):
        run("admit", "clinic-a.request.json", "--archive", "../answer.zip", "--yes")
