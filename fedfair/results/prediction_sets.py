"""The part of a result about prediction sets: what they promise, what they miss, and how large they are.

The figures are of the sums' bins: a set in use is larger by what another machine's arithmetic may change. Part of
the model in `document.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from fedfair.conformal.intervals import reach
from fedfair.conformal.prediction_sets import UNSTATED, NoSets, PredictionSets
from fedfair.conformal.set_maker import SplitSets
from fedfair.plan.derived import why_no_sets
from fedfair.plan.losses import Loss
from fedfair.plan.schema import Plan
from fedfair.results.frozen import FrozenPart, given
from fedfair.run.training_run import RunResult


class SetsOfSplit(FrozenPart):
    """The sets of the records of one split."""

    missed: float
    """share of records whose own answer is not in their set"""

    mean_size: float | None = None
    """mean number of classes in a set; omitted of intervals"""

    by_size: tuple[float, ...] | None = None
    """shares of records with no, one and two classes in their set; omitted for more than two classes"""


class SetFigures(FrozenPart):
    """The prediction sets of a model, or why it has none."""

    kind: Literal["classes", "interval", "none"]
    """sets of classes, intervals around a number, or none"""

    reason: str | None = None
    """why there are none; omitted where there are some"""

    split: str | None = None
    """the held-out records behind the threshold: test or validation"""

    records: int | None = None
    """how many they are"""

    group_size: float | None = None
    """the least share of people that a group has"""

    missed: float | None = None
    """the most of any such group that is missed, on average over draws of records"""

    missed_of_all_at_most: float | None = None
    """the share of all people who are missed, at most, with the confidence"""

    confidence: float | None = None
    """of that, 0.5 to below 1"""

    least_score: float | None = None
    """a class is in a set from this score on; omitted of intervals"""

    greatest_loss: float | None = None
    """an answer is in an interval up to this loss; omitted of sets of classes"""

    below: float | None = None
    """how far below the prediction an interval begins, in units of the target"""

    above: float | None = None
    """how far above the prediction it ends"""

    splits: dict[str, SetsOfSplit] = Field(default={})
    """what sets are of the records of each split that has enough"""


def planned_sets(plan: Plan, classes: int, run: RunResult) -> SetFigures | None:
    """Return the part of the result of a run; None where the plan's models get no sets.

    Args:
        plan: the plan.
        classes: how many there are; 0 without classes.
        run: the run.
    """
    return None if why_no_sets(plan, classes) else set_figures(run.sets, run.split_sets, plan.task.loss)


def set_figures(found: PredictionSets | NoSets, told: Mapping[str, SplitSets], loss: Loss) -> SetFigures:
    """Return the part of a result.

    Args:
        found: the sets of the model that the result is about, or why it has none.
        told: what they are of the records of each split.
        loss: of the plan.
    """
    if isinstance(found, NoSets):
        return SetFigures(kind="none", reason=found.reason or UNSTATED)
    below, above = reach(loss, found.bound) if found.kind == "interval" else (None, None)
    return SetFigures(
        kind=found.kind,
        split=found.split,
        records=found.records,
        group_size=found.promise.group_size,
        missed=found.promise.missed,
        missed_of_all_at_most=found.missed_at_most,
        confidence=found.promise.confidence,
        splits={split: _split(each) for split, each in told.items()},
        **given(
            least_score=found.bound if found.kind == "classes" else None,
            greatest_loss=found.bound if found.kind == "interval" else None,
            below=below,
            above=above,
        ),
    )


def _split(found: SplitSets) -> SetsOfSplit:
    sizes = found.sizes
    return SetsOfSplit(
        missed=found.missed,
        **given(mean_size=None if sizes is None else sizes.mean, by_size=(sizes and sizes.shares) or None),
    )
