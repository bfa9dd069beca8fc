"""Computes the metrics of a list of losses: mean, accuracy, and the worst group's loss of each size.

For simulations, tests and one site's own records, where every loss is at hand; `fedfair.aggregation` says the
same from sums over sites, with intervals. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.fairness.cvar import descending, split_means


@dataclass(frozen=True, slots=True)
class GroupRisk:
    """The risk of the worst group of one size, beside that of all others.

    Attributes:
        worst: mean loss of the worst share rho of the records (CVaR).
        best: mean loss of the remaining share 1 - rho; NaN at rho = 1, where no record remains.
        disparity: worst - best; NaN at rho = 1.
    """

    worst: float
    best: float
    disparity: float


@dataclass(frozen=True, slots=True)
class RiskSummary:
    """The summary of a model's losses on one set of records.

    Attributes:
        count: number of records (n), at least 1.
        mean: mean loss; the paper calls it utility.
        accuracy: share of records that were classified correctly, in [0, 1]; None where there are no classes.
        by_group_size: the risks for each group size (rho) asked for.
    """

    count: int
    mean: float
    accuracy: float | None
    by_group_size: Mapping[float, GroupRisk]


def group_risk(losses: NDArray[np.floating], group_size: float) -> GroupRisk:
    """Return the risks of the worst group of one size; arguments and faults as in `cvar.worst_and_best`."""
    return _group_risk(descending(losses), group_size)


def summarise_losses(
    losses: NDArray[np.floating], correct: NDArray[np.bool_] | None, group_sizes: Iterable[float]
) -> RiskSummary:
    """Return everything that is reported about one set of records.

    Args:
        losses: array (n,), n >= 1, finite and not negative.
        correct: bool array (n,), True where the record was classified correctly; None where there are no classes.
        group_sizes: shares (rho) in (0, 1].

    Raises:
        DataError: there are no losses, one is negative or not finite, or `correct` has another length.
        PlanError: a group size is outside (0, 1].
    """
    ordered = descending(losses)
    if correct is not None and correct.shape != ordered.shape:
        raise DataError(f"there are {len(ordered)} losses, but `correct` has shape {correct.shape}")
    risks = {size: _group_risk(ordered, size) for size in group_sizes}
    accuracy = None if correct is None else float(correct.mean())
    return RiskSummary(len(ordered), float(ordered.mean()), accuracy, risks)


def uniform_classifier_loss(classes: int) -> float:
    """Return log(classes): the loss of every record where each class is given the same chance.

    That classifier's worst, best and mean loss are all this. A model whose worst-group risk lies above it treats
    that group worse than guessing would.
    """
    return math.log(classes)


def _group_risk(ordered: NDArray[np.float64], group_size: float) -> GroupRisk:
    worst, best = split_means(ordered, group_size)
    return GroupRisk(worst, best, worst - best)
