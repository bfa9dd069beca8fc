"""The headers of an evaluation and a standardisation, from losses and records: of one site, or of several pooled.

Headers of different sites add up to the header of all their records together. What the numbers are for is said in
`evaluation/loss_sums.py` and `standardisation.py`.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fedfair.evaluation.loss_sums import (
    MOST_CLASSES,
    SPLITS,
    HistogramSpec,
    block_length,
    confusion_matrix,
    loss_block,
    matrix_length,
)
from fedfair.evaluation.site_sums import SLOT, slot
from fedfair.fairness.rcvar import Objective
from fedfair.learning.data.dataset import Dataset
from fedfair.learning.result import SiteLosses
from fedfair.learning.standardisation import column_sums


def evaluation_header(
    losses: SiteLosses, objective: Objective, threshold: float, histogram: HistogramSpec, classes: int
) -> NDArray[np.float64]:
    """Return the header of `evaluation.loss_sums`; zeros for a split without records.

    Args:
        losses: by split, for the splits that have records.
        objective: whose smoothed values are summed.
        threshold: at which they are taken.
        histogram: of the plan.
        classes: number of classes.

    Raises:
        TrainingError: a loss is not a finite number from 0 on.
    """
    blocks, matrices = [], []
    for name in SPLITS:
        found = losses.get(name)
        if found is None:
            blocks.append(np.zeros(block_length(histogram)))
            matrices.append(np.zeros(matrix_length(classes)))
            continue
        smoothed = objective.per_sample(torch.from_numpy(found.values), threshold).sum()
        blocks.append(loss_block(found.values, found.correct, float(smoothed), histogram))
        if classes <= MOST_CLASSES:
            matrices.append(confusion_matrix(found.labels, found.predictions, classes).ravel())
    return np.concatenate([*blocks, *matrices])


def site_row(losses: SiteLosses, fewest: int) -> NDArray[np.float64]:
    """Return one site's own row of `evaluation.site_sums`: float64 array (splits, 3).

    Args:
        losses: by split, for the splits that have records.
        fewest: a split of fewer records leaves zeros.
    """
    row = np.zeros((len(SPLITS), SLOT))
    for place, name in enumerate(SPLITS):
        if name in losses:
            row[place] = slot(losses[name].values, losses[name].correct, fewest)
    return row


def standardisation_header(train: Dataset) -> NDArray[np.float64]:
    """Return [n, n_j, sum of x_j, sum of x_j^2] over the numeric columns of one site's training records."""
    return column_sums(train.features[:, list(train.schema.numeric)], train.schema.units)
