"""The part of a result about decisions: how much good it does to act on people by the model's probabilities.

What the figures are and how they are found is `aggregation.decision_curve`'s. Decides what is in a result, and
over which thresholds the model surely does more good than to act on everybody, or on nobody. Part of the model in
`document.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from fedfair.aggregation.decision_curve import DecisionCurve
from fedfair.results.frozen import FrozenPart


class DecisionPoint(FrozenPart):
    """The net benefit at one threshold, for each record: of class 1 found, less others alarmed times the odds."""

    threshold: float
    """the least probability of whom is acted on, above 0 and below 1"""

    net_benefit: float
    """of acting by the model, the middle of its interval"""

    bound: tuple[float, float]
    """an interval that is proven to hold it"""

    treat_all: float
    """net benefit of acting on everybody; to act on nobody has 0"""


class DecisionFigures(FrozenPart):
    """The decision curve of a model of two classes."""

    calibrated: bool
    """whether thresholds are of calibrated scores; else of scores"""

    points: tuple[DecisionPoint, ...]
    """by increasing threshold"""

    @property
    def useful(self) -> tuple[tuple[float, float], ...]:
        """The ranges of neighbouring thresholds at which the model surely beats everybody and nobody."""
        return tuple(self._useful())

    def _useful(self) -> Iterator[tuple[float, float]]:
        for beats, points in groupby(self.points, lambda point: point.bound[0] > max(0.0, point.treat_all)):
            if beats:
                found = [point.threshold for point in points]
                yield found[0], found[-1]


def decision_figures(curve: DecisionCurve) -> DecisionFigures:
    """Return the part of a result."""
    return DecisionFigures(
        calibrated=curve.calibrated,
        points=tuple(
            DecisionPoint(
                threshold=point.threshold,
                net_benefit=point.model.midpoint,
                bound=(point.model.lower, point.model.upper),
                treat_all=point.everybody,
            )
            for point in curve.points
        ),
    )
