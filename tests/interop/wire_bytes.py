"""A collaborator's half of an HTTP/2 connection, taken apart to the last byte.

Every frame is read by a library that knows nothing of fedfair and must be spelt exactly as that library spells
it, so no byte hides in a reserved bit or in padding. DATA holds gRPC's messages and nothing else. All other frames
must be of a kind, a form and a content that is on a list here.
"""

import re
import struct
from collections import Counter
from dataclasses import dataclass, field

from hpack import Decoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
GRPC_PREFIX_BYTES = 5
NO_ERROR, CANCEL = 0, 8

HEADERS = {
    "fedfair-plan": "[0-9a-f]{64}",  # the digest of the plan, by which a hub knows the study
    ":scheme": "https",
    ":method": "POST",
    ":path": r"/fedfair\.v1\.Federation/(Participate|Check)",
    ":authority": r"localhost:\d+",
    "te": "trailers",
    "content-type": "application/grpc",
    "user-agent": r"grpc-python-asyncio/[\d.]+ grpc-c/[\d.]+ \(linux; chttp2\)",
    "grpc-accept-encoding": "identity, deflate, gzip",
    "grpc-timeout": r"\d{1,8}[HMSmun]",
}
"""Everything that a request may say about itself, by full match; the deadline is that of a preflight question."""

SETTINGS = {
    SettingsFrame.ENABLE_PUSH,
    SettingsFrame.INITIAL_WINDOW_SIZE,
    SettingsFrame.MAX_CONCURRENT_STREAMS,
    SettingsFrame.MAX_FRAME_SIZE,
    SettingsFrame.MAX_HEADER_LIST_SIZE,
    0xFE03,  # gRPC: binary metadata are understood
    0xFE04,  # gRPC: preferred size of frames
}


@dataclass
class Apart:
    """What was found.

    Attributes:
        messages: what gRPC was given to send, in order.
        frames: how many frames of each kind.
        other_bytes: length of everything that is not a message: frames, headers, prefixes.
    """

    messages: list[bytes] = field(default_factory=list)
    frames: Counter[str] = field(default_factory=Counter)
    other_bytes: int = 0


def taken_apart(raw: bytes, *, cut: bool = False) -> Apart:
    """Take apart all that one connection has carried from the collaborator.

    Args:
        raw: its bytes.
        cut: whether the collaborator was killed, so that a frame and a message may lack their ends.
    """
    found = Apart()
    if not raw:
        return found
    assert raw.startswith(PREFACE)
    place, headers, streams = len(PREFACE), Decoder(), dict[int, bytearray]()
    while len(raw) - place >= (HEADER_BYTES if cut else 1):
        frame, length = Frame.parse_frame_header(memoryview(raw)[place : place + HEADER_BYTES], strict=True)
        end = place + HEADER_BYTES + length
        if end > len(raw) and cut:
            break
        assert end <= len(raw), "a frame is cut off"
        frame.parse_body(memoryview(raw)[place + HEADER_BYTES : end])
        body = settings_body(frame) if isinstance(frame, SettingsFrame) else frame.serialize()[HEADER_BYTES:]
        assert body == raw[place + HEADER_BYTES : end], frame
        assert raw[place + 5] < 128, "a reserved bit is set"
        found.frames[type(frame).__name__] += 1
        if isinstance(frame, DataFrame):
            assert "PADDED" not in frame.flags
            streams.setdefault(frame.stream_id, bytearray()).extend(frame.data)
        else:
            check_frame(frame, headers)
        place = end
    for stream in streams.values():
        found.messages += messages_of(bytes(stream), cut=cut)
    found.other_bytes = len(raw) - sum(len(message) for message in found.messages)
    return found


def check_frame(frame: Frame, headers: Decoder) -> None:
    """Assert that a frame that carries no message carries nothing else either."""
    match frame:
        case HeadersFrame():
            assert not frame.flags & {"PADDED", "PRIORITY"}
            assert "END_HEADERS" in frame.flags
            named = headers.decode(frame.data)
            assert len({name for name, _ in named}) == len(named)
            for name, value in named:
                assert re.fullmatch(HEADERS[str(name)], str(value)), (name, value)
        case SettingsFrame():
            assert frame.settings.keys() <= SETTINGS
        case PingFrame():
            assert len(frame.opaque_data) == 8
        case WindowUpdateFrame():
            assert 0 < frame.window_increment < 2**31
        case RstStreamFrame():
            assert frame.error_code in {NO_ERROR, CANCEL}
        case GoAwayFrame():
            assert frame.error_code == NO_ERROR
            assert frame.additional_data in {b"", b"client_shutdown"}
        case _:
            raise AssertionError(f"{frame} has no place here")


def settings_body(frame: SettingsFrame) -> bytes:
    """Return the one spelling of settings, which the library shortens where a number is not its own."""
    return b"".join(struct.pack(">HI", number, value) for number, value in frame.settings.items())


def messages_of(stream: bytes, *, cut: bool) -> list[bytes]:
    """Return the messages of one gRPC stream, which must leave nothing over unless it was cut."""
    messages, place = [], 0
    while place < len(stream):
        assert stream[place] == 0, "a message is compressed"
        length = int.from_bytes(stream[place + 1 : place + GRPC_PREFIX_BYTES], "big")
        begin = place + GRPC_PREFIX_BYTES
        place = begin + length
        if place > len(stream) and cut:
            break
        assert place <= len(stream), "a message is cut off"
        messages.append(stream[begin:place])
    return messages
