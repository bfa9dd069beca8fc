"""Finds the prediction sets of a plan's models in the sums of their evaluations, or why there are none.

Which records: those that the model was neither trained on nor chosen by. They are the test records. Where no site
has any, they are the validation records, if the plan returns a model that no evaluation chose and begins with
weights of its own. Sets of classes come from the histogram of scores, intervals from that of losses: both are open
already, and every machine that holds the sums finds the same sets.

Where too many losses are beyond the range of their histogram, no interval is finite. Such draws of records count
as kept in the promise: their interval is every number, and is not stored.

A threshold tells in which bin the m-th worst record lies. So m is at least the plan's `evaluation.min_group`.
Noise that protects records would be a part of the threshold, whose promise then holds of nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.evaluation_file import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluator
from fedfair.aggregation.requests import histogram_spec
from fedfair.conformal.class_sets import ScoredAnswers, SetSizes
from fedfair.conformal.intervals import MeasuredAnswers
from fedfair.conformal.prediction_sets import NoSets, PredictionSets
from fedfair.conformal.promise import Promise
from fedfair.conformal.threshold import bins_missed
from fedfair.plan.derived import keeps_best, score_columns, set_group_size, why_no_sets
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class SplitSets:
    """What sets are of the records of one split.

    Attributes:
        missed: the share of records whose own answer is not in their set, 0 to 1.
        sizes: of sets of classes; None of intervals.
    """

    missed: float
    sizes: SetSizes | None


class SetMaker:
    """How the models of one plan get prediction sets.

    Args:
        plan: the plan.
        schema: of the features.
        evaluator: of the plan's models.

    Attributes:
        without: why they get none, whatever the sums are; empty where they may get some.
    """

    def __init__(self, plan: Plan, schema: FeatureSchema, evaluator: Evaluator) -> None:
        self._evaluator, self._fewest = evaluator, plan.evaluation.min_group
        self._promise = _promise(plan)
        self.without = why_no_sets(plan, schema.classes)
        self._answers = None if self.without else _answers(plan, schema)
        self._has_chosen = keeps_best(plan) or plan.training.initial is not None

    def sets(self, sums: EvaluatedModel) -> PredictionSets | NoSets:
        """Return the sets of the model that an evaluation is of, or why it has none.

        Args:
            sums: of the evaluation, by this plan.
        """
        promise, answers = self._promise, self._answers
        if promise is None or answers is None:
            return NoSets(self.without)
        held = self._evaluator.held(sums.header, answers.field)
        split = "test" if "test" in held else "validation"
        fault = self._fault(held, split, sums.replaced)
        if fault:
            return NoSets(fault)
        counts = answers.counts(held[split])
        records = int(counts.sum())
        allowed = promise.allowed(records)
        if allowed < self._fewest:
            needed = promise.needed(self._fewest)
            return NoSets(
                f"to miss at most {promise.missed:g} of any group of a share of {promise.group_size:g} or more, "
                f"with {self._fewest} records beyond the threshold, takes {needed} {split} records, and there are "
                f"{records}"
            )
        bound = answers.bound(bins_missed(counts, allowed))
        if math.isinf(bound):
            return NoSets(
                f"{allowed} or more of {records} {split} records have a loss from evaluation.loss_range on, so "
                "that no interval is finite"
            )
        return PredictionSets(answers.kind, promise, split, records, bound)

    def _fault(self, held: Collection[str], split: str, replaced: int) -> str:
        """Return why no threshold comes from a split; empty where one may."""
        if replaced:
            return f"{replaced} losses of its evaluation were replaced, and scores with them"
        if split not in held:
            return "no records are held out from training (task.test_fraction)"
        if split == "validation" and self._has_chosen:
            return "there are no test records, and validation records may have chosen the model"
        return ""

    def seen(self, header: NDArray[np.float64], sets: PredictionSets | NoSets) -> dict[str, SplitSets]:
        """Return what sets are of the records of each split with `min_group` records or more.

        Args:
            header: the total of an evaluation of their model.
            sets: by this plan.
        """
        answers, found = self._answers, {}
        if answers is None or isinstance(sets, NoSets):
            return {}
        missed = answers.missed(sets.bound)
        for split, block in self._evaluator.held(header, answers.field).items():
            counts = answers.counts(block)
            records = int(counts.sum())
            if records >= self._fewest:
                found[split] = SplitSets(int(counts[:missed].sum()) / records, answers.sizes(block, missed))
        return found


def _promise(plan: Plan) -> Promise | None:
    stated = plan.evaluation.sets
    if stated is None:
        return None
    return Promise(set_group_size(plan, stated), stated.missed, stated.confidence)


def _answers(plan: Plan, schema: FeatureSchema) -> ScoredAnswers | MeasuredAnswers:
    columns = score_columns(plan, schema.classes)
    return ScoredAnswers(columns) if columns else MeasuredAnswers(histogram_spec(plan, schema))
