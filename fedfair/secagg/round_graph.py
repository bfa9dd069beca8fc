"""Who shares masks with whom in one round: the part of the session's graph that lies in its cohort.

Both sides compute it from the round start. Decides who holds shares of whose mask, how many open it, and who
votes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fedfair.secagg.params import Mode
from fedfair.secagg.round_messages import RoundStart
from fedfair.secagg.session_graph import SessionGraph


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The part of the graph that one site needs in one round.

    Attributes:
        peers: with whom of the cohort it shares masks, increasing.
        shares: how many of itself and its peers must survive.
        committee: whose votes on the survivors count.
        votes: how many of them must agree.
        votes_on_all: whether the whole cohort, too, is opened only where enough have voted for it.
    """

    peers: tuple[int, ...]
    shares: int
    committee: tuple[int, ...]
    votes: int
    votes_on_all: bool


class RoundGraph:
    """The graph of one round.

    Args:
        start: the round start that was sent.
        mode: what the aggregator is trusted with.
        graph: of the session.

    Attributes:
        cohort: who is asked.
        is_complete: whether each member shares masks with every other.
        voters: whose votes on the survivors count, as far as they survive.
        votes_needed: how many of them must agree.
        votes_on_all: whether a vote is due where the whole cohort has survived, too.
    """

    def __init__(self, start: RoundStart, mode: Mode, graph: SessionGraph) -> None:
        self.is_complete = graph.terms is None
        self._graph = graph
        self._ordered = start.cohort
        self._holders: dict[int, tuple[int, ...]] = {}
        self._is_unanimous = start.threshold == len(start.cohort)
        self._shares = start.threshold if graph.terms is None else graph.terms.shares
        self.cohort = frozenset(start.cohort)
        self.voters = graph.committee
        self.votes_needed = start.threshold if graph.terms is None else graph.terms.votes
        self.votes_on_all = not self.is_complete and mode is Mode.MALICIOUS and not self._is_unanimous

    def holders(self, member: int) -> tuple[int, ...]:
        """Return who holds a share of a member's own mask: itself, and with whom it shares masks; increasing."""
        if self.is_complete:
            return self._ordered
        if member not in self._holders:
            near = self.cohort.intersection(self._graph.neighbours(member))
            self._holders[member] = tuple(sorted({*near, member}))
        return self._holders[member]

    def peers(self, member: int) -> tuple[int, ...]:
        """Return with whom of the cohort a member shares masks, increasing."""
        return tuple(other for other in self.holders(member) if other != member)

    def shares_needed(self, member: int) -> int:
        """Return how many shares open a member's own mask: those of all its holders, or of enough."""
        return len(self.holders(member)) if self._is_unanimous else self._shares

    def lonely(self, present: Collection[int]) -> set[int]:
        """Return who of those present must be left out, because too few with whom it shares masks are present."""
        return self._graph.lonely(present)

    def neighbourhood(self, member: int) -> Neighbourhood:
        """Return what one site of the cohort needs to know."""
        votes = (self.voters, self.votes_needed, self.votes_on_all)
        return Neighbourhood(self.peers(member), self._shares, *votes)


class Contributors:
    """Whose uploads are in the running sum of a round, as they come.

    Args:
        graph: of the round.

    Attributes:
        graph: of the round.
        members: in no order.
    """

    __slots__ = ("_near", "_ordered", "graph", "members")

    def __init__(self, graph: RoundGraph) -> None:
        self.graph = graph
        self.members: set[int] = set()
        self._ordered: tuple[int, ...] | None = None  # as `members`, until they change
        self._near: dict[int, tuple[int, ...]] = {}  # likewise

    def add(self, member: int) -> None:
        """Note that the upload of a member is in the sum."""
        self.members.add(member)
        self._changed()

    def clear(self) -> None:
        """Note that the sum begins again."""
        self.members.clear()
        self._changed()

    @property
    def ordered(self) -> tuple[int, ...]:
        """Return them in order of the roster."""
        if self._ordered is None:
            self._ordered = tuple(sorted(self.members))
        return self._ordered

    def near(self, member: int) -> tuple[int, ...]:
        """Return who has contributed of a member and those with whom it shares masks, increasing."""
        if member not in self._near:
            holders = self.graph.holders(member)
            whole = len(holders) == len(self.graph.cohort)
            self._near[member] = self.ordered if whole else tuple(h for h in holders if h in self.members)
        return self._near[member]

    def missing_near(self, member: int) -> list[int]:
        """Return who has not contributed of those with whom a member shares masks, increasing."""
        return [peer for peer in self.graph.peers(member) if peer not in self.members]

    def _changed(self) -> None:
        self._ordered = None
        self._near.clear()
