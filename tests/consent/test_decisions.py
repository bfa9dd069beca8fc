"""Decisions: signed once, verified byte for byte, and counted."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from fedfair.consent.decisions import (
    Choice,
    ConsentState,
    PersonDecision,
    StudySubject,
    decide,
    tally,
    verify_decision,
)
from fedfair.errors import ApprovalError
from tests.consent import people
from tests.consent.people import KEYS, SUBJECT, WHEN, decided

APPROVE, REFUSE, WITHDRAW = Choice


def verified(raw: bytes, subject: StudySubject = SUBJECT, name: str = "amina") -> PersonDecision:
    return verify_decision(raw, subject=subject, person=name, public_key=KEYS[name].public_key())


def altered(change: Callable[[dict[str, object]], object]) -> bytes:
    values = json.loads(decided("amina").to_bytes())
    change(values)
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def test_a_decision_verifies_and_is_readable() -> None:
    made = decided("amina", words="wie besprochen, für ein Jahr")
    assert verified(made.to_bytes()) == made
    values = json.loads(made.to_bytes())
    assert values.pop("signature")
    assert values == {
        "format": "fedfair/decision/1", "federation": "heart", "site": "clinic-a", "study": "age-1",
        "plan_digest": "sha256:" + "11" * 32, "decision": "approve", "words": "wie besprochen, für ein Jahr",
        "parts": ["study", "policy"], "person": "amina", "at": WHEN,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (decided("jonas").to_bytes(), "is of 'jonas', not of 'amina'"),
        (decided("amina", subject=replace(SUBJECT, study="age-2")).to_bytes(), "for study 'age-2'"),
        (decided("amina", subject=replace(SUBJECT, site="clinic-b")).to_bytes(), "for site 'clinic-b'"),
        (decided("amina", subject=replace(SUBJECT, federation="lungs")).to_bytes(), "for federation 'lungs'"),
        (
            decided("amina", subject=replace(SUBJECT, plan_digest="sha256:" + "22" * 32)).to_bytes(),
            "amina decided about plan sha256:2222",
        ),
        (
            decide(SUBJECT, "amina", APPROVE, KEYS["jonas"].sign, at=WHEN).to_bytes(),
            "was not signed with the key",
        ),
        (altered(lambda values: values.update(decision="refuse")), "was not signed with the key"),
        (altered(lambda values: values.update(parts=["study"])), "was not signed with the key"),
        (altered(lambda values: values.update(parts=["studypolicy"])), "was not signed with the key"),
        (altered(lambda values: values.update(words="\x1b[31m")), "not a printable text"),
        (altered(lambda values: values.update(words=7)), "not a printable text"),
        (altered(lambda values: values.update(parts="study")), "not a printable text"),
        (altered(lambda values: values.update(decision="perhaps")), "the decision is 'perhaps'"),
        (altered(lambda values: values.update(more=1)), "does not have exactly the fields"),
        (altered(lambda values: values.update(signature="A")), "is not base64"),
        (altered(lambda values: values.update(format="fedfair/decision/2")), "fedfair/decision/2"),
        (decided("amina").to_bytes() + b"\n", "not in its canonical form"),
        (decided("amina").to_bytes().replace(b'"study":', b'"study":"x","study":'), "not in its canonical form"),
        (b"\xff", "not JSON in ASCII"),
        (b"[" * 10_000, "not JSON in ASCII"),
        (b" " * 20_000, "has 20000 bytes"),
    ],
)
def test_another_decision_is_refused(raw: bytes, expected: str) -> None:
    with pytest.raises(ApprovalError) as caught:
        verified(raw)
    assert expected in caught.value.message


def test_every_changed_byte_is_noticed() -> None:
    raw = decided("amina").to_bytes()
    for place in range(len(raw)):
        with pytest.raises(ApprovalError):
            verified(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])


@pytest.mark.parametrize("words", ["x" * 1001, "two\nlines", "\x1b[2J"])
def test_words_that_are_no_line_are_not_signed(words: str) -> None:
    with pytest.raises(ApprovalError, match="words of a decision"):
        decided("amina", words=words)


def test_enough_approvals_approve_and_one_refusal_or_withdrawal_ends_it(tmp_path: Path) -> None:
    approvers = people.approvers(tmp_path, needed=2)
    for choices in product((None, *Choice), repeat=3):
        made = {name: choice for name, choice in zip(people.NAMES, choices, strict=True) if choice}
        found = tally([decided(name, choice) for name, choice in made.items()], approvers)
        approvals = choices.count(APPROVE)
        if WITHDRAW in choices:
            expected = ConsentState.WITHDRAWN
        elif REFUSE in choices:
            expected = ConsentState.REFUSED
        else:
            expected = ConsentState.APPROVED if approvals >= 2 else ConsentState.WAITING
        assert found.state is expected
        assert found.by_person == made
        assert found.missing == (2 - approvals if expected is ConsentState.WAITING else 0)


def test_a_person_who_has_left_counts_nothing_any_more(tmp_path: Path) -> None:
    both = [decided("amina"), decided("jonas")]
    assert tally(both, people.approvers(tmp_path)).state is ConsentState.APPROVED
    left = tally(both, people.approvers(tmp_path, names=("amina", "li")))
    assert (left.state, left.missing, dict(left.by_person)) == (ConsentState.WAITING, 1, {"amina": APPROVE})


def test_the_outcome_is_told_in_words(tmp_path: Path) -> None:
    approvers = people.approvers(tmp_path, needed=3)
    assert tally([], approvers).words() == "3 more approvals are awaited"
    two = [decided("amina"), decided("li")]
    assert tally(two, approvers).words() == "approved by amina, li; 1 more approval is awaited"
    assert tally([*two, decided("jonas", REFUSE)], approvers).words() == "approved by amina, li; refused by jonas"
