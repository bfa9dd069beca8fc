"""Slices in plan, policy and ledger: when they are looked for, and what they make known. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.derived import counts_outcomes, finds_slices, measures_excess, slices_of
from fedfair.plan.fields import Disclosure
from fedfair.plan.schema import Plan
from fedfair.statistics.statistic import Statistic, When

SLICE_STEPS = 3
"""Sums of one search, all about one model and the same people."""


def _leaves(plan: Plan) -> Iterator[str]:
    pairs = ", and of every two columns where all cells do" if slices_of(plan).pairs else ""
    yield (
        "at the end, of the held-out records or else of those trained on, how many are in each fine bin and "
        "category of the columns, how many in each cell of every two columns, also where that is one person; and "
        "the sums of the losses, in coarse steps, of cells of columns that hold "
        f"{plan.evaluation.min_group} people or more{pairs}"
    )
    if counts_outcomes(plan):
        said = "; and the chances that references gave, in coarse steps, and how often they came true"
        yield (
            "at the end, of these larger cells, how many have the outcome, how many the model flags (two classes) "
            "and how many are both: where it flags one of a cell, that person's outcome"
            f"{said if measures_excess(plan) else ''}"
        )


def _discloses(plan: Plan) -> tuple[Disclosure, ...]:
    return ("slice-sums", "slice-outcomes") if counts_outcomes(plan) else ("slice-sums",)


STATISTIC = Statistic(
    word="slices",
    when=When.SLICED,
    planned=finds_slices,
    made=lambda plan, _: finds_slices(plan),
    policy_word="evaluation",
    meanings={
        "slice-sums": "sums over all sites of how many records are in each bin, category and cell of two columns, "
        "which may be one; and of the losses of larger cells, in coarse steps",
        "slice-outcomes": "sums over all sites of how many records of these larger cells have the outcome, are "
        "flagged and both, also where one is flagged; and of what references said",
    },
    discloses=_discloses,
    asked_by=lambda _: "evaluation.slices",
    asked_more_by={"slice-outcomes": "evaluation.slices.outcomes: true"},
    leaves=_leaves,
    release="evaluation",
    covers="evaluation sums",
    steps=SLICE_STEPS,
    is_evaluation=True,
    has_query=True,
)
