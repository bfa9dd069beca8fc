"""The digest of a vector, from those of its frames: the same in parts, and that of the frames on the wire."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.secagg.pieces import PIECE_BYTES, ArrivingDigest, frames_sha256, vector_digest
from fedfair.secagg.transcript import root_digest
from fedfair.wire.chunking import masked_frames
from fedfair.wire.codec import encode_collaborator_frame

RAW = bytes(range(251)) * (3 * PIECE_BYTES // 251)
LENGTHS = [1, 200, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, len(RAW)]


@pytest.mark.parametrize("length", LENGTHS)
def test_the_digests_are_those_of_the_frames_that_are_sent(length: int) -> None:
    vector = RAW[:length]
    _, *chunks = masked_frames(b"message", vector, frames_sha256(vector))
    sent = [hashlib.sha256(encode_collaborator_frame(chunk)).digest() for chunk in chunks]
    assert [chunk.sha256 for chunk in chunks] == sent
    assert vector_digest(vector) == root_digest(length, sent)


def test_a_vector_of_nothing_has_a_digest_and_no_frame() -> None:
    assert frames_sha256(b"") == ()
    assert vector_digest(b"") == root_digest(0, ())


@settings(deadline=None, max_examples=30)
@given(
    length=st.sampled_from(LENGTHS),
    sizes=st.lists(
        st.sampled_from([1, 9, 4096, 300_000, PIECE_BYTES - 9, PIECE_BYTES, 2 * PIECE_BYTES]), min_size=1
    ),
    told=st.booleans(),
)
def test_parts_of_any_length_have_the_digest_of_the_whole(length: int, sizes: list[int], told: bool) -> None:
    vector, arriving = memoryview(RAW)[:length], ArrivingDigest(length)
    at, number = 0, 0
    # Single bytes are only few, so that the example ends.
    while at < length:
        size = sizes[number % len(sizes)] if number < 40 else 2 * PIECE_BYTES
        part = vector[at : at + size]
        known = frames_sha256(part)[0] if told and len(part) <= PIECE_BYTES else b""
        arriving.add(part, known)
        at, number = at + len(part), number + 1
    assert arriving.digest() == vector_digest(vector)


def test_a_digest_that_is_known_is_not_computed_again() -> None:
    arriving, known = ArrivingDigest(PIECE_BYTES + 5), [b"a" * 32, b"b" * 32]
    arriving.add(memoryview(RAW)[:PIECE_BYTES], known[0])
    arriving.add(memoryview(RAW)[:5], known[1])
    assert arriving.digest() == root_digest(PIECE_BYTES + 5, known)
