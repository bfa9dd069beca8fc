"""Tracks who is connected, and what each connection has already been sent.

A collaborator may come back as a new process that remembers nothing, so what it holds is forgotten with its
connection: the next request is preceded by the scaling and the model again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.errors import LocalProtocolError
from fedfair.rounds.events import SendModel, SendScaling

if TYPE_CHECKING:
    from fedfair.ids import ParticipantId


class Presence(enum.Enum):
    """Whether a participant of the plan has a stream that may speak."""

    ABSENT = "absent"
    CONNECTED = "connected"
    REFUSED = "refused"
    """It was sent away, or has left; its stream is being closed, and whatever it still says is not heard."""


@dataclass(frozen=True, slots=True)
class _Held:
    """The model version and the scaling that the present connection of a participant has received."""

    model_version: int | None = None
    scaling: bool = False


class Membership:
    """The participants of the plan, in its order."""

    def __init__(self, participants: Sequence[ParticipantId]) -> None:
        self._presence = dict.fromkeys(participants, Presence.ABSENT)
        self._held: dict[ParticipantId, _Held] = {}

    @property
    def connected(self) -> tuple[ParticipantId, ...]:
        """Return everybody who may speak."""
        return tuple(who for who, presence in self._presence.items() if presence is Presence.CONNECTED)

    @property
    def missing(self) -> tuple[ParticipantId, ...]:
        """Return everybody else."""
        return tuple(who for who, presence in self._presence.items() if presence is not Presence.CONNECTED)

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

    def connect(self, participant: ParticipantId) -> None:
        """Hear `participant` on a new connection, which holds nothing yet."""
        self._presence[participant] = Presence.CONNECTED
        self._held[participant] = _Held()

    def disconnect(self, participant: ParticipantId) -> None:
        """Forget the connection of `participant`."""
        self._presence[participant] = Presence.ABSENT
        self._held.pop(participant, None)

    def refuse(self, participant: ParticipantId) -> None:
        """Hear `participant` no longer; its stream will end."""
        self._presence[participant] = Presence.REFUSED
        self._held.pop(participant, None)

    def brief(
        self, participant: ParticipantId, model_version: int, scaling_exists: bool
    ) -> Iterator[SendScaling | SendModel]:
        """Yield what a connected participant lacks before it can answer a request about this model."""
        held = self._held[participant]
        if scaling_exists and not held.scaling:
            yield SendScaling(participant)
        if held.model_version != model_version:
            yield SendModel(participant)
        self._held[participant] = _Held(model_version, scaling_exists)
