"""The training of the references in plan, policy and ledger: when there is one, what it makes known. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.derived import measures_excess, reference_of, trains_references
from fedfair.plan.schema import Plan
from fedfair.statistics.statistic import Statistic, When


def _is_planned(plan: Plan, _numeric_columns: int | None = None) -> bool:
    return measures_excess(plan)


def _is_made(plan: Plan, _numeric_columns: int | None = None) -> bool:
    return trains_references(plan)


def _leaves(plan: Plan) -> Iterator[str]:
    stated = reference_of(plan)
    yield (
        f"before round 1, in up to {stated.rounds} sums, the weighted change of {stated.folds} reference models, "
        "and the sum of their losses on the records that each has not seen"
    )


STATISTIC = Statistic(
    word="reference",
    when=When.REFERENCE,
    planned=_is_planned,
    made=_is_made,
    policy_word="training",
    meanings={
        "reference-sums": "sums over all sites of weighted changes of the reference models, of weights, and of "
        "the references' losses",
    },
    discloses=lambda _: ("reference-sums",),
    asked_by=lambda _: "objective.measure: excess",
    leaves=_leaves,
    release="reference",
    covers="sums that train references",
    draws_anew=True,
)
