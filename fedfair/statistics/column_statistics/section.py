"""Statistics of columns in plan, policy and ledger: which plan has them, and what they make known. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.derived import trains
from fedfair.plan.fields import Disclosure
from fedfair.plan.schema import Plan
from fedfair.statistics.statistic import Statistic, When


def _is_asked(plan: Plan, _numeric_columns: int | None = None) -> bool:
    return not trains(plan)


def _discloses(plan: Plan) -> tuple[Disclosure, ...]:
    is_exact = plan.statistics is not None and plan.statistics.epsilon is None
    return ("exact-statistics",) if is_exact else ("column-statistics",)


def _leaves(plan: Plan) -> Iterator[str]:
    stated = plan.statistics
    if stated is None:
        return
    asked = {
        "how many records have each value of": [name for name, one in stated.columns.items() if one.count],
        "how many are in each bin of": [name for name, one in stated.columns.items() if one.bins],
        "how many numbers there are, and their sum, of": [
            name for name, one in stated.columns.items() if one.mean
        ],
    }
    told = "; ".join(f"{words} {', '.join(names)}" for words, names in asked.items() if names)
    groups = "" if stated.by is None else f", for each value of {stated.by}"
    noise = "with its share of noise on every number" if stated.epsilon is not None else "WITHOUT NOISE"
    yield f"once, {noise}{groups}: how many records it has; {told}"


STATISTIC = Statistic(
    word="column-statistics",
    when=When.FIRST,
    planned=_is_asked,
    made=_is_asked,
    policy_word="standardisation",
    meanings={
        "column-statistics": "counts, bins and sums of columns over all sites, under noise for single records",
        "exact-statistics": "the same without noise, also of one record",
    },
    discloses=_discloses,
    asked_by=lambda _: "statistics",
    leaves=_leaves,
    release="statistics",
    covers="statistics of columns",
    is_about_model=False,
)
