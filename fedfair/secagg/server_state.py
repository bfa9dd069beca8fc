"""Where the aggregator's side of the protocol stands, what it takes there, and what stays of a closed round."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from fedfair.secagg.disputes import Pair
from fedfair.secagg.messages import Kind


class ServerState(enum.Enum):
    """The state of the aggregator: what it waits for."""

    IDLE = "nothing: no session"
    ADVERTS = "public keys"
    REVEALS = "nonces of the graph"
    CONFIRMS = "confirms of the session"
    READY = "the next round"
    UPLOADS = "masked vectors"
    PAIR_MASKS = "masks with those who are missing"
    VOTES = "votes on the survivors"
    ANSWERS = "shares of masks"


EXPECTED: Mapping[ServerState, Kind | None] = {
    ServerState.IDLE: None,
    ServerState.ADVERTS: Kind.KEY_ADVERTISEMENT,
    ServerState.REVEALS: Kind.REVEAL,
    ServerState.CONFIRMS: Kind.CONFIRM,
    ServerState.READY: None,
    ServerState.UPLOADS: Kind.UPLOAD,
    ServerState.PAIR_MASKS: Kind.PAIR_MASKS,
    ServerState.VOTES: Kind.CONSISTENCY_CHECK,
    ServerState.ANSWERS: Kind.UNMASK_SHARES,
}
"""The one kind of message that each state takes; everything else is late or out of order."""

OF_A_ROUND: Final = frozenset({Kind.UPLOAD, Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES})
"""Messages that belong to a round, and not to the set-up of a session."""


@dataclass(slots=True)
class Closed:
    """A round after its answers: only the refusal of a slower member is still heard.

    Attributes:
        survivors: whose sum was to be opened.
        owing: who was asked and has neither answered nor accused anybody.
        unopened: (holder, owner) of every accusation.
        peers: from a member to those with whom it shares masks.
    """

    survivors: tuple[int, ...]
    owing: set[int]
    unopened: set[Pair]
    peers: Callable[[int], Collection[int]]
