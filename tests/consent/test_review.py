"""A study beside the one before it: what is shown, what differs, and what stands against an approval."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from collaborator.computing.confinement import NO_CALLS, NO_FILES, NO_PRIVILEGES
from collaborator.study_review.blocks import Lines, SourceText, TableBlock
from collaborator.study_review.examination import Examination, examine, examined
from collaborator.study_review.parts import ReviewPart
from collaborator.study_review.review import StudyReview, last_approved, review_of
from fedfair.consent.inbox import study_folder
from fedfair.errors import ApprovalError
from tests.consent import site

STUDY, POLICY, RECORDS, LEDGER, CODE = ReviewPart


def reviewed(home: Path, found: Examination, name: str = "age-2") -> StudyReview:
    return review_of(home / "collaborator.yaml", study_folder(home, name), found)


def texts(review: StudyReview, part: ReviewPart) -> str:
    shown = review.parts[part]
    told = []
    for block in (*shown.changes, *shown.blocks):
        match block:
            case Lines(_, lines):
                told += lines
            case TableBlock(_, _, rows):
                told += [" | ".join(row) for row in rows]
            case SourceText(heading, text):
                told += [heading, text]
    return "\n".join(told)


def test_a_study_is_shown_beside_the_one_that_was_approved_last(home: Path, found: Examination) -> None:
    review = reviewed(home, found)
    assert (review.before, review.obstacles) == ("age-1", ())
    assert review.to_open == (STUDY, POLICY, LEDGER)
    assert "training.rounds | 5 | 9" in texts(review, STUDY)
    assert "nine rounds" in texts(review, STUDY)
    assert "update-sums" in texts(review, STUDY)
    assert "max_rounds" in texts(review, POLICY)
    assert "120" in texts(review, RECORDS)
    assert found.plan_digest in texts(review, CODE)


def test_every_part_is_opened_where_nothing_was_approved(home: Path, found: Examination) -> None:
    study_folder(home, "age-1").approval.unlink()
    assert reviewed(home, found).to_open == tuple(ReviewPart)


def test_an_approval_of_something_else_is_no_study_before(home: Path) -> None:
    first, second = study_folder(home, "age-1"), study_folder(home, "age-2")
    assert last_approved(home, "age-2") == first
    second.approval.write_bytes(first.approval.read_bytes())
    assert last_approved(home, "age-1") is None
    site.approve_site(second, days=1)
    assert last_approved(home, "age-3") == second
    assert last_approved(home, "age-2") == first


def test_a_part_that_shows_something_else_has_another_fingerprint(home: Path, found: Examination) -> None:
    before = reviewed(home, found).parts
    spent = reviewed(home, replace(found, spent=("epsilon 3 at delta 1e-05",))).parts
    assert {part for part in before if before[part].fingerprint != spent[part].fingerprint} == {LEDGER}
    config = home / "collaborator.yaml"
    stricter = {**yaml.safe_load(config.read_text()), "policy": {"max_rounds": 8}}
    config.write_text(yaml.safe_dump(stricter))
    changed = reviewed(home, found).parts
    assert {part for part in before if before[part].fingerprint != changed[part].fingerprint} == {POLICY}
    assert "max_rounds" in texts(reviewed(home, found), POLICY)


@pytest.mark.parametrize(
    ("found_instead", "expected"),
    [
        ({"plan_digest": "sha256:" + "00" * 32}, "what arrived has digest sha256:0000"),
        ({"plan_digest": ""}, "the digest of the plan is not known here"),
        ({"faults": {"data": "no such file"}}, "data: no such file"),
        ({"faults": {"ledger": "this site cannot afford it"}}, "ledger: this site cannot afford it"),
    ],
)
def test_what_a_start_would_refuse_stands_against_an_approval(
    home: Path, found: Examination, found_instead: dict[str, object], expected: str
) -> None:
    review = reviewed(home, replace(found, **found_instead))  # type: ignore[arg-type]
    assert any(expected in obstacle for obstacle in review.obstacles)


def test_code_is_shown_with_what_differs(home: Path, found: Examination) -> None:
    code = study_folder(home, "age-2").workspace / "src" / "own.py"
    code.parent.mkdir()
    code.write_text("print('<b>hello</b>')\n")
    review = reviewed(home, found)
    assert CODE in review.to_open
    assert "+print('<b>hello</b>')" in texts(review, CODE)


def test_a_study_that_has_not_arrived_is_not_reviewed(home: Path, found: Examination) -> None:
    study_folder(home, "age-2").plan.unlink()
    with pytest.raises(ApprovalError, match="age-2 has not arrived"):
        reviewed(home, found)
    study_folder(home, "age-1").proposal.write_text("[]")
    with pytest.raises(ApprovalError, match="the act does not say that it is"):
        reviewed(home, found, "age-1")


def test_another_process_examines_and_tells_the_same(home: Path, found: Examination) -> None:
    folder = study_folder(home, "age-2")
    assert replace(examined(home / "collaborator.yaml", folder.plan), missing=()) == found
    policy = {"policy": {"max_rounds": 8}, **yaml.safe_load((home / "collaborator.yaml").read_text())}
    (home / "collaborator.yaml").write_text(yaml.safe_dump({**policy, "data": {"train": "missing.csv"}}))
    refused = examine(home / "collaborator.yaml", folder.plan)
    assert refused.faults.keys() == {"data", "policy"}
    assert "max_rounds" in refused.faults["policy"]
    assert "missing.csv" in refused.faults["data"]


def test_where_the_code_of_a_study_would_run_is_shown_with_every_protection_that_is_missing(
    home: Path, found: Examination
) -> None:
    def told(worker: str = "", missing: tuple[str, ...] = ()) -> str:
        config = home / "collaborator.yaml"
        own = yaml.safe_load(config.read_text())
        own.pop("worker", None)
        config.write_text(yaml.safe_dump({**own, **(yaml.safe_load(worker) or {})}))
        return texts(reviewed(home, replace(found, missing=missing)), CODE)

    assert "a process of its own, without keys and ledger" in told()
    assert NO_FILES in told(missing=(NO_FILES,))
    assert "as worker.process: false says" in told("worker: {process: false}")
    assert "started elsewhere" in told('worker: {process: true, launch: "srun {command}"}', (NO_FILES,))


def test_the_examination_tries_the_protection_of_this_system_on_itself(home: Path) -> None:
    plan = study_folder(home, "age-2").workspace / "plan" / "plan.yaml"
    assert set(examined(home / "collaborator.yaml", plan).missing) <= {NO_FILES, NO_CALLS, NO_PRIVILEGES}
