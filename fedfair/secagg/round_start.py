"""Entering a round: everything that is checked before a site derives a single key for it.

Order, session, cohort, threshold, subject, clips and attempts; only then do the chains move forward. What follows
is in `client`.
"""

from __future__ import annotations

from fedfair.secagg.checks import Check, require
from fedfair.secagg.client import Contributing, RoundContext
from fedfair.secagg.history import set_digest
from fedfair.secagg.opened_sum import body_code
from fedfair.secagg.params import threshold
from fedfair.secagg.round_graph import Neighbourhood, RoundGraph
from fedfair.secagg.round_messages import RoundStart
from fedfair.secagg.session import MAX_JUMP, ROUNDS_PER_SESSION, Session
from fedfair.secagg.sum_check import check_of, round_key
from fedfair.secagg.transcript import RoundSubject, RoundTerms


def enter_round(session: Session, raw: bytes, subject: RoundSubject, computed: bytes) -> Contributing:
    """Check a round start, move every chain forward and derive the round's keys.

    Args:
        session: the session; changed only if everything is in order.
        raw: the message.
        subject: what the round is about, by this site's own computation.
        computed: 32 bytes, equal for sums of which this site opens no two for different sites.

    Raises:
        SecaggError: ENCODING, SESSION, ROUND_ORDER, SESSION_EXPIRED, MEMBERSHIP, POLICY, THRESHOLD, STATE,
            REQUEST, COHORT or ATTEMPTS.
    """
    start, site = RoundStart.decode(raw), session.site
    _check_order(session, start)
    near = RoundGraph(start, session.terms.mode, session.graph).neighbourhood(site.member)
    _check_terms(session, start, subject, near)
    settled = _settled(session, start, computed)
    shape = site.shapes[start.purpose]
    code = body_code(session.terms, start, shape)
    transcript = round_transcript(start, shape.digest())
    session.history.entered(start.purpose, start.subject.state_digest)
    session.last_round, session.rounds = start.round, session.rounds + 1
    for chain in session.chains.values():
        chain.advance_to(start.round)
    context = RoundContext(
        site,
        session.terms.mode,
        session.terms.colluders,
        start.cohort,
        start.threshold,
        transcript,
        computed,
        settled,
        near,
    )
    peers = near.peers
    return Contributing(
        context,
        start,
        code,
        {peer: session.chains[peer].mask_seed(transcript) for peer in peers},
        {peer: session.chains[peer].envelope_key(transcript, site.member, peer) for peer in peers},
        {peer: session.chains[peer].envelope_key(transcript, peer, site.member) for peer in peers},
        check_of(round_key(session.check_key, transcript), shape) if session.terms.check_sums else None,
    )


def _strangers(session: Session, cohort: tuple[int, ...]) -> set[int]:
    """Return who of a cohort is not in the session, as far as we can know.

    Of those who are not our neighbours we know only that they have a place in the graph. Their neighbours see
    whether they have confirmed, and no sum is open in which the honest ones among these have no part.
    """
    near = set(session.graph.neighbours(session.site.member)) - set(session.members)
    return {member for member in cohort if member not in session.graph or member in near}


def round_transcript(start: RoundStart, shape_digest: bytes) -> bytes:
    """Return T_r of a round start."""
    return RoundTerms(
        start.session_id,
        start.round,
        start.purpose,
        start.cohort,
        start.threshold,
        start.subject,
        start.clips,
        shape_digest,
    ).transcript()


def _check_order(session: Session, start: RoundStart) -> None:
    require(start.session_id == session.session_id, Check.SESSION, "a round of another session")
    require(
        session.last_round < start.round <= session.last_round + MAX_JUMP,
        Check.ROUND_ORDER,
        f"round {start.round} after round {session.last_round}; at most {MAX_JUMP} further is accepted",
    )
    require(
        session.rounds < ROUNDS_PER_SESSION,
        Check.SESSION_EXPIRED,
        f"{session.rounds} rounds under one set of keys",
        "a new session is due",
    )


def _check_terms(session: Session, start: RoundStart, subject: RoundSubject, near: Neighbourhood) -> None:
    site, terms, cohort = session.site, session.terms, start.cohort
    require(start.purpose in site.shapes, Check.POLICY, f"this site takes no part in a {start.purpose!r} sum")
    require(site.member in cohort, Check.MEMBERSHIP, "a cohort without this site")
    strangers = _strangers(session, cohort)
    require(not strangers, Check.MEMBERSHIP, f"a cohort with {sorted(strangers)}, who did not confirm the session")
    site.policy.check_cohort(len(cohort), terms.colluders)
    expected = threshold(terms.mode, len(cohort), terms.colluders)
    require(
        start.threshold in (expected, len(cohort)),
        Check.THRESHOLD,
        f"threshold {start.threshold} for a cohort of {len(cohort)}, expected {expected}, or all of it",
    )
    words = f"a cohort with {len(near.peers)} neighbours of this site, at least {near.shares - 1} are needed"
    require(len(near.peers) + 1 >= near.shares, Check.MEMBERSHIP, words)
    require(
        start.subject.request_digest == subject.request_digest,
        Check.REQUEST,
        f"a round for sum {start.subject.request_digest.hex()[:16]}, this site was asked for "
        f"{subject.request_digest.hex()[:16]}",
    )
    require(
        start.subject.state_digest == subject.state_digest,
        Check.STATE,
        f"a round about state {start.subject.state_digest.hex()[:16]}, this site holds "
        f"{subject.state_digest.hex()[:16]}",
    )
    groups = len(site.shapes[start.purpose].groups)
    require(len(start.clips) == groups, Check.LAYOUT, f"{len(start.clips)} clips for {groups} groups")
    site.policy.check_clips(start.clips)
    attempts = session.history.attempts(start.purpose, subject.state_digest)
    require(
        attempts < site.policy.greatest_attempts,
        Check.ATTEMPTS,
        f"attempt {attempts + 1} of a {start.purpose} sum about one model, this site allows "
        f"{site.policy.greatest_attempts}",
        asked=f"attempt {attempts + 1}",
        allowed=f"at most {site.policy.greatest_attempts}",
    )


def _settled(session: Session, start: RoundStart, computed: bytes) -> bytes:
    """Return `set_digest` of the sites for which this computation was opened before; empty where it was not.

    Two openings of one computation for two sets of sites could be subtracted, so the second is for the same set.
    Attempts of which this site opened nothing do not count: a site that helped to open one of them refuses another
    set itself.
    """
    if start.purpose in session.site.policy.any_cohort:
        return b""
    history, most = session.history, session.site.policy.max_reopened_sums
    if history.may_reopen(computed, start.cohort, most):
        return b""
    settled = history.opened_for(computed)
    require(
        settled in (b"", set_digest(start.cohort)),
        Check.COHORT,
        f"this site helped to open this {start.purpose} sum before, for other sites than {list(start.cohort)}",
        "repeat the sum with the very same sites; or this site allows another set with policy.max_reopened_sums: "
        f"{history.reopened + 1}",
        asked=f"sites {', '.join(map(str, start.cohort))}",
        allowed="the sites of the sum that was opened",
    )
    return settled
