"""The headers of an evaluation and a standardisation under noise: what a site releases beside its training.

Decides how a site's own header becomes a noised one; which numbers carry how much is said in `evaluation.noised`
and in `standardisation`. The number of records is public and exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedfair.evaluation.loss_sums import SPLITS, HistogramSpec, split_header
from fedfair.evaluation.noised import EVALUATION_SENSITIVITY, evaluation_units, noised_split
from fedfair.fairness.rcvar import Objective
from fedfair.learning.headers import evaluation_header
from fedfair.learning.result import Losses, SiteLosses
from fedfair.learning.standardisation import noise_deviation
from fedfair.privacy.noise import Draws


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
        classes: number of classes.
        noise_multiplier: sigma, above 0.
        draws: this release's own.
    """
    clamped = {name: _clamped(found, histogram) for name, found in losses.items()}
    header = evaluation_header(clamped, objective, threshold, histogram, classes)
    blocks, matrices = split_header(header, histogram, classes)
    end = torch.tensor([histogram.loss_range], dtype=torch.float64)
    units = evaluation_units(histogram, classes, float(objective.per_sample(end, threshold)))
    for place, name in enumerate(SPLITS):
        if name not in losses:
            continue
        noise = _normal(len(units), draws) * (noise_multiplier * EVALUATION_SENSITIVITY)
        matrix = np.zeros(0) if matrices is None else matrices[place].ravel()
        block, matrix = noised_split(blocks[place], matrix, units, noise, histogram)
        blocks[place] = block
        if matrices is not None:
            matrices[place] = matrix.reshape(classes, classes)
    return header


def noised_column_sums(header: NDArray[np.float64], noise_multiplier: float, draws: Draws) -> NDArray[np.float64]:
    """Return the standardisation header [n, n_j, sums, sums of squares] of one site under noise.

    Args:
        header: float64 array (1 + 3 columns,), in units of the columns.
        noise_multiplier: sigma, above 0.
        draws: this release's own.
    """
    noised = header.copy()
    released = len(header) - 1
    noised[1:] += _normal(released, draws) * noise_deviation(released, noise_multiplier)
    return noised


def _clamped(losses: Losses, histogram: HistogramSpec) -> Losses:
    """Return the losses inside the histogram's range; what is no number counts as its end, and is not told of."""
    end = histogram.loss_range
    return replace(losses, values=np.clip(np.nan_to_num(losses.values, nan=end, posinf=end), 0.0, end))


def _normal(length: int, draws: Draws) -> NDArray[np.float64]:
    values: NDArray[np.float64] = draws.gaussian(torch.empty(length, dtype=torch.float64)).numpy()
    return values
