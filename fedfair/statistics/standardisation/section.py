"""The standardisation in plan, policy and ledger: when columns are summed, and what that makes known. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.derived import is_unevaluated, sums_columns
from fedfair.plan.losses import predicts_number
from fedfair.plan.schema import Plan
from fedfair.statistics.statistic import Statistic, When


def _is_planned(plan: Plan) -> bool:
    return not is_unevaluated(plan)


def _leaves(plan: Plan) -> Iterator[str]:
    number = " and a number to predict" if predicts_number(plan.task.loss) else ""
    yield f"once, how many values each numeric column{number} has, their sum and their sum of squares"


STATISTIC = Statistic(
    word="standardisation",
    when=When.SCALING,
    planned=_is_planned,
    made=sums_columns,
    policy_word="standardisation",
    meanings={
        "feature-sums": "sums over all sites of the values of each column, of a target that is a number, and of "
        "their squares",
    },
    discloses=lambda _: ("feature-sums",),
    asked_by=lambda _: "task.standardize: secure",
    leaves=_leaves,
    release="standardisation",
    covers="standardisation sums",
    noise=lambda level: level.standardisation_noise_multiplier,
    is_about_model=False,
)
