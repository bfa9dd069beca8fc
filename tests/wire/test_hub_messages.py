"""The messages between a hub and its members come back as they were sent, and nothing else is taken for one."""

from collections.abc import Callable

import pytest

from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.wire.hub import (
    MAX_WAIT_SECONDS,
    ActRequest,
    ActsRequest,
    ActWritten,
    Entries,
    GetRequest,
    Held,
    HubRefusal,
    Piece,
    PutRequest,
    Reply,
    Request,
    decode_act_request,
    decode_acts_request,
    decode_get_request,
    decode_put_request,
    decode_reply,
    encode_reply,
    encode_request,
)

D = bytes(range(32))
REQUESTS: list[tuple[Request, Callable[[bytes], Request]]] = [
    (ActsRequest(41, 30), decode_acts_request),
    (GetRequest(D, 1 << 20), decode_get_request),
    (PutRequest(D, 9, 4, b"five!"), decode_put_request),
    (ActRequest(b"{}"), decode_act_request),
]
REPLIES: list[Reply] = [
    Entries((b"one", b"two")),
    Entries(()),
    Piece(9, b"five!"),
    Held(4),
    ActWritten(b"entry"),
    HubRefusal("role", "may not", "ask"),
]


@pytest.mark.parametrize(("request_", "decode"), REQUESTS)
def test_a_request_comes_back_and_no_cut_or_longer_one(
    request_: Request, decode: Callable[[bytes], Request]
) -> None:
    raw = encode_request(request_)
    assert decode(raw) == request_
    for other in (raw + b"\xf8\x01\x01", b"\xff" + raw, raw + raw):
        with pytest.raises(RemoteProtocolError):
            decode(other)


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_comes_back_and_nothing_else_is_one(reply: Reply) -> None:
    raw = encode_reply(reply)
    assert decode_reply(raw) == reply
    for other in (raw + b"\xf8\x01\x01", b"\xff" + raw, b""):
        with pytest.raises(RemoteProtocolError):
            decode_reply(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ActsRequest(-1),
        lambda: ActsRequest(0, MAX_WAIT_SECONDS + 1),
        lambda: GetRequest(b"short", 0),
        lambda: PutRequest(D, 3, 4),
        lambda: PutRequest(D, 3, 2, b"too long"),
        lambda: Piece(2, b"too long"),
        lambda: ActRequest(bytes(1 << 19)),
    ],
)
def test_a_message_out_of_its_bounds_is_never_built(make: Callable[[], object]) -> None:
    with pytest.raises(LocalProtocolError):
        make()


def test_what_a_hub_says_cannot_drive_a_terminal() -> None:
    assert HubRefusal("role", "\x1b[2J" + "w" * 600).words.startswith(" [2Jw")
    assert len(HubRefusal("role", "w" * 600).words) == 500
