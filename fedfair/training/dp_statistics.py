"""Builds the noised statistics for evaluation and standardisation, which a site releases beside its training.

Decides how a site's records become a noised header; which numbers carry how much is said in
`aggregation.dp_histogram` and in `aggregation.feature_moments`. Both are released on a grid, like a step of
training (`privacy.grid`). The number of records is public and exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedfair.aggregation.dp_histogram import (
    added_up,
    evaluation_grid,
    evaluation_units,
    noised_split,
    split_units,
)
from fedfair.aggregation.evaluation_sums import confusion_matrix, evaluation_layout, matrix_shape
from fedfair.aggregation.feature_moments import moments_layout, noise_deviation
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec, block_fields
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.record_losses import Losses, SiteLosses
from fedfair.privacy.grid import Grid, noise_grid
from fedfair.privacy.noise import Draws, whole_cells, with_noise


def noised_evaluation_header(
    losses: SiteLosses,
    objective: Objective,
    threshold: float,
    histogram: HistogramSpec,
    classes: int,
    noise_multiplier: float,
    draws: Draws,
) -> NDArray[np.float64]:
    """Return the header that one site releases; a split without records stays zero. Arguments as without noise.

    Args:
        losses: by split, for the splits that have records.
        objective: whose smoothed values are summed.
        threshold: at which they are taken, at least 0.
        histogram: of the plan.
        classes: how many a confusion matrix tells apart; 0 where records are not classified.
        noise_multiplier: sigma, above 0.
        draws: this release's own.
    """
    end, layout = histogram.loss_range, evaluation_layout(histogram, classes)
    header = layout.zeros()
    sums = layout.read(header)
    greatest = float(objective.per_sample(torch.tensor([end], dtype=torch.float64), threshold))
    units = evaluation_units(histogram, classes, greatest)
    grid = evaluation_grid(noise_multiplier)
    for place, name in enumerate(SPLITS):
        if name not in losses:
            continue
        found = _clamped(losses[name], end)
        smoothed = objective.per_sample(torch.from_numpy(found.values), threshold).numpy()
        matrix = np.zeros(matrix_shape(classes))
        if matrix.size:
            matrix = confusion_matrix(found.labels, found.predictions, classes)
        correct = None if found.correct is None else int(np.count_nonzero(found.correct))
        exact = split_units(found.values, smoothed, correct, matrix, greatest, histogram)
        noised = _released(exact, grid, draws)
        released = noised_split(len(found.values), noised, units, histogram, classes)
        for field in block_fields(histogram):
            sums["splits"][field.name][place] = released[field.name]
        sums["confusion"][place] = released["confusion"]
    return header


def noised_column_sums(
    columns: Iterable[NDArray[np.floating]],
    records: int,
    units: Sequence[float],
    noise_multiplier: float,
    draws: Draws,
) -> NDArray[np.float64]:
    """Return the standardisation header of one site under noise.

    Args:
        columns: float arrays (n,), the numeric columns of the site's training records, NaN where missing.
        records: n.
        units: what each column is counted in; what lies beyond counts as the nearer end.
        noise_multiplier: sigma, above 0.
        draws: this release's own.
    """
    counts, sums, squares = [], [], []
    for values, unit in zip(columns, units, strict=True):
        present = values.astype(np.float64) / unit
        present = present[~np.isnan(present)]
        counts.append(len(present))
        sums.append(added_up(present))
        squares.append(added_up(present * present))
    layout = moments_layout(len(counts))
    counted = layout.built(counts=np.array(counts), sums=np.array(sums), squares=np.array(squares))
    is_public = layout.counts(noised=True)
    # One record moves a column's sum and its sum of squares, which are rounded; counts are whole.
    exact = counted[~is_public]
    sensitivity = noise_deviation(len(exact), 1.0)
    grid = noise_grid(noise_multiplier, sensitivity, 2 * len(counts), largest=1.0)
    header = layout.built(records=records)
    header[~is_public] = _released(exact, grid, draws)
    return header


def _clamped(losses: Losses, end: float) -> Losses:
    """Return the losses inside the histogram's range; what is no number counts as its end, and is not reported."""
    values = np.clip(np.nan_to_num(losses.values.astype(np.float64), nan=end, posinf=end), 0.0, end)
    return replace(losses, values=values)


def _released(sums: NDArray[np.float64], grid: Grid, draws: Draws) -> NDArray[np.float64]:
    cells = whole_cells(torch.from_numpy(sums), grid)
    released: NDArray[np.float64] = with_noise(cells, grid, draws).numpy()
    return released
