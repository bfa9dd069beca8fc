"""Tracks who is connected, and which state of the run each of them has.

A collaborator may come back as a new process that remembers less, so it says with each connection what it has.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedfair.errors import LocalProtocolError

if TYPE_CHECKING:
    from fedfair.ids import ParticipantId


class Presence(enum.Enum):
    """Whether a participant of the plan has a stream that may speak."""

    ABSENT = "absent"
    CONNECTED = "connected"
    REFUSED = "refused"
    """It was sent away, or has left; its stream is being closed, and whatever it still says is not heard."""


class Membership:
    """The participants of the plan, in its order."""

    def __init__(self, participants: Sequence[ParticipantId]) -> None:
        self._presence = dict.fromkeys(participants, Presence.ABSENT)
        self._held: dict[ParticipantId, bytes] = {}
        self._excused: set[ParticipantId] = set()

    @property
    def connected(self) -> tuple[ParticipantId, ...]:
        """Return all members that may speak."""
        return tuple(who for who, presence in self._presence.items() if presence is Presence.CONNECTED)

    @property
    def missing(self) -> tuple[ParticipantId, ...]:
        """Return all other members, but for those that are excused."""
        away = (who for who, presence in self._presence.items() if presence is not Presence.CONNECTED)
        return tuple(who for who in away if who not in self._excused)

    def presence(self, participant: ParticipantId) -> Presence:
        """Return whether `participant` may speak.

        Raises:
            LocalProtocolError: the plan does not name it; the border lets nobody else through.
        """
        if participant not in self._presence:
            raise LocalProtocolError(f"{participant} is not a collaborator of this plan")
        return self._presence[participant]

    def is_heard(self, participant: ParticipantId) -> bool:
        """Return whether what `participant` says counts; False once it was refused.

        Raises:
            LocalProtocolError: it is not connected and cannot have said anything.
        """
        presence = self.presence(participant)
        if presence is Presence.ABSENT:
            raise LocalProtocolError(f"{participant} is not connected, so nothing can have come from it")
        return presence is Presence.CONNECTED

    def connect(self, participant: ParticipantId, state: bytes) -> None:
        """Hear `participant` on a new connection.

        Args:
            participant: who.
            state: the digest of its copy of the run, 32 bytes.
        """
        self._presence[participant] = Presence.CONNECTED
        self._held[participant] = state

    def disconnect(self, participant: ParticipantId) -> None:
        """Forget the connection of `participant`."""
        self._presence[participant] = Presence.ABSENT
        self._held.pop(participant, None)

    def refuse(self, participant: ParticipantId) -> None:
        """Hear `participant` no longer; its stream will end."""
        self._presence[participant] = Presence.REFUSED
        self._held.pop(participant, None)

    def excuse(self, participant: ParticipantId) -> None:
        """Wait for `participant` no longer."""
        self._excused.add(participant)

    def held(self, participant: ParticipantId) -> bytes:
        """Return the digest of a connected participant's copy of the run; empty where it is not known."""
        return self._held[participant]

    def hold(self, participant: ParticipantId, state: bytes) -> None:
        """Note what a connected participant has been brought to, or says that it has."""
        if participant in self._held:
            self._held[participant] = state
