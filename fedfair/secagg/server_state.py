"""Where the aggregator's side of the protocol stands, what it takes there, and what stays of a closed round.

Phases are objects: those of a set-up are in `set_up_phases`, those of a round in `round_phases`. What a phase may
not do, it has no method for. `server` leads from one to the next.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from fedfair.secagg.checks import Check, require
from fedfair.secagg.disputes import Pair
from fedfair.secagg.effects import ServerEffect
from fedfair.secagg.masking import MaskedVector
from fedfair.secagg.messages import Kind
from fedfair.secagg.session_graph import SessionGraph


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

    def accuse(self, holder: int, owner: int) -> None:
        """Note that a member could not open what a survivor had sealed for it.

        Raises:
            SecaggError: LATE: no answer of `holder` was outstanding; MEMBERSHIP: `owner` is no other survivor of
                the round that had sealed something for it. Nothing changed.
        """
        due = holder in self.owing
        require(due, Check.LATE, f"member {holder} accuses member {owner} when no answer is due")
        sealed = holder != owner and {holder, owner} <= set(self.survivors) and owner in self.peers(holder)
        words = f"member {holder} accuses member {owner}, who had sealed nothing for it"
        require(sealed, Check.MEMBERSHIP, words)
        self.owing.discard(holder)
        self.unopened.add((holder, owner))


NOTHING_CLOSED: Final = Closed((), set(), set(), lambda _: ())
"""In place of a round after its answers, where there is none; nobody owes an answer in it."""


@dataclass(frozen=True, slots=True)
class AgreedSession:
    """A session that is set up.

    Attributes:
        session_id: 32 bytes; empty before the first.
        members: those that confirmed it.
        graph: who shares masks with whom.
    """

    session_id: bytes
    members: tuple[int, ...]
    graph: SessionGraph


NO_SESSION: Final = AgreedSession(b"", (), SessionGraph((), None, b""))


class AskingPhase(Protocol):
    """One question of the aggregator, and what becomes of the answers."""

    @property
    def state(self) -> ServerState:
        """Return what it waits for."""

    @property
    def asked(self) -> Mapping[int, bytes]:
        """Return the request to each member that is asked."""

    def take(self, sender: int, raw: bytes, vector: MaskedVector) -> list[ServerEffect]:
        """Check and keep one answer; return what to tell of it.

        Raises:
            SecaggError: it is refused; nothing changed.
        """

    def suffices(self) -> bool:
        """Return whether the phase can close with the answers that have come."""

    def close(self) -> Move:
        """Return what follows from the answers that have come."""


@dataclass(frozen=True, slots=True)
class Resting:
    """Nothing is asked: there is no session, or it waits for its next round.

    Attributes:
        state: IDLE or READY.
        asked: the last message of a set-up, which goes again to a member that returns; nobody answers it.
        agreed: the session that was just set up; None where it is the one before.
    """

    state: ServerState
    asked: Mapping[int, bytes] = field(default_factory=dict)
    agreed: AgreedSession | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """The step from one phase to the next.

    Attributes:
        following: the next phase.
        before: what to tell before its question goes out.
        after: what to tell afterwards.
    """

    following: AskingPhase | Resting
    before: tuple[ServerEffect, ...] = ()
    after: tuple[ServerEffect, ...] = ()
