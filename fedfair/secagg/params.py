"""The parameters of a session: how many members, how many may collude, and what follows from it.

Decides thresholds and says in words what they guarantee. A site takes part under the very terms of the plan that
it approved (`SessionPlan`), and insists on more by its own `SecaggPolicy`; no aggregator can change either.
Source: Bonawitz et al. 2017, theorems 6.3 and 6.5; the malicious rule 2t > n + n_C makes two different sets of
survivors impossible, because each needs t answers and an honest member answers once.

The same rule means that masks with the missing, which survivors hand over, part no sum in two. Let t answers open
a sum over S. At most n - t honest members have handed over masks for another set than the cohort without S, and
each of those sets names at most n - t missing members. To part some of the opened members from the rest, all masks
between the two sides must be read. Two members that both hold to S read none of theirs. So one side has only
members that do not, and each has named all of the other side: t - n_C members or more. The rule excludes that
t - n_C <= n - t.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fedfair.errors import PlanError
from fedfair.secagg.checks import Check, require
from fedfair.secagg.graph_terms import AUTO, GraphTerms, graph_terms

MAX_MEMBERS = 1000
"""As many were tried, in rounds and in set-ups (`benchmarks/secagg_scale.py`)."""

RING_BITS = (32, 24, 20, 16)


class Mode(enum.Enum):
    """The trust in the aggregator; the value is the word of the plan."""

    MALICIOUS = "malicious"
    SEMI_HONEST = "semi-honest"


class Suite(enum.Enum):
    """The key agreement of two members; the value travels."""

    X25519 = 1
    X25519_MLKEM768 = 2


def threshold(mode: Mode, members: int, colluders: int) -> int:
    """Return t: how many members' shares open a mask.

    Malicious: t = floor((n + n_C) / 2) + 1, the least t with 2t > n + n_C. Semi-honest: t = n_C + 2, so that
    n_C colluders open nothing and every sum hides an honest member behind another one.

    Raises:
        PlanError: `members` cannot hide anybody from `colluders`.
    """
    if not 0 <= colluders <= members - 2:
        raise PlanError(
            f"{members} members with {colluders} colluders: the sum would show the rest",
            "at least two honest members are needed; lower secure_aggregation.colluders or add collaborators",
        )
    if members > MAX_MEMBERS:
        raise PlanError(f"{members} members in one round, at most {MAX_MEMBERS} are supported")
    return (members + colluders) // 2 + 1 if mode is Mode.MALICIOUS else colluders + 2


def least_survivors(mode: Mode, members: int, colluders: int) -> int:
    """Return the least number of contributors that a sum may be opened for: max(t, n_C + 2)."""
    return max(threshold(mode, members, colluders), colluders + 2)


def drop_outs_survived(mode: Mode, members: int, colluders: int) -> int:
    """Return how many members may vanish at any step without losing the round."""
    return members - least_survivors(mode, members, colluders)


def guarantee_in_words(mode: Mode, members: int, colluders: int) -> str:
    """Return one sentence or two for the person who approves a plan."""
    dropped = drop_outs_survived(mode, members, colluders)
    who = (
        "an aggregator that follows the protocol"
        if mode is Mode.SEMI_HONEST
        else "an aggregator that may do anything"
    )
    together = "alone" if not colluders else f"together with up to {colluders} of {members} collaborators"
    least = least_survivors(mode, members, colluders)
    learns = f"{who}, {together}, learns one sum over at least {least} sites a round"
    if not dropped:
        return f"{learns}; no drop-out is survived: if one of {members} vanishes, the round is repeated"
    survived = "1 drop-out is" if dropped == 1 else f"{dropped} drop-outs are"
    return f"{learns}; {survived} survived in every training round"


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """The terms that an aggregator proposes for a session; the session_id of all members is bound to them.

    Attributes:
        mode: what the aggregator is trusted with.
        suite: how pairs agree on keys.
        colluders: n_C, how many members may side with the aggregator.
        threshold: t for the whole roster; a round with fewer members uses its own, by the same rule.
        ring_bits: width of a body value on its way, 32, 24, 20 or 16.
        greatest_weight: W, the greatest weight of one contribution.
        check_sums: whether every contribution carries a check tag, by which each site checks the opened sum.
        neighbours: with how many others a member shares masks: ALL, AUTO or an even number.
    """

    mode: Mode
    suite: Suite
    colluders: int
    threshold: int
    ring_bits: int
    greatest_weight: int
    check_sums: bool = True
    neighbours: int = AUTO

    def graph(self, members: int) -> GraphTerms | None:
        """Return the numbers of the sparse graph of so many members; None for the complete one."""
        return graph_terms(members, self.colluders, self.neighbours)


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """The purpose and the terms of a session; the aggregator proposes it, and every site has its own copy.

    Attributes:
        digest: 32 bytes, of the plan that was approved.
        terms: what follows from that plan.
    """

    digest: bytes
    terms: SessionTerms

    def check(self, digest: bytes, terms: SessionTerms) -> None:
        """Refuse whatever is not exactly what this site approved.

        No proposal is better than the plan's in every respect: a greater ring shows more digits, a smaller
        greatest weight makes a site say that it does not fit. So nothing but the plan's own terms is accepted.

        Args:
            digest: of the plan that is proposed, 32 bytes.
            terms: that are proposed.

        Raises:
            SecaggError: PLAN, POLICY, or THRESHOLD where nothing but t differs.
        """
        require(
            digest == self.digest,
            Check.PLAN,
            f"the aggregator proposes a session for plan {digest.hex()[:16]}, this site approved "
            f"{self.digest.hex()[:16]}",
            "compare the plan digests on both sides",
        )
        own = self.terms
        for what, proposed, approved in (
            ("mode", terms.mode.value, own.mode.value),
            ("colluders", terms.colluders, own.colluders),
            ("ring_bits", terms.ring_bits, own.ring_bits),
            ("greatest weight", terms.greatest_weight, own.greatest_weight),
            ("suite", terms.suite.name, own.suite.name),
            ("check_sums", terms.check_sums, own.check_sums),
            ("neighbours", terms.neighbours, own.neighbours),
        ):
            require(
                proposed == approved,
                Check.POLICY,
                f"the aggregator proposes {what} {proposed}, the plan that this site approved has {approved}",
                "run the same plan and the same version of fedfair on both sides",
                asked=f"{what} {proposed}",
                allowed=f"{what} {approved}",
            )
        require(
            terms.threshold == own.threshold,
            Check.THRESHOLD,
            f"the aggregator proposes threshold {terms.threshold}, expected {own.threshold}",
        )


@dataclass(frozen=True, slots=True)
class SecaggPolicy:
    """One site's demands beyond the terms of the plan, whatever the aggregator proposes.

    Attributes:
        least_members: the smallest cohort this site contributes to, at least 2.
        greatest_clip: the largest C; a clip bounds what one record can do to the sum.
        fixed_clip: whether every C must be that very value, because the plan states it.
        greatest_attempts: uploads about one and the same model and purpose.
        repeatable: purposes whose update does not change between attempts (an evaluation of the same model); for
            these alone an update may leave the site again after an attempt that this site did not answer.
        any_cohort: purposes for which this site helps to open one and the same sum for another set of sites too.
        max_reopened_sums: for how many sums of other purposes it does so, over all runs of the plan.
        least_survivors: fewest contributors of a sum that this site helps to open, where it wants more than the
            protocol does.
    """

    least_members: int = 2
    greatest_clip: float = 1024.0
    fixed_clip: bool = False
    greatest_attempts: int = 3
    repeatable: frozenset[str] = frozenset()
    any_cohort: frozenset[str] = frozenset()
    least_survivors: int = 0
    max_reopened_sums: int = 0

    def check_cohort(self, members: int, colluders: int) -> None:
        """Refuse a cohort that is smaller than this site allows.

        Raises:
            SecaggError: POLICY.
        """
        least = max(self.least_members, colluders + 2, 2)
        require(
            members >= least,
            Check.POLICY,
            f"a cohort of {members} members, this site demands at least {least}",
            "wait for more collaborators",
            asked=f"{members} members",
            allowed=f"{least} or more",
        )

    def check_clips(self, clips: tuple[float, ...]) -> None:
        """Refuse a clip that is wider than this site allows, or another one than the plan states.

        Raises:
            SecaggError: POLICY.
        """
        greatest = f"{self.greatest_clip:g}"
        for clip in clips:
            require(
                clip == self.greatest_clip or not self.fixed_clip,
                Check.POLICY,
                f"a clip of {clip:g}, the plan that this site approved has {greatest}",
                asked=f"clip {clip:g}",
                allowed=greatest,
            )
            require(
                0.0 < clip <= self.greatest_clip,
                Check.POLICY,
                f"a clip of {clip:g}, this site demands more than 0 and at most {greatest}",
                asked=f"clip {clip:g}",
                allowed=f"at most {greatest}",
            )
