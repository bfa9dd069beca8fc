"""Names a collaborator's messages in words that a data-protection officer can read.

The words are a closed list: a record holds no other text about what was sent, so nothing that somebody wrote can
get into it or, from it, onto a terminal. Which frames exist is decided by `fedfair.wire.frames`, which messages of
secure aggregation by `fedfair.secagg.messages`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from fedfair.secagg.checks import SecaggError
from fedfair.secagg.messages import Kind, kind_of
from fedfair.wire.frames import Abstain, Chunk, CollaboratorFrame, Ended, Hello, SecaggMessage, UploadStart


class MessageKind(enum.Enum):
    """The kind of one message; the value is the word in a record."""

    INTRODUCTION = "introduction"
    PREFLIGHT = "preflight question"
    PUBLIC_KEY = "public key"
    NONCE = "nonce"
    CONFIRMATION = "session confirmation"
    SEALED_SHARES = "sealed shares"
    MASKED_VECTOR = "masked vector"
    PAIR_MASKS = "masks with the missing"
    VOTE = "vote"
    MASK_SHARES = "mask shares"
    PLAIN_ANNOUNCEMENT = "announcement"
    PLAIN_CONTRIBUTION = "plain contribution"
    ABSTENTION = "abstention"
    END = "end"
    OUT_OF_PLACE = "out of place"


EXPLANATIONS: Mapping[MessageKind, str] = {
    MessageKind.INTRODUCTION: "plan digest, signed approval, signature over the certificate, "
    "what it was asked last",
    MessageKind.PREFLIGHT: "the same as an introduction but for what it was asked, and the site's clock",
    MessageKind.PUBLIC_KEY: "a fresh public key of secure aggregation, a promise and the state of "
    "the run by its digest, signed",
    MessageKind.NONCE: "chance that was promised before; with that of the others it decides who shares masks "
    "with whom",
    MessageKind.CONFIRMATION: "a signature over the session; a check seed, and with ML-KEM keys, sealed for the "
    "other sites",
    MessageKind.SEALED_SHARES: "announces a masked vector: promises, shares of masks sealed for each site, "
    "a signature",
    MessageKind.MASKED_VECTOR: "a piece of this site's contribution, noise without the masks of the others",
    MessageKind.PAIR_MASKS: "the masks that this site shares with those who vanished, readable where this site "
    "counts as present",
    MessageKind.VOTE: "who is left in this sum, signed",
    MessageKind.MASK_SHARES: "what opens the sum over everybody who is left, and nothing smaller",
    MessageKind.PLAIN_ANNOUNCEMENT: "length and SHA-256 of a contribution in the clear",
    MessageKind.PLAIN_CONTRIBUTION: "a piece of this site's contribution IN THE CLEAR",
    MessageKind.ABSTENTION: "why this site takes no part in a sum, or in the run: one reason of a closed list",
    MessageKind.END: "that this site has heard the end of the run, and which state of it is on its disk",
    MessageKind.OUT_OF_PLACE: "bytes that have no place in the protocol",
}
"""The content of each message, in words for people."""

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
