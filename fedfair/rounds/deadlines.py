"""Keeps the deadlines that are running, without a clock: the driver owns the time, this module the meaning.

A token is issued once and never again, so a deadline that fires although it was cancelled a moment before is
recognised as stale instead of ending the wrong wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedfair.errors import LocalProtocolError
from fedfair.rounds.events import CancelDeadline, DeadlineKind, DeadlineToken, SetDeadline

if TYPE_CHECKING:
    from fedfair.ids import ParticipantId


class Deadlines:
    """At most one running deadline of each kind; of `GRACE`, one for each participant."""

    def __init__(self) -> None:
        self._issued = 0
        self._running: dict[tuple[DeadlineKind, ParticipantId | None], DeadlineToken] = {}

    def is_running(self, kind: DeadlineKind, participant: ParticipantId | None = None) -> bool:
        """Return whether this deadline was set and neither cancelled nor passed."""
        return (kind, participant) in self._running

    def running(self, *kinds: DeadlineKind) -> tuple[DeadlineToken, ...]:
        """Return the tokens of those deadlines of the federation, of these kinds, that are running."""
        return tuple(self._running[kind, None] for kind in kinds if self.is_running(kind))

    def set(self, kind: DeadlineKind, seconds: float, participant: ParticipantId | None = None) -> SetDeadline:
        """Issue a token for a deadline that is not running.

        Raises:
            LocalProtocolError: it is running already.
        """
        if self.is_running(kind, participant):
            raise LocalProtocolError(
                f"the {kind.value} deadline of {participant or 'the federation'} runs already"
            )
        self._issued += 1
        token = DeadlineToken(kind, self._issued)
        self._running[kind, participant] = token
        return SetDeadline(token, seconds)

    def cancel(self, kind: DeadlineKind, participant: ParticipantId | None = None) -> Iterator[CancelDeadline]:
        """Yield the effect that stops this deadline; nothing where it is not running."""
        token = self._running.pop((kind, participant), None)
        if token is not None:
            yield CancelDeadline(token)

    def cancel_all(self) -> Iterator[CancelDeadline]:
        """Yield the effects that stop every deadline."""
        for kind, participant in tuple(self._running):
            yield from self.cancel(kind, participant)

    def check_issued(self, token: DeadlineToken) -> None:
        """Refuse a token that was never issued.

        Raises:
            LocalProtocolError: this deadline was never set.
        """
        if not 1 <= token.number <= self._issued:
            raise LocalProtocolError(f"{token.kind.value} deadline {token.number} passed, but was never set")

    def take(self, token: DeadlineToken) -> tuple[DeadlineKind, ParticipantId | None] | None:
        """Return which deadline has passed and forget it; None for a stale one."""
        for key, running in self._running.items():
            if running == token:
                del self._running[key]
                return key
        return None
