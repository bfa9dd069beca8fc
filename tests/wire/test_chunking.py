"""Long vectors: cut without copying, put together into exactly what was agreed."""

from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.spec import SumSpec
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.ids import SumNumber
from fedfair.statistics.table import Purpose
from fedfair.wire import codec
from fedfair.wire.chunking import (
    Assembler,
    broadcast_frames,
    chunks,
    expect_broadcast,
    expect_upload,
    upload_frames,
)
from fedfair.wire.frames import BroadcastKind, BroadcastStart, Chunk, UploadStart
from fedfair.wire.limits import MAX_CHUNK_BYTES

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
def test_a_broadcast_longer_than_the_plan_allows_is_refused_before_anything_is_allocated(
    kind: BroadcastKind, length: int
) -> None:
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
