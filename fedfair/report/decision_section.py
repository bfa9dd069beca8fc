"""The part of a run's page about decisions: how much good it does to act on people by the model's probabilities.

Decides rounding and the picture; the words under it are `decision_lines.py`'s, the figures `results.decisions`'s.
A threshold is a choice of those who act: at 20 % they take four false alarms for one person found.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from fedfair.aggregation.decision_curve import odds
from fedfair.plan.description import percent
from fedfair.report.blocks import figure, table
from fedfair.report.decision_lines import picture_words
from fedfair.report.figures import Chart, ChartAxis, Level, Series, draw
from fedfair.report.per_hundred import OUT_OF
from fedfair.report.sentences import Reported
from fedfair.results.decisions import DecisionFigures

MAX_CURVES = 5
"""More curves, and those of everybody and nobody, cannot be distinguished in one picture."""

SHOWN_THRESHOLDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""What the table beside the picture shows; the result file has all of them."""

_FLOOR = -0.5
"""How far below nobody's the picture reaches, in shares of class 1: from there on nobody would act like that."""


def decision_parts(results: Sequence[Reported]) -> Markup:
    """Return the curve of decisions by the models of a page; nothing where the first that has scores has none."""
    told = [(each, found) for each in results if (found := decision_of(each)) is not None]
    if not told:
        return Markup()
    first, _ = told[0]
    same = [(each, found) for each, found in told if _records(each) == _records(first)][:MAX_CURVES]
    words = picture_words(same[0][1])
    picture = draw([_chart(same)], "decisions", "Net benefit against the threshold", words)
    return figure(picture, words) + _table(same)


def decision_of(reported: Reported) -> DecisionFigures | None:
    """Return the decision curve of the records that a result speaks of; None where it has none."""
    scores = reported.document.shown[1].scores
    return None if scores is None else scores.decision


def _records(reported: Reported) -> tuple[str, int]:
    split, risk = reported.document.shown
    return split, risk.n


def _chart(told: Sequence[tuple[Reported, DecisionFigures]]) -> Chart:
    series = [_model(each.label, found) for each, found in told]
    return Chart(
        ChartAxis("least probability of whom is acted on", share=True),
        ChartAxis(f"net benefit for {OUT_OF} people", zero=False),
        [*series, _everybody(told[0][1])],
        [Level("to act on nobody", 0.0)],
    )


def _model(label: str, found: DecisionFigures) -> Series:
    floor = _floor(found)
    points = [point for point in found.points if point.net_benefit >= floor]
    return Series(
        label,
        [point.threshold for point in points],
        [OUT_OF * point.net_benefit for point in points],
        [OUT_OF * max(point.bound[0], floor) for point in points],
        [OUT_OF * point.bound[1] for point in points],
    )


def _everybody(found: DecisionFigures) -> Series:
    """Return the curve of acting on everybody, down to the floor of the picture."""
    share, floor = _share(found), _floor(found)
    last = (share - floor) / (1.0 - floor)
    places = [last * step / 40 for step in range(41)]
    return Series("to act on everybody", places, [OUT_OF * (share - (1.0 - share) * odds(at)) for at in places])


def _share(found: DecisionFigures) -> float:
    """Return how many are of class 1, as a share: what acting on everybody gains where an alarm costs nothing."""
    first = found.points[0]
    weight = odds(first.threshold)
    return (first.treat_all + weight) / (1.0 + weight)


def _floor(found: DecisionFigures) -> float:
    return _FLOOR * _share(found)


def _table(told: Sequence[tuple[Reported, DecisionFigures]]) -> Markup:
    rows = []
    for place, point in enumerate(told[0][1].points):
        if point.threshold in SHOWN_THRESHOLDS:
            models = [_figure(found.points[place].net_benefit) for _, found in told]
            rows.append((percent(point.threshold), *models, _figure(point.treat_all), _figure(0.0)))
    headings = ("acted on from", *(each.label for each, _ in told), "everybody", "nobody")
    return table(f"Net benefit for {OUT_OF} people, by the least probability of whom is acted on.", headings, rows)


def _figure(value: float) -> str:
    return f"{OUT_OF * value:.1f}"
