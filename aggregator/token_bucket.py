"""Limits how often each peer may begin something: many at once now and then, few for long.

A bucket holds a number of tokens; each beginning takes one, and one comes back after a fixed time. Whose bucket it
is follows from the certificate of the connection, so nobody can spend another one's tokens. The time is an
argument. Source: the token bucket of RFC 2697, with one rate and one burst.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

MAX_HOLDERS: Final = 4096
"""Buckets that are kept; the one that was used longest ago makes way."""


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """The limits on what one certificate may begin.

    Attributes:
        burst: streams, and preflight questions, at once; at least 1.
        seconds_per_token: after which one more may begin, above 0. A site with a fault every few seconds still
            gets through.
        refusal_seconds: how long who begins too much waits for the refusal.
    """

    burst: int = 20
    seconds_per_token: float = 2.0
    refusal_seconds: float = 1.0


PEER_LIMITS: Final = PeerLimits()
"""The limits of a deployment."""


class TokenBuckets:
    """One bucket for each holder.

    Args:
        burst: tokens of a full bucket, at least 1.
        seconds: after which one token comes back, above 0.
    """

    def __init__(self, burst: int, seconds: float) -> None:
        self.burst = burst
        self.seconds = seconds
        self._buckets: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def take(self, holder: bytes, now: float) -> bool:
        """Take one token; return False where there is none.

        Args:
            holder: whose.
            now: seconds since any fixed moment; never less than before.
        """
        tokens, at = self._buckets.pop(holder, (float(self.burst), now))
        tokens = min(float(self.burst), tokens + (now - at) / self.seconds)
        has_one = tokens >= 1.0
        self._buckets[holder] = (tokens - 1.0 if has_one else tokens), now
        if len(self._buckets) > MAX_HOLDERS:
            self._buckets.popitem(last=False)
        return has_one
