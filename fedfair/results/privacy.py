"""States differential privacy in a result: the `privacy` part of `fedfair/result/1`.

Decides what is said about a simulation and about a deployment; sentences with an epsilon are
`privacy.statement`'s. In a simulation one process holds all records and seeds, so that its noise
protects nobody; it states what the same plan would promise in a deployment. About single records an aggregator
knows neither how many a site has nor what the site released under other plans, so a deployed result has no
epsilon for them: each site's own ledger states it. What protects whole collaborators is the same for all, and is
stated of the run. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedfair.aggregation.distributed_dp import DistributedDp, collaborator_level_of
from fedfair.errors import PrivacyError
from fedfair.ids import ParticipantId
from fedfair.plan.derived import quorum, resists_lies, rounds_before
from fedfair.plan.privacy import SampleLevelSection
from fedfair.plan.schema import Plan
from fedfair.privacy.accounting import accountant, epsilon
from fedfair.privacy.releases import GaussianRelease, RecordRelease, ReleaseLog
from fedfair.privacy.sensitivity import step_sensitivity
from fedfair.privacy.skellam import skellam_epsilon
from fedfair.privacy.statement import (
    STATISTICAL,
    ZERO_OUT,
    CollaboratorLevelFacts,
    SampleLevelFacts,
    collaborator_level_sentence,
    sample_level_sentence,
)
from fedfair.results.parts import CollaboratorLevelFields, PrivacyFields, SampleLevelFields
from fedfair.run.progress import RunResult

if TYPE_CHECKING:  # the result is made of this
    from fedfair.results.costs import SumCost

NO_PRIVACY = PrivacyFields(sample_level=None, collaborator_level=None)

NO_PROTECTION = (
    "this is a simulation, whose noise follows from the plan's seed and protects nobody, and whose figures are "
    "exact; a deployment of this plan would state for the collaborator with the fewest records: "
)

RELEASED_IN_SIMULATION = (
    "this is a simulation, whose noise follows from the plan's seed and protects nobody, and whose figures are "
    "exact; a deployment of this plan, in which no round is tried twice, would state: "
)

STATED_BY_SITES = (
    "noise was added to everything that left a site, so that the figures are estimates without intervals; what "
    "that is worth depends on how many records a site has and on what else it released, so each collaborator's "
    "own ledger states its epsilon; its unit is one record (" + ZERO_OUT + ")"
)


def plan_sensitivity(plan: Plan, asked: SampleLevelSection) -> float:
    """Return the most that one record changes the exact sum of a step under the plan (S).

    What a site computes can be changed by a little more, and its noise is larger in the same proportion
    (`privacy.sample_level.Mechanism.grid`).
    """
    objective = plan.objective if plan.training.algorithm == "fedsrcvar" else None
    return step_sensitivity(objective, asked.clip, asked.threshold_scale, asked.clipping)


def simulated_privacy(
    plan: Plan, logs: Mapping[ParticipantId, ReleaseLog], noised: DistributedDp | None
) -> PrivacyFields:
    """Return what a simulation says.

    Args:
        plan: the plan that was run.
        logs: what each collaborator released.
        noised: how training sums were noised for whole collaborators; None where they were not.
    """
    if noised is not None:
        sums = max(sum(release.count for release in log.sums) for log in logs.values())
        sites = len(plan.federation.collaborators)
        words = _collaborator_words(plan, noised, RELEASED_IN_SIMULATION, sums, sites)
        return PrivacyFields(sample_level=None, collaborator_level=words)
    releases = {name: log.releases for name, log in logs.items()}
    asked = plan.privacy.sample_level
    if asked is None:
        return NO_PRIVACY
    # Everything but the sampling rate is the same everywhere, and epsilon grows with it.
    worst = max(
        releases, key=lambda name: max((one.sampling_rate for one in _training(releases[name])), default=0.0)
    )
    spent = epsilon(releases[worst], asked.delta)
    facts = SampleLevelFacts(f"collaborator {worst}", releases[worst], spent, asked.delta, accountant())
    told = _words(plan, asked, spent, NO_PROTECTION + sample_level_sentence(facts))
    stated = told.model_copy(update={"worst_collaborator": str(worst)})
    return PrivacyFields(sample_level=stated, collaborator_level=None)


def deployed_privacy(
    plan: Plan, noised: DistributedDp | None, run: RunResult, costs: Sequence[SumCost] | None
) -> PrivacyFields:
    """Return what is said of a deployed run.

    Args:
        plan: the plan that was run.
        noised: how training sums were noised for whole collaborators; None where they were not.
        run: the outcome of the run; attempts that were given up count, as some sum of theirs may be open.
        costs: of every sum that was opened; None at a site, which promises by the plan's quorum.
    """
    if noised is not None:
        sums, costs = run.rounds + run.lost_rounds, costs or ()
        fewest = min((cost.contributors for cost in costs), default=quorum(plan))
        if rounds_before(plan):
            # Of the rounds of an earlier run, no more is known than that the quorum was in them.
            fewest = min(fewest, quorum(plan))
        complete = all(cost.purpose.statistic.is_round for cost in costs)
        words = _collaborator_words(plan, noised, "", sums, fewest, complete=complete)
        return PrivacyFields(sample_level=None, collaborator_level=words)
    asked = plan.privacy.sample_level
    if asked is None:
        return NO_PRIVACY
    return PrivacyFields(sample_level=_words(plan, asked, None, STATED_BY_SITES), collaborator_level=None)


def _collaborator_words(
    plan: Plan, noised: DistributedDp, preface: str, sums: int, fewest: int, *, complete: bool = True
) -> CollaboratorLevelFields:
    asked, mechanism = collaborator_level_of(plan), noised.sums
    spent = skellam_epsilon([mechanism.release(sums)] if sums else [], asked.delta)
    facts = CollaboratorLevelFacts(
        spent,
        asked.delta,
        plan.secure_aggregation.colluders,
        fewest,
        mechanism.shares,
        float(mechanism.variance),
        sums,
        fixed_weights=plan.training.weights == "uniform",
        complete=complete,
        may_lie=resists_lies(plan),
    )
    promised: float | None = spent
    try:
        statement = preface + collaborator_level_sentence(facts)
    except PrivacyError as refusal:
        promised, statement = None, refusal.message
    return CollaboratorLevelFields(
        epsilon=promised,
        delta=asked.delta,
        noise_multiplier=asked.noise_multiplier,
        clip=asked.clip,
        h_min=mechanism.shares,
        mu=mechanism.variance,
        rounds=sums,
        sensitivity=mechanism.bound / mechanism.scale,
        noise_deviation=mechanism.variance**0.5 / mechanism.scale,
        generator=STATISTICAL,
        statement=statement,
    )


def _words(plan: Plan, asked: SampleLevelSection, spent: float | None, statement: str) -> SampleLevelFields:
    sensitivity = plan_sensitivity(plan, asked)
    return SampleLevelFields(
        epsilon=spent,
        delta=asked.delta,
        noise_multiplier=asked.noise_multiplier,
        clip=asked.clip,
        clipping=asked.clipping,
        sensitivity=sensitivity,
        noise_deviation=asked.noise_multiplier * sensitivity,
        accountant=accountant(),
        generator=STATISTICAL,
        statement=statement,
    )


def _training(releases: Sequence[RecordRelease]) -> list[GaussianRelease]:
    return [one for one in releases if isinstance(one, GaussianRelease) and one.purpose == "training"]
