"""The phases of a set-up at the aggregator: `Advertising` [-> `Revealing`] -> `Confirming` -> a session.

What arrives is checked in `server_setup`; these decide when a phase is complete, and what follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fedfair.secagg.effects import ServerEffect, SessionFailed, SessionReady
from fedfair.secagg.masking import MaskedVector
from fedfair.secagg.server_setup import SetUp
from fedfair.secagg.server_state import AgreedSession, Move, Resting, ServerState


class Advertising:
    """Members are asked for their keys.

    Args:
        set_up: of this session and those before.
        members: whom to ask.
    """

    state: Final = ServerState.ADVERTS

    def __init__(self, set_up: SetUp, members: Iterable[int]) -> None:
        self._set_up = set_up
        self.asked = dict.fromkeys(members, set_up.propose())

    def take(self, sender: int, raw: bytes, vector: MaskedVector) -> list[ServerEffect]:  # noqa: ARG002 - as `AskingPhase`
        """Check and keep a key advertisement."""
        self._set_up.take_advert(sender, raw)
        return []

    def suffices(self) -> bool:
        """Return whether enough have brought keys."""
        return self._set_up.advertised >= self._set_up.least

    def close(self) -> Move:
        """Name the session; ask for the nonces of a sparse graph, or for confirms."""
        if not self.suffices():
            return _failed(self._set_up, self._set_up.advertised, "brought keys")
        drawing = self._set_up.name_session()
        return Move(Revealing(self._set_up, drawing) if drawing else Confirming(self._set_up))


class Revealing:
    """Those who draw a sparse graph are asked for their nonces.

    Args:
        set_up: whose keys have come.
        drawing: what each of them receives.
    """

    state: Final = ServerState.REVEALS

    def __init__(self, set_up: SetUp, drawing: dict[int, bytes]) -> None:
        self._set_up = set_up
        self.asked = drawing

    def take(self, sender: int, raw: bytes, vector: MaskedVector) -> list[ServerEffect]:  # noqa: ARG002 - as `AskingPhase`
        """Check and keep a nonce."""
        self._set_up.take_reveal(sender, raw)
        return []

    def suffices(self) -> bool:
        """Return whether enough are left without those who are silent."""
        return len(self._set_up.without_silent) >= self._set_up.least

    def close(self) -> Move:
        """Draw the graph, and ask for confirms; or begin again, where a nonce is missing."""
        if self._set_up.is_drawn:
            return Move(Confirming(self._set_up))
        others = self._set_up.without_silent
        if not self.suffices():
            what = "are left without those who did not reveal a nonce of the graph"
            return _failed(self._set_up, len(others), what)
        # Nobody may leave once it could know the order, so the others begin again, with other nonces.
        return Move(Advertising(self._set_up, others))


class Confirming:
    """All members receive keys, and are asked to confirm the session.

    Args:
        set_up: whose graph is drawn.
    """

    state: Final = ServerState.CONFIRMS

    def __init__(self, set_up: SetUp) -> None:
        self._set_up = set_up
        self.asked = set_up.adverts()

    def take(self, sender: int, raw: bytes, vector: MaskedVector) -> list[ServerEffect]:  # noqa: ARG002 - as `AskingPhase`
        """Check and keep a confirm."""
        self._set_up.take_confirm(sender, raw)
        return []

    def suffices(self) -> bool:
        """Return whether enough have confirmed."""
        return self._set_up.confirmed >= self._set_up.least

    def close(self) -> Move:
        """Begin the session with those who have confirmed."""
        if not self.suffices():
            return _failed(self._set_up, self._set_up.confirmed, "confirmed the session")
        confirms = self._set_up.confirms()
        agreed = AgreedSession(self._set_up.session_id, tuple(confirms), self._set_up.drawn)
        ready = SessionReady(agreed.session_id, agreed.members)
        return Move(Resting(ServerState.READY, confirms, agreed), after=(ready,))


SetUpPhase = Advertising | Revealing | Confirming


def _failed(set_up: SetUp, members: int, what: str) -> Move:
    reason = f"{members} members {what}, at least {set_up.least} are needed"
    return Move(Resting(ServerState.IDLE), after=(SessionFailed(reason),))
