"""States the cost of noise for whole collaborators, for the author of a plan: epsilon, and what noise does.

With few collaborators a useful epsilon needs noise that is as long as what they learn together, unless the model
is small. That is no fault of the method, and is said before anybody trains. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedfair.aggregation.column_statistics import statistics_noise
from fedfair.aggregation.distributed_dp import DistributedDp, collaborator_level_of, distributed_dp, most_sums
from fedfair.plan.derived import quorum
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import SkellamRelease
from fedfair.privacy.skellam import skellam_epsilon
from fedfair.results.column_statistics import CHANCE
from fedfair.statistics.table import Purpose

USEFUL_EPSILON = 8.0
"""About the largest epsilon that people still take for a promise."""


def privacy_cost(plan: Plan, parameters: int) -> str:
    """Return a note that says what the plan's noise is worth and how it compares with what sites add.

    Args:
        plan: a plan with `privacy.collaborator_level`.
        parameters: of its model; 1 where that is not known before the data are.

    Raises:
        PlanError: the noise does not fit the ring.
    """
    noised, asked = distributed_dp(plan, parameters), collaborator_level_of(plan)
    if noised is None:
        return ""
    rounds, most = schedule_of(plan).total(Purpose.TRAINING), most_sums(plan)
    sites = quorum(plan)
    spent, at_most = (skellam_epsilon([noised.sums.release(sums)], asked.delta) for sums in (rounds, most))
    words = (
        f"privacy.collaborator_level: epsilon {spent:.3g} at delta {asked.delta:g} "
        f"after {rounds} rounds, {at_most:.3g} if each is tried "
        f"{plan.federation.max_attempts} times; epsilon {USEFUL_EPSILON:g} would need a noise_multiplier of "
        f"{multiplier_for(USEFUL_EPSILON, rounds, asked.delta):.3g}"
    )
    length = noise_length(noised, sites)
    if parameters > 1 and length > 1.0:
        words += (
            f". The noise in the mean change of {sites} sites is about {length:.3g} times as long as the longest "
            "change of one: it suits smaller models, more collaborators, or many small rounds"
        )
    return words + ". Nothing is evaluated, because no other sum than that of training carries this noise"


def statistics_cost(plan: Plan) -> str:
    """Return a note that says what the noise of statistics is worth, and what `min_group` promises and what not.

    Raises:
        PlanError: the noise cannot be drawn.
    """
    stated, noise, members = plan.statistics, statistics_noise(plan), len(plan.federation.collaborators)
    if stated is None:
        return ""
    readers = (
        f"min_group {stated.min_group} hides smaller numbers from readers of the result, not from the aggregator "
        "and the sites, which know the opened sum"
    )
    if noise is None:
        return f"statistics carry no noise: every site must allow exact-statistics; {readers}"
    least = stated.min_group + noise.reach(members, CHANCE)
    return (
        f"statistics cost epsilon {stated.epsilon:g} at delta {stated.delta:g} for every attempt at their sum; "
        f"the noise of a count has deviation {noise.deviation(members):.3g}, and at least {noise.shares} sites "
        f"add noise that others do not know; a count is shown from {least:.4g} on, so that one of fewer than "
        f"{stated.min_group} records is with a chance of {CHANCE:.0%} at most; {readers}: there noise alone "
        "protects a record"
    )


def noise_length(noised: DistributedDp, sites: int) -> float:
    """Return the expected norm of the noise in a mean over `sites`, in units of the clip."""
    sums = noised.sums
    deviation = math.sqrt(sites * sums.share_variance) / sums.scale / sites
    return deviation * math.sqrt(sums.length) / sums.clip


def multiplier_for(epsilon: float, rounds: int, delta: float) -> float:
    """Return the least noise multiplier, to a hundredth, with which so many sums cost no more than epsilon."""
    least, most = 0, 1 << 20
    while most - least > 1:
        middle = (least + most) // 2
        # Norms this long leave nothing but the Gaussian part of the price.
        releases: Sequence[SkellamRelease] = [SkellamRelease("training", 1e6, 1e6, (middle * 1e4) ** 2, rounds)]
        least, most = (least, middle) if skellam_epsilon(releases, delta) <= epsilon else (middle, most)
    return most / 100
