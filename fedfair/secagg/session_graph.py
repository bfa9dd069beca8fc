"""Who shares masks with whom in a session: all with all, or neighbours on a ring in an order that nobody chooses.

The complete graph is the case in which each member is a neighbour of every other, votes and deals.

In a sparse graph every member commits to a nonce with its key advertisement, before it knows anybody else's keys.
The session has a name once nothing more can be advertised: the digest of all that was. By that name some members
are drawn, so many that one of them at least is honest, whoever colludes. They reveal their nonces, each under its
signature for this one session. The digest of the name and of these nonces orders all members. As long as one
honest nonce is unknown, so is the order; and an honest member reveals its own only where everything else that the
order depends on is fixed, and for one session only. Decides no numbers; those are `graph_terms`'.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

from fedfair.secagg.codec import MessageReader, MessageWriter
from fedfair.secagg.graph_terms import GraphTerms
from fedfair.secagg.transcript import digest, u16

DEALERS = 5
"""How many of the committee deal the seeds of the sum check. One of them must confirm."""

HONEST_DRAWERS = 8
"""How many of those who draw the order are honest at least. One would do, if its random numbers are good."""


class SessionGraph:
    """The graph of one session.

    Args:
        members: who has advertised keys.
        terms: the numbers of a sparse graph; None for the complete one.
        seed: 32 bytes, which nobody could choose: the name of the session (`drawn_session`).

    Attributes:
        members: who has a place in it, increasing.
        terms: the numbers of a sparse graph; None for the complete one.
        committee: who votes on the survivors of a round, increasing.
        dealers: who deals the seeds of the sum check, increasing.
    """

    __slots__ = ("_near", "_order", "_places", "committee", "dealers", "members", "terms")

    def __init__(self, members: Iterable[int], terms: GraphTerms | None, seed: bytes) -> None:
        self.members = self.committee = self.dealers = tuple(sorted(members))
        self.terms = terms
        self._near: dict[int, tuple[int, ...]] = {}
        self._order = self.members
        if terms is not None:
            self._order = _drawn(self.members, "ring", seed)
            by_lot = _drawn(self.members, "committee", seed)
            self.committee = tuple(sorted(by_lot[: terms.committee]))
            self.dealers = tuple(sorted(by_lot[:DEALERS]))
        self._places = {member: place for place, member in enumerate(self._order)}

    def __contains__(self, member: int) -> bool:
        return member in self._places

    def neighbours(self, member: int) -> tuple[int, ...]:
        """Return with whom a member shares keys and masks, increasing."""
        if member not in self._near:
            near: Iterable[int]
            place, order = self._places[member], self._order
            if self.terms is None:
                near = (*order[:place], *order[place + 1 :])
            else:
                steps = range(1, self.terms.neighbours // 2 + 1)
                near = (order[(place + step * way) % len(order)] for step in steps for way in (1, -1))
            self._near[member] = tuple(sorted(near))
        return self._near[member]

    def known_to(self, member: int, drawn_by: Collection[int] = ()) -> tuple[int, ...]:
        """Return whose key advertisements a member needs, increasing.

        They are those with whom it shares a secret, those who vote or deal, those who drew the graph, and its own.
        """
        known = {member, *self.neighbours(member), *self.receivers(member), *self.committee, *self.dealers}
        return tuple(sorted(known.union(drawn_by)))

    def lonely(self, present: Collection[int]) -> set[int]:
        """Return who of those present must be left out, until each has enough neighbours among the others."""
        if self.terms is None:
            return set()
        left = set(present)
        tried, least = left, self.terms.shares - 1
        while alone := {one for one in tried if len(left.intersection(self.neighbours(one))) < least}:
            left -= alone
            tried = left.intersection(near for one in alone for near in self.neighbours(one))
        return {*present} - left

    def receivers(self, member: int) -> tuple[int, ...]:
        """Return for whom a member seals its check seed, increasing: its neighbours; all others, if it deals."""
        if member not in self.dealers:
            return self.neighbours(member)
        return tuple(other for other in self.members if other != member)

    def senders(self, member: int) -> tuple[int, ...]:
        """Return who seals a check seed for a member, increasing."""
        return tuple(sorted({*self.neighbours(member), *self.dealers} - {member}))

    def write(self, writer: MessageWriter) -> None:
        """Append what `read` needs beside the name of the session."""
        terms = self.terms
        numbers = (0,) * 4 if terms is None else (terms.neighbours, terms.shares, terms.committee, terms.votes)
        writer.members(self.members)
        for number in numbers:
            writer.number(number, 2)

    @classmethod
    def read(cls, reader: MessageReader, session_id: bytes) -> SessionGraph:
        """Return the graph of a session, in which nobody computes probabilities any more."""
        members = reader.members()
        numbers = (reader.number(2), reader.number(2), reader.number(2), reader.number(2))
        terms = GraphTerms(*numbers, Fraction(0), Fraction(0)) if any(numbers) else None
        return cls(members, terms, session_id)


def drawers(members: Iterable[int], session_id: bytes, colluders: int) -> tuple[int, ...]:
    """Return who reveals a nonce for the order of a sparse graph, increasing; one of them at least is honest.

    Args:
        members: who has advertised keys.
        session_id: of everything that was advertised, 32 bytes.
        colluders: n_C, the most members that are not honest.
    """
    return tuple(sorted(_drawn(members, "drawers", session_id)[: colluders + HONEST_DRAWERS]))


def nonce_commitment(nonce: bytes, proposal: bytes, member: int) -> bytes:
    """Return the promise (32 bytes) of a member's nonce in the set-up that a proposal began."""
    return digest("ring-commitment", digest("proposal", proposal), u16(member), nonce)


def drawn_session(session_id: bytes, nonces: Mapping[int, bytes]) -> bytes:
    """Return the name of a session with its graph (32 bytes): of what was advertised, and of the nonces.

    Args:
        session_id: of everything that was advertised, 32 bytes.
        nonces: what each of the drawers has revealed, 32 bytes.
    """
    told = [part for member in sorted(nonces) for part in (u16(member), nonces[member])]
    return digest("drawn-session", session_id, *told)


def _drawn(members: Iterable[int], label: str, seed: bytes) -> tuple[int, ...]:
    """Return the members in an order in which every other one is as likely."""
    return tuple(sorted(members, key=lambda member: digest(f"drawn/{label}", seed, u16(member))))
