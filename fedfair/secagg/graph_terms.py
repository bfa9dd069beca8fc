"""How many neighbours each site needs in a sparse graph of masks, and with which probability that is too few.

In a large session each member shares masks with k neighbours on a ring in random order, not with all others. Its
own mask is shared among them and itself; T shares open it. A committee of q members votes on who has survived.
What a round then gives away follows from three conditions:

1. no honest member has more than c colluders among its k neighbours, and T >= k / 2 + c + 2;
2. no more than c_q colluders are in the committee, and 2 * votes > q + c_q;
3. the order is drawn after all its members are fixed, and no one can choose it.

A round gives away one sum at most. By 2, one set S at most has enough votes. Helpers are the honest members that
open it; a helper has handed over its masks with members outside S only. Let x be an honest member whose own mask
is open.

a. More than k / 2 honest neighbours of x have given shares of it, so they are helpers, and x is in S: x has T
   shares or more, of which at most c are those of colluders and one is its own.
b. If x is no helper, it may have named neighbours as missing that are in S: at most k + 1 - T, which is fewer than
   k / 2 - c. So it still shares an unread mask with a helper.
c. A sum that can be read is one over members whose masks are open, and that share no unread mask with any other.
   By b it has helpers among them. Two helpers that are neighbours share an unread mask. By a each helper has a
   helper within k / 2 places on both sides, since one side has k / 2 places only. So the helpers of the sum go all
   the way round the ring, with no gap of k / 2 places.
d. So every honest member of S is near one of these helpers. If its own mask were closed, it would share an unread
   mask with that helper, and the sum could not be read. Helpers belong to the same sum, and by b all others whose
   masks are open do too.

So the sum is that over the honest members of S, and the ring may be known. With one share less, two arcs of k / 2
missing members part the ring. Helpers see every neighbour's envelope before they help, so each survivor took part.

The first two fail with a probability that is computed here, exactly, in whole numbers: hypergeometric tails, added
up over the honest members and over every graph that all sites together will ever draw. Decides numbers only;
`session_graph` says who is whose neighbour. Source: Bell et al. 2020 (the graph, and why its order is random).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb

ALL = 0
"""Each member shares a mask with every other, whatever the number of members."""

AUTO = 1
"""Each with every other in small sessions, and as few as is safe in large ones."""

COMPLETE_MEMBERS = 128
"""The most members of a session for which AUTO keeps the complete graph."""

MAX_DRAWN_GRAPHS = 1 << 16
"""How many graphs a site helps to draw under one plan, over all its sessions and attempts; then it refuses."""

DRAWS = MAX_DRAWN_GRAPHS << 10
"""No more graphs are drawn under a plan, by 1000 sites who each help to draw so many: every one takes a site."""

SECRECY = Fraction(1, 1 << 40)
"""The probability, over the whole life of a plan, that one of its graphs does not keep what it should."""

LOSS = Fraction(1, 1 << 20)
"""The probability that a round is lost where `VANISHING` of its members, at random, vanish at one moment."""

VANISHING = Fraction(1, 10)

MIN_NEIGHBOURS = 4


@dataclass(frozen=True, slots=True)
class GraphTerms:
    """The numbers of one sparse graph.

    Attributes:
        neighbours: k, even: as many on either side of the ring.
        shares: T, how many shares open a member's own mask; itself and its neighbours hold one each.
        committee: q, how many members vote on the survivors of a round.
        votes: how many of them must agree.
        secrecy: probability that a graph of these numbers does not keep what it should, over all `DRAWS`.
        loss: probability that a round is lost where a share `VANISHING` of the members vanishes.
    """

    neighbours: int
    shares: int
    committee: int
    votes: int
    secrecy: Fraction
    loss: Fraction


@lru_cache(maxsize=256)
def graph_terms(members: int, colluders: int, neighbours: int = AUTO) -> GraphTerms | None:
    """Return the numbers of the graph of a session, or None for the complete one.

    Args:
        members: who are in the session.
        colluders: n_C, from 0 to members - 2.
        neighbours: ALL, AUTO or an even k that the plan states.
    """
    if neighbours == ALL or (neighbours == AUTO and members <= COMPLETE_MEMBERS):
        return None
    if neighbours != AUTO:
        return _terms_of(members, colluders, neighbours) if neighbours < members - 1 else None
    # More than half of the others is not worth another message and the votes of each round.
    for tried in range(MIN_NEIGHBOURS, members // 2, 2):
        found = _terms_of(members, colluders, tried)
        if found is not None and found.loss <= LOSS:
            return found
    return None


def bits(probability: Fraction) -> int:
    """Return the most bits b, from 0, so that a probability above 0 is at most 2^-b."""
    return max((probability.denominator // probability.numerator).bit_length() - 1, 0)


def _terms_of(members: int, colluders: int, neighbours: int) -> GraphTerms | None:
    """Return the numbers of a graph of k neighbours; None where no T keeps a member from its colluders."""
    honest, half = members - colluders, SECRECY / DRAWS / 2
    near = colluders_among(members - 1, colluders, neighbours, half / honest)
    shares = neighbours // 2 + near + 2
    if shares > neighbours:
        return None
    failing = honest * more_than(near, members - 1, colluders, neighbours)
    vanishing = -(-members * VANISHING.numerator // VANISHING.denominator)
    # Whoever vanishes after its upload does not bring its own share either.
    lost = members * more_than(neighbours - shares, members - 1, vanishing, neighbours)
    committee, bribed = _committee(members, colluders, vanishing, half)
    votes = (committee + bribed) // 2 + 1
    failing += more_than(bribed, members, colluders, committee)
    lost += more_than(committee - votes, members, vanishing, committee)
    return GraphTerms(neighbours, shares, committee, votes, failing * DRAWS, min(lost, Fraction(1)))


@lru_cache(maxsize=256)
def _committee(members: int, colluders: int, vanishing: int, secrecy: Fraction) -> tuple[int, int]:
    """Return the least committee that decides in nearly every round, and the most colluders that are in it."""
    for size in range(1, members):
        bribed = colluders_among(members, colluders, size, secrecy)
        spare = size - ((size + bribed) // 2 + 1)
        if spare >= 0 and more_than(spare, members, vanishing, size) <= LOSS / 2:
            return size, bribed
    return members, colluders


def colluders_among(members: int, colluders: int, drawn: int, most: Fraction) -> int:
    """Return the least c so that more than c colluders are among those drawn with probability `most` at most."""
    ways, allowed = 0, most * comb(members, drawn)
    for count in range(min(colluders, drawn), 0, -1):
        ways += comb(colluders, count) * comb(members - colluders, drawn - count)
        if ways > allowed:
            return count
    return 0


def more_than(count: int, members: int, marked: int, drawn: int) -> Fraction:
    """Return the probability that more than `count` of those drawn, without replacement, are marked.

    Args:
        count: from 0.
        members: of whom some are drawn.
        marked: how many of them are marked.
        drawn: how many are drawn, each set of them as likely as any other.
    """
    ways = sum(
        comb(marked, found) * comb(members - marked, drawn - found)
        for found in range(count + 1, min(marked, drawn) + 1)
    )
    return Fraction(ways, comb(members, drawn))
