"""The release audit in plan, policy and ledger: when there is one, and what it makes known. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.derived import audited_slices, audits_release, measures_excess
from fedfair.plan.schema import Plan
from fedfair.statistics.statistic import Statistic, When


def _leaves(plan: Plan) -> Iterator[str]:
    less = ", and of the loss less that of a reference" if measures_excess(plan) else ""
    slices = f" and in up to {audited_slices(plan)} slices" if audited_slices(plan) else ""
    yield (
        f"at the end, in 64 bins of the loss{less}, how many records were trained on and how many were held out: "
        f"all of them, by class{slices}"
    )


STATISTIC = Statistic(
    word="release-audit",
    when=When.AUDITED,
    planned=audits_release,
    made=lambda plan, _: audits_release(plan),
    policy_word="evaluation",
    meanings={
        "audit-sums": "sums over all sites of how many training records and how many held-out ones have a loss in "
        "each of 64 bins, which are fine near 0; also by class and in the worst slices",
    },
    discloses=lambda _: ("audit-sums",),
    asked_by=lambda _: "evaluation.release_audit",
    leaves=_leaves,
    release="evaluation",
    covers="evaluation sums",
    is_evaluation=True,
    has_query=True,
)
