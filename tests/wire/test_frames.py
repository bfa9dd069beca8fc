"""Frames check themselves where they are built, and their text cannot drive a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError
from fedfair.ids import SumNumber
from fedfair.process.printable import is_shown
from fedfair.statistics.table import Purpose
from fedfair.wire import frames
from fedfair.wire.limits import MAX_CHUNK_BYTES, MAX_SUM_NUMBER, MAX_TEXT_CHARACTERS, MAX_VECTOR_BYTES

DIGEST = bytes(32)


def sum_start(**changes: object) -> frames.SumStart:
    fields: dict[str, object] = {
        "sum_number": 1, "purpose": Purpose.TRAINING, "round": 1, "attempt": 1,
        "state": DIGEST, "deadline_seconds": 60,
    }  # fmt: skip
    return frames.SumStart(**(fields | changes))


def broadcast(**changes: object) -> frames.BroadcastStart:
    fields: dict[str, object] = {
        "kind": frames.BroadcastKind.STATE, "length": 8, "sha256": DIGEST,
    }  # fmt: skip
    return frames.BroadcastStart(**(fields | changes))


def hello(**changes: object) -> frames.Hello:
    fields: dict[str, object] = {
        "protocol_version": 1, "software_version": "0.1.0", "plan_digest": DIGEST,
        "approval": b"{}", "certificate_binding": bytes(64),
    }  # fmt: skip
    return frames.Hello(**(fields | changes))


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: hello(protocol_version=0), "Hello.protocol_version is 0"),
        (lambda: hello(last_sum_number=MAX_SUM_NUMBER + 1), "Hello.last_sum_number is 9223372036854775808"),
        (lambda: hello(last_sum_number=-1), "Hello.last_sum_number is -1"),
        (lambda: hello(run_id="0" * 31), "Hello.run_id is '0000000000000000000000000000000', expected 32"),
        (lambda: hello(rounds_done=2**31), "Hello.rounds_done is 2147483648, expected 0 to 2147483647"),
        (lambda: hello(plan_digest=bytes(31)), "Hello.plan_digest has 31 bytes, expected 32"),
        (lambda: hello(plan_digest=bytes(33)), "Hello.plan_digest has 33 bytes, expected 32"),
        (lambda: hello(approval=bytes(4097)), "Hello.approval is 4097 bytes, expected 0 to 4096"),
        (lambda: hello(certificate_binding=bytes(63)), "Hello.certificate_binding has 63 bytes, expected 64"),
        (lambda: frames.UploadStart(SumNumber(0), 8, DIGEST), "UploadStart.sum_number is 0"),
        (lambda: frames.UploadStart(SumNumber(1), 0, DIGEST), "UploadStart.length is 0"),
        (lambda: frames.UploadStart(SumNumber(1), MAX_VECTOR_BYTES + 1, DIGEST), "UploadStart.length is"),
        (lambda: frames.UploadStart(SumNumber(1), 8, b""), "UploadStart.sha256 has 0 bytes"),
        (lambda: frames.Ended(b""), "Ended.state has 0 bytes, expected 32"),
        (lambda: frames.Welcome("A" * 32, 0, 1), "Welcome.run_id is"),
        (lambda: frames.Welcome("a" * 31, 0, 1), "Welcome.run_id is"),
        (lambda: frames.Welcome("a" * 32, 2, 1), "Welcome.rounds_done is 2, expected 0 to 1"),
        (lambda: frames.Welcome("a" * 32, 0, 0), "Welcome.rounds_total is 0"),
        (lambda: frames.Welcome("a" * 32, 0, 1, evaluation_only=True), "Welcome.model has 0 bytes, expected 32"),
        (lambda: frames.Welcome("a" * 32, 0, 1, model=DIGEST), "Welcome.model has 32 bytes, expected 0"),
        (lambda: hello(state=bytes(31)), "Hello.state has 31 bytes, expected 32"),
        (lambda: broadcast(length=0), "BroadcastStart.length is 0"),
        (lambda: broadcast(length=MAX_VECTOR_BYTES + 1), "BroadcastStart.length is"),
        (lambda: broadcast(sha256=b""), "BroadcastStart.sha256 has 0 bytes"),
        (lambda: sum_start(round=0), "SumStart.round is 0, expected 1"),
        (lambda: sum_start(attempt=0), "SumStart.attempt is 0"),
        (lambda: sum_start(deadline_seconds=0), "SumStart.deadline_seconds is 0"),
        (lambda: sum_start(state=b""), "SumStart.state has 0 bytes, expected 32"),
        (lambda: sum_start(state=bytes(33)), "SumStart.state has 33 bytes, expected 32"),
        (lambda: frames.Chunk(b""), "Chunk.data is 0 bytes"),
        (lambda: frames.Chunk(bytes(MAX_CHUNK_BYTES + 1)), "Chunk.data is 1048577 bytes"),
        (lambda: frames.CheckReply(()), "CheckReply.items is 0 entries"),
        (lambda: frames.CheckRequest(1, "", DIGEST, b"", bytes(64), math.nan), "clock_seconds is nan"),
    ],
)  # fmt: skip
def test_a_frame_that_cannot_be_is_our_bug_and_names_its_field(
    build: Callable[[], frames.Frame], complaint: str
) -> None:
    with pytest.raises(LocalProtocolError, match=complaint.replace("(", r"\(")):
        build()


def test_an_evaluation_may_come_before_the_first_round() -> None:
    assert sum_start(purpose=Purpose.EVALUATION, round=0).round == 0


def test_text_from_a_peer_cannot_drive_the_terminal() -> None:
    refused = frames.Refused("\x1b[2Jgone\r\n\x9b31m\u202edesrever", "ok\ttab", try_again=False)
    assert refused.reason == " [2Jgone   31m desrever"
    assert refused.remedy == "ok tab"


def test_text_that_is_too_long_is_cut_where_it_is_built() -> None:
    outcome = frames.Finished(1, "x" * 5000).outcome
    assert len(outcome) == MAX_TEXT_CHARACTERS
    assert outcome.endswith("x…")


@given(st.text(max_size=1200), st.integers(min_value=1, max_value=600))
@settings(deadline=None)
def test_showable_text_is_printable_short_and_stays_as_it_is(text: str, limit: int) -> None:
    shown = frames.showable(text, limit)
    assert all(is_shown(letter) for letter in shown)
    assert len(shown) <= limit
    assert frames.showable(shown, limit) == shown


def test_a_foreign_protocol_version_is_read_so_that_it_can_be_answered_in_words() -> None:
    assert hello(protocol_version=7, software_version="9.9").protocol_version == 7
