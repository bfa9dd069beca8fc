"""`fedfair inbox` as a person at the site types it."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.consent.approvers import load_approvers
from fedfair.consent.decisions import Choice, tally
from fedfair.consent.inbox import read_decisions, study_folder, write_decision
from fedfair.errors import ApprovalError, FedfairError, IdentityError, PlanError
from tests.consent import people, site
from tests.consent.test_ssh_agent import agent

AGE_2 = "age-2"
LI = ("--passphrase-file", "people/li.txt")


@pytest.fixture(autouse=True)
def at_the_site(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def run(*words: str) -> str:
    outcome = CliRunner().invoke(app, ["inbox", *words])
    if outcome.exception is not None and not (isinstance(outcome.exception, SystemExit) and not outcome.exit_code):
        raise outcome.exception
    return outcome.output


def digest(home: Path) -> str:
    return site.subject_of(study_folder(home, AGE_2)).plan_digest


def by(name: str) -> tuple[str, ...]:
    return ("--as", name, "--passphrase-file", f"people/{name}.txt")


def test_two_people_approve_what_they_were_shown(home: Path) -> None:
    assert "2 more approvals are awaited" in run()
    shown = run("approve", AGE_2, *by("amina"), "--digest", digest(home), "--words", "as discussed")
    assert "training.rounds" in shown
    assert "3. This site's records: as in age-1" in shown
    assert "approved by amina; 1 more approval is awaited" in run()
    folder, approvers = study_folder(home, AGE_2), load_approvers(Path("approvers.yaml"))
    write_decision(folder, people.decided("li", subject=site.subject_of(folder)), approvers)
    verified, faults = read_decisions(folder, approvers, site.subject_of(folder))
    assert (faults, tally(verified, approvers).state) == ((), "approved")
    assert verified[0].parts == ("study", "policy", "ledger")
    run("withdraw", AGE_2, *by("jonas"), "--digest", digest(home), "--words", "the ethics board has met again")
    verified, _ = read_decisions(folder, approvers, site.subject_of(folder))
    assert [one.choice for one in verified] == [Choice.APPROVE, Choice.WITHDRAW, Choice.APPROVE]


def test_one_refusal_is_the_end_of_a_study(home: Path) -> None:
    run("refuse", AGE_2, *by("jonas"), "--digest", digest(home), "--words", "no")
    assert "refused by jonas" in run()
    with pytest.raises(ApprovalError, match="jonas has decided to refuse"):
        run("approve", AGE_2, *by("amina"), "--digest", digest(home))


@pytest.mark.parametrize(
    ("words", "kind", "expected"),
    [
        (("--as", "eve"), ApprovalError, "'eve' is none of the people"),
        (("--as", "amina", *LI), IdentityError, "does not open with this passphrase"),
        (("--as", "amina", "--key", "people/li.pem", *LI), ApprovalError, "holds another key"),
        (("--as", "amina", "--key", "none.pem", *LI), IdentityError, "is missing"),
        ((*by("amina"), "--digest", "sha256:00"), ApprovalError, "you agree to 'sha256:00'"),
        ((*by("amina"), "--words", "two\nlines"), ApprovalError, "words of a decision"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_decided(
    home: Path, words: tuple[str, ...], kind: type[FedfairError], expected: str
) -> None:
    given = () if "--digest" in words else ("--digest", digest(home))
    said = () if "--words" in words else ("--words", "no")
    with pytest.raises(kind, match=expected):
        run("refuse", AGE_2, *words, *given, *said)
    assert not study_folder(home, AGE_2).decisions.exists()


def test_nobody_decides_without_being_asked(home: Path) -> None:
    with pytest.raises(PlanError, match="no terminal to ask: Does amina refuse exactly this"):
        run("refuse", AGE_2, *by("amina"), "--words", "no")
    assert not study_folder(home, AGE_2).decisions.exists()


def test_a_study_that_the_policy_refuses_is_shown_and_not_approved(home: Path) -> None:
    config = home / "collaborator.yaml"
    config.write_text(config.read_text() + "policy: {max_rounds: 8}\n")
    with pytest.raises(ApprovalError, match="cannot be approved: policy: the policy of clinic-a refuses"):
        run("approve", AGE_2, *by("amina"), "--digest", digest(home))
    assert not study_folder(home, AGE_2).decisions.exists()


def test_a_decision_that_counts_nothing_is_named_in_the_list(home: Path) -> None:
    run("refuse", AGE_2, *by("li"), "--digest", digest(home), "--words", "no")
    people.write_approvers(home, names=("amina", "jonas"))
    listed = run()
    assert "the decision of li counts nothing" in listed
    assert "2 more approvals are awaited" in listed


def test_a_person_makes_a_key_whose_line_can_be_copied(home: Path) -> None:
    made = run("person", "noor", "--passphrase-file", "people/li.txt")
    (home / "approvers.yaml").write_text("needed: 1\npeople:\n" + made.splitlines()[-1] + "\n")
    assert (home / "people" / "noor.pem").stat().st_mode & 0o777 == 0o600
    assert list(load_approvers(home / "approvers.yaml").people) == ["noor"]
    given = ("--as", "noor", "--passphrase-file", "people/li.txt", "--digest", digest(home), "--words", "no")
    run("refuse", AGE_2, *given)
    with pytest.raises(IdentityError, match="exists; it was left alone"):
        run("person", "noor", "--passphrase-file", "people/li.txt")
    (home / "short.txt").write_text("too short")
    with pytest.raises(IdentityError, match="fewer than 12 characters"):
        run("person", "other", "--passphrase-file", "short.txt")


@pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="there is no ssh-agent here")
def test_a_person_decides_with_a_key_that_never_leaves_an_agent(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "people" / "amina.pem").unlink()
    (home / "people" / "jonas.pem").unlink()
    given = ("--digest", digest(home), "--words", "no")
    with agent(tmp_path) as place:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
        assert people.public("amina") in run("person", "amina", "--agent")
        with pytest.raises(IdentityError, match="nor a key of jonas in an ssh-agent"):
            run("refuse", AGE_2, "--as", "jonas", *given)
        run("refuse", AGE_2, "--as", "amina", *given)
    assert "refused by amina" in run()


def test_a_site_without_people_is_told_how_to_name_them(home: Path) -> None:
    (home / "approvers.yaml").unlink()
    with pytest.raises(PlanError, match="names who decides") as caught:
        run()
    assert "fedfair inbox person" in caught.value.remedy
