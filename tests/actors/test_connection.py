from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Coroutine
from typing import TypeVar

import numpy as np
import pytest

from aggregator.broadcast import Broadcast, VectorMessage
from aggregator.connection import MAX_QUEUED, MAX_UNASKED, Connection
from fedfair.aggregation.spec import SumSpec
from fedfair.audit.keeper import Occasion
from fedfair.errors import RemoteProtocolError
from fedfair.ids import ParticipantId, SumNumber
from fedfair.statistics.table import Purpose
from fedfair.wire.codec import decode_aggregator_frame
from fedfair.wire.frames import (
    Accepted,
    AggregatorFrame,
    BroadcastKind,
    BroadcastStart,
    Chunk,
    Finished,
    SecaggMessage,
)
from fedfair.wire.limits import MAX_CHUNK_BYTES
from tests.patience import PATIENCE

T = TypeVar("T")
SPEC = SumSpec(Purpose.EVALUATION, 4, 0, np.dtype("<f4"))


def run(coroutine: Coroutine[object, object, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


def state_of(chunks: int = 3) -> Broadcast:
    return Broadcast(BroadcastKind.STATE, bytes(chunks * MAX_CHUNK_BYTES))


def test_frames_and_vectors_leave_in_the_order_in_which_they_were_queued() -> None:
    payload, vector = np.arange(4.0).tobytes(), np.arange(2.0).tobytes()

    async def scenario() -> list[AggregatorFrame]:
        connection, written = Connection(ParticipantId("a")), []

        async def write(raw: bytes) -> None:
            written.append(decode_aggregator_frame(raw))

        connection.publish(Broadcast(BroadcastKind.TOTALS, payload))
        connection.publish(VectorMessage(b"\x01opened", vector))
        connection.send(Accepted(SumNumber(1)))
        connection.leave(Finished(3, "done"))
        await connection.drain(write)
        return written

    start, chunk, message, beside, accepted, finished = run(scenario())
    assert start == BroadcastStart(BroadcastKind.TOTALS, len(payload), hashlib.sha256(payload).digest())
    assert isinstance(chunk, Chunk)
    assert bytes(chunk.data) == payload
    assert message == SecaggMessage(b"\x01opened", len(vector))
    assert isinstance(beside, Chunk)
    assert bytes(beside.data) == vector
    assert accepted == Accepted(SumNumber(1))
    assert finished == Finished(3, "done")


def test_a_stream_that_is_cut_half_way_through_a_vector_says_why_and_nothing_more_is_written() -> None:
    async def scenario() -> tuple[int, str]:
        connection, written = Connection(ParticipantId("a")), []

        async def write(raw: bytes) -> None:
            written.append(raw)
            if len(written) == 2:
                connection.cut("too late")
                await asyncio.Event().wait()  # The peer reads no further.

        connection.publish(state_of())
        writer = asyncio.create_task(connection.drain(write))
        await asyncio.wait({writer, connection.cut_reason}, return_when=asyncio.FIRST_COMPLETED)
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        return len(written), connection.cut_reason.result()

    assert run(scenario()) == (2, "too late")


def test_many_readers_of_one_vector_share_it() -> None:
    publication = state_of()
    frames = itertools.zip_longest(publication.frames(), publication.frames())
    assert [one == other for one, other in frames] == [True] * 4


def test_a_reader_that_reads_nothing_is_cut_off_before_its_queue_grows() -> None:
    async def scenario() -> str:
        connection = Connection(ParticipantId("a"))
        for number in range(1, MAX_QUEUED + 10):
            connection.send(Accepted(SumNumber(number)))
        return connection.cut_reason.result()

    assert "wait to be read" in run(scenario())


def test_after_the_last_frame_nothing_more_is_queued() -> None:
    async def scenario() -> int:
        connection, written = Connection(ParticipantId("a")), []

        async def write(raw: bytes) -> None:
            written.append(raw)

        connection.leave(Finished(1, "done"))
        connection.leave(Finished(2, "done again"))
        connection.send(Accepted(SumNumber(1)))
        await connection.drain(write)
        return len(written)

    assert run(scenario()) == 1


def test_only_the_sum_that_was_asked_last_is_expected_and_earlier_ones_are_late() -> None:
    async def scenario() -> None:
        connection = Connection(ParticipantId("a"))
        with pytest.raises(RemoteProtocolError, match="asked for nothing yet"):
            connection.expected(SumNumber(1))
        connection.ask(SumNumber(3), SPEC, Occasion(Purpose.TRAINING, 1, 1))
        connection.ask(SumNumber(5), SPEC, Occasion(Purpose.TRAINING, 2, 1))
        assert connection.expected(SumNumber(5)) is SPEC
        assert connection.expected(SumNumber(4)) is None
        for number in (2, 6):
            with pytest.raises(RemoteProtocolError, match="asked for sum 5"):
                connection.expected(SumNumber(number))

    run(scenario())


def test_a_peer_that_says_more_than_it_was_asked_is_refused_before_its_record_grows() -> None:
    async def scenario() -> None:
        connection = Connection(ParticipantId("a"))
        for _ in range(3):
            connection.send(SecaggMessage(b"asked"))
            for _ in range(MAX_UNASKED):
                connection.heard()
        connection.send(Accepted(SumNumber(1)))
        with pytest.raises(RemoteProtocolError, match=f"a sent {MAX_UNASKED + 1} messages since its last request"):
            connection.heard()

    run(scenario())
