"""The exact evaluation in plan, policy and ledger: when there is one, and what it makes known. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.derived import evaluates_exactly
from fedfair.plan.schema import Plan
from fedfair.statistics.statistic import Statistic, When

EXACT_STEPS = 4
"""Sums of one exact evaluation, all about one model."""


def _leaves(_plan: Plan) -> Iterator[str]:
    yield (
        "at the end, FOR EACH GROUP SIZE, THE LOSS OF ONE PERSON in single precision, of whichever site: 31 "
        "bits, from which a plan that was made for it reads that person's record"
    )


STATISTIC = Statistic(
    word="exact-evaluation",
    when=When.LAST,
    planned=evaluates_exactly,
    made=lambda plan, _: evaluates_exactly(plan),
    policy_word="evaluation",
    meanings={
        "loss-quantiles": "the loss at each group size's quantile, in single precision: 31 bits of one record's "
        "loss, of whichever site, and by 10 or 21 of its bits how many others have nearly the same"
    },
    discloses=lambda _: ("loss-quantiles",),
    asked_by=lambda _: "evaluation.method: exact",
    leaves=_leaves,
    release="evaluation",
    covers="evaluation sums",
    steps=EXACT_STEPS,
    is_evaluation=True,
    is_on_demand=True,
    has_query=True,
    narrows=True,
)
