"""What an evaluation sum proves about a global model: a summary per split and one number to compare models by.

The statistics are `fedfair.evaluation`'s; this module knows where the blocks of the three splits lie in the
header and how the plan weighs the worst group against the mean. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import RemoteProtocolError
from fedfair.evaluation.exact_query import ExactQuery
from fedfair.evaluation.loss_sums import SPLITS, HistogramSpec, evaluation_header_length, split_header
from fedfair.evaluation.secure_cvar import (
    Interval,
    SplitSummary,
    group_bound,
    objective_bounds,
    objective_interval,
    quantile,
    summarise,
)
from fedfair.evaluation.site_sums import SplitMeans, check_site_sums, site_means, site_rows
from fedfair.ids import RoundNumber
from fedfair.learning.data.dataset import FeatureSchema
from fedfair.learning.exchange import histogram_spec
from fedfair.plan.derived import published_sites, reported_group_sizes
from fedfair.plan.schema import Plan

Confusion: TypeAlias = tuple[tuple[int, ...], ...]
"""How many records of each class (row) were taken for which (column)."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one evaluation sum proved about one global model.

    Attributes:
        round: rounds done when it was taken.
        threshold: the threshold of the evaluated model, from which the next round starts; where round 0 teaches
            it (`threshold_init: quantile`), the one that was learnt.
        splits: a summary for each split that has records anywhere; keys are among `SPLITS`.
        objectives: for the same splits, an interval that holds (1 - tradeoff) * worst-group risk
            + tradeoff * mean, with the best threshold.
        replaced: how many losses were not finite or too large, so that sites counted others in their place;
            unless it is 0, nothing here is proved about the model.
    """

    round: RoundNumber
    threshold: float
    splits: Mapping[str, SplitSummary]
    objectives: Mapping[str, Interval]
    replaced: int = 0

    @property
    def objective(self) -> float:
        """What models are compared by: the objective on the validation split, or else on the training split."""
        return self.objectives.get("validation", self.objectives["train"]).midpoint


@dataclass(frozen=True, slots=True)
class Judge:
    """How the plan wants models judged.

    Attributes:
        spec: the loss histogram.
        group_sizes: the group sizes (rho) that are reported.
        worst_group_size: the group size of the objective.
        tradeoff: the weight of the mean in the objective (epsilon in the paper).
        classes: how many there are.
        sites: whose own means the plan publishes, in the order of their rows.
        min_group: fewest records that a site tells of.
    """

    spec: HistogramSpec
    group_sizes: tuple[float, ...]
    worst_group_size: float
    tradeoff: float
    classes: int
    sites: tuple[str, ...]
    min_group: int

    @classmethod
    def from_plan(cls, plan: Plan, schema: FeatureSchema) -> Judge:
        """Return the judge that the plan describes."""
        return cls(
            histogram_spec(plan, schema),
            reported_group_sizes(plan),
            plan.objective.worst_group_size,
            plan.objective.tradeoff,
            schema.classes,
            published_sites(plan),
            plan.evaluation.min_group,
        )

    def evaluate(self, header: NDArray[np.float64], rounds_done: RoundNumber, threshold: float) -> Evaluation:
        """Return what the total `header` of an evaluation sum says.

        Raises:
            RemoteProtocolError: nobody contributed a training record, or the counts are impossible.
        """
        blocks = self._blocks(header)
        if "train" not in blocks:
            raise RemoteProtocolError(
                "the evaluation sum is over no training record", "at least one collaborator needs training data"
            )
        self._check_confusion(header)
        check_site_sums(self._rows(header), split_header(header, self.spec, self.classes)[0], self.min_group)
        splits = {name: summarise(block, self.group_sizes, self.spec) for name, block in blocks.items()}
        objectives = {
            name: objective_bounds(block, self.worst_group_size, self.tradeoff, self.spec)
            for name, block in blocks.items()
        }
        return Evaluation(rounds_done, threshold, splits, objectives)

    def threshold(self, header: NDArray[np.float64]) -> float:
        """Return about the loss that a share worst_group_size of all training records exceeds: the best c."""
        return quantile(self._blocks(header)["train"], 1.0 - self.worst_group_size, self.spec)

    def sharpened(self, evaluation: Evaluation, query: ExactQuery) -> Evaluation:
        """Return an evaluation with the risks that an exact query about the same model has proved.

        Raises:
            RemoteProtocolError: the query is over other records than the evaluation.
        """
        records = {name: count for name, count in query.records.items() if count}
        if records != {name: split.n for name, split in evaluation.splits.items()}:
            raise RemoteProtocolError("the exact query is over other records than the evaluation before it")
        risks = query.risks
        splits = {
            name: replace(
                summary,
                by_group_size={
                    size: group_bound(risk.bound, size, summary.n, summary.mean, risk.at_least)
                    for size, risk in risks[name].items()
                },
            )
            for name, summary in evaluation.splits.items()
        }
        objectives = {
            name: objective_interval(
                split.by_group_size[self.worst_group_size].bound, split.mean, split.n, self.tradeoff, self.spec
            )
            for name, split in splits.items()
        }
        return replace(evaluation, splits=splits, objectives=objectives)

    def confusion(self, header: NDArray[np.float64]) -> dict[str, Confusion]:
        """Return the confusion matrix of each split; nothing with too many classes."""
        blocks, matrices = split_header(header, self.spec, self.classes)
        if matrices is None:
            return {}
        found = zip(SPLITS, blocks, matrices, strict=True)
        return {
            name: tuple(tuple(int(cell) for cell in row) for row in matrix)
            for name, block, matrix in found
            if block[0] > 0
        }

    def site_means(self, header: NDArray[np.float64]) -> dict[str, Mapping[str, SplitMeans]]:
        """Return each site's own means by split; nothing where the plan does not publish them."""
        blocks, _ = split_header(header, self.spec, self.classes)
        return dict(zip(self.sites, site_means(self._rows(header), blocks[:, 0], self.min_group), strict=True))

    def _rows(self, header: NDArray[np.float64]) -> NDArray[np.float64]:
        return site_rows(header[evaluation_header_length(self.spec, self.classes) :])

    def _check_confusion(self, header: NDArray[np.float64]) -> None:
        """Refuse matrices that are not over the records of the blocks, or tell of another accuracy."""
        blocks, matrices = split_header(header, self.spec, self.classes)
        if matrices is None:
            return
        records, correct = matrices.sum(axis=(1, 2)), np.trace(matrices, axis1=1, axis2=2)
        sound = (matrices >= 0.0).all() and (records == blocks[:, 0]).all() and (correct == blocks[:, 1]).all()
        if not sound:
            raise RemoteProtocolError(
                "the confusion matrices of an evaluation are not over the records of its histograms",
                "a participant sent numbers that no predictions have; compare software versions",
            )

    def _blocks(self, header: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        blocks, _ = split_header(header, self.spec, self.classes)
        return {name: block for name, block in zip(SPLITS, blocks, strict=True) if block[0] > 0}
