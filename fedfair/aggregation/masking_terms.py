"""Derives the masking of a plan's sums: the terms that every site expects, the pinned keys, and the guarantee.

A plan states modes and numbers; secure aggregation needs terms, a roster and a session. Nothing here depends on
what is summed: `masked_encoding.py` tells how numbers are written under masks. No torch: the aggregator imports
this.
"""

from __future__ import annotations

from fedfair.errors import PlanError
from fedfair.plan.derived import (
    greatest_weight,
    is_masked,
    needs_every_site,
    published_sites,
    quorum,
)
from fedfair.plan.public_keys import UNPINNED_REMEDY, parse_public_key
from fedfair.plan.schema import Plan
from fedfair.secagg.graph_terms import ALL, AUTO, VANISHING, GraphTerms, bits, graph_terms
from fedfair.secagg.message_costs import keys_needed, set_up_bytes, site_bytes, vote_bytes
from fedfair.secagg.params import (
    MAX_MEMBERS,
    Mode,
    SessionPlan,
    SessionTerms,
    Suite,
    drop_outs_survived,
    guarantee_in_words,
    threshold,
)
from fedfair.secagg.signing import Member, Roster
from fedfair.templates import sentences
from fedfair.terms.table import shown_by_terms

_HERE = "fedfair.aggregation"

MIN_PAIR = 2
"""Contributors of a sum from which each of them can take its own part away, and has the other's."""

IN_THE_CLEAR = (
    "WARNING: secure aggregation is OFF. The aggregator sees every collaborator's own update in the clear, and "
    "updates can give training records away. Only for rehearsals, and for data that anyone may see."
)


def protection_mode(plan: Plan) -> Mode:
    """Return what the aggregator is trusted with.

    Raises:
        PlanError: the plan's sums are plain.
    """
    if not is_masked(plan):
        raise PlanError("secure_aggregation.mode is off: nothing is masked")
    return Mode(plan.secure_aggregation.mode)


SET_UP_MILLISECONDS = 0.4
"""Of a site's processor for each key that it checks in a set-up: two signatures, an agreement, a sealed seed.
An estimate: the sum of what these operations take one by one on one core of a server."""


def check_protection(plan: Plan) -> None:
    """Refuse a plan whose sums could not hide a site; a plan with plain sums passes.

    Raises:
        PlanError: too few or too many collaborators, or a quorum that the colluders could see through.
    """
    if not is_masked(plan):
        return
    count, colluders = len(plan.federation.collaborators), plan.secure_aggregation.colluders
    if count > MAX_MEMBERS:
        raise PlanError(
            f"federation.collaborators names {count}, and at most {MAX_MEMBERS} can add under masks",
            f"name at most {MAX_MEMBERS}, or simulate the plan; secure_aggregation.mode: off has no such limit, "
            "and shows the aggregator each site's update",
        )
    fewest = quorum(plan)
    if fewest < colluders + 2:
        raise PlanError(
            f"a sum over {fewest} of {count} collaborators, {colluders} of whom may collude with the aggregator, "
            "hides nobody",
            f"at least {colluders + 2} must contribute: add collaborators, raise federation.min_collaborators, "
            "or lower secure_aggregation.colluders",
        )
    threshold(protection_mode(plan), count, colluders)
    stated = neighbours_of(plan)
    if stated not in (ALL, AUTO) and stated < count - 1 and graph_of(plan) is None:
        raise PlanError(
            f"secure_aggregation.neighbours: {stated} of {count} collaborators, {colluders} of whom may collude "
            "with the aggregator, do not hide a site but with a probability of 2^-40",
            "leave it at auto, or state a larger number",
        )


def neighbours_of(plan: Plan) -> int:
    """Return with how many others the plan has each site share masks: ALL, AUTO or a number."""
    stated = plan.secure_aggregation.neighbours
    return stated if isinstance(stated, int) else {"all": ALL, "auto": AUTO}[stated]


def graph_of(plan: Plan) -> GraphTerms | None:
    """Return the numbers of the sparse graph of a session with all collaborators; None for the complete one."""
    count = len(plan.federation.collaborators)
    return graph_terms(count, plan.secure_aggregation.colluders, neighbours_of(plan))


def masking_cost(plan: Plan) -> str:
    """Return in words how many sites masks are good for, and what they take with those of the plan.

    Raises:
        PlanError: as `check_protection`.
    """
    if not is_masked(plan):
        return ""
    check_protection(plan)
    count, graph = len(plan.federation.collaborators), graph_of(plan)
    colluders = plan.secure_aggregation.colluders
    keys = keys_needed(count, graph, colluders)
    parts = sentences(
        _HERE,
        "cost.txt.jinja",
        most=MAX_MEMBERS,
        count=count,
        round_size=_size(site_bytes(count, graph)),
        set_up_size=_size(set_up_bytes(count, suite_of(plan), graph, colluders)),
        milliseconds=f"{max(1, round(SET_UP_MILLISECONDS * keys)):,}",
        graph=graph,
        vote_bytes=vote_bytes(count),
        vanishing=round(1 / VANISHING),
        bits=bits,
    )
    return "; ".join(parts)


def _size(count: int) -> str:
    return f"{count / 1e3:,.1f} kB" if count < 1_000_000 else f"{count / 1e6:,.1f} MB"


def guarantee(plan: Plan) -> str:
    """Return in words what the plan's sums keep from whom.

    Raises:
        PlanError: as `check_protection`.
    """
    if not is_masked(plan):
        return "NONE: secure aggregation is OFF, the aggregator sees every site's own update in the clear"
    check_protection(plan)
    stated, mode = plan.secure_aggregation, protection_mode(plan)
    count, fewest = len(plan.federation.collaborators), quorum(plan)
    parts = sentences(
        _HERE,
        "guarantee.txt.jinja",
        promise=guarantee_in_words(mode, count, stated.colluders),
        stated=stated,
        count=count,
        fewest=fewest,
        left_out=count - fewest,
        survived=drop_outs_survived(mode, count, stated.colluders),
        is_sparse=graph_of(plan) is not None,
        needs_every_site=needs_every_site(plan),
        shown_by_terms=shown_by_terms(plan),
        is_pair=fewest == MIN_PAIR,
        is_hybrid=suite_of(plan) is Suite.X25519_MLKEM768,
        tells_of_sites=bool(published_sites(plan)),
    )
    return "; ".join(parts)


def suite_of(plan: Plan) -> Suite:
    """Return how pairs of sites agree on keys."""
    hybrid = plan.secure_aggregation.key_agreement == "x25519-mlkem768"
    return Suite.X25519_MLKEM768 if hybrid else Suite.X25519


def session_terms(plan: Plan) -> SessionTerms:
    """Return what the aggregator proposes for every session, and every site expects."""
    stated, count = plan.secure_aggregation, len(plan.federation.collaborators)
    mode = protection_mode(plan)
    return SessionTerms(
        mode,
        suite_of(plan),
        stated.colluders,
        threshold(mode, count, stated.colluders),
        stated.ring_bits,
        greatest_weight(plan),
        stated.check_sums,
        neighbours_of(plan),
    )


def session_plan(plan: Plan, plan_digest: bytes) -> SessionPlan:
    """Return what a session of the plan is for: its digest, and the terms that follow from it.

    Args:
        plan: the plan.
        plan_digest: 32 bytes, as this side computed it from its own copy.
    """
    return SessionPlan(plan_digest, session_terms(plan))


def roster_of(plan: Plan) -> Roster:
    """Return the pinned keys, numbered from 1 in the plan's order.

    Raises:
        PlanError: somebody's key is missing.
    """
    pinned = plan.federation.roster
    missing = [name for name in plan.federation.collaborators if name not in pinned]
    if missing:
        raise PlanError(
            f"the roster of the plan has no signing key for {', '.join(missing)}",
            UNPINNED_REMEDY,
        )
    names = plan.federation.collaborators
    return Roster(Member(index, name, parse_public_key(pinned[name])) for index, name in enumerate(names, 1))


def exposures(plan: Plan) -> tuple[str, ...]:
    """Return in words who could read or spoil what in spite of the masks, the worst first; none for plain sums."""
    if not is_masked(plan):
        return ()
    values = {
        "count": len(plan.federation.collaborators),
        "fewest": quorum(plan),
        "needs_every_site": needs_every_site(plan),
        "check_sums": plan.secure_aggregation.check_sums,
    }
    return sentences(_HERE, "exposures.txt.jinja", **values)
