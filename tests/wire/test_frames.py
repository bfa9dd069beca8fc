"""Frames check themselves where they are built, and their text cannot drive a terminal."""

import dataclasses
import hashlib
import math
import tracemalloc
import typing
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.spec import SumSpec
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.ids import SumNumber
from fedfair.policy.refusal_reasons import ACCUSING, RefusalReason, reason_for
from fedfair.policy.site_config import SitePolicy
from fedfair.process.printable import is_shown
from fedfair.secagg.checks import Check
from fedfair.secagg.round_messages import OpenedMessage
from fedfair.statistics.table import Purpose
from fedfair.wire import codec, frames
from fedfair.wire.chunking import (
    Assembler,
    broadcast_frames,
    chunks,
    expect_broadcast,
    expect_upload,
    upload_frames,
)
from fedfair.wire.frames import (
    Accepted,
    AggregatorFrame,
    BroadcastKind,
    BroadcastStart,
    Chunk,
    Finished,
    Refused,
    SecaggMessage,
    SumStart,
    UploadStart,
    Welcome,
)
from fedfair.wire.limits import MAX_CHUNK_BYTES, MAX_MEMBER, MAX_SUM_NUMBER, MAX_TEXT_CHARACTERS, MAX_VECTOR_BYTES
from fedfair.wire.receiving import ReceivedRequest, ReceivedState, ReceivedSum, ReceivedTotals, Receiver, Shapes
from fedfair.wire.v1 import federation_pb2 as pb

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
        (lambda: frames.Ended(DIGEST, bytes(4097)), "Ended.statement is 4097 bytes, expected 0 to 4096"),
        (lambda: frames.Witnessed(b""), "Witnessed.statement is 0 bytes, expected 1 to 4096"),
        (lambda: frames.Witnessed(bytes(4097)), "Witnessed.statement is 4097 bytes, expected 1 to 4096"),
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
def test_a_frame_that_cannot_be_names_its_field(build: Callable[[], frames.Frame], complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=complaint.replace("(", r"\(")):
        build()


def test_an_evaluation_may_come_before_the_first_round() -> None:
    assert sum_start(purpose=Purpose.EVALUATION, round=0).round == 0


def test_text_from_a_peer_cannot_drive_the_terminal() -> None:
    refused = frames.Refused("\x1b[2Jgone\r\n\x9b31m\u202edesrever", "ok\ttab", try_again=False)
    assert (refused.reason, refused.remedy) == (" [2Jgone   31m desrever", "ok tab")


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


# ---- what an aggregator may say on one stream, and in which order; what it is about is not decided here

SHAPES = Shapes(state_bytes=40, totals_bytes=24, rounds=20, opened_lengths=frozenset({0, 12}))
WELCOME = Welcome("0" * 32, 4, 20)
STATE = bytes(range(32))
OPENED = OpenedMessage(bytes(32), (1, 2), bytes(16)).encode()


def broadcast_in_frames(
    payload: bytes = bytes(range(40)), kind: BroadcastKind = BroadcastKind.STATE
) -> list[BroadcastStart | Chunk]:
    return list(broadcast_frames(kind, payload, hashlib.sha256(payload).digest()))


def question(number: int = 1, round_number: int = 5, purpose: Purpose = Purpose.TRAINING) -> SumStart:
    return SumStart(SumNumber(number), purpose, round_number, 1, STATE, 60)


def fed(*frames: AggregatorFrame, last_sum: int = 0, shapes: Shapes = SHAPES) -> Receiver:
    receiver = Receiver(shapes, SumNumber(last_sum))
    for frame in frames:
        receiver.take(frame)
    return receiver


def test_a_request_is_taken_as_it_came_with_the_run_that_it_belongs_to() -> None:
    assert fed(WELCOME).take(question()) == ReceivedRequest(question(), "0" * 32, on_demand=False)
    saved = Welcome("1" * 32, 4, 20, evaluation_only=True, model=bytes(32))
    asked = question(purpose=Purpose.EVALUATION)
    assert fed(saved).take(asked) == ReceivedRequest(asked, "1" * 32, on_demand=True)


@pytest.mark.parametrize(
    ("kind", "payload", "made"),
    [
        (BroadcastKind.STATE, bytes(range(40)), ReceivedState),
        (BroadcastKind.STATE, b"short", ReceivedState),
        (BroadcastKind.TOTALS, bytes(range(24)), ReceivedTotals),
    ],
)
def test_what_brings_a_site_into_step_is_handed_on_as_bytes(
    kind: BroadcastKind, payload: bytes, made: type[ReceivedState | ReceivedTotals]
) -> None:
    *before, last = broadcast_in_frames(payload, kind)
    received = fed(WELCOME, *before).take(last)
    assert isinstance(received, made)
    assert received.packed == payload


def test_an_opened_sum_may_come_before_any_request_and_with_its_body_in_chunks() -> None:
    assert fed(WELCOME).take(SecaggMessage(OPENED)) == ReceivedSum(OPENED)
    receiver = fed(WELCOME, SecaggMessage(OPENED, 12), Chunk(b"abcdefgh"))
    assert receiver.take(Chunk(b"ijkl")) == ReceivedSum(OPENED, memoryview(b"abcdefghijkl"))


def test_the_same_state_serves_several_sums_and_numbers_may_skip() -> None:
    assert fed(WELCOME, question(1, 5)).take(question(7, 5, Purpose.EVALUATION)).start.sum_number == 7


def test_after_an_interruption_the_last_question_may_come_again_once() -> None:
    receiver = fed(WELCOME, last_sum=3)
    assert receiver.take(question(3)).start.sum_number == 3
    with pytest.raises(RemoteProtocolError, match="sum 3 follows sum 3"):
        receiver.take(question(3))


def test_the_last_words_pass_even_in_the_middle_of_a_broadcast() -> None:
    for words in (Refused("no", "", try_again=False), Finished(4, "done")):
        assert fed(WELCOME, broadcast_in_frames()[0]).take(words) == words


@pytest.mark.parametrize(
    ("frames", "complaint"),
    [
        ((broadcast_in_frames()[0],), "wrong end of the greeting"),
        ((WELCOME, WELCOME), "wrong end of the greeting"),
        ((Welcome("0" * 32, 0, 21),), "21 rounds"),
        ((WELCOME, BroadcastStart(BroadcastKind.STATE, 1 << 35, bytes(32))), "the plan allows 40"),
        ((WELCOME, BroadcastStart(BroadcastKind.TOTALS, 25, bytes(32))), "the plan allows 24"),
        ((WELCOME, Chunk(b"x")), "belongs to no broadcast"),
        ((WELCOME, broadcast_in_frames()[0], question()), "interrupts the chunks of a state of the run"),
        ((WELCOME, broadcast_in_frames()[0], Chunk(bytes(41))), "41 bytes arrived"),
        ((WELCOME, broadcast_in_frames()[0], Chunk(bytes(40))), "SHA-256"),
        ((WELCOME, SecaggMessage(OPENED, 13)), "the plan makes it 0 or 12"),
        ((WELCOME, SecaggMessage(OPENED, 12), question()), "interrupts the chunks of a sum"),
        ((WELCOME, SecaggMessage(b"\x02\x06 and more")), "before its sum"),
        ((WELCOME, question(), SecaggMessage(b"\x02\x06 and more", 12)), "with a vector"),
        ((WELCOME, question(2), question(1)), "sum 1 follows sum 2"),
        ((WELCOME, question(1, 6), question(2, 5)), "follows round 6"),
        ((WELCOME, question(1, 21)), "of 20"),
        ((WELCOME, Accepted(SumNumber(1))), "before it was asked"),
    ],
)
def test_whoever_breaks_the_order_is_found_out(frames: tuple[AggregatorFrame, ...], complaint: str) -> None:
    receiver = fed(*frames[:-1])
    with pytest.raises(RemoteProtocolError, match=complaint):
        receiver.take(frames[-1])


@pytest.mark.parametrize("opened", [SecaggMessage(OPENED), SecaggMessage(OPENED, 12)])
def test_a_plan_with_plain_sums_has_no_masked_one_to_open(opened: SecaggMessage) -> None:
    shapes = Shapes(state_bytes=40, totals_bytes=24, rounds=20)
    with pytest.raises(RemoteProtocolError, match="the plan makes it plain, without any"):
        fed(WELCOME, shapes=shapes).take(opened)


def test_a_plan_with_masked_sums_allows_no_sum_in_the_clear() -> None:
    shapes = Shapes(state_bytes=40, totals_bytes=0, rounds=20, opened_lengths=frozenset({0}))
    with pytest.raises(RemoteProtocolError, match="the plan allows 0"):
        fed(WELCOME, shapes=shapes).take(BroadcastStart(BroadcastKind.TOTALS, 1, bytes(32)))


# ---- long vectors: cut without copying, put together into exactly what was agreed

SPEC = SumSpec(Purpose.TRAINING, 2, 10, np.dtype("<f4"))


def digest(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()


def test_seven_bytes_in_threes() -> None:
    assert [bytes(piece) for piece in chunks(b"abcdefg", 3)] == [b"abc", b"def", b"g"]
    assert list(chunks(b"", 3)) == []


def test_chunks_are_views_of_the_vector_and_not_copies() -> None:
    vector = np.zeros(6, "<f4")
    pieces = list(chunks(vector.data, 8))
    vector[:] = 1.0
    assert b"".join(pieces) == vector.tobytes()


@given(st.binary(min_size=1, max_size=500), st.integers(1, 200))
@settings(deadline=None)
def test_what_is_cut_is_put_together_again(payload: bytes, size: int) -> None:
    assembler = Assembler(len(payload), digest(payload))
    for piece in chunks(payload, size):
        assert not assembler.complete
        assembler.add(Chunk(piece))
    assert assembler.complete
    assert assembler.take() == payload


def test_an_upload_travels_as_an_announcement_and_chunks() -> None:
    payload = bytes(range(256)) * 5000  # 1.28 MB: two chunks
    start, *pieces = upload_frames(SumNumber(3), payload)
    assert start == UploadStart(SumNumber(3), len(payload), digest(payload))
    received = [codec.decode_collaborator_frame(codec.encode_collaborator_frame(piece)) for piece in pieces]
    assert [len(chunk.data) for chunk in received] == [MAX_CHUNK_BYTES, len(payload) - MAX_CHUNK_BYTES]


def test_a_broadcast_travels_as_an_announcement_and_chunks() -> None:
    payload = bytes(100)
    start, *pieces = broadcast_frames(BroadcastKind.STATE, payload, digest(payload))
    assert start == BroadcastStart(BroadcastKind.STATE, 100, digest(payload))
    assembler = expect_broadcast(start, 120)
    for piece in pieces:
        assembler.add(piece)
    assert assembler.take() == payload


@pytest.mark.parametrize("length", [SPEC.upload_bytes - 1, SPEC.upload_bytes + 1, 1, 1 << 36])
def test_a_length_that_the_plan_does_not_give_is_refused_before_anything_is_allocated(length: int) -> None:
    start = UploadStart(SumNumber(1), length, bytes(32))
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match=f"announced with {length} bytes, the plan makes it 56"):
        expect_upload(start, SPEC)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20  # pytest itself allocates while it matches; a vector would be 64 GiB


@pytest.mark.parametrize("kind", BroadcastKind)
@pytest.mark.parametrize("length", [41, 1 << 36])
def test_a_broadcast_longer_than_the_plan_allows_allocates_nothing(kind: BroadcastKind, length: int) -> None:
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match=f"announced with {length} bytes, the plan allows 40"):
        expect_broadcast(BroadcastStart(kind, length, bytes(32)), 40)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_chunk_beyond_the_end_is_refused_and_changes_nothing() -> None:
    assembler = Assembler(5, digest(b"abcde"))
    assembler.add(Chunk(b"abc"))
    with pytest.raises(RemoteProtocolError, match="a chunk of 3 bytes arrived where 2 of 5 were missing"):
        assembler.add(Chunk(b"xyz"))
    assembler.add(Chunk(b"de"))
    with pytest.raises(RemoteProtocolError, match="a chunk of 1 bytes arrived where 0 of 5"):
        assembler.add(Chunk(b"f"))
    assert assembler.take() == b"abcde"


def test_a_vector_with_another_digest_is_refused_with_both_digests() -> None:
    assembler = Assembler(3, digest(b"abc"))
    assembler.add(Chunk(b"abd"))
    with pytest.raises(RemoteProtocolError, match=digest(b"abc").hex()):
        assembler.take()
    with pytest.raises(RemoteProtocolError, match=digest(b"abd").hex()):
        assembler.take()


def test_a_vector_is_taken_once_and_only_when_it_is_whole() -> None:
    assembler = Assembler(3, digest(b"abc"))
    assembler.add(Chunk(b"ab"))
    with pytest.raises(LocalProtocolError, match="lacks 1 bytes"):
        assembler.take()
    assembler.add(Chunk(b"c"))
    assert assembler.take().readonly
    with pytest.raises(LocalProtocolError, match="was taken already"):
        assembler.take()
    with pytest.raises(RemoteProtocolError):
        assembler.add(Chunk(b"d"))


# ---- what leaves a site instead of a contribution: one of a closed list, whose form no record can change

CONSTANT_TEXT = {"Hello": {"software_version", "run_id"}, "CheckRequest": {"software_version"}}
"""Text that a site sends beside its reasons: its version, and the run as the aggregator named it."""


def test_no_frame_of_a_collaborator_can_hold_words_of_its_own() -> None:
    for frame in (*typing.get_args(frames.CollaboratorFrame), frames.CheckRequest):
        hints = typing.get_type_hints(frame, vars(frames) | {"SumNumber": SumNumber})
        texts = {field.name for field in dataclasses.fields(frame) if hints[field.name] is str}
        assert texts == CONSTANT_TEXT.get(frame.__name__, set()), frame
    hints = typing.get_type_hints(frames.Abstain, vars(frames) | {"SumNumber": SumNumber})
    assert (hints["reason"], hints["accused"], hints["leaving"]) == (RefusalReason, int, bool)


@given(st.one_of(st.text(), st.integers(), st.binary(), st.none()))
def test_nothing_but_a_reason_of_the_list_makes_a_frame(reason: object) -> None:
    with pytest.raises(LocalProtocolError, match="closed list"):
        frames.Abstain(SumNumber(1), reason)  # type: ignore[arg-type]  # that is the test


def test_the_list_of_the_code_is_that_of_the_wire() -> None:
    declared = set(pb.Abstain.Reason.keys()) - {"REASON_UNSPECIFIED"}
    assert declared == {f"REASON_{reason.name}" for reason in RefusalReason}


@given(st.sampled_from(RefusalReason), st.integers(-1, 2**17), st.booleans())
def test_nobody_is_accused_but_a_member_of_a_roster_beside_a_reason_about_what_it_sealed(
    reason: RefusalReason, accused: int, leaving: bool
) -> None:
    allowed = accused == 0 or (0 < accused <= MAX_MEMBER and reason in ACCUSING and not leaving)
    number = accused if 0 <= accused < 2**16 + 2 else 2**16
    abstain = pb.Abstain(sum_number=1, reason=f"REASON_{reason.name}", leaving=leaving, accused=number)  # type: ignore[arg-type]  # by its name
    raw = pb.CollaboratorFrame(abstain=abstain).SerializeToString()
    if allowed:
        frame = frames.Abstain(SumNumber(1), reason, leaving, accused)
        assert codec.decode_collaborator_frame(raw) == frame
        return
    with pytest.raises(LocalProtocolError, match="accused"):
        frames.Abstain(SumNumber(1), reason, leaving, accused)
    if number:
        with pytest.raises(RemoteProtocolError, match="accused"):
            codec.decode_collaborator_frame(raw)


def test_the_length_of_an_accusation_follows_from_the_place_in_the_roster_alone() -> None:
    assert RefusalReason.SECAGG_ENVELOPE in ACCUSING
    for accused, extra in ((1, 2), (127, 2), (128, 3), (MAX_MEMBER, 4)):
        sent = {
            len(codec.encode_collaborator_frame(frames.Abstain(SumNumber(7), reason, accused=accused)))
            for reason in ACCUSING
        }
        plain = codec.encode_collaborator_frame(frames.Abstain(SumNumber(7), RefusalReason.SECAGG_ENVELOPE))
        assert sent == {len(plain) + extra}


@given(st.integers(0, 2**31 - 1))
def test_a_number_that_is_not_on_the_list_is_refused(number: int) -> None:
    raw = pb.CollaboratorFrame(abstain=pb.Abstain(sum_number=1, reason=number)).SerializeToString()  # type: ignore[arg-type]  # a liar's
    if number in set(pb.Abstain.Reason.values()) - {0}:
        assert isinstance(codec.decode_collaborator_frame(raw), frames.Abstain)
        return
    with pytest.raises(RemoteProtocolError, match="not in the list of reasons"):
        codec.decode_collaborator_frame(raw)


def test_no_sentence_holds_a_number_and_no_two_are_the_same() -> None:
    # The names of two things to configure have digits of their own; a value has none.
    assert not any(character.isdigit() for reason in RefusalReason for character in reason.value)
    assert len({reason.value for reason in RefusalReason}) == len(RefusalReason)


@given(st.text())
def test_every_term_is_told_as_one_of_the_list(term: str) -> None:
    assert reason_for(term) in RefusalReason


def test_terms_and_checks_are_told_by_their_names() -> None:
    # What is never a reason to refuse: a site with too few records takes part with nothing. And what would tell
    # the lead that persons have withdrawn: that one is told in general words.
    for term in SitePolicy.model_fields.keys() - {"repeatable", "max_epsilon", "min_records", "withdrawals"}:
        assert reason_for(term).value.endswith(f": {term}")
    for check in Check:
        told = reason_for(f"secure aggregation: {check.value}")
        # A check that has no reason of its own yet is told in general words, and not in others.
        assert told is RefusalReason.SECAGG or told.value.endswith(f": {check.value}")
