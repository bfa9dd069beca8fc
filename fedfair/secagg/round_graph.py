"""Who shares masks with whom in one round, as the aggregator sees it: all with all, or the neighbours of a ring.

Every site computes its own part of the same graph (`client.Neighbourhood`) and refuses another one. Decides who
holds shares of whose mask, how many open it, and who votes.
"""

from __future__ import annotations

from collections.abc import Collection

from fedfair.secagg.params import Mode, SessionTerms
from fedfair.secagg.ring import Ring
from fedfair.secagg.round_messages import RoundStart


class RoundGraph:
    """The graph of one round.

    Args:
        start: the round start that was sent.
        terms: of the session.
        ring: of the session; None for the complete graph.

    Attributes:
        cohort: who is asked.
    """

    def __init__(self, start: RoundStart, terms: SessionTerms, ring: Ring | None) -> None:
        self._start = start
        self._terms = terms
        self._ring = ring
        self._holders: dict[int, tuple[int, ...]] = {}
        self.cohort = frozenset(start.cohort)

    @property
    def is_sparse(self) -> bool:
        """Return whether members share masks with their neighbours alone."""
        return self._ring is not None

    def holders(self, member: int) -> tuple[int, ...]:
        """Return who holds a share of a member's own mask: itself, and with whom it shares masks; increasing."""
        if self._ring is None:
            return self._start.cohort
        if member not in self._holders:
            near = self.cohort.intersection(self._ring.neighbours(member))
            self._holders[member] = tuple(sorted({*near, member}))
        return self._holders[member]

    def peers(self, member: int) -> list[int]:
        """Return with whom of the cohort a member shares masks, increasing."""
        return [other for other in self.holders(member) if other != member]

    def shares_needed(self, member: int) -> int:
        """Return how many shares open a member's own mask."""
        if self._ring is None:
            return self._start.threshold
        return len(self.holders(member)) if self.is_unanimous else self._ring.terms.shares

    def lonely(self, present: Collection[int]) -> set[int]:
        """Return who of those present must be left out, because too few with whom it shares masks are present."""
        return set() if self._ring is None else self._ring.lonely(present)

    @property
    def is_unanimous(self) -> bool:
        """Return whether the sum is opened for the whole cohort or for nobody."""
        return self._start.threshold == len(self._start.cohort)

    @property
    def votes_on_all(self) -> bool:
        """Return whether a vote is due where the whole cohort has survived, too."""
        return self.is_sparse and self._terms.mode is Mode.MALICIOUS and not self.is_unanimous

    @property
    def voters(self) -> tuple[int, ...]:
        """Return whose votes on the survivors count, as far as they survive."""
        return self._start.cohort if self._ring is None else self._ring.committee

    @property
    def votes_needed(self) -> int:
        """Return how many of them must agree."""
        return self._start.threshold if self._ring is None else self._ring.terms.votes
