"""Pinning keys in the roster beside a plan."""

from pathlib import Path

import pytest

from fedfair.errors import PlanError
from fedfair.plan.enrolment import enroll
from fedfair.plan.loading import load_plan
from fedfair.plan.public_keys import format_public_key, parse_public_key
from fedfair.workspace.create import create_workspace

FIRST, SECOND, THIRD = (format_public_key(bytes([number]) * 32) for number in (1, 2, 3))


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    create_workspace(tmp_path / "heart", "heart", "breast-cancer")
    return tmp_path / "heart" / "plan" / "plan.yaml"


def test_members_are_pinned_one_after_the_other_and_another_key_only_on_purpose(plan_file: Path) -> None:
    enroll(plan_file, {"clinic-b": SECOND}, replace=False)
    enroll(plan_file, {"clinic-a": FIRST, "clinic-b": SECOND}, replace=False)
    assert load_plan(plan_file).federation.roster == {"clinic-a": FIRST, "clinic-b": SECOND}
    assert not list(plan_file.parent.glob("*.tmp"))
    with pytest.raises(PlanError, match="pins another key for clinic-a"):
        enroll(plan_file, {"clinic-a": THIRD}, replace=False)
    assert load_plan(plan_file).federation.roster["clinic-a"] == FIRST
    enroll(plan_file, {"clinic-a": THIRD}, replace=True)
    assert load_plan(plan_file).federation.roster == {"clinic-a": THIRD, "clinic-b": SECOND}


def test_strangers_and_shared_keys_are_refused(plan_file: Path) -> None:
    with pytest.raises(PlanError, match="'clinic-z' is no collaborator"):
        enroll(plan_file, {"clinic-z": FIRST}, replace=False)
    with pytest.raises(PlanError, match="clinic-a and clinic-b have the same signing key"):
        enroll(plan_file, {"clinic-a": FIRST, "clinic-b": FIRST}, replace=False)
    assert not (plan_file.parent / "roster.yaml").exists()


@pytest.mark.parametrize("roster", ["{}", "{clinic-a: '" + THIRD + "'}"])
def test_a_roster_written_by_hand_is_left_alone(plan_file: Path, roster: str) -> None:
    text = plan_file.read_text().replace("  name: heart\n", f"  name: heart\n  roster: {roster}\n", 1)
    plan_file.write_text(text)
    with pytest.raises(PlanError, match=r"federation\.roster is written by hand"):
        enroll(plan_file, {"clinic-a": FIRST}, replace=False)
    assert plan_file.read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        "", "ed25519:", FIRST.removeprefix("ed25519:"), "ed25519:ed25519:" + FIRST, FIRST[:-1], FIRST + "\n",
        "x" * 99,
    ],
)  # fmt: skip
def test_a_key_has_one_spelling(text: str) -> None:
    assert parse_public_key(FIRST) == bytes([1]) * 32
    with pytest.raises(ValueError, match="is not 'ed25519:' and the base64 of 32 bytes"):
        parse_public_key(text)


def test_base64_with_loose_last_bits_is_another_spelling_and_refused() -> None:
    loose = FIRST[:-2] + chr(ord(FIRST[-2]) + 1) + "="
    with pytest.raises(ValueError, match="is not"):
        parse_public_key(loose)
