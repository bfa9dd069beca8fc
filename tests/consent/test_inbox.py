"""The folder of a study: what is read from it, what is put there, and what is never written over."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedfair.consent.decisions import Choice, ConsentState, tally
from fedfair.consent.inbox import (
    FINAL,
    SitePhase,
    StudyFolder,
    StudyStatus,
    inbox,
    parse_study,
    read_decisions,
    read_status,
    study_folder,
    write_decision,
    write_status,
)
from fedfair.errors import ApprovalError, StateError
from tests.consent import people
from tests.consent.people import SUBJECT, WHEN, decided


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    made = StudyFolder(tmp_path / "studies" / "age-1")
    made.path.mkdir(parents=True)
    write_status(made, StudyStatus(SitePhase.PROPOSED, "", WHEN))
    return made


def test_the_inbox_lists_folders_of_studies_and_nothing_else(tmp_path: Path, folder: StudyFolder) -> None:
    assert inbox(tmp_path / "elsewhere") == ()
    (tmp_path / "studies" / "notes.txt").write_text("x")
    (tmp_path / "studies" / ".hidden").mkdir()
    (tmp_path / "studies" / "link").symlink_to(tmp_path)
    assert inbox(tmp_path) == (folder,)
    assert study_folder(tmp_path, "age-1") == folder


@pytest.mark.parametrize("name", ["..", "../..", "a/b", "", "A", "a" * 41, "age-1/../age-1", "age-1\n", "%2e%2e"])
def test_a_name_that_could_lead_elsewhere_names_no_study(tmp_path: Path, name: str) -> None:
    with pytest.raises(ApprovalError, match="cannot name a study"):
        study_folder(tmp_path, name)
    with pytest.raises(ApprovalError):
        parse_study(name)


def test_a_study_that_is_not_there_is_named_with_those_that_are(tmp_path: Path, folder: StudyFolder) -> None:
    with pytest.raises(ApprovalError, match="no study 'age-2'") as caught:
        study_folder(tmp_path, "age-2")
    assert folder.name in caught.value.remedy


def test_decisions_are_read_as_they_were_put_and_the_others_are_named(tmp_path: Path, folder: StudyFolder) -> None:
    approvers = people.approvers(tmp_path)
    for name in ("jonas", "amina"):
        write_decision(folder, decided(name), approvers)
    assert (folder.decisions / "amina.json").stat().st_mode & 0o777 == 0o600
    (folder.decisions / "eve.json").write_bytes(decided("li").to_bytes())
    (folder.decisions / "li.json").write_bytes(decided("amina").to_bytes())
    verified, faults = read_decisions(folder, approvers, SUBJECT)
    assert verified == (decided("amina"), decided("jonas"))
    assert [one.name for one in faults] == ["eve", "li"]
    assert "none of the people" in faults[0].words
    assert "is of 'amina', not of 'li'" in faults[1].words
    assert tally(verified, approvers).state is ConsentState.APPROVED


def test_a_decision_about_another_digest_counts_nothing(tmp_path: Path, folder: StudyFolder) -> None:
    approvers = people.approvers(tmp_path)
    write_decision(folder, decided("amina"), approvers)
    other = replace(SUBJECT, plan_digest="sha256:" + "22" * 32)
    verified, faults = read_decisions(folder, approvers, other)
    assert verified == ()
    assert "decided about plan sha256:1111" in faults[0].words


def test_a_decision_that_does_not_verify_is_not_written(tmp_path: Path, folder: StudyFolder) -> None:
    approvers = people.approvers(tmp_path)
    with pytest.raises(ApprovalError, match="not signed with the key"):
        write_decision(folder, replace(decided("amina"), words="another"), approvers)
    with pytest.raises(ApprovalError, match="none of the people"):
        write_decision(folder, decided("li"), people.approvers(tmp_path, names=("amina", "jonas")))
    assert not folder.decisions.exists()


@pytest.mark.parametrize("choice", [Choice.REFUSE, Choice.WITHDRAW])
def test_a_study_that_one_person_has_ended_is_not_begun_again(
    tmp_path: Path, folder: StudyFolder, choice: Choice
) -> None:
    approvers = people.approvers(tmp_path)
    write_decision(folder, decided("amina"), approvers)
    write_decision(folder, decided("amina", choice), approvers)
    for name in ("amina", "jonas"):
        with pytest.raises(ApprovalError, match=f"amina has decided to {choice}"):
            write_decision(folder, decided(name), approvers)


@pytest.mark.parametrize("phase", sorted(FINAL))
def test_nothing_is_decided_about_a_study_that_has_ended(
    tmp_path: Path, folder: StudyFolder, phase: SitePhase
) -> None:
    write_status(folder, StudyStatus(phase, "", WHEN))
    with pytest.raises(ApprovalError, match=f"age-1 is {phase}"):
        write_decision(folder, decided("amina"), people.approvers(tmp_path))


def test_each_choice_has_its_time(tmp_path: Path, folder: StudyFolder) -> None:
    approvers = people.approvers(tmp_path)
    with pytest.raises(ApprovalError, match="nobody here has approved"):
        write_decision(folder, decided("amina", Choice.WITHDRAW), approvers)
    folder.status.unlink()
    with pytest.raises(ApprovalError, match="still arriving"):
        write_decision(folder, decided("amina"), approvers)
    write_status(folder, StudyStatus(SitePhase.RUNNING, "", WHEN))
    folder.approval.write_text("{}")
    with pytest.raises(ApprovalError, match="has approved age-1 already"):
        write_decision(folder, decided("amina", Choice.REFUSE), approvers)
    write_decision(folder, decided("li", Choice.WITHDRAW), approvers)


def test_the_status_is_read_as_it_was_written(folder: StudyFolder) -> None:
    for phase in SitePhase:
        write_status(folder, StudyStatus(phase, "round 3 of 20, läuft", WHEN))
        assert read_status(folder) == StudyStatus(phase, "round 3 of 20, läuft", WHEN)
    for damaged in ("", "[]", "{}", '{"phase": "dreaming", "words": "", "since": ""}', "[" * 10_000):
        folder.status.write_text(damaged)
        with pytest.raises(StateError, match="does not tell where"):
            read_status(folder)
