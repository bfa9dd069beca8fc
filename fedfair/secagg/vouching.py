"""Which state of the run the members of a set-up vouch for: a site that missed sums requires the same proof.

Every key advertisement carries the digest of the state that its member holds, under its signature. A digest that
enough members signed is that of the state in which the run is, if no more than the planned number of members
collude with the aggregator: at least one honest member holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fedfair.secagg.graph_terms import GraphTerms
from fedfair.secagg.params import SessionTerms, threshold
from fedfair.secagg.transcript import NO_STATE


def vouched_state(states: Mapping[int, bytes], terms: SessionTerms, graph: GraphTerms | None) -> bytes:
    """Return the state digest that enough members signed; NO_STATE where there is no such one.

    In a complete graph these are at least max(t, n_C + 1) of all members, where t is the threshold of a session of
    this size. In a sparse one they are as many of the committee as decide who has survived: more than there are
    colluders in it, and too many for two digests. Where two digests have enough signatures, which takes an
    aggregator that is trusted, neither is vouched for.

    Args:
        states: the digest that each member with a vote signed; NO_STATE vouches for nothing.
        terms: of the set-up.
        graph: the numbers of the sparse graph; None for the complete one.

    Raises:
        PlanError: so few members cannot hide anybody from the colluders.
    """
    if graph is None:
        needed = max(threshold(terms.mode, len(states), terms.colluders), terms.colluders + 1)
    else:
        needed = graph.votes
    signed = Counter(state for state in states.values() if state != NO_STATE)
    vouched = [state for state, members in signed.items() if members >= needed]
    return vouched[0] if len(vouched) == 1 else NO_STATE
