"""The write-ahead log of a site: what must be on disk before something is sent, and how to read it back.

A record holds no key of the session and no seed of a mask, only what the one round under way still needs: the
keys of envelopes addressed to this site, its share of its own mask, the very bytes that were sent, and what
checking the opened sum takes: the round start and K (`sum_check`). So a restarted site can resend and finish that
round, and nothing else. The masks that this site shares with others are in it, each under the site's own mask, and
all of them under a key that is kept beside the log and overwritten when the site has voted or answered. Whoever
steals K can, together with the aggregator, have that one sum believed falsely; it
reveals nothing.

Every record has a checksum over all of it, and one over its head, so that a damaged length is not taken for the
end of the file. A record that a crash cut off while it was appended was never followed by its `Send` and is passed
over. The first record is never appended: the whole file is put in its place in one step. So a first record that is
cut off is damage, and with it this site's memory of what it has sent would be lost.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedfair.errors import LocalProtocolError
from fedfair.secagg.acceptance import AwaitedSum
from fedfair.secagg.client import RoundContext, SharesRevealed, Uploaded
from fedfair.secagg.codec import MessageReader, MessageWriter
from fedfair.secagg.history import History, SettledRows
from fedfair.secagg.keys import ENVELOPE_KEY_BYTES, Secret
from fedfair.secagg.messages import MAX_MESSAGE_BYTES
from fedfair.secagg.params import Mode
from fedfair.secagg.round_graph import Neighbourhood
from fedfair.secagg.round_messages import RoundStart
from fedfair.secagg.sealing import open_masks
from fedfair.secagg.session import SessionSite
from fedfair.secagg.shamir import SHARE_BYTES
from fedfair.secagg.sum_check import CHECK_KEY_BYTES, check_of
from fedfair.secagg.transcript import DIGEST_BYTES, root_digest
from fedfair.secagg.vector_digest import vector_digest

_HEAD_BYTES = 1 + 4 + 8
_HEAD_DIGEST_BYTES = 8
_FRAME_BYTES = _HEAD_BYTES + _HEAD_DIGEST_BYTES + DIGEST_BYTES
MAX_VALUE_BYTES = 255
_HISTORY_HEAD, _LENGTH = struct.Struct(">QI"), struct.Struct(">I")
"""What comes before the rows of a history, and before the value of each."""


class Record(enum.IntEnum):
    """Types of records."""

    HISTORY = 1
    UPLOAD = 2
    VOTE = 3
    ANSWER = 4
    PAIR_MASKS = 5


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One record as it was read: its type, its fields and the vector beside an upload."""

    record: Record
    fields: bytes
    vector: bytes


def frame(
    record: Record, fields: bytes, vector: bytes | bytearray = b"", frames: Sequence[bytes] | None = None
) -> bytes:
    """Return the bytes of a record that come before its vector; their checksum covers it too.

    Args:
        record: the type.
        fields: what the record says.
        vector: what follows it.
        frames: the SHA-256 of each frame that carries the vector; None to have them computed.
    """
    whole = _digest_of(vector) if frames is None else root_digest(len(vector), frames)
    head = MessageWriter().number(record, 1).number(len(fields), 4).number(len(vector), 8).done()
    return head + _head_digest(head) + _digest(head, fields, whole) + fields


def entries(raw: bytes) -> Iterator[LogEntry]:
    """Yield every complete record of a log, in order; a record that a crash cut off at its end is omitted.

    Raises:
        LocalProtocolError: a record is damaged, or the first one is cut off: the file was edited, or the disk is
            failing.
    """
    view, at = memoryview(raw), 0
    while at < len(raw):
        body = at + _FRAME_BYTES
        reader = MessageReader(raw[at : min(body, len(raw))].ljust(_FRAME_BYTES, b"\0"), "log record")
        kind, size, vector_size = reader.number(1), reader.number(4), reader.number(8)
        end = body + size + vector_size
        if body <= len(raw) and reader.fixed(_HEAD_DIGEST_BYTES) != _head_digest(raw[at : at + _HEAD_BYTES]):
            raise _damaged(at)
        if body > len(raw) or end > len(raw):
            if at == 0:
                raise LocalProtocolError(
                    f"the write-ahead log ends in its first record, after {len(raw)} bytes: what this site has "
                    "sent before can no longer be read",
                    "copy it and the .history file beside it back from one backup; or remove both, and this site "
                    "joins with a new session and without that memory",
                )
            return
        fields, vector = raw[body : body + size], raw[body + size : end]
        if kind not in set(Record) or reader.fixed(DIGEST_BYTES) != _digest(
            view[at : at + _HEAD_BYTES], fields, _digest_of(vector)
        ):
            raise _damaged(at)
        yield LogEntry(Record(kind), fields, vector)
        at = end


def whole_length(raw: bytes) -> int:
    """Return how many bytes of a log are complete records; what comes after them was cut off by a crash.

    Raises:
        LocalProtocolError: as `entries`.
    """
    return sum(_FRAME_BYTES + len(entry.fields) + len(entry.vector) for entry in entries(raw))


def _damaged(at: int) -> LocalProtocolError:
    return LocalProtocolError(
        f"the write-ahead log is damaged at byte {at}",
        "copy it and the .history file beside it back from one backup; or remove both, and this site joins with a "
        "new session and without that memory",
    )


def _head_digest(head: bytes) -> bytes:
    return hashlib.sha256(b"head" + head).digest()[:_HEAD_DIGEST_BYTES]


def _digest_of(vector: bytes | bytearray) -> bytes:
    """Return the digest of a vector; nothing for a record without one."""
    return vector_digest(vector) if vector else b""


def _digest(head: bytes | memoryview, fields: bytes, whole: bytes) -> bytes:
    """Return the checksum of a record from its head, its fields and the digest of its vector."""
    seen = hashlib.sha256(head)
    for part in (fields, whole):
        seen.update(part)
    return seen.digest()


def upload_fields(uploaded: Uploaded, awaited: AwaitedSum, request: bytes, message: bytes, masks: bytes) -> bytes:
    """Return the fields of an upload's record.

    Args:
        uploaded: the phase after the upload.
        awaited: what checking the opened sum takes.
        request: digest of the round start.
        message: the upload as it is sent.
        masks: this site's masks with the others, sealed.
    """
    context = uploaded.context
    writer = MessageWriter().number(context.mode is Mode.MALICIOUS, 1).number(context.colluders, 2)
    writer.members(context.cohort).number(context.threshold, 2).fixed(context.transcript)
    writer.fixed(context.computed).sized(context.settled)
    writer.by_member((peer, key.reveal()) for peer, key in uploaded.receiving.items())
    writer.sized(uploaded.own_share.reveal()).fixed(uploaded.fingerprint)
    writer.sized(awaited.start.encode()).sized(b"" if awaited.check is None else awaited.check.key.reveal())
    writer.fixed(request).sized(message).sized(masks)
    near = context.near
    writer.members(near.peers).number(near.shares, 2).members(near.committee).number(near.votes, 2)
    return writer.number(near.votes_on_all, 1).done()


def read_upload(site: SessionSite, fields: bytes, masks_key: bytes) -> tuple[Uploaded, AwaitedSum, bytes, bytes]:
    """Return the phase, the awaited sum, the digest of the request and the message of an upload's record.

    Args:
        site: whose log it is.
        fields: of the record.
        masks_key: opens the masks; another one, or none, where they are forgotten.
    """
    reader = MessageReader(fields, "upload record")
    mode = Mode.MALICIOUS if reader.number(1) else Mode.SEMI_HONEST
    colluders, cohort, threshold = reader.number(2), reader.members(), reader.number(2)
    digests = (reader.fixed(DIGEST_BYTES), reader.fixed(DIGEST_BYTES), reader.sized(DIGEST_BYTES))
    receiving = {peer: Secret(key) for peer, key in reader.by_member(ENVELOPE_KEY_BYTES)}
    own_share = Secret(reader.sized(SHARE_BYTES))
    fingerprint = reader.fixed(DIGEST_BYTES)
    start, key = RoundStart.decode(reader.sized(MAX_MESSAGE_BYTES)), reader.sized(CHECK_KEY_BYTES)
    request, message = reader.fixed(DIGEST_BYTES), reader.sized(MAX_MESSAGE_BYTES)
    sealed = reader.sized(MAX_MESSAGE_BYTES)
    peers, shares, committee, votes = reader.members(), reader.number(2), reader.members(), reader.number(2)
    near = Neighbourhood(peers, shares, committee, votes, reader.flag())
    reader.end()
    context = RoundContext(site, mode, colluders, cohort, threshold, *digests, near)
    masks = open_masks(masks_key, context.transcript, sealed)
    awaited = AwaitedSum(context, start, check_of(Secret(key), site.shapes[start.purpose]) if key else None)
    return Uploaded(context, receiving, own_share, fingerprint, masks), awaited, request, message


def reply_fields(survivors: tuple[int, ...], request: bytes, message: bytes) -> bytes:
    """Return the fields of the record of handed-over masks, a vote or an answer."""
    return MessageWriter().members(survivors).fixed(request).sized(message).done()


def read_reply(fields: bytes) -> tuple[tuple[int, ...], bytes, bytes]:
    """Return the survivors, the digest of the request and the message of such a record."""
    reader = MessageReader(fields, "reply record")
    found = (reader.members(), reader.fixed(DIGEST_BYTES), reader.sized(MAX_MESSAGE_BYTES))
    reader.end()
    return found


def history_record(history: History) -> bytes:
    """Return the whole record of the rows that are not settled yet."""
    parts = [_HISTORY_HEAD.pack(history.settlings, len(history.pending))]
    for key, value in history.pending.items():
        parts += (key, _LENGTH.pack(len(value)), value)
    return frame(Record.HISTORY, b"".join(parts))


def read_history(fields: bytes, settled: SettledRows) -> History:
    """Return the history of its record, on top of what is settled.

    Raises:
        LocalProtocolError: what is settled is older than the record.
    """
    reader = MessageReader(fields, "history record")
    settlings, rows = reader.number(8), reader.number(4)
    pending = {reader.fixed(DIGEST_BYTES): reader.sized(MAX_VALUE_BYTES) for _ in range(rows)}
    reader.end()
    return History(settled, pending, settlings)


def after_answer(uploaded: Uploaded, survivors: tuple[int, ...]) -> SharesRevealed:
    """Return the phase after a logged answer, and forget what only the answer needed."""
    uploaded.erase()
    return SharesRevealed(uploaded.context, survivors, uploaded.fingerprint)
