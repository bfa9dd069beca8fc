"""Limits the requests of one stream that a site refuses before it ends the stream.

Every refusal is recorded, sent and logged, so an aggregator that sends nonsense without end would fill the disk.
An honest one hears of at most one refusal about a sum, or of two where messages cross; and between refused sums it
accepts others, or the run ends after its attempts. Counts only; what a refusal is, is the worker's business.
"""

from __future__ import annotations

from fedfair.errors import UnreachableError

MAX_IN_A_SUM = 4
"""Refusals between two requests: one of the sum, and room for messages that cross on their way."""

MAX_IN_A_ROW = 32
"""Refusals without an accepted contribution between them: a policy may refuse some sums, one after the other."""

_REMEDY = "this site tries again later; if that fails too, ask the aggregator's operator which version runs there"


class TooManyRefusalsError(UnreachableError):
    """The stream is ended; the next one waits longer."""


class RefusalLimit:
    """The counts of one stream."""

    def __init__(self) -> None:
        self._in_sum = 0
        self._in_a_row = 0

    def asked(self) -> None:
        """Note that a request has come."""
        self._in_sum = 0

    def contributed(self) -> None:
        """Note that a contribution of this site was accepted."""
        self._in_a_row = 0

    def refused(self, reason: str) -> None:
        """Note a refusal.

        Args:
            reason: of this one, in words.

        Raises:
            TooManyRefusalsError: it is one too many.
        """
        self._in_sum += 1
        self._in_a_row += 1
        for count, most, where in (
            (self._in_sum, MAX_IN_A_SUM, "about one sum"),
            (self._in_a_row, MAX_IN_A_ROW, "in a row"),
        ):
            if count >= most:
                words = f"this site refused {count} requests {where} and ends the stream; the last one: {reason}"
                raise TooManyRefusalsError(words, _REMEDY)
