"""An act has one spelling, and nobody can say it in another's name."""

import json

import pytest

from fedfair.consortium.acts import FIELDS, MAX_BYTES, Act, ActKind, StudyOutcome, parse_act, sign_act, verify_act
from fedfair.consortium.faults import ConsortiumError, RecordCheck
from tests.consortium.consortium_makers import HEART, PLAN, Play, approval_of, key_of


@pytest.mark.parametrize("kind", ActKind)
def test_an_act_of_every_kind_is_read_as_it_was_written(kind: ActKind) -> None:
    told = {
        "study": "stroke", "plan_digest": PLAN, "words": "wörtlich", "archive_digest": bytes(32),
        "archive_bytes": 5, "sites": ("clinic-b", "clinic-a"), "needed": 2, "payload": approval_of("clinic-a"),
        "outcome": StudyOutcome.ABORTED, "result_digest": b"", "result_bytes": 0,
    }  # fmt: skip
    fields = {name: told[name] for name in FIELDS[kind]}
    act = Act(kind, HEART, "clinic-a", "2026-01-31T12:00:00+00:00", (41, PLAN), **fields)  # type: ignore[arg-type]
    raw = sign_act(act, key_of("clinic-a"))
    assert parse_act(raw) == act
    verify_act(raw, key_of("clinic-a").public_key())
    with pytest.raises(ConsortiumError) as caught:
        verify_act(raw, key_of("clinic-b").public_key())
    assert caught.value.check is RecordCheck.SIGNATURE


def test_every_byte_of_an_act_counts() -> None:
    raw = Play().act(ActKind.REFUSED, "clinic-a")
    key = key_of("clinic-a").public_key()

    def check(act: bytes) -> None:
        parse_act(act)
        verify_act(act, key)

    check(raw)
    for place in range(len(raw)):
        changed = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        with pytest.raises(ConsortiumError):
            check(changed)


@pytest.mark.parametrize(
    "change",
    [
        {"study": "../other"}, {"study": "a" * 41}, {"study": ""}, {"words": "w" * 2001}, {"words": "two\nlines"},
        {"words": 7}, {"plan_digest": "sha256:00"}, {"kind": "crowned"}, {"kind": ["refused"]}, {"by": ""},
        {"at": "x" * 65}, {"format": "fedfair/act/2"}, {"more": "x"}, {"seen": "0"},
        {"seen": "-1 sha256:" + "0" * 64},
        {"seen": "01 sha256:" + "0" * 64}, {"seen": 4}, {"federation": True}, {"study": None}, {"words": ["a"]},
    ],
)  # fmt: skip
def test_what_is_no_act_is_refused(change: dict[str, object]) -> None:
    values = json.loads(Play().act(ActKind.REFUSED, "clinic-a"))
    raw = json.dumps({**values, **change}, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(ConsortiumError) as caught:
        parse_act(raw)
    assert caught.value.check is RecordCheck.FORM


@pytest.mark.parametrize("change", [{"sites": []}, {"sites": ["a", "a"]}, {"needed": "3"}, {"archive_bytes": -1}])
def test_a_submission_with_a_wrong_value_is_refused(change: dict[str, object]) -> None:
    values = json.loads(Play().act(ActKind.SUBMITTED, "bert"))
    raw = json.dumps({**values, **change}, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(ConsortiumError) as caught:
        parse_act(raw)
    assert caught.value.check is RecordCheck.FORM


def test_another_spelling_of_the_same_act_is_refused() -> None:
    raw = Play().act(ActKind.REFUSED, "clinic-a")
    for other in (raw + b"\n", raw.replace(b'","', b'", "'), b"\xff" + raw, b"[" * 5000, b" " * (MAX_BYTES + 1)):
        with pytest.raises(ConsortiumError) as caught:
            parse_act(other)
        assert caught.value.check is RecordCheck.FORM
