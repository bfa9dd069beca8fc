"""What a message is called: every frame that a collaborator has, and whatever else may arrive."""

from __future__ import annotations

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.audit.items import MessageKind, StreamItems
from fedfair.ids import SumNumber
from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.secagg.messages import Kind, begin
from fedfair.wire.frames import Abstain, Chunk, CollaboratorFrame, Ended, Hello, SecaggMessage, UploadStart

FRAMES: dict[type[CollaboratorFrame], tuple[CollaboratorFrame, MessageKind]] = {
    Hello: (Hello(1, "0", bytes(32), b"{}", bytes(64)), MessageKind.INTRODUCTION),
    UploadStart: (UploadStart(SumNumber(1), 9, bytes(32)), MessageKind.PLAIN_ANNOUNCEMENT),
    Chunk: (Chunk(b"piece"), MessageKind.OUT_OF_PLACE),
    Abstain: (Abstain(SumNumber(1), RefusalReason.POLICY), MessageKind.ABSTENTION),
    SecaggMessage: (SecaggMessage(begin(Kind.CONSISTENCY_CHECK).done()), MessageKind.VOTE),
    Ended: (Ended(bytes(32)), MessageKind.END),
}


def test_every_frame_that_a_collaborator_has_is_called_something() -> None:
    assert set(typing.get_args(CollaboratorFrame)) == FRAMES.keys()
    for frame, item in FRAMES.values():
        assert StreamItems().next(frame) is item


def test_a_chunk_is_a_piece_of_what_was_announced_before_it() -> None:
    items, chunk = StreamItems(), Chunk(b"piece")
    upload = SecaggMessage(begin(Kind.UPLOAD).done(), 9)
    said = (chunk, upload, chunk, chunk, FRAMES[UploadStart][0], chunk, chunk, FRAMES[Abstain][0], chunk)
    assert [items.next(frame) for frame in said] == [
        MessageKind.OUT_OF_PLACE,
        MessageKind.SEALED_SHARES,
        MessageKind.MASKED_VECTOR,
        MessageKind.MASKED_VECTOR,
        MessageKind.PLAIN_ANNOUNCEMENT,
        MessageKind.PLAIN_CONTRIBUTION,
        MessageKind.PLAIN_CONTRIBUTION,
        MessageKind.ABSTENTION,
        MessageKind.OUT_OF_PLACE,
    ]


@pytest.mark.parametrize("kind", Kind)
def test_what_only_the_aggregator_says_is_out_of_place_in_a_collaborator_s_mouth(kind: Kind) -> None:
    own = {
        Kind.KEY_ADVERTISEMENT,
        Kind.REVEAL,
        Kind.CONFIRM,
        Kind.UPLOAD,
        Kind.PAIR_MASKS,
        Kind.CONSISTENCY_CHECK,
        Kind.UNMASK_SHARES,
    }
    item = StreamItems().next(SecaggMessage(begin(kind).done()))
    assert (item is MessageKind.OUT_OF_PLACE) == (kind not in own)


@given(message=st.binary(min_size=1, max_size=40))
def test_junk_is_called_something_too(message: bytes) -> None:
    assert StreamItems().next(SecaggMessage(message)) in MessageKind
    assert StreamItems().next(None) is MessageKind.OUT_OF_PLACE


def test_every_word_is_explained_and_can_be_printed() -> None:
    assert all(kind.content for kind in MessageKind)
    assert all(item.value.isprintable() and item.value.isascii() for item in MessageKind)
