"""The only two sentences in which fedfair states differential privacy, and when it refuses to say them.

Decides what a statement must name, and which facts make one false. Code that prints an epsilon, anywhere, prints
one of these. Epsilon itself is `accounting.py`'s, so that this needs neither torch nor an accountant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

from fedfair.errors import PrivacyError
from fedfair.privacy.releases import GaussianRelease, RecordRelease, combined
from fedfair.statistics.table import Purpose

STATISTICAL = "statistical PRNG"
"""The source of noise: a generator that statistics cannot tell from chance, but cryptography may."""

ZERO_OUT = "zero-out: replaced by one that contributes nothing; how many records there are is public"
"""The neighbour in the definition: the protected record keeps its place, and adds nothing."""

_UPWARDS = Context(prec=4, rounding=ROUND_CEILING)

_COVERS = {purpose.statistic.release: purpose.statistic.covers for purpose in Purpose}


@dataclass(frozen=True, slots=True)
class SampleLevelFacts:
    """The facts behind a statement about single records.

    Attributes:
        holder: whose records they are, such as "collaborator clinic-a".
        releases: everything that was let out about them.
        epsilon: what the releases cost together.
        delta: at which.
        accountant: what computed epsilon, with its version.
        complete: whether nothing else was let out about these records.
    """

    holder: str
    releases: Sequence[RecordRelease]
    epsilon: float
    delta: float
    accountant: str
    complete: bool = True


@dataclass(frozen=True, slots=True)
class CollaboratorLevelFacts:
    """The facts behind a statement about whole collaborators.

    Attributes:
        epsilon: what all rounds cost together.
        delta: at which.
        colluders: how many collaborators may tell the aggregator what they know (n_C).
        fewest_survivors: fewest collaborators in any round.
        noise_shares: how many honest noise shares the noise was divided over (h_min).
        skellam: variance of the noise in every round, in squared steps of the ring (mu).
        rounds: how many rounds.
        fixed_weights: whether weights are equal, or public and capped.
        complete: whether nothing else was let out about the collaborators.
        may_lie: whether the masks hold against an aggregator that does not follow the protocol.
    """

    epsilon: float
    delta: float
    colluders: int
    fewest_survivors: int
    noise_shares: int
    skellam: float
    rounds: int
    fixed_weights: bool = True
    complete: bool = True
    may_lie: bool = True


def sample_level_sentence(facts: SampleLevelFacts) -> str:
    """Return what may be said of single records.

    Raises:
        PrivacyError: nothing may be said; the message names the fact that forbids it.
    """
    releases = combined(facts.releases)
    if not releases and facts.complete:
        raise _refusal(f"nothing was released about the records of {facts.holder}", "run the plan first")
    _check_common(facts.holder, facts.epsilon, complete=facts.complete)
    training = [
        release for release in releases if isinstance(release, GaussianRelease) and release.purpose == "training"
    ]
    steps = "; ".join(
        f"Poisson sampling q={release.sampling_rate:.4g}, noise multiplier={release.noise_multiplier:g}, "
        f"clip={'none' if release.clip is None else format(release.clip, 'g')}, steps={release.steps}"
        for release in training
    )
    others = ", ".join(
        f"{release.steps} {_COVERS[release.purpose]} with noise multiplier {release.noise_multiplier:g}"
        for release in releases
        if release.purpose != "training"
    )
    purposes = {release.purpose for release in releases}
    covered = ", ".join(words for purpose, words in _COVERS.items() if purpose in purposes)
    parts = [part for part in (steps, others) if part]
    return (
        f"(ε={at_least(facts.epsilon)}, δ={facts.delta}) DP, unit = one record of {facts.holder} ({ZERO_OUT}), "
        f"{', '.join(parts)}, accountant {facts.accountant}, {STATISTICAL}; covers: {covered}."
    )


def collaborator_level_sentence(facts: CollaboratorLevelFacts) -> str:
    """Return what may be said of whole collaborators.

    Raises:
        PrivacyError: nothing may be said; the message names the fact that forbids it.
    """
    honest = facts.fewest_survivors - facts.colluders
    if honest < facts.noise_shares:
        raise _refusal(
            f"a round had {facts.fewest_survivors} collaborators, of whom {facts.colluders} may collude: {honest} "
            f"honest noise shares, and {facts.noise_shares} were counted on",
            "raise federation.min_collaborators",
        )
    if not facts.fixed_weights:
        raise _refusal(
            "the weights of the collaborators depended on their data",
            "weigh by the number of records, or all alike",
        )
    _check_common("the collaborators", facts.epsilon, complete=facts.complete)
    against = "the aggregator" if facts.may_lie else "an aggregator that follows the protocol"
    return (
        f"(ε={at_least(facts.epsilon)}, δ={facts.delta}) DP, unit = one collaborator (zero-out), "
        f"against {against} and up to {facts.colluders} colluders, "
        f"if ≥ {facts.noise_shares} honest noise shares are in every round; "
        f"Skellam μ={facts.skellam:.6g}, T={facts.rounds}, RDP."
    )


def at_least(epsilon: float) -> str:
    """Return four digits of a finite epsilon, rounded up: a smaller number is not what was proved."""
    return f"{float(_UPWARDS.create_decimal(Decimal(epsilon))):.4g}"


def _check_common(holder: str, epsilon: float, *, complete: bool) -> None:
    if not complete:
        raise _refusal(
            f"something about {holder} was released outside the accountant", "record every release in the ledger"
        )
    if not math.isfinite(epsilon):
        raise _refusal(f"no epsilon covers what was released about {holder}", "raise the noise multiplier")


def _refusal(fault: str, remedy: str) -> PrivacyError:
    return PrivacyError(f"no epsilon can be stated: {fault}", remedy)
