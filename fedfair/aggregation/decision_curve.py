"""How much good a model does whoever acts on its probabilities, threshold by threshold, from sums of scores.

Who acts on all people of a probability t or more finds some for whom that is right, and alarms others for nothing.
To act at t says that one person found is worth (1 - t) / t false alarms. So of n people the net benefit is

    (found - alarmed * t / (1 - t)) / n

To act on nobody has 0, to act on everybody (positives - negatives * t / (1 - t)) / n. Source: Vickers and Elkin
2006, "Decision curve analysis: a novel method for evaluating prediction models".

The sums know in which bin a score is. Neighbouring bins are joined until each step has at least
`evaluation.min_group` records. A step that begins at t or above is acted on, one that ends below t is not. The
records of the one between may be either, which gives the ends of an interval that holds the truth without
exception. Where a result divides the records elsewhere (groups of calibration; the confusion matrix, at one half),
a step ends too: otherwise the difference of two figures could tell of fewer people.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.calibration import Calibration, ClassFit, Uncalibrated, calibrated
from fedfair.aggregation.cvar_bounds import Interval
from fedfair.aggregation.ranking import class_rankings
from fedfair.aggregation.score_histogram import score_edges

THRESHOLDS = tuple(percent / 100 for percent in (*range(1, 20), *range(20, 96, 5)))
"""Fine where the outcome is rare and its treatment harmless, where most decisions of medicine are."""


@dataclass(frozen=True, slots=True)
class NetBenefit:
    """The good that is done at one threshold, for one of those who are judged.

    Attributes:
        threshold: t, in (0, 1).
        model: an interval that holds the net benefit of acting by the model.
        everybody: the net benefit of acting on everybody.
    """

    threshold: float
    model: Interval
    everybody: float


@dataclass(frozen=True, slots=True)
class DecisionCurve:
    """The net benefit of one model over one split.

    Attributes:
        calibrated: whether thresholds are of calibrated scores; else of the scores themselves.
        points: by increasing threshold.
    """

    calibrated: bool
    points: tuple[NetBenefit, ...]


def decision_curves(
    blocks: Mapping[str, NDArray[Any]], calibration: Calibration | Uncalibrated, fewest: int
) -> dict[str, DecisionCurve]:
    """Return the curve of the split that speaks for a model: of test records, or else of training records.

    Args:
        blocks: by split with records, array (1,) of `score_histogram.score_group`: the scores of class 1.
        calibration: of the model; its scores count as they are where it has none.
        fewest: as for `decision_curve`.
    """
    fit = None
    if isinstance(calibration, Calibration) and len(calibration.fits) == 1:
        (fit,) = calibration.fits
    shown = [name for name in ("test", "train") if name in blocks][:1]
    found = {name: _curve(blocks[name], fit, fewest) for name in shown}
    return {name: curve for name, curve in found.items() if curve is not None}


def _curve(block: NDArray[Any], fit: ClassFit | None, fewest: int) -> DecisionCurve | None:
    (ranking,) = class_rankings(block, fewest)
    return decision_curve(block[0], fit, (group.records for group in ranking.groups), fewest)


def decision_curve(
    column: NDArray[Any], fit: ClassFit | None, groups: Iterable[int], fewest: int
) -> DecisionCurve | None:
    """Return the curve of the summed scores of class 1; None where fewer people are of it, or not of it.

    Args:
        column: one block of `score_histogram.score_group`.
        fit: the calibration of the scores; None where they have none.
        groups: how many records each reported group of calibration has, from the lowest scores on.
        fewest: the fewest records of a step, and on either side (`evaluation.min_group`).
    """
    positives, negatives = (np.asarray(column[name], np.float64) for name in ("positives", "negatives"))
    won, lost = float(positives.sum()), float(negatives.sum())
    if min(won, lost) < max(fewest, 1):
        return None
    edges, held = score_edges(len(positives)), np.flatnonzero(positives + negatives)
    counts = (positives + negatives)[held].astype(np.int64)
    half = int(counts[edges[held] < 0.5].sum())
    starts = _steps(counts.tolist(), {*itertools.accumulate(groups), half}, fewest)
    below = np.nextafter(edges[1:], 0.0)
    below[-1] = 1.0  # the last bin ends with 1
    lowest, highest = edges[held[starts]], below[held[[*(start - 1 for start in starts[1:]), len(held) - 1]]]
    if fit is not None:
        lowest, highest = calibrated(lowest, fit), calibrated(highest, fit)
    found, alarmed = np.add.reduceat(positives[held], starts), np.add.reduceat(negatives[held], starts)
    points = tuple(
        NetBenefit(
            threshold,
            _between(found, alarmed, lowest >= threshold, highest >= threshold, threshold),
            (won - lost * odds(threshold)) / (won + lost),
        )
        for threshold in THRESHOLDS
    )
    return DecisionCurve(fit is not None, points)


def odds(threshold: float) -> float:
    """Return how many false alarms one person found is worth, the other way round: t / (1 - t)."""
    return threshold / (1.0 - threshold)


def _steps(counts: Sequence[int], divided: set[int], fewest: int) -> list[int]:
    """Return with which bin each step begins.

    Args:
        counts: records of each bin that has some.
        divided: after so many records, from the lowest scores on, a step ends in any case.
        fewest: a step has so many records, unless it is divided from all others anyway.
    """
    places, starts = sorted({*divided, sum(counts)}), [0]
    seen = before = 0
    for place, count in enumerate(counts[:-1], start=1):
        seen += count
        rest = next(each for each in places if each >= seen) - seen
        if rest == 0 or min(seen - before, rest) >= fewest:
            starts.append(place)
            before = seen
    return starts


def _between(
    found: NDArray[np.float64],
    alarmed: NDArray[np.float64],
    surely: NDArray[np.bool_],
    perhaps: NDArray[np.bool_],
    threshold: float,
) -> Interval:
    """Return the interval of the net benefit, where some steps are acted on surely and others perhaps."""
    records, weight = float(found.sum() + alarmed.sum()), odds(threshold)
    least = found[surely].sum() - weight * alarmed[perhaps].sum()
    most = found[perhaps].sum() - weight * alarmed[surely].sum()
    return Interval(float(least) / records, float(most) / records)
