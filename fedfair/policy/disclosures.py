"""What leaves a site in readable form under a plan, in kinds that a site's policy can allow or refuse.

A masked sum shows nothing but the sum. So what counts is what is known once the sums are open: sums over
everybody, or something about one site, one group, one record. `algorithms.py` says it of every algorithm, this
module of a whole plan. What plain sums show on top is the term `allow_plain_sums`, what `site_means` publishes the
term `publish_site_means`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import evaluates_exactly
from fedfair.plan.fields import Disclosure
from fedfair.plan.purpose import Purpose
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan

MEANING: Mapping[Disclosure, str] = {
    "update-sums": "sums over everybody of weighted changes of the model and the threshold, and of weights",
    "loss-sums": "sums over everybody of losses, of loss histograms and of what a confusion matrix counts",
    "loss-quantiles": "the loss at each group size's quantile, exactly: that of one record, of whichever site",
    "feature-sums": "sums over everybody of the values of each column, and of their squares",
    "group-losses": "the loss of every named group over everybody",
    "site-losses": "the loss of one site by itself",
    "site-updates": "the change of the model of one site by itself",
    "records": "records",
}

SUMS_ONLY: tuple[Disclosure, ...] = ("update-sums", "loss-sums", "loss-quantiles", "feature-sums")
"""What deployments reveal; nothing of it is about one site."""


_ASKED_BY: Mapping[Purpose, str] = {
    Purpose.EVALUATION: "evaluation",
    Purpose.EXACT_EVALUATION: "evaluation.method: exact",
    Purpose.STANDARDISATION: "task.standardize: secure",
}
"""What in a plan asks for sums of a purpose, in the order in which disclosures are told."""

_REVEALED: Mapping[Purpose, Disclosure] = {
    Purpose.EVALUATION: "loss-sums",
    Purpose.EXACT_EVALUATION: "loss-quantiles",
    Purpose.STANDARDISATION: "feature-sums",
}


def of_sum(plan: Plan, purpose: Purpose) -> tuple[Disclosure, ...]:
    """Return the kinds that the sums of one purpose reveal; those of training are what the algorithm says."""
    return ALGORITHMS[plan.training.algorithm].kinds if purpose is Purpose.TRAINING else (_REVEALED[purpose],)


def of_evaluation(plan: Plan) -> dict[Disclosure, str]:
    """Return the kinds that an evaluation under a plan reveals, each with what in the plan asks for it."""
    made = (Purpose.EVALUATION, *((Purpose.EXACT_EVALUATION,) if evaluates_exactly(plan) else ()))
    return _told(made)


def of_run(plan: Plan) -> dict[Disclosure, str]:
    """Return the kinds that a whole run of a plan reveals, each with what in the plan asks for it."""
    name = plan.training.algorithm
    trained = dict.fromkeys(of_sum(plan, Purpose.TRAINING), f"training.algorithm: {name}")
    return trained | _told(schedule_of(plan).purposes)


def _told(purposes: Collection[Purpose]) -> dict[Disclosure, str]:
    return {_REVEALED[purpose]: asked for purpose, asked in _ASKED_BY.items() if purpose in purposes}
