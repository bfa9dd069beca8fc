"""Who is whose neighbour in a sparse graph of masks: a ring in an order that is nobody's choice.

Every member commits to a nonce with its key advertisement, before it knows anybody else's keys. It reveals the
nonce once it knows everybody's advertisements. The digest of the session and of all nonces orders the members. As
long as one honest nonce is unknown, so is the order; and an honest member reveals its own only where everything
else that the order depends on is fixed. Decides no numbers; those are `graph_terms`'.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

from fedfair.secagg.codec import MessageReader, MessageWriter
from fedfair.secagg.graph_terms import GraphTerms
from fedfair.secagg.transcript import digest, u16

DEALERS = 5
"""How many of the committee deal the seeds of the sum check. One of them must confirm."""


class Ring:
    """The graph of one session.

    Args:
        members: who has advertised keys.
        terms: the numbers of the graph.
        seed: 32 bytes, which nobody could choose: the name of the session (`drawn_session`).

    Attributes:
        terms: the numbers of the graph.
        committee: who votes on the survivors of a round, increasing.
        dealers: who deals the seeds of the sum check, increasing.
    """

    __slots__ = ("_near", "_order", "_places", "committee", "dealers", "terms")

    def __init__(self, members: Iterable[int], terms: GraphTerms, seed: bytes) -> None:
        known = tuple(members)
        self.terms = terms
        self._order = _drawn(known, "ring", seed)
        self._near: dict[int, tuple[int, ...]] = {}
        self._places = {member: place for place, member in enumerate(self._order)}
        by_lot = _drawn(known, "committee", seed)
        self.committee = tuple(sorted(by_lot[: terms.committee]))
        self.dealers = tuple(sorted(by_lot[:DEALERS]))

    @property
    def members(self) -> Collection[int]:
        """Return who has a place in the ring."""
        return self._places.keys()

    def neighbours(self, member: int) -> tuple[int, ...]:
        """Return the k neighbours of a member, increasing."""
        if member not in self._near:
            place, order = self._places[member], self._order
            steps = range(1, self.terms.neighbours // 2 + 1)
            near = (order[(place + step * way) % len(order)] for step in steps for way in (1, -1))
            self._near[member] = tuple(sorted(near))
        return self._near[member]

    def lonely(self, present: Collection[int]) -> set[int]:
        """Return who of those present must be left out, until everybody has enough neighbours among the others."""
        left = set(present)
        tried, least = left, self.terms.shares - 1
        while alone := {one for one in tried if len(left.intersection(self.neighbours(one))) < least}:
            left -= alone
            tried = left.intersection(near for one in alone for near in self.neighbours(one))
        return {*present} - left

    def receivers(self, member: int) -> tuple[int, ...]:
        """Return for whom a member seals its check seed, increasing: its neighbours; everybody, if it deals."""
        others = sorted(self._places.keys() - {member}) if member in self.dealers else self.neighbours(member)
        return tuple(others)

    def senders(self, member: int) -> tuple[int, ...]:
        """Return who seals a check seed for a member, increasing."""
        return tuple(sorted({*self.neighbours(member), *self.dealers} - {member}))

    def write(self, writer: MessageWriter) -> None:
        """Append what `read` needs beside the name of the session."""
        terms = self.terms
        writer.members(sorted(self._places))
        for number in (terms.neighbours, terms.shares, terms.committee, terms.votes):
            writer.number(number, 2)

    @classmethod
    def read(cls, reader: MessageReader, session_id: bytes) -> Ring:
        """Return the ring of a session, in which nobody computes probabilities any more."""
        members = reader.members()
        numbers = (reader.number(2), reader.number(2), reader.number(2), reader.number(2))
        return cls(members, GraphTerms(*numbers, Fraction(0), Fraction(0)), session_id)


def ring_commitment(nonce: bytes, proposal: bytes, member: int) -> bytes:
    """Return the promise (32 bytes) of a member's nonce in the set-up that a proposal began."""
    return digest("ring-commitment", digest("proposal", proposal), u16(member), nonce)


def drawn_session(session_id: bytes, nonces: Mapping[int, bytes]) -> bytes:
    """Return the name of a session with its graph (32 bytes): of what was advertised, and of all nonces.

    Args:
        session_id: of everything that was advertised, 32 bytes.
        nonces: what every member has revealed, 32 bytes each.
    """
    told = [part for member in sorted(nonces) for part in (u16(member), nonces[member])]
    return digest("drawn-session", session_id, *told)


def _drawn(members: Iterable[int], label: str, seed: bytes) -> tuple[int, ...]:
    """Return the members in an order in which every other one is as likely."""
    return tuple(sorted(members, key=lambda member: digest(f"drawn/{label}", seed, u16(member))))
