"""What a message of a collaborator is, in words that a data-protection officer can read.

The words are a closed list: a record holds no other text about what was sent, so nothing that somebody wrote can
get into it or, from it, onto a terminal. Which frames exist is decided by `fedfair.wire.frames`, which messages of
secure aggregation by `fedfair.secagg.messages`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from fedfair.secagg.checks import SecaggError
from fedfair.secagg.messages import Kind, kind_of
from fedfair.wire.frames import Abstain, Chunk, CollaboratorFrame, Hello, SecaggMessage, UploadStart


class Item(enum.Enum):
    """What one message is; the value is the word in a record."""

    INTRODUCTION = "introduction"
    PREFLIGHT = "preflight question"
    PUBLIC_KEY = "public key"
    CONFIRMATION = "session confirmation"
    SEALED_SHARES = "sealed shares"
    MASKED_VECTOR = "masked vector"
    VOTE = "vote"
    MASK_SHARES = "mask shares"
    PLAIN_ANNOUNCEMENT = "announcement"
    PLAIN_CONTRIBUTION = "plain contribution"
    ABSTENTION = "abstention"
    OUT_OF_PLACE = "out of place"


EXPLANATIONS: Mapping[Item, str] = {
    Item.INTRODUCTION: "plan digest, signed approval, signature over the certificate, what it was asked last",
    Item.PREFLIGHT: "the same as an introduction but for what it was asked, and the site's clock",
    Item.PUBLIC_KEY: "a fresh public key of secure aggregation, signed",
    Item.CONFIRMATION: "a signature over the session; with ML-KEM, keys sealed for the other sites",
    Item.SEALED_SHARES: "announces a masked vector: promises, shares of masks sealed for each site, a signature",
    Item.MASKED_VECTOR: "a piece of this site's contribution, noise without the masks of the others",
    Item.VOTE: "who is left in this sum, signed",
    Item.MASK_SHARES: "what opens the sum over everybody who is left, and nothing smaller",
    Item.PLAIN_ANNOUNCEMENT: "length and SHA-256 of a contribution in the clear",
    Item.PLAIN_CONTRIBUTION: "a piece of this site's contribution IN THE CLEAR",
    Item.ABSTENTION: "why this site takes no part in a sum, or in the run: one reason of a closed list",
    Item.OUT_OF_PLACE: "bytes that have no place in the protocol",
}
"""What is in each message, for people."""

_SECAGG_ITEMS: Mapping[Kind, Item] = {
    Kind.ADVERT: Item.PUBLIC_KEY,
    Kind.CONFIRM: Item.CONFIRMATION,
    Kind.UPLOAD: Item.SEALED_SHARES,
    Kind.VOTE: Item.VOTE,
    Kind.ANSWER: Item.MASK_SHARES,
}
_FOLLOWING: Mapping[Item, Item] = {
    Item.SEALED_SHARES: Item.MASKED_VECTOR,
    Item.MASKED_VECTOR: Item.MASKED_VECTOR,
    Item.PLAIN_ANNOUNCEMENT: Item.PLAIN_CONTRIBUTION,
    Item.PLAIN_CONTRIBUTION: Item.PLAIN_CONTRIBUTION,
}
"""What a chunk is a piece of, by the message before it."""


class StreamItems:
    """Tells what the messages of one stream are; a chunk is a piece of what was announced before it."""

    def __init__(self) -> None:
        self._before = Item.OUT_OF_PLACE

    def next(self, frame: CollaboratorFrame | None) -> Item:
        """Return what the next message of the stream is.

        Args:
            frame: the message; None for bytes that are no frame.
        """
        self._before = _item(frame, self._before)
        return self._before


def _item(frame: CollaboratorFrame | None, before: Item) -> Item:
    match frame:
        case Hello():
            return Item.INTRODUCTION
        case UploadStart():
            return Item.PLAIN_ANNOUNCEMENT
        case Abstain():
            return Item.ABSTENTION
        case SecaggMessage(message):
            return _secagg_item(message)
        case Chunk():
            return _FOLLOWING.get(before, Item.OUT_OF_PLACE)
        case None:
            return Item.OUT_OF_PLACE


def _secagg_item(message: bytes) -> Item:
    try:
        return _SECAGG_ITEMS.get(kind_of(message), Item.OUT_OF_PLACE)
    except SecaggError:
        return Item.OUT_OF_PLACE
