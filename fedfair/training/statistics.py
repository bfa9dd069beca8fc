"""Builds the additive statistics for evaluation and standardisation.

Headers of different sites add up to the header of all their records together. What the numbers are for is said in
`evaluation/evaluation_sums.py` and `feature_scaling.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedfair.aggregation.evaluation_sums import confusion_matrix, excess_spec
from fedfair.aggregation.feature_moments import column_sums
from fedfair.aggregation.header import Header
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec, block_layout, loss_block, rounded_losses
from fedfair.aggregation.loss_metrics import rounded_figures
from fedfair.aggregation.reference_check import check_sums
from fedfair.aggregation.score_histogram import score_sums
from fedfair.aggregation.site_means import own_values
from fedfair.aggregation.target_scaling import scaled_columns, summed_units
from fedfair.errors import LocalProtocolError
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.record_losses import SiteLosses
from fedfair.plan.losses import Loss, predicts_number
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.feature_storage import column_of


def evaluation_header(
    losses: SiteLosses,
    objective: Objective,
    threshold: float,
    loss: Loss,
    histogram: HistogramSpec,
    layout: Header,
) -> NDArray[np.float64]:
    """Return the header of an evaluation; zeros for a split without records, and in the rows of the sites.

    Args:
        losses: by split, for the splits that have records.
        objective: whose smoothed values are summed.
        threshold: at which they are taken.
        loss: of single records, which says what the figures are.
        histogram: of the plan, by which every loss is rounded before anything is computed from it.
        layout: from `evaluation_layout`.

    Raises:
        TrainingError: a loss is not a finite number from 0 on, or a score is no probability.
    """
    header = layout.zeros()
    sums = layout.read(header)
    for place, name in enumerate(SPLITS):
        found = losses.get(name)
        if found is None:
            continue
        losses_of_split = _block(found.values, found.correct, histogram, objective, threshold)
        sums["splits"][place] = block_layout(histogram).read(losses_of_split)
        confusion = sums["confusion"][place]
        if confusion.size:
            confusion[:] = confusion_matrix(found.labels, found.predictions, len(confusion))
        if found.excess.size:
            spec = excess_spec(histogram)
            sums["excess"][place] = block_layout(spec).read(_block(found.excess, None, spec, objective, threshold))
        if found.answered.size:
            for field, values in check_sums(found.answered).items():
                sums["checked"][place][field] = values
        figures = sums["figures"][place]
        if figures.size:
            figures[:] = rounded_figures(found.figures, loss).sum(axis=0)
        block = sums["scores"][place]
        if block.size:
            for field, values in score_sums(found.scores, found.labels, len(block)).items():
                block[field] = values
    return header


def _block(
    losses: NDArray[np.float64],
    correct: NDArray[np.bool_] | None,
    spec: HistogramSpec,
    objective: Objective,
    threshold: float,
) -> NDArray[np.float64]:
    """Return the block of one split, of losses that are rounded before anything is computed from them."""
    values = rounded_losses(losses, spec)
    smoothed = objective.per_sample(torch.from_numpy(values), threshold).sum()
    return loss_block(values, correct, float(smoothed), spec)


def fill_row(row: NDArray[Any], losses: SiteLosses, histogram: HistogramSpec, fewest: int) -> None:
    """Write one site's own means to its row of an evaluation.

    Args:
        row: array (splits,) of `site_means.row_fields`, zeros before.
        losses: by split, for the splits that have records.
        histogram: of the plan, by which every loss is rounded.
        fewest: a split of fewer records leaves zeros.
    """
    for place, name in enumerate(SPLITS):
        if name in losses:
            values = rounded_losses(losses[name].values, histogram)
            row[place] = own_values(values, losses[name].correct, fewest)


def survey_header_of(splits: Splits) -> NDArray[np.float64]:
    """Return the header of a survey, of one site's training records as its files have them.

    Raises:
        LocalProtocolError: the plan has no survey, so none was taken when the records were read.
    """
    if splits.survey is None:
        raise LocalProtocolError("this plan has no survey, so its columns are never described")
    return splits.survey.header


def column_counts_of(splits: Splits) -> NDArray[np.float64] | None:
    """Return what was counted of one site's records for statistics of columns; None where it has no records.

    Raises:
        LocalProtocolError: the plan has no statistics, so nothing was counted when the records were read.
    """
    if splits.counted is None and len(splits.train):
        raise LocalProtocolError("this plan has no statistics, so its columns are never counted")
    return splits.counted if len(splits.train) else None


def standardisation_header(train: Dataset, loss: Loss) -> NDArray[np.float64]:
    """Return the header of a standardisation, over the summed columns of one site's training records."""
    columns = scaled_columns(loss, len(train.schema.numeric))
    return column_sums(summed_columns(train, loss), columns, summed_units(loss, train.schema))


def summed_columns(train: Dataset, loss: Loss) -> Iterator[NDArray[np.floating]]:
    """Yield the numeric columns, (n,) each, NaN where missing, then a target that is a number.

    One is in memory at a time.
    """
    yield from (column_of(train.features, place) for place in train.schema.numeric)
    if predicts_number(loss):
        yield train.labels
