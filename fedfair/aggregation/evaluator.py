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
from fedfair.aggregation.decision_curve import DecisionCurve, decision_curves
from fedfair.aggregation.dp_histogram import evaluation_grid, possible_matrix
from fedfair.aggregation.evaluation_sums import excess_spec, planned_figures, planned_layout
from fedfair.aggregation.header import NO_RECORDS
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec, block_layout
from fedfair.aggregation.loss_metrics import excess_metrics, metrics_of
from fedfair.aggregation.noised_figures import NoisedSplit
from fedfair.aggregation.quantile_query import ExactQuery
from fedfair.aggregation.ranking import ClassRanking, check_score_sums, class_rankings
from fedfair.aggregation.reference_check import CheckedTenth, check_checked, checked_tenths
from fedfair.aggregation.requests import histogram_spec
from fedfair.aggregation.site_means import SplitMeans, check_site_sums, site_means
from fedfair.errors import RemoteProtocolError
from fedfair.fairness.chance import hedged_loss
from fedfair.ids import RoundNumber
from fedfair.plan.derived import (
    guess_loss,
    measures_excess,
    minimises_objective,
    published_sites,
    reported_group_sizes,
    score_columns,
    why_uncalibrated,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import is_likelihood
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


class Evaluator:
    """Evaluates models as the plan asks.

    Args:
        plan: the plan.
        schema: of its features.

    Attributes:
        group_sizes: the group sizes (rho) that are reported.
        uncalibrated: why models get no calibration; empty where they get one.
    """

    def __init__(self, plan: Plan, schema: FeatureSchema) -> None:
        stated, self._loss, self._min_group = plan.objective, plan.task.loss, plan.evaluation.min_group
        self._worst_group_size, self._tradeoff = stated.worst_group_size, stated.tradeoff
        self._spec, self._layout = histogram_spec(plan, schema), planned_layout(plan, schema)
        self._sites, self._columns = published_sites(plan), score_columns(plan, schema.classes)
        self._has_figures, self._by_objective = bool(planned_figures(plan, schema)), minimises_objective(plan)
        # Of the noise that each site adds to every number, in its unit; None where sums are exact.
        self._deviation = evaluation_deviation(plan)
        self._measures_excess = measures_excess(plan)
        self._guess = guess_loss(plan, schema.classes) if is_likelihood(self._loss) else None
        self.group_sizes = reported_group_sizes(plan)
        self.uncalibrated = why_uncalibrated(plan, schema.classes)

    def compared(self, evaluation: Evaluation) -> Interval:
        """Return the figure that compares models: what the plan's algorithm minimises, else the mean loss.

        On the validation split, else on the training split. A model that predicts the same for all records has an
        interval that is as wide as the rounding of losses, so that no model is taken for better without being so.
        """
        split = "validation" if "validation" in evaluation.splits else "train"
        if self._by_objective:
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
            RemoteProtocolError: no site contributed a training record, or the counts are impossible.
        """
        if self._deviation is not None:
            noised = self._noised(header, self._deviation * math.sqrt(contributors))
            splits = {name: split.summary(self.group_sizes) for name, split in noised.items()}
            size, weight = self._worst_group_size, self._tradeoff
            found = {name: split.objective(size, weight) for name, split in noised.items()}
            return Evaluation(rounds_done, threshold, splits, found)
        sums = self._layout.read(header)
        blocks = self._blocks(header)
        _check_trained(blocks)
        _check_confusion(sums)
        _check_excess(sums)
        check_checked(sums["checked"], sums["splits"]["records"])
        check_site_sums(sums["sites"], sums["splits"], self._min_group)
        check_score_sums(sums["scores"], sums["splits"], sums["confusion"])
        figures = self.held(header, "figures")
        measured, spec = self._measured(header)
        splits = {
            name: self._with_metrics(summarise(block, self.group_sizes, self._spec), figures[name])
            for name, block in blocks.items()
        }
        judged = self._judged(header)
        for name, block in judged.items():
            apart = summarise(block, self.group_sizes, spec)
            if apart.n >= self._min_group:
                splits[name] = _with_excess(splits[name], apart, self._worst_group_size)
        objectives = {
            name: objective_bounds(block, self._worst_group_size, self._tradeoff, spec)
            for name, block in measured.items()
        }
        return Evaluation(rounds_done, threshold, splits, objectives)

    def _with_metrics(self, summary: SplitSummary, figures: NDArray[np.float64]) -> SplitSummary:
        """Return a summary with the metrics that belong to the task, where there are any."""
        if not self._has_figures:
            return summary
        told = metrics_of(self._loss, figures, summary.n, self._spec.loss_range, self._min_group)
        return replace(summary, metrics=told)

    def highest_loss(self, header: NDArray[np.float64]) -> float:
        """Return what no training loss of an evaluation exceeds: infinity where some are beyond the histogram.

        Where local steps follow the excess, it is that.
        """
        measured, spec = self._measured(header)
        counts = block_layout(spec).read(measured["train"])["counts"]
        filled = np.flatnonzero(counts > 0)
        highest = int(filled[-1]) if filled.size else self._spec.bins
        return math.inf if highest == self._spec.bins else float(self._spec.edges[highest + 1])

    def threshold(self, header: NDArray[np.float64]) -> float:
        """Return about the loss that a share worst_group_size of all training records exceeds: the best c."""
        level = 1.0 - self._worst_group_size
        if self._deviation is not None:
            return self._noised(header, self._deviation)["train"].quantile(level)
        measured, spec = self._measured(header)
        return quantile(measured["train"], level, spec)

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
                split.by_group_size[self._worst_group_size].bound, split.mean_bound, self._tradeoff
            )
            for name, split in splits.items()
        }
        return replace(evaluation, splits=splits, objectives=objectives)

    def confusion(self, header: NDArray[np.float64]) -> dict[str, Confusion]:
        """Return the confusion matrix of each split; nothing with too many classes.

        Of sums under noise it is the nearest one that so many records can have.
        """
        splits = self.held(header, "splits")
        found = {name: matrix for name, matrix in self.held(header, "confusion").items() if matrix.size}
        if self._deviation is not None:
            found = {name: possible_matrix(matrix, int(splits[name]["records"])) for name, matrix in found.items()}
        return {name: tuple(tuple(int(cell) for cell in row) for row in matrix) for name, matrix in found.items()}

    def rankings(self, header: NDArray[np.float64]) -> dict[str, tuple[ClassRanking, ...]]:
        """Return how well the scores of each class rank and fit, by split; nothing unless the plan asks for it."""
        if not self._columns:
            return {}
        blocks = self.held(header, "scores")
        return {name: class_rankings(block, self._min_group) for name, block in blocks.items()}

    def reference_check(self, header: NDArray[np.float64]) -> dict[str, tuple[CheckedTenth, ...]]:
        """Return how often came true what the references said, by split; nothing where none have judged."""
        if not self._judged(header) or not self._layout.read(header)["checked"].size:
            return {}
        found = self.held(header, "checked").items()
        return {name: checked_tenths(sums, self._min_group) for name, sums in found}

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
        return fitted(self.held(header, "scores"), self._min_group)

    def calibrated(
        self, header: NDArray[np.float64], calibration: Calibration | Uncalibrated
    ) -> dict[str, dict[int, FittedFigures]]:
        """Return what a calibration does to the records of each split, by class."""
        if isinstance(calibration, Uncalibrated) or len(calibration.fits) != self._columns:
            return {}
        blocks = self.held(header, "scores")
        return {name: figures_of(calibration, block, self._min_group) for name, block in blocks.items()}

    def decision_curves(
        self, header: NDArray[np.float64], replaced: int, calibration: Calibration | Uncalibrated
    ) -> dict[str, DecisionCurve]:
        """Return the net benefit of acting by scores of two classes, by split; none where losses were replaced."""
        blocks = self.held(header, "scores") if self._columns == 1 and not replaced else {}
        return decision_curves(blocks, calibration, self._min_group)

    def hedged(self, header: NDArray[np.float64]) -> dict[str, float]:
        """Return the mean loss of the model mixed with the guess by the plan's group size, by split.

        Nothing where guessing has no meaning, and under noise, whose counts are none of records.
        """
        if self._guess is None or self._deviation is not None:
            return {}
        layout, share = block_layout(self._spec), self._worst_group_size
        return {
            name: _hedged(layout.read(block), self._guess, share) for name, block in self._blocks(header).items()
        }

    def site_means(self, header: NDArray[np.float64]) -> dict[str, Mapping[str, SplitMeans]]:
        """Return each site's own means by split; nothing where the plan does not publish them."""
        sums = self._layout.read(header)
        means = site_means(sums["sites"], sums["splits"]["records"], self._min_group)
        return dict(zip(self._sites, means, strict=True))

    def held(self, header: NDArray[np.float64], field: str) -> dict[str, Any]:
        """Return the part of a field of an evaluation's total that each split with records has."""
        sums = self._layout.read(header)
        found = zip(SPLITS, sums["splits"]["records"], sums[field], strict=True)
        return {name: part for name, records, part in found if records > 0}

    def _noised(self, header: NDArray[np.float64], deviation: float) -> dict[str, NoisedSplit]:
        """Return the parts of a total under noise, for each split that has records."""
        matrices = self.held(header, "confusion")
        found = {
            name: NoisedSplit(block, matrices[name], self._spec, deviation)
            for name, block in self.held(header, "splits").items()
        }
        _check_trained(found)
        return found

    def _blocks(self, header: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Return the block of each split that has records, as `cvar_bounds.py` reads it."""
        return _blocks_of(self._layout.read(header)["splits"], self._spec)

    def _judged(self, header: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Return the blocks of the excess; nothing where no references have judged."""
        if not self._measures_excess:
            return {}
        found = _blocks_of(self._layout.read(header)["excess"], excess_spec(self._spec))
        return found if "train" in found else {}

    def _measured(self, header: NDArray[np.float64]) -> tuple[dict[str, NDArray[np.float64]], HistogramSpec]:
        """Return the blocks of what the objective is about, and their histogram.

        A saved model is evaluated without references, and then its losses stand in for the excess.
        """
        judged = self._judged(header)
        if judged:
            return judged, excess_spec(self._spec)
        return self._blocks(header), self._spec


def _with_excess(summary: SplitSummary, apart: SplitSummary, size: float) -> SplitSummary:
    """Return a summary with the excess over references among its metrics, the worst group's too."""
    worst = apart.by_group_size[size]
    told = excess_metrics(apart.mean, worst.worst, (float(worst.bound.lower), float(worst.bound.upper)))
    return replace(summary, metrics={**summary.metrics, **told})


def _blocks_of(splits: NDArray[Any], spec: HistogramSpec) -> dict[str, NDArray[np.float64]]:
    """Return the block of each split that has records, of a part of the header with a block for each."""
    blocks = splits.view(np.float64).reshape(len(SPLITS), block_layout(spec).length)
    found = zip(SPLITS, blocks, splits["records"], strict=True)
    return {name: block for name, block, records in found if records > 0}


def _hedged(parts: NDArray[Any], guess: float, share: float) -> float:
    """Return the mean loss of a split's model mixed with the guess."""
    counts = np.asarray(parts["counts"], np.float64)
    means = np.maximum(np.asarray(parts["losses"], np.float64), 0.0) / np.maximum(counts, 1.0)
    return hedged_loss(means, counts, guess, share)


def _check_trained(splits: Collection[str]) -> None:
    if "train" not in splits:
        raise RemoteProtocolError(
            f"the evaluation sum is over no training record: {NO_RECORDS}", "look at the plan's filters"
        )


def evaluation_deviation(plan: Plan) -> float | None:
    """Return the standard deviation of the noise of one site's evaluation sums, in units; None without noise."""
    asked = plan.privacy.sample_level
    return None if asked is None else evaluation_grid(asked.evaluation_noise_multiplier).deviation


def _check_excess(sums: NDArray[Any]) -> None:
    """Refuse an excess over other records than the losses beside it."""
    judged, records = sums["excess"]["records"], sums["splits"]["records"]
    if judged.any() and (judged != records).any():
        raise RemoteProtocolError(
            "the excess of an evaluation is not over the records of its losses",
            "a participant sent numbers that no records have; compare software versions",
        )


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
