"""The readable information that leaves a site under a plan, in kinds that its policy can allow or refuse.

A masked sum shows nothing but the sum. So what counts is what is known once the sums are open: sums over
everybody, or something about one site, one group, one record. `plan.algorithms` says it of every algorithm,
`aggregation.sum_kinds` of every other sum, and this module of a whole plan. What plain sums show on top is the
term `allow_plain_sums`, what `site_means` publishes the term `publish_site_means`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedfair.aggregation.sum_kinds import SumKind, sum_kinds
from fedfair.plan.fields import Disclosure
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan

MEANING: Mapping[Disclosure, str] = {
    "update-sums": "sums over everybody of weighted changes of the model and the threshold, and of weights",
    "loss-sums": "sums over everybody of losses, rounded to an eighth of a bin, of loss histograms, and of what a "
    "confusion matrix or a task's metrics count",
    "loss-quantiles": "the loss at each group size's quantile, in single precision: 31 bits of one record's loss, "
    "of whichever site, and by 10 or 21 of its bits how many others have nearly the same",
    "feature-sums": "sums over everybody of the values of each column, of a target that is a number, and of "
    "their squares",
    "score-sums": "sums over everybody of how many records of each class get which score, and of the scores",
    "survey-sums": "sums over everybody, by column: how many values are missing, of each category and in each bin",
    "group-losses": "the loss of every named group over everybody",
    "site-losses": "the loss of one site by itself",
    "site-updates": "the change of the model of one site by itself",
    "records": "records",
}

SUMS_ONLY: tuple[Disclosure, ...] = (
    "update-sums",
    "loss-sums",
    "loss-quantiles",
    "feature-sums",
    "score-sums",
    "survey-sums",
)
"""Everything that deployments disclose; nothing of it is about one site.

A site allows `loss-quantiles`, `score-sums` and `survey-sums` by name.
"""


def of_evaluation(plan: Plan) -> dict[Disclosure, str]:
    """Return the kinds that an evaluation under a plan discloses, each with what in the plan asks for it."""
    return _told(plan, (kind for kind in sum_kinds() if kind.is_evaluation and kind.planned(plan)))


def of_run(plan: Plan) -> dict[Disclosure, str]:
    """Return the kinds that a whole run of a plan discloses, each with what in the plan asks for it."""
    made = schedule_of(plan).purposes
    return _told(plan, (kind for kind in sum_kinds() if kind.purpose in made))


def _told(plan: Plan, kinds: Iterable[SumKind]) -> dict[Disclosure, str]:
    told: dict[Disclosure, str] = {}
    for kind in kinds:
        asked = kind.asked_by(plan)
        told |= {disclosure: kind.asked_more_by.get(disclosure, asked) for disclosure in kind.discloses(plan)}
    return told
