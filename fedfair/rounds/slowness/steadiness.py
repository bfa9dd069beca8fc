"""Says whose streams last, and so when a new stream counts.

A sum that begins with a member that has new keys sets up a session with all members, which costs each site as much
as a round. So a participant whose streams keep ending before they have brought anything is heard only once its
newest stream has lived for a while, and nobody waits for its return. A few short streams in a row are nothing:
lines break. The time is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fedfair.ids import ParticipantId

LASTING_SECONDS: Final = 30.0
"""A stream that has lived so long was good, whatever happens to it then."""

SHORT_STREAMS: Final = 5
"""Short streams in a row that are forgiven."""

PROBATION_SECONDS: Final = 2.0
"""The life after which the stream of an unsteady participant is heard."""


class Steadiness:
    """The streams of one run."""

    def __init__(self) -> None:
        self._short: dict[ParticipantId, int] = {}

    def ended(self, who: ParticipantId, lived_seconds: float, *, contributed: bool) -> None:
        """Note that a stream has ended.

        Args:
            who: whose.
            lived_seconds: from its introduction to its end.
            contributed: whether a contribution that came on it was counted.
        """
        if lived_seconds >= LASTING_SECONDS:
            self._short.pop(who, None)
        elif contributed:
            self._short[who] = max(0, self._short.get(who, 0) - 1)
        else:
            self._short[who] = self._short.get(who, 0) + 1

    def is_steady(self, who: ParticipantId) -> bool:
        """Return whether it makes sense to wait for somebody whose stream has ended."""
        return self._short.get(who, 0) < SHORT_STREAMS

    def seconds_until_heard(self, who: ParticipantId) -> float:
        """Return how long a new stream must live before it counts."""
        return 0.0 if self.is_steady(who) else PROBATION_SECONDS
