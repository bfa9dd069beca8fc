"""Lists what a site releases under a plan that protects single records: rounds, evaluations, sampling rates.

It is written down before a round, and priced before a run begins. What the releases are worth is
`accounting.py`'s. No torch.
"""

from __future__ import annotations

from dataclasses import replace

from fedfair.errors import LocalProtocolError
from fedfair.plan.local_rounds import round_length, stated_batch_size
from fedfair.plan.privacy import SampleLevelSection
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.plan.sections import TrainingSection
from fedfair.privacy.releases import GaussianRelease


def sample_level_of(plan: Plan) -> SampleLevelSection:
    """Return what the plan asks for single records.

    Raises:
        LocalProtocolError: it asks for nothing.
    """
    asked = plan.privacy.sample_level
    if asked is None:
        raise LocalProtocolError("the plan asks for no differential privacy of records")
    return asked


def sampling_rate(training: TrainingSection, count: int) -> float:
    """Return the probability with which each of `count` records is in a batch (q = b / n)."""
    return stated_batch_size(training, count) / count


def training_release(plan: Plan, count: int) -> GaussianRelease:
    """Return what one site with `count` records, at least 1, releases in one attempt at a round."""
    training = plan.training
    asked, rate = sample_level_of(plan), sampling_rate(training, count)
    return GaussianRelease("training", asked.noise_multiplier, rate, round_length(training, count), asked.clip)


def planned_releases(plan: Plan, count: int, rounds: int | None = None) -> tuple[GaussianRelease, ...]:
    """Return what a site releases in a run in which no sum is lost.

    Args:
        plan: the plan, which protects single records.
        count: the site's training records; with none it releases evaluations only.
        rounds: up to and with which round, from 0 on; None for the whole run.
    """
    asked, schedule = sample_level_of(plan), schedule_of(plan)
    releases = []
    for purpose in schedule.purposes:
        row, made = purpose.statistic, schedule.total(purpose, rounds)
        if not made or not (count or row.is_evaluation):
            continue
        if row.is_round:
            one_round = training_release(plan, count)
            releases.append(replace(one_round, steps=one_round.steps * made))
        elif row.noise is not None:
            releases.append(GaussianRelease(row.release, row.noise(asked), 1.0, made))
    return tuple(releases)
