"""What an aggregator may say on one stream, and in which order; what it is about is not decided here."""

from __future__ import annotations

import hashlib

import pytest

from fedfair.errors import RemoteProtocolError
from fedfair.ids import SumNumber
from fedfair.secagg.round_messages import OpenedMessage
from fedfair.statistics.table import Purpose
from fedfair.wire.chunking import broadcast_frames
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
    Welcome,
)
from fedfair.wire.receiving import ReceivedRequest, ReceivedState, ReceivedSum, ReceivedTotals, Receiver, Shapes

SHAPES = Shapes(state_bytes=40, totals_bytes=24, rounds=20, opened_lengths=frozenset({0, 12}))
WELCOME = Welcome("0" * 32, 4, 20)
STATE = bytes(range(32))
OPENED = OpenedMessage(bytes(32), (1, 2), bytes(16)).encode()


def broadcast(
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
    *before, last = broadcast(payload, kind)
    received = fed(WELCOME, *before).take(last)
    assert isinstance(received, made)
    assert received.packed == payload


def test_an_opened_sum_may_come_before_any_request_and_with_its_body_in_chunks() -> None:
    assert fed(WELCOME).take(SecaggMessage(OPENED)) == ReceivedSum(OPENED)
    receiver = fed(WELCOME, SecaggMessage(OPENED, 12), Chunk(b"abcdefgh"))
    assert receiver.take(Chunk(b"ijkl")) == ReceivedSum(OPENED, memoryview(b"abcdefghijkl"))


def test_the_same_state_serves_several_sums_and_numbers_may_skip() -> None:
    receiver = fed(WELCOME, question(1, 5))
    assert receiver.take(question(7, 5, Purpose.EVALUATION)).start.sum_number == 7


def test_after_an_interruption_the_last_question_may_come_again_once() -> None:
    receiver = fed(WELCOME, last_sum=3)
    assert receiver.take(question(3)).start.sum_number == 3
    with pytest.raises(RemoteProtocolError, match="sum 3 follows sum 3"):
        receiver.take(question(3))


def test_the_last_words_pass_even_in_the_middle_of_a_broadcast() -> None:
    for words in (Refused("no", "", try_again=False), Finished(4, "done")):
        assert fed(WELCOME, broadcast()[0]).take(words) == words


@pytest.mark.parametrize(
    ("frames", "complaint"),
    [
        ((broadcast()[0],), "wrong end of the greeting"),
        ((WELCOME, WELCOME), "wrong end of the greeting"),
        ((Welcome("0" * 32, 0, 21),), "21 rounds"),
        ((WELCOME, BroadcastStart(BroadcastKind.STATE, 1 << 35, bytes(32))), "the plan allows 40"),
        ((WELCOME, BroadcastStart(BroadcastKind.TOTALS, 25, bytes(32))), "the plan allows 24"),
        ((WELCOME, Chunk(b"x")), "belongs to no broadcast"),
        ((WELCOME, broadcast()[0], question()), "interrupts the chunks of a state of the run"),
        ((WELCOME, broadcast()[0], Chunk(bytes(41))), "41 bytes arrived"),
        ((WELCOME, broadcast()[0], Chunk(bytes(40))), "SHA-256"),
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
def test_an_aggregator_that_breaks_the_order_is_found_out(
    frames: tuple[AggregatorFrame, ...], complaint: str
) -> None:
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
