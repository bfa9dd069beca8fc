"""The evaluation of a model in plan, policy and ledger: when there is one, and what it makes known. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import is_unevaluated, measures_excess, predicts_classes, protects_records
from fedfair.plan.fields import Disclosure
from fedfair.plan.losses import Answers
from fedfair.plan.schema import Plan
from fedfair.statistics.statistic import Statistic, When

_FIGURES: Mapping[Answers, str] = {
    "number": "the sums of squared and absolute errors, of the targets and of their squares",
    "labels": "of each label how many records are found, falsely found and missed",
    "time": "of each interval how many are at risk, how many events there are, and how many the model expects",
    "pixels": "the shares of correct pixels, and of each class those in common and in either mask",
}
"""The words for what a site sums beside its losses, by what a record's answer is."""


def _is_evaluated(plan: Plan, _numeric_columns: int | None = None) -> bool:
    return not is_unevaluated(plan)


def _discloses(plan: Plan) -> tuple[Disclosure, ...]:
    return ("loss-sums", "score-sums") if plan.evaluation.scores else ("loss-sums",)


def _leaves(plan: Plan) -> Iterator[str]:
    if not ALGORITHMS[plan.training.algorithm].deployed:
        return
    yield f"each evaluation, three loss histograms of {plan.evaluation.bins} bins"
    if measures_excess(plan):
        yield "each evaluation, three histograms of the excess over references"
    if measures_excess(plan) and predicts_classes(plan):
        yield (
            "each evaluation, by split, how many records references gave about the same chance, the sums of the "
            "chances, and of how many it came true"
        )
    if plan.task.loss.answers in _FIGURES and not protects_records(plan):
        yield f"each evaluation, by split, {_FIGURES[plan.task.loss.answers]}"
    if plan.evaluation.scores:
        yield (
            "each evaluation, by split and class, two histograms of the probabilities that the model gives: of "
            "the records of the class, and of the others"
        )
    if plan.evaluation.site_means:
        yield (
            "each evaluation, UNDER THE SITE'S OWN NAME, its number of records, mean loss and accuracy in "
            f"each split of {plan.evaluation.min_group} or more: the aggregator sees them and publishes the last"
        )


STATISTIC = Statistic(
    word="evaluation",
    when=When.EVERY,
    planned=_is_evaluated,
    made=_is_evaluated,
    policy_word="evaluation",
    meanings={
        "loss-sums": "sums over all sites of losses, rounded to an eighth of a bin, of loss histograms, and of "
        "what a confusion matrix or a task's metrics count",
        "score-sums": "sums over all sites of how many records of each class get which score, and of the scores",
    },
    discloses=_discloses,
    asked_by=lambda _: "evaluation",
    asked_more_by={"score-sums": "evaluation.scores: true"},
    leaves=_leaves,
    release="evaluation",
    covers="evaluation sums",
    noise=lambda level: level.evaluation_noise_multiplier,
    is_evaluation=True,
    is_on_demand=True,
)
