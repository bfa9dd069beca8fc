"""Limits how often each participant may begin something: many at once now and then, few for long.

A bucket holds a number of tokens; each beginning takes one, and one comes back after a fixed time. Whose bucket it
is follows from the certificate of the connection, so no participant can spend another one's tokens. The time is an
argument. Source: the token bucket of RFC 2697, with one rate and one burst.
"""

from __future__ import annotations

from collections import OrderedDict

MAX_HOLDERS = 4096
"""Buckets that are kept; the one that was used longest ago makes way."""


class TokenBuckets:
    """One bucket for each holder.

    Args:
        burst: tokens of a full bucket, at least 1.
        seconds: after which one token comes back, above 0.
    """

    def __init__(self, burst: int, seconds: float) -> None:
        self.burst = burst
        self.seconds = seconds
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, holder: str, now: float) -> bool:
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
