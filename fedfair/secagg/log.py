"""The write-ahead log of a site: what must be on disk before something is sent, and how to read it back.

A record holds no key of the session and no seed of a mask, only what the one round under way still needs: the
keys of envelopes addressed to this site, its shares of its own seeds, and the very bytes that were sent. So a
restarted site can resend and finish that round, and nothing else. A record that was cut off by a crash was never
followed by its `Send` and is passed over.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fedfair.errors import LocalProtocolError
from fedfair.secagg.client import Answered, RoundContext, Uploaded
from fedfair.secagg.codec import Reader, Writer
from fedfair.secagg.keys import Secret
from fedfair.secagg.messages import MAX_MESSAGE_BYTES
from fedfair.secagg.params import Mode
from fedfair.secagg.round_messages import MAX_PURPOSE_BYTES
from fedfair.secagg.session import Exposure, History, Site
from fedfair.secagg.transcript import DIGEST_BYTES

_FRAME_BYTES = 1 + 4 + 8 + DIGEST_BYTES
REMEMBERED = 4096
_ATTEMPT = struct.Struct(f">B{MAX_PURPOSE_BYTES}s{DIGEST_BYTES}sI")
"""Length of the purpose, the purpose, digest of the model, attempts."""
_EXPOSURE = struct.Struct(f">{DIGEST_BYTES}s??{DIGEST_BYTES}s")
"""Fingerprint, unanimous, whether answered, digest of the set."""


class Record(enum.IntEnum):
    """Types of records."""

    HISTORY = 1
    UPLOAD = 2
    VOTE = 3
    ANSWER = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as it was read: its type, its fields and the vector beside an upload."""

    record: Record
    fields: bytes
    vector: bytes


def frame(record: Record, fields: bytes, vector: bytes | bytearray = b"") -> bytes:
    """Return the bytes of a record that come before its vector."""
    writer = Writer().number(record, 1).number(len(fields), 4).number(len(vector), 8)
    return writer.fixed(hashlib.sha256(fields).digest()).fixed(fields).done()


def entries(raw: bytes) -> Iterator[Entry]:
    """Yield every complete record of a log, in order; what a crash cut off at its end is left out.

    Raises:
        LocalProtocolError: a record is damaged in its middle: the file was edited or the disk is failing.
    """
    at = 0
    while at + _FRAME_BYTES <= len(raw):
        reader = Reader(raw[at : at + _FRAME_BYTES], "log record")
        kind, size, vector_size = reader.number(1), reader.number(4), reader.number(8)
        expected, start = reader.fixed(DIGEST_BYTES), at + _FRAME_BYTES
        end = start + size + vector_size
        if end > len(raw):
            return
        fields = raw[start : start + size]
        if kind not in set(Record) or hashlib.sha256(fields).digest() != expected:
            raise LocalProtocolError(
                f"the write-ahead log is damaged at byte {at}", "remove it; this site then waits for a new session"
            )
        yield Entry(Record(kind), fields, raw[start + size : end])
        at = end


def upload_fields(uploaded: Uploaded, request: bytes, message: bytes) -> bytes:
    """Return the fields of an upload's record.

    Args:
        uploaded: the phase after the upload.
        request: digest of the round start.
        message: the upload as it is sent.
    """
    context = uploaded.context
    writer = Writer().number(context.mode is Mode.MALICIOUS, 1).number(context.colluders, 2)
    writer.members(context.cohort).number(context.threshold, 2).fixed(context.transcript)
    writer.by_member((peer, key.reveal()) for peer, key in uploaded.receiving.items())
    writer.sized(uploaded.own_shares.reveal()).fixed(uploaded.fingerprint)
    return writer.fixed(request).sized(message).done()


def read_upload(site: Site, fields: bytes) -> tuple[Uploaded, bytes, bytes]:
    """Return the phase, the digest of the request and the message of an upload's record."""
    reader = Reader(fields, "upload record")
    mode = Mode.MALICIOUS if reader.number(1) else Mode.SEMI_HONEST
    colluders, cohort, threshold = reader.number(2), reader.members(), reader.number(2)
    context = RoundContext(site, mode, colluders, cohort, threshold, reader.fixed(DIGEST_BYTES))
    receiving = {peer: Secret(key) for peer, key in reader.by_member(32)}
    own_shares, fingerprint = Secret(reader.sized(32 * len(cohort))), reader.fixed(DIGEST_BYTES)
    request, message = reader.fixed(DIGEST_BYTES), reader.sized(MAX_MESSAGE_BYTES)
    reader.end()
    return Uploaded(context, receiving, own_shares, fingerprint), request, message


def reply_fields(survivors: tuple[int, ...], request: bytes, message: bytes) -> bytes:
    """Return the fields of a vote's or an answer's record."""
    return Writer().members(survivors).fixed(request).sized(message).done()


def read_reply(fields: bytes) -> tuple[tuple[int, ...], bytes, bytes]:
    """Return the survivors, the digest of the request and the message of a vote's or an answer's record."""
    reader = Reader(fields, "reply record")
    found = (reader.members(), reader.fixed(DIGEST_BYTES), reader.sized(MAX_MESSAGE_BYTES))
    reader.end()
    return found


def history_record(history: History) -> bytes:
    """Return the whole record of what outlives rounds: the latest 4096 of each kind."""
    attempts = list(history.attempts.items())[-REMEMBERED:]
    updates = list(history.updates.items())[-REMEMBERED:]
    # It is written in every round and can be long, so its rows are put together without the writer's care.
    fields = [
        *(
            _ATTEMPT.pack(len(purpose), purpose.encode("ascii"), model_digest, count)
            for (purpose, model_digest), count in attempts
        ),
        *(
            _EXPOSURE.pack(fingerprint, exposure.unanimous, bool(exposure.answered), exposure.answered)
            for fingerprint, exposure in updates
        ),
    ]
    counts = Writer().number(len(attempts), 4).number(len(updates), 4).done()
    return frame(Record.HISTORY, b"".join((counts, *fields)))


def read_history(fields: bytes) -> History:
    """Return the history of its record."""
    reader, history = Reader(fields, "history record"), History()
    attempts, updates = reader.number(4), reader.number(4)
    for _ in range(attempts):
        size, purpose, model_digest, count = _ATTEMPT.unpack(reader.fixed(_ATTEMPT.size))
        history.attempts[purpose[:size].decode("ascii"), model_digest] = count
    for _ in range(updates):
        fingerprint, unanimous, has_answered, answered = _EXPOSURE.unpack(reader.fixed(_EXPOSURE.size))
        history.updates[fingerprint] = Exposure(unanimous, answered if has_answered else b"")
    reader.end()
    return history


def after_answer(uploaded: Uploaded, survivors: tuple[int, ...]) -> Answered:
    """Return the phase after a logged answer, and forget what only the answer needed."""
    uploaded.erase()
    return Answered(uploaded.context, survivors, uploaded.fingerprint)
