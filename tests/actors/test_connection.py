from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine
from typing import TypeVar

import numpy as np
import pytest

from aggregator.broadcast import Broadcast, publish_model
from aggregator.connection import MAX_QUEUED, MAX_UNASKED, Connection
from fedfair.aggregation.requests import GlobalModel
from fedfair.aggregation.spec import SumSpec
from fedfair.audit.keeper import Occasion
from fedfair.errors import RemoteProtocolError
from fedfair.ids import ParticipantId, SumNumber
from fedfair.plan.purpose import Purpose
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

T = TypeVar("T")
SPEC = SumSpec(Purpose.EVALUATION, 4, 0, np.dtype("<f4"))


def run(coroutine: Coroutine[object, object, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, 120))


def large_publication(chunks: int = 3) -> Broadcast:
    view = memoryview(bytes(chunks * MAX_CHUNK_BYTES))
    return Broadcast(BroadcastKind.MODEL, view, hashlib.sha256(view).digest(), 0.5)


def test_frames_and_vectors_leave_in_the_order_in_which_they_were_queued() -> None:
    async def scenario() -> list[AggregatorFrame]:
        connection, written = Connection(ParticipantId("a")), []

        async def write(raw: bytes) -> None:
            written.append(decode_aggregator_frame(raw))

        connection.publish(await publish_model(GlobalModel(np.arange(4.0), 0.25)))
        connection.send(Accepted(SumNumber(1)))
        connection.leave(Finished(3, "done"))
        await connection.drain(write)
        return written

    start, chunk, accepted, finished = run(scenario())
    assert isinstance(start, BroadcastStart)
    assert start.threshold == 0.25
    assert isinstance(chunk, Chunk)
    assert np.array_equal(np.frombuffer(chunk.data, "<f8"), np.arange(4.0))
    assert accepted == Accepted(SumNumber(1))
    assert finished == Finished(3, "done")


def test_a_vector_that_is_withdrawn_half_way_is_never_followed_by_another_chunk() -> None:
    async def scenario() -> tuple[int, str]:
        connection, publication, written = Connection(ParticipantId("a")), large_publication(), []

        async def write(raw: bytes) -> None:
            written.append(raw)
            if len(written) == 2:
                publication.withdraw()
                connection.cut("too late")

        connection.publish(publication)
        assert connection.still_needs(publication)
        writer = asyncio.create_task(connection.drain(write))
        await asyncio.wait({writer, connection.cut_reason}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        return len(written), connection.cut_reason.result()

    assert run(scenario()) == (2, "too late")


def test_a_vector_of_one_chunk_survives_a_change_of_the_model() -> None:
    vector = np.zeros(4)

    async def scenario() -> tuple[bool, list[AggregatorFrame]]:
        publication = await publish_model(GlobalModel(vector, 0.0))
        vector[:] = 7.0
        publication.withdraw()
        return publication.withdrawn, [decode_aggregator_frame(raw) for raw in publication.frames()]

    withdrawn, (start, chunk) = run(scenario())
    assert not withdrawn
    assert hashlib.sha256(chunk.data).digest() == start.sha256


def test_many_readers_of_one_vector_share_it() -> None:
    publication = large_publication()
    assert [len(raw) for raw in publication.frames()] == [len(raw) for raw in publication.frames()]
    assert sum(1 for _ in publication.frames()) == 4


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
