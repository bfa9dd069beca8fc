"""From the losses of cross-validated models to their figures, with standard errors over records.

The risk of the worst share rho is the mean of c + (l_i - c)+ / rho at the best threshold c. To first order it
varies as that mean does with c held, because the derivative in c vanishes there. So the deviation of these terms
over the root of n is its standard error, and the difference of two models' terms, record by record, gives that of
a difference. Records are taken to be independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.fairness.cvar import cvar, optimal_threshold
from fedfair.fairness.record_losses import Losses
from fedfair.studies.advice.document import AdvisedFigures, AdvisedGroup, AdvisedModel


@dataclass(frozen=True, slots=True)
class FoldLosses:
    """The losses of one model of one fold: on its own training records, and on those held out from it."""

    train: Losses
    held_out: Losses


@dataclass(frozen=True, slots=True)
class FittedModel:
    """A group size and a tradeoff with the losses of every fold, in order."""

    worst_group_size: float
    tradeoff: float
    folds: tuple[FoldLosses, ...]

    @property
    def held_out(self) -> Losses:
        """Return the losses of all held-out records, fold after fold."""
        return Losses.joined([fold.held_out for fold in self.folds])


def advised_model(fitted: FittedModel, plain: FittedModel, sizes: Sequence[float]) -> AdvisedModel:
    """Return the figures of one model beside those of plain training over the same folds."""
    own, other, size = fitted.held_out.values, plain.held_out.values, fitted.worst_group_size
    gain = worst_terms(other, size) - worst_terms(own, size)
    return AdvisedModel(
        worst_group_size=size,
        tradeoff=fitted.tradeoff,
        train=held_figures([fold.train for fold in fitted.folds], sizes),
        held_out=held_figures([fitted.held_out], sizes),
        worst_gain=cvar(other, size) - cvar(own, size),
        worst_gain_error=standard_error(gain),
        mean_cost=float((own - other).mean()),
        mean_cost_error=standard_error(own - other),
    )


def worst_terms(losses: NDArray[np.float64], group_size: float) -> NDArray[np.float64]:
    """Return what every record adds to the worst group's risk, array (n,); the mean is the risk.

    Args:
        losses: array (n,), n >= 1, finite and not negative.
        group_size: rho, in (0, 1].
    """
    level = optimal_threshold(losses, group_size)
    terms: NDArray[np.float64] = level + np.maximum(losses - level, 0.0) / group_size
    return terms


def standard_error(terms: NDArray[np.float64]) -> float:
    """Return the standard error of the mean of independent terms (n,); 0 for a single one."""
    return float(terms.std(ddof=1)) / math.sqrt(len(terms)) if len(terms) > 1 else 0.0


def promised_figures(
    folds: Sequence[Losses], sizes: Sequence[float], others: Sequence[Sequence[Losses]] = ()
) -> AdvisedFigures:
    """Return the figures of all held-out records, with errors of a promise for one more training.

    An error covers what differs between trainings, too: where the folds' figures vary by more than their records
    explain, a run of its own varies by as much. Two or three folds may agree by luck, so it is never less than
    what the trainings of half of all settings differ by; those of a rate that is too high count as one of them.

    Args:
        folds: at least one, each of its own training.
        sizes: of the groups.
        others: the folds of other settings.
    """
    whole = held_figures([Losses.joined(folds)], sizes)
    sound = (each for each in others if all(np.isfinite(fold.values).all() for fold in each))
    values = [[fold.values for fold in each] for each in (folds, *sound)]
    groups = []
    for group in whole.groups:
        between = _between([[worst_terms(one, group.size) for one in each] for each in values])
        groups.append(group.model_copy(update={"error": math.hypot(group.error, between)}))
    error = math.hypot(whole.error, _between(values))
    return whole.model_copy(update={"error": error, "groups": tuple(groups)})


def _between(settings: Sequence[Sequence[NDArray[np.float64]]]) -> float:
    """Return the deviation between the folds' means of terms that their records do not explain.

    It is that of the first setting, and at least the median over all of them.
    """
    found = [
        float(np.var([one.mean() for one in folds], ddof=1) - np.mean([standard_error(one) ** 2 for one in folds]))
        for folds in settings
        if len(folds) > 1
    ]
    return math.sqrt(max(found[0], float(np.median(found)), 0.0)) if found else 0.0


def _accuracy(parts: Sequence[Losses]) -> float | None:
    right = [part.correct for part in parts]
    return float(np.mean([one.mean() for one in right if one is not None])) if parts[0].has_classes else None


def held_figures(parts: Sequence[Losses], sizes: Sequence[float]) -> AdvisedFigures:
    """Return the mean over the parts, which may overlap: each fold's model has its own training records."""
    each = [part.values for part in parts]
    groups = [
        AdvisedGroup(
            size=size,
            worst=float(np.mean([cvar(values, size) for values in each])),
            error=float(np.mean([standard_error(worst_terms(values, size)) for values in each])),
        )
        for size in sizes
    ]
    return AdvisedFigures(
        mean=float(np.mean([values.mean() for values in each])),
        error=float(np.mean([standard_error(values) for values in each])),
        accuracy=_accuracy(parts),
        groups=tuple(groups),
    )
