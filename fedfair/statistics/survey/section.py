"""The survey before round 1 in plan, policy and ledger: when there is one, and what it makes known. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.schema import Plan
from fedfair.statistics.statistic import Statistic, When


def _is_asked(plan: Plan, _numeric_columns: int | None = None) -> bool:
    return plan.task.survey


def _leaves(_plan: Plan) -> Iterator[str]:
    yield (
        "once, a survey of each column: how many values are missing, of each category and in each bin of a "
        "grid, the sum of the values and of their squares; and how many records each class has"
    )


STATISTIC = Statistic(
    word="survey",
    when=When.FIRST,
    planned=_is_asked,
    made=_is_asked,
    policy_word="standardisation",
    meanings={
        "survey-sums": "sums over all sites, by column: how many values are missing, of each category and in "
        "each bin"
    },
    discloses=lambda _: ("survey-sums",),
    asked_by=lambda _: "task.survey: true",
    leaves=_leaves,
    release="survey",
    covers="survey sums",
    is_about_model=False,
)
