"""Names a collaborator's messages in words that a data-protection officer can read.

The words are a closed list: a record holds no other text about what was sent, so nothing that somebody wrote can
get into it or, from it, onto a terminal. Which frames exist is decided by `fedfair.wire.frames`, which messages of
secure aggregation by `fedfair.secagg.messages`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Self

from fedfair.secagg.checks import SecaggError
from fedfair.secagg.messages import Kind, kind_of
from fedfair.wire.frames import (
    Abstain,
    Chunk,
    CollaboratorFrame,
    Ended,
    Hello,
    SecaggMessage,
    UploadStart,
    Witnessed,
)


class MessageKind(enum.Enum):
    """The kind of one message: the word in a record, and its content in words for people.

    Attributes:
        content: those words.
    """

    _value_: str
    content: str

    def __new__(cls, word: str, content: str = "") -> Self:
        """Return a kind whose value is its word."""
        kind = object.__new__(cls)
        kind._value_, kind.content = word, content
        return kind

    INTRODUCTION = (
        "introduction",
        "plan digest, signed approval, signature over the certificate, what it was asked last",
    )
    PREFLIGHT = "preflight question", "the same as an introduction but for what it was asked, and the site's clock"
    ACT = (
        "act",
        "what this site says about a study to all members: approved with its approval, refused or withdrawn",
    )
    PUBLIC_KEY = (
        "public key",
        "a fresh public key of secure aggregation, a promise and the state of the run by its digest, signed",
    )
    NONCE = (
        "nonce",
        "chance that was promised before; with that of the others it decides who shares masks with whom",
    )
    CONFIRMATION = (
        "session confirmation",
        "a signature over the session; a check seed, and with ML-KEM keys, sealed for the other sites",
    )
    SEALED_SHARES = (
        "sealed shares",
        "announces a masked vector: promises, shares of masks sealed for each site, a signature",
    )
    MASKED_VECTOR = "masked vector", "a piece of this site's contribution, noise without the masks of the others"
    PAIR_MASKS = (
        "masks with the missing",
        "the masks that this site shares with those who vanished, readable where this site counts as present",
    )
    VOTE = "vote", "who is left in this sum, signed"
    MASK_SHARES = "mask shares", "what opens the sum over all remaining sites, and nothing smaller"
    PLAIN_ANNOUNCEMENT = "announcement", "length and SHA-256 of a contribution in the clear"
    PLAIN_CONTRIBUTION = "plain contribution", "a piece of this site's contribution IN THE CLEAR"
    ABSTENTION = "abstention", "why this site takes no part in a sum, or in the run: one reason of a closed list"
    END = "end", "that this site has heard the end of the run, and its signed statement of the state on its disk"
    CHECKPOINT = "checkpoint", "this site's signed statement of where its own copy of the run stands"
    OUT_OF_PLACE = "out of place", "bytes that have no place in the protocol"


_SECAGG_ITEMS: Mapping[Kind, MessageKind] = {
    Kind.KEY_ADVERTISEMENT: MessageKind.PUBLIC_KEY,
    Kind.REVEAL: MessageKind.NONCE,
    Kind.CONFIRM: MessageKind.CONFIRMATION,
    Kind.UPLOAD: MessageKind.SEALED_SHARES,
    Kind.PAIR_MASKS: MessageKind.PAIR_MASKS,
    Kind.CONSISTENCY_CHECK: MessageKind.VOTE,
    Kind.UNMASK_SHARES: MessageKind.MASK_SHARES,
}
_FOLLOWING: Mapping[MessageKind, MessageKind] = {
    MessageKind.SEALED_SHARES: MessageKind.MASKED_VECTOR,
    MessageKind.MASKED_VECTOR: MessageKind.MASKED_VECTOR,
    MessageKind.PLAIN_ANNOUNCEMENT: MessageKind.PLAIN_CONTRIBUTION,
    MessageKind.PLAIN_CONTRIBUTION: MessageKind.PLAIN_CONTRIBUTION,
}
"""The whole that a chunk is a piece of, by the message before it."""


class StreamItems:
    """Tells what the messages of one stream are; a chunk is a piece of what was announced before it."""

    def __init__(self) -> None:
        self._before = MessageKind.OUT_OF_PLACE

    def next(self, frame: CollaboratorFrame | None) -> MessageKind:
        """Return what the next message of the stream is.

        Args:
            frame: the message; None for bytes that are no frame.
        """
        self._before = _item(frame, self._before)
        return self._before


def _item(frame: CollaboratorFrame | None, before: MessageKind) -> MessageKind:  # noqa: PLR0911 - one each
    match frame:
        case Hello():
            return MessageKind.INTRODUCTION
        case UploadStart():
            return MessageKind.PLAIN_ANNOUNCEMENT
        case Abstain():
            return MessageKind.ABSTENTION
        case Ended():
            return MessageKind.END
        case Witnessed():
            return MessageKind.CHECKPOINT
        case SecaggMessage(message):
            return _secagg_item(message)
        case Chunk():
            return _FOLLOWING.get(before, MessageKind.OUT_OF_PLACE)
        case None:
            return MessageKind.OUT_OF_PLACE


def _secagg_item(message: bytes) -> MessageKind:
    try:
        return _SECAGG_ITEMS.get(kind_of(message), MessageKind.OUT_OF_PLACE)
    except SecaggError:
        return MessageKind.OUT_OF_PLACE
