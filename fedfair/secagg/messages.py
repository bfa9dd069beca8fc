"""The parts common to all messages of the protocol: version, type, greatest length.

A message is: version, type, fields; those of the set-up are in `setup_messages`, those of a round in
`round_messages`. They decide layouts and caps only; whether a well-formed message is acceptable *now* is for
`session`, `client` and `server`. A message is encoded once, by its author, and signatures cover the bytes that
travelled. A vector is not a message: a masked one travels beside `Upload`, which carries its digest, and the body
of a sum beside `OpenedMessage`, which every site checks.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.codec import MessageReader, MessageWriter

VERSION = 2
MAX_MESSAGE_BYTES = 1 << 21
"""Enough for the hybrid keys of 1000 members (1384 bytes each); anything longer is refused unread."""


class Kind(enum.IntEnum):
    """Types of messages, as they travel."""

    PROPOSAL = 1
    KEY_ADVERTISEMENT = 2
    KEY_ADVERTISEMENTS = 3
    CONFIRM = 4
    CONFIRMS = 5
    ROUND_START = 6
    UPLOAD = 7
    SURVIVORS = 8
    CONSISTENCY_CHECK = 9
    UNMASK_REQUEST = 10
    UNMASK_SHARES = 11
    OPENED = 12
    PAIR_MASKS_REQUEST = 13
    PAIR_MASKS = 14
    REVEAL = 15
    MEMBER_LIST = 16


Pairs = tuple[tuple[int, bytes], ...]
_KINDS: Mapping[int, Kind] = {int(kind): kind for kind in Kind}


def kind_of(raw: bytes) -> Kind:
    """Return what kind of message `raw` claims to be.

    Raises:
        SecaggError: ENCODING: no message of this version, or longer than any.
    """
    if len(raw) > MAX_MESSAGE_BYTES:
        raise SecaggError(Check.ENCODING, f"a message of {len(raw)} bytes is longer than any")
    if len(raw) < 2 or raw[0] != VERSION:
        raise SecaggError(Check.ENCODING, f"not a message of secure aggregation version {VERSION}")
    found = _KINDS.get(raw[1])
    if found is None:
        raise SecaggError(Check.ENCODING, f"no message has type {raw[1]}")
    return found


def begin(kind: Kind) -> MessageWriter:
    """Return a writer that has written version and type."""
    return MessageWriter().number(VERSION, 1).number(kind, 1)


def open_message(raw: bytes, kind: Kind) -> MessageReader:
    """Return a reader behind version and type.

    Raises:
        SecaggError: ENCODING: it is another kind of message.
    """
    found = kind_of(raw)
    require(found is kind, Check.ENCODING, f"a message of type {found.name} where {kind.name} is due")
    reader = MessageReader(raw, kind.name.lower().replace("_", " "))
    reader.fixed(2)
    return reader
