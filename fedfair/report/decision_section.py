"""The part of a run's page about decisions: how much good it does to act on people by the model's probabilities.

Decides rounding and the picture; the words under it are `decision_lines.py`'s, the figures `results.decisions`'s.
A threshold is a choice of those who act: at 20 % they take four false alarms for one person found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fedfair.aggregation.decision_curve import odds
from fedfair.plan.description import percent
from fedfair.report.baseline_lines import plain_beside
from fedfair.report.blocks import figure, table
from fedfair.report.decision_lines import picture_words
from fedfair.report.figure_names import PLAIN_TRAINING
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
    """Return the curve of decisions by the models of a page; nothing where no result has one.

    Models that were judged on other records than the first are left out, for other people have other curves.
    """
    told = [curve for each in results for curve in _curves(each)]
    same = [curve for curve in told if curve.judged == told[0].judged][:MAX_CURVES]
    if not same:
        return Markup()
    words = picture_words(same[0].figures)
    picture = draw([_chart(same)], "decisions", "Net benefit against the threshold", words)
    return figure(picture, words) + _table(same)


@dataclass(frozen=True, slots=True)
class _Curve:
    """The curve of one model: its name, the split and number of records that it was judged on, and its figures."""

    label: str
    judged: tuple[str, int]
    figures: DecisionFigures


def _curves(reported: Reported) -> Iterator[_Curve]:
    """Yield the curve of a result, and that of plain training beside it."""
    split, risk = reported.document.shown
    held = [(reported.label, risk)]
    plain = plain_beside(reported.document)
    if plain is not None:
        held.append((f"{reported.label}: {PLAIN_TRAINING}", plain.risk))
    for label, each in held:
        if each.scores is not None and each.scores.decision is not None:
            yield _Curve(label, (split, each.n), each.scores.decision)


def _chart(told: Sequence[_Curve]) -> Chart:
    series = [_model(each.label, each.figures) for each in told]
    return Chart(
        ChartAxis("least probability of whom is acted on", share=True),
        ChartAxis(f"net benefit for {OUT_OF} people", zero=False),
        [*series, _everybody(told[0].figures)],
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


def _table(told: Sequence[_Curve]) -> Markup:
    rows = []
    for place, point in enumerate(told[0].figures.points):
        if point.threshold in SHOWN_THRESHOLDS:
            models = [_figure(each.figures.points[place].net_benefit) for each in told]
            rows.append((percent(point.threshold), *models, _figure(point.treat_all), _figure(0.0)))
    headings = ("acted on from", *(each.label for each in told), "everybody", "nobody")
    return table(f"Net benefit for {OUT_OF} people, by the least probability of whom is acted on.", headings, rows)


def _figure(value: float) -> str:
    return f"{OUT_OF * value:.1f}"
