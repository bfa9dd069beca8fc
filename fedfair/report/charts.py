"""Draws the charts of a run's page, with the words that stand under them.

Decides what is drawn against what; how is `figures.py`'s business. Each picture is drawn for one to a few results,
the one that the page is about first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from fedfair.plan.description import percent
from fedfair.report.blocks import figure
from fedfair.report.figure_names import UNIFORM_GUESS
from fedfair.report.figures import Chart, ChartAxis, Level, Series, draw, group_size_chart
from fedfair.report.sentences import Reported, algorithm_name, before_training, part
from fedfair.results.document import ResultDocument
from fedfair.results.loss_text import loss_text
from fedfair.results.risks import PastRisk, SplitRisk

MAX_CURVES = 6
"""More curves cannot be distinguished in one picture; the table has all results."""

_ROUNDS = ChartAxis("training rounds done")


def group_sizes(results: Sequence[Reported], name: str = "group-sizes") -> Markup:
    """Return the risk of the worst-off against the size of the group, before and after training.

    Args:
        results: the first is the one that the page is about.
        name: the picture's id, unique on its page.
    """
    past = before_training(results[0].document)
    words = "How the worst group of each size fares. Lower is better; at 100 % it is the overall mean."
    if past is None or not past.by_group_size:
        words += " The curve before training was not recorded."
    picture = draw(
        [group_size_curves(results)],
        name,
        "Mean loss of the worst group against its size",
        f"{words} The table below has the numbers.",
    )
    return figure(picture, words)


def group_size_curves(results: Sequence[Reported]) -> Chart:
    """Return the chart of the worst groups of some results by their size, and before the first was trained."""
    first = results[0].document
    past = before_training(first)
    curves = [_by_size(each.label, each.document.shown[1]) for each in results[:MAX_CURVES]]
    if past is not None and past.by_group_size:
        curves.append(_by_size("before training", past))
    return group_size_chart(curves, _guess(first.uniform_floor), unit=first.loss_unit)


def _guess(floor: float | None) -> list[Level]:
    """Return the level of the uniform guess; none where guessing has no meaning."""
    return [] if floor is None else [Level(f"{UNIFORM_GUESS}: {loss_text(floor)}", floor)]


def _by_size(label: str, risk: SplitRisk | PastRisk) -> Series:
    points = {1.0: (risk.mean, risk.mean, risk.mean)}
    for size, group in risk.by_group_size.items():
        if group.worst is not None:
            points[float(size)] = (group.worst, *(group.bound or group.likely or (group.worst, group.worst)))
    worst, low, high = zip(*(points[size] for size in sorted(points)), strict=True)
    return Series(label, sorted(points), worst, low, high)


def risk_over_rounds(results: Sequence[Reported]) -> Markup:
    """Return the worst risk of all results, and the mean of the first, over the rounds."""
    size = results[0].document.worst_group_size
    series = [
        _history(each, each.label, lambda moment, document: document.past_worst(moment, size))
        for each in results[:MAX_CURVES]
    ]
    series.append(_history(results[0], f"{results[0].label}: everybody", lambda moment, _: moment.mean))
    words = f"The mean loss of the worst-off {part(size)}, and the overall one, while the model learnt."
    unit = results[0].document.loss_unit
    chart = Chart(_ROUNDS, ChartAxis(f"mean loss ({unit}), worst {percent(size)} or everybody"), series)
    return figure(draw([chart], "risk", "Mean loss over the rounds", words), words)


def threshold_over_rounds(results: Sequence[Reported]) -> Markup:
    """Return the threshold over the rounds, of results that use one."""
    series = [
        Series(each.label, *_points({moment.round: moment.threshold for moment in each.document.history}))
        for each in results[:MAX_CURVES]
    ]
    size = results[0].document.worst_group_size
    words = (
        "The threshold c that all sites share: training attends to losses above it. It is drawn towards the loss "
        f"that only the worst-off {part(size)} exceed."
    )
    chart = Chart(_ROUNDS, ChartAxis(f"threshold c ({results[0].document.loss_unit})"), series)
    return figure(draw([chart], "threshold", "The threshold over the rounds", words), words)


def _history(reported: Reported, label: str, risk: Callable[[PastRisk, ResultDocument], float | None]) -> Series:
    document = reported.document
    pasts = {moment.round: document.past(moment) for moment in document.history}
    known = {number: risk(past, document) for number, past in pasts.items() if past is not None}
    return Series(label, *_points(known))


def _points(values: Mapping[int, float | None]) -> tuple[list[float], list[float]]:
    known = [(float(number), value) for number, value in values.items() if value is not None]
    return [number for number, _ in known], [value for _, value in known]


def trade_off(results: Sequence[Reported]) -> Markup:
    """Return the worst risk against the mean, one numbered point for each result."""
    size = results[0].document.worst_group_size
    points: dict[str, list[tuple[float, float, str]]] = {}
    for number, each in enumerate(results, start=1):
        _, risk = each.document.shown
        worst = risk.worst(size)
        if worst is not None and worst.worst is not None:
            points.setdefault(algorithm_name(each.document), []).append((risk.mean, worst.worst, str(number)))
    columns = {name: tuple(zip(*known, strict=True)) for name, known in points.items()}
    series = [Series(name, x, y, points=True, notes=notes) for name, (x, y, notes) in columns.items()]
    words = (
        f"Each point is one result, numbered as in the table: the overall mean loss, and how the worst-off "
        f"{part(size)} fare. Down and to the left is better for all; along the lower left edge, one is had only "
        "at the price of the other."
    )
    unit = results[0].document.loss_unit
    chart = Chart(
        ChartAxis(f"overall mean loss ({unit})"),
        ChartAxis(f"mean loss of the worst {percent(size)} ({unit})", zero=False),
        series,
    )
    return figure(draw([chart], "trade-off", "The worst group against the overall mean", words), words)


def models_on_the_way(result: Reported) -> Markup | None:
    """Return the worst risk of each size against the mean, through all evaluations; None with less than two."""
    document = result.document
    pasts = [past for past in map(document.past, document.history) if past is not None]
    sizes = sorted({size for past in pasts for size in past.by_group_size if float(size) < 1.0}, key=float)
    series = []
    for size in sizes[:MAX_CURVES]:
        told = [(past.mean, past.by_group_size[size].worst) for past in pasts if size in past.by_group_size]
        known = [(mean, worst) for mean, worst in told if worst is not None]
        if len(known) > 1:
            means, risks = zip(*known, strict=True)
            series.append(Series(f"worst {percent(float(size))}", means, risks))
    if not series:
        return None
    words = (
        "Each line is one group size, each bend one model that this run evaluated, from the first to the last. "
        "Down is better for the worst-off, left is better overall."
    )
    unit = document.loss_unit
    chart = Chart(
        ChartAxis(f"overall mean loss ({unit})", zero=False),
        ChartAxis(f"mean loss of the worst group of that size ({unit})", zero=False),
        series,
        _guess(document.uniform_floor),
    )
    return figure(
        draw([chart], "on-the-way", "The worst group against the overall mean, on the way", words), words
    )


def seconds_over_rounds(results: Sequence[Reported]) -> Markup | None:
    """Return the seconds of a round over the run; None where they were not recorded."""
    series = []
    for each in results[:MAX_CURVES]:
        timing = each.document.timing
        if timing is not None and timing.rounds is not None:
            numbers, seconds = zip(*timing.rounds.curve, strict=True) if timing.rounds.curve else ((), ())
            series.append(Series(each.label, numbers, seconds))
    if not series:
        return None
    words = "How long a training round took; of a long run, the median of each block of rounds."
    chart = Chart(_ROUNDS, ChartAxis("seconds for one round"), series)
    return figure(draw([chart], "seconds", "Seconds of a round over the run", words), words)
