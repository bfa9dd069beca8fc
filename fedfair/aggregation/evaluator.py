"""Evaluates a global model from its evaluation sum: a summary per split and one number to compare models by.

The statistics are `fedfair.aggregation`'s; this module knows where the blocks of the three splits lie in the
header and how the plan weighs the worst group against the mean. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.calibration import Calibration, FittedFigures, Uncalibrated, figures_of, fitted
from fedfair.aggregation.cvar_bounds import (
    Interval,
    SplitSummary,
    group_bound,
    objective_bounds,
    objective_interval,
    quantile,
    summarise,
)
from fedfair.aggregation.dp_histogram import evaluation_grid, possible_matrix
from fedfair.aggregation.evaluation_sums import confused_classes, evaluation_layout, planned_figures
from fedfair.aggregation.header import NO_RECORDS
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec, block_layout
from fedfair.aggregation.loss_metrics import metrics_of
from fedfair.aggregation.noised_figures import NoisedSplit
from fedfair.aggregation.quantile_query import ExactQuery
from fedfair.aggregation.ranking import ClassRanking, check_score_sums, class_rankings
from fedfair.aggregation.requests import histogram_spec
from fedfair.aggregation.site_means import SplitMeans, check_site_sums, site_means
from fedfair.errors import RemoteProtocolError
from fedfair.fairness.chance import hedged_loss
from fedfair.ids import RoundNumber
from fedfair.plan.derived import (
    guess_loss,
    minimises_objective,
    published_sites,
    reported_group_sizes,
    score_columns,
    why_uncalibrated,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import CROSS_ENTROPY, Loss, is_likelihood
from fedfair.plan.schema import Plan

Confusion: TypeAlias = tuple[tuple[int, ...], ...]
"""How many records of each class (row) were taken for which (column)."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one evaluation sum for one global model.

    Attributes:
        round: rounds done when it was taken.
        threshold: the threshold of the evaluated model, from which the next round starts; where round 0 teaches
            it (`threshold_init: quantile`), the one that was learnt.
        splits: a summary for each split that has records anywhere; keys are among `SPLITS`.
        objectives: for the same splits, an interval that holds (1 - tradeoff) * worst-group risk
            + tradeoff * mean, with the best threshold; of sums under noise with 95 %.
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
        """Return the most that the objective is proven to be: on validation records, else on training records."""
        return self.objectives.get("validation", self.objectives["train"]).upper


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates models as the plan asks.

    Attributes:
        spec: the loss histogram.
        group_sizes: the group sizes (rho) that are reported.
        worst_group_size: the group size of the objective.
        tradeoff: the weight of the mean in the objective (epsilon in the paper).
        classes: how many a confusion matrix tells apart; 0 where records are not classified.
        sites: whose own means the plan publishes, in the order of their rows.
        min_group: fewest records that a site tells of.
        by_objective: whether models are compared by the plan's objective, and not by the mean loss.
        loss: of single records.
        figures: how many sums of `loss_metrics.py` each split has.
        guess: what guessing an outcome costs, in nats; None where losses are no nats of whole outcomes.
        columns: how many histograms of scores each split has.
        deviation: standard deviation of the noise that each site adds to every number, in its unit; None where
            sums are exact.
        uncalibrated: why models get no calibration; empty where they get one.
    """

    spec: HistogramSpec
    group_sizes: tuple[float, ...]
    worst_group_size: float
    tradeoff: float
    classes: int
    sites: tuple[str, ...]
    min_group: int
    columns: int = 0
    by_objective: bool = True
    loss: Loss = CROSS_ENTROPY
    figures: int = 0
    deviation: float | None = None
    guess: float | None = None
    uncalibrated: str = ""

    @classmethod
    def from_plan(cls, plan: Plan, schema: FeatureSchema) -> Evaluator:
        """Return the evaluator that the plan describes."""
        return cls(
            histogram_spec(plan, schema),
            reported_group_sizes(plan),
            plan.objective.worst_group_size,
            plan.objective.tradeoff,
            confused_classes(plan, schema),
            published_sites(plan),
            plan.evaluation.min_group,
            score_columns(plan, schema.classes),
            minimises_objective(plan),
            plan.task.loss,
            planned_figures(plan, schema),
            evaluation_deviation(plan),
            guess_loss(plan, schema.classes) if is_likelihood(plan.task.loss) else None,
            why_uncalibrated(plan, schema.classes),
        )

    def compared(self, evaluation: Evaluation) -> Interval:
        """Return the figure that compares models: what the plan's algorithm minimises, else the mean loss.

        On the validation split, else on the training split. A model that predicts the same for everybody has an
        interval that is as wide as the rounding of losses, so that no model is taken for better without being so.
        """
        split = "validation" if "validation" in evaluation.splits else "train"
        if self.by_objective:
            return evaluation.objectives[split]
        return evaluation.splits[split].mean_bound

    def rank(self, evaluation: Evaluation) -> tuple[bool, float]:
        """Return what a lower value of makes a better model; losses that had to be replaced prove nothing."""
        return evaluation.replaced > 0, self.compared(evaluation).upper

    def evaluate(
        self, header: NDArray[np.float64], rounds_done: RoundNumber, threshold: float, contributors: int
    ) -> Evaluation:
        """Return what the total `header` of an evaluation sum says.

        Args:
            header: the total, as it was opened.
            rounds_done: training rounds of the evaluated model.
            threshold: its threshold.
            contributors: how many sites are in the total; where sums carry noise, each has added its own.

        Raises:
            RemoteProtocolError: nobody contributed a training record, or the counts are impossible.
        """
        if self.deviation is not None:
            noised = self._noised(header, self.deviation * math.sqrt(contributors))
            splits = {name: split.summary(self.group_sizes) for name, split in noised.items()}
            size, weight = self.worst_group_size, self.tradeoff
            found = {name: split.objective(size, weight) for name, split in noised.items()}
            return Evaluation(rounds_done, threshold, splits, found)
        sums = self._sums(header)
        blocks = self._blocks(header)
        _check_trained(blocks)
        _check_confusion(sums)
        check_site_sums(sums["sites"], sums["splits"], self.min_group)
        check_score_sums(sums["scores"], sums["splits"], sums["confusion"])
        figures = dict(zip(SPLITS, sums["figures"], strict=True))
        splits = {
            name: self._with_metrics(summarise(block, self.group_sizes, self.spec), figures[name])
            for name, block in blocks.items()
        }
        objectives = {
            name: objective_bounds(block, self.worst_group_size, self.tradeoff, self.spec)
            for name, block in blocks.items()
        }
        return Evaluation(rounds_done, threshold, splits, objectives)

    def _with_metrics(self, summary: SplitSummary, figures: NDArray[np.float64]) -> SplitSummary:
        """Return a summary with the metrics that belong to the task, where there are any."""
        if not self.figures:
            return summary
        told = metrics_of(self.loss, figures, summary.n, self.spec.loss_range, self.min_group)
        return replace(summary, metrics=told)

    def highest_loss(self, header: NDArray[np.float64]) -> float:
        """Return what no training loss of an evaluation exceeds: infinity where some are beyond the histogram."""
        counts = self._sums(header)["splits"][SPLITS.index("train")]["counts"]
        highest = int(np.flatnonzero(counts > 0)[-1]) if (counts > 0).any() else self.spec.bins
        return math.inf if highest == self.spec.bins else float(self.spec.edges[highest + 1])

    def threshold(self, header: NDArray[np.float64]) -> float:
        """Return about the loss that a share worst_group_size of all training records exceeds: the best c."""
        level = 1.0 - self.worst_group_size
        if self.deviation is not None:
            return self._noised(header, self.deviation)["train"].quantile(level)
        return quantile(self._blocks(header)["train"], level, self.spec)

    def sharpened(self, evaluation: Evaluation, query: ExactQuery) -> Evaluation:
        """Return an evaluation with the risks that an exact query about the same model has proved.

        Raises:
            RemoteProtocolError: the query is over other records than the evaluation.
        """
        records = {name: count for name, count in query.records.items() if count}
        if records != {name: split.n for name, split in evaluation.splits.items()}:
            raise RemoteProtocolError("the exact query is over other records than the evaluation before it")
        risks, means = query.risks, query.means
        splits = {
            name: replace(
                summary,
                mean=means[name].midpoint,
                mean_bound=means[name],
                by_group_size={
                    size: group_bound(risk.bound, size, summary.n, means[name].midpoint, risk.at_least)
                    for size, risk in risks[name].items()
                },
            )
            for name, summary in evaluation.splits.items()
        }
        objectives = {
            name: objective_interval(
                split.by_group_size[self.worst_group_size].bound, split.mean_bound, self.tradeoff
            )
            for name, split in splits.items()
        }
        return replace(evaluation, splits=splits, objectives=objectives)

    def confusion(self, header: NDArray[np.float64]) -> dict[str, Confusion]:
        """Return the confusion matrix of each split; nothing with too many classes.

        Of sums under noise it is the nearest one that so many records can have.
        """
        sums = self._sums(header)
        found = {
            name: (matrix, int(records))
            for name, records, matrix in zip(SPLITS, sums["splits"]["records"], sums["confusion"], strict=True)
            if records > 0 and matrix.size
        }
        exact = self.deviation is None
        whole = {name: matrix if exact else possible_matrix(matrix, n) for name, (matrix, n) in found.items()}
        return {name: tuple(tuple(int(cell) for cell in row) for row in matrix) for name, matrix in whole.items()}

    def rankings(self, header: NDArray[np.float64]) -> dict[str, tuple[ClassRanking, ...]]:
        """Return how well the scores of each class rank and fit, by split; nothing unless the plan asks for it."""
        if not self.columns:
            return {}
        return {name: class_rankings(block, self.min_group) for name, block in self._score_blocks(header).items()}

    def calibration(self, header: NDArray[np.float64], replaced: int) -> Calibration | Uncalibrated:
        """Return what makes probabilities of the scores of the evaluated model, or why nothing does.

        Args:
            header: the total, as it was opened.
            replaced: of how many records the loss was replaced, and so the score.
        """
        if self.uncalibrated:
            return Uncalibrated(self.uncalibrated)
        if replaced:
            return Uncalibrated(f"{replaced} losses of its evaluation were replaced, and scores with them")
        return fitted(self._score_blocks(header), self.min_group)

    def calibrated(
        self, header: NDArray[np.float64], calibration: Calibration | Uncalibrated
    ) -> dict[str, dict[int, FittedFigures]]:
        """Return what a calibration does to the records of each split, by class."""
        if isinstance(calibration, Uncalibrated) or len(calibration.fits) != self.columns:
            return {}
        blocks = self._score_blocks(header)
        return {name: figures_of(calibration, block, self.min_group) for name, block in blocks.items()}

    def hedged(self, header: NDArray[np.float64]) -> dict[str, float]:
        """Return the mean loss of the model mixed with the guess by the plan's group size, by split.

        Nothing where guessing has no meaning, and under noise, whose counts are none of records.
        """
        if self.guess is None or self.deviation is not None:
            return {}
        layout, found = block_layout(self.spec), dict[str, float]()
        for name, block in self._blocks(header).items():
            parts = layout.read(block)
            counts = np.asarray(parts["counts"], np.float64)
            means = np.maximum(np.asarray(parts["losses"], np.float64), 0.0) / np.maximum(counts, 1.0)
            found[name] = hedged_loss(means, counts, self.guess, self.worst_group_size)
        return found

    def site_means(self, header: NDArray[np.float64]) -> dict[str, Mapping[str, SplitMeans]]:
        """Return each site's own means by split; nothing where the plan does not publish them."""
        sums = self._sums(header)
        means = site_means(sums["sites"], sums["splits"]["records"], self.min_group)
        return dict(zip(self.sites, means, strict=True))

    def _sums(self, header: NDArray[np.float64]) -> NDArray[Any]:
        layout = evaluation_layout(self.spec, self.classes, len(self.sites), self.columns, self.figures)
        return layout.read(header)

    def _score_blocks(self, header: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Return the histograms of scores of each split that has records."""
        sums = self._sums(header)
        found = zip(SPLITS, sums["splits"]["records"], sums["scores"], strict=True)
        return {name: block for name, records, block in found if records > 0}

    def _noised(self, header: NDArray[np.float64], deviation: float) -> dict[str, NoisedSplit]:
        """Return the parts of a total under noise, for each split that has records."""
        sums = self._sums(header)
        found = {
            name: NoisedSplit(block, matrix, self.spec, deviation)
            for name, block, matrix in zip(SPLITS, sums["splits"], sums["confusion"], strict=True)
            if block["records"] > 0
        }
        _check_trained(found)
        return found

    def _blocks(self, header: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Return the block of each split that has records, as `cvar_bounds.py` reads it."""
        splits = self._sums(header)["splits"]
        blocks = splits.view(np.float64).reshape(len(SPLITS), block_layout(self.spec).length)
        found = zip(SPLITS, blocks, splits["records"], strict=True)
        return {name: block for name, block, records in found if records > 0}


def _check_trained(splits: Collection[str]) -> None:
    if "train" not in splits:
        raise RemoteProtocolError(
            f"the evaluation sum is over no training record: {NO_RECORDS}", "look at the plan's filters"
        )


def evaluation_deviation(plan: Plan) -> float | None:
    """Return the standard deviation of the noise of one site's evaluation sums, in units; None without noise."""
    asked = plan.privacy.sample_level
    return None if asked is None else evaluation_grid(asked.evaluation_noise_multiplier).deviation


def _check_confusion(sums: NDArray[Any]) -> None:
    """Refuse matrices that are not over the records of the blocks, or tell of another accuracy."""
    matrices, splits = sums["confusion"], sums["splits"]
    if not matrices.size:
        return
    records, correct = matrices.sum(axis=(1, 2)), np.trace(matrices, axis1=1, axis2=2)
    fits = (records == splits["records"]).all() and (correct == splits["correct"]).all()
    if not (fits and (matrices >= 0.0).all()):
        raise RemoteProtocolError(
            "the confusion matrices of an evaluation are not over the records of its histograms",
            "a participant sent numbers that no predictions have; compare software versions",
        )
