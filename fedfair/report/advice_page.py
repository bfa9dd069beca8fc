"""The page of advice on a plan: what to protect, the trade-off, the critical group size, the price, in one file.

Decides what is drawn and tabled; the sentences are those of the advice. Figures are of held-out records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from markupsafe import Markup

from fedfair.plan.description import percent
from fedfair.report.advice_tables import share, trial_cells
from fedfair.report.figure_names import UNIFORM_GUESS
from fedfair.report.figures import Chart, ChartAxis, Level, Series, draw, group_size_chart
from fedfair.report.html import PageSection, page, render
from fedfair.results.loss_text import loss_text
from fedfair.studies.advice.document import AdviceDocument, AdvisedModel
from fedfair.studies.advice.words import advised, by_curves, loss_with_error

GROUP_SIZES, TRADE_OFF = PICTURES = "group-sizes", "trade-off"

_ERRORS = 2.0


def advice_page(advice: AdviceDocument) -> str:
    """Return the page."""
    values = {
        "advice": advice,
        "pictures": advice_pictures(advice),
        "group_words": _GROUP_WORDS,
        "trade_off_words": _TRADE_OFF_WORDS,
        "sizes": [*_size_rows(advice)],
        "models": [*_model_rows(advice)],
        "trials": [*_trial_rows(advice)],
    }
    parts = _headings(advice)
    sections = [
        PageSection(name, heading, render("advice.html.jinja", part=name, **values))
        for name, heading in parts.items()
    ]
    return page(f"{advice.federation}: which group size makes sense", sections)


_HEADINGS = {
    "advice": "",
    "trials": "What the plan's own training reaches",
    "groups": "How the worst group of each size fares",
    "trade-off": "What protection costs all others",
    "limits": "What these figures are, and what they are not",
    "made": "How they were made",
}


def _headings(advice: AdviceDocument) -> Mapping[str, str]:
    """Return the headings of the parts that there are, by name."""
    absent = {"trials"} if advice.trials is None else set()
    if advice.fitted == "trials":
        absent |= {"groups", "trade-off"}
    return {name: heading for name, heading in _HEADINGS.items() if name not in absent}


_GROUP_WORDS = (
    "Mean loss of the worst group against its size, on held-out records, with two standard errors. A model "
    "serves the groups better than guessing where its curve is below the line of guessing."
)
_TRADE_OFF_WORDS = (
    "Each line is one group size: the models trained for it with less and less weight on the mean, from plain "
    "average training at the left. Right is worse overall; down is better for the worst group."
)


def advice_pictures(advice: AdviceDocument) -> Mapping[str, Markup]:
    """Return the pictures by their names; none where there are no curves."""
    if advice.fitted == "trials":
        return {}
    return {GROUP_SIZES: _group_sizes(advice), TRADE_OFF: _trade_off(advice)}


def _group_sizes(advice: AdviceDocument) -> Markup:
    curves = [_by_size("plain average training", advice.plain)]
    chosen = advised(advice)
    if chosen is not None and chosen is not advice.plain:
        curves.append(_by_size(f"{_mark(advice)}: {_setting(chosen)}", chosen))
    own = _plans_own(advice)
    if own is not None and own is not chosen:
        curves.append(_by_size(f"the plan's own: {_setting(own)}", own))
    return draw(
        [group_size_chart(curves, [*_guess(advice)])],
        GROUP_SIZES,
        "Mean loss of the worst group against its size",
        f"{_GROUP_WORDS} The table below has the numbers.",
    )


def _by_size(label: str, model: AdvisedModel) -> Series:
    held = model.held_out
    sizes = [*(group.size for group in held.groups), 1.0]
    worst = [*(group.worst for group in held.groups), held.mean]
    errors = [*(group.error for group in held.groups), held.error]
    low = [max(value - _ERRORS * error, 0.0) for value, error in zip(worst, errors, strict=True)]
    high = [value + _ERRORS * error for value, error in zip(worst, errors, strict=True)]
    return Series(label, sizes, worst, low, high)


def _trade_off(advice: AdviceDocument) -> Markup:
    series = []
    for size in sorted({model.worst_group_size for model in advice.models}):
        models = [advice.plain, *sorted(_trained_for(advice, size), key=lambda model: -model.tradeoff)]
        across = [model.held_out.mean for model in models]
        series.append(
            Series(f"worst {percent(size)}", across, [model.held_out.group(size).worst for model in models])
        )
    chosen = advised(advice)
    by_loss = by_curves(advice)
    if chosen is not None and by_loss is not None:
        size = by_loss.worst_group_size
        where = [chosen.held_out.mean], [chosen.held_out.group(size).worst]
        series.append(Series(_mark(advice), *where, points=True))
    chart = Chart(
        ChartAxis("overall mean loss (nats)"),
        ChartAxis("mean loss of the worst group of that size (nats)", zero=False),
        series,
        [*_guess(advice)],
    )
    return draw([chart], TRADE_OFF, "The worst group against the overall mean", _TRADE_OFF_WORDS)


def _size_rows(advice: AdviceDocument) -> Iterator[tuple[str, ...]]:
    for size in sorted({model.worst_group_size for model in advice.models}):
        best = min(_trained_for(advice, size), key=lambda model: model.held_out.group(size).worst)
        group, plain = best.held_out.group(size), advice.plain.held_out.group(size)
        yield (
            percent(size),
            loss_with_error(plain.worst, plain.error),
            loss_with_error(group.worst, group.error),
            f"{best.tradeoff:g}",
            "better than guessing" if _is_served(advice, group.worst, plain.worst) else "no better",
            f"{best.mean_cost:+.3f}",
        )


def _is_served(advice: AdviceDocument, *worst: float) -> bool:
    return advice.guess is not None and min(worst) < advice.guess


def _trial_rows(advice: AdviceDocument) -> Iterator[tuple[str, ...]]:
    if advice.trials is None:
        return
    for place, tried in enumerate(advice.trials.tried):
        yield trial_cells(tried, " (recommended)" if place == advice.trials.chosen else "")
    if advice.trials.base_rate is not None:
        yield "base rate, without features", loss_text(advice.trials.base_rate), "-", "-", "-"


def _model_rows(advice: AdviceDocument) -> Iterator[tuple[str, ...]]:
    yield _row("plain average training", advice.plain, None)
    chosen = advised(advice)
    for model in advice.models:
        mark = f" ({_mark(advice)})" if model is chosen else ""
        yield _row(f"{_setting(model)}{mark}", model, model.worst_group_size)
    yield "always the most frequent class", "-", "-", "-", share(advice.majority)


def _row(name: str, model: AdvisedModel, size: float | None) -> tuple[str, str, str, str, str]:
    group = None if size is None else model.held_out.group(size)
    return (
        name,
        "-" if group is None else loss_with_error(group.worst, group.error),
        loss_with_error(model.held_out.mean, model.held_out.error),
        "-" if size is None else loss_with_error(model.mean_cost, model.mean_cost_error),
        share(model.held_out.accuracy),
    )


def _guess(advice: AdviceDocument) -> Iterator[Level]:
    if advice.guess is not None:
        yield Level(f"{UNIFORM_GUESS}: {advice.guess:.3f}", advice.guess)


def _mark(advice: AdviceDocument) -> str:
    """Return what the curves say of the model that they recommend; beside trials they are about the loss alone."""
    return "recommended" if advice.trials is None else "best by the loss"


def _setting(model: AdvisedModel) -> str:
    return f"{percent(model.worst_group_size)}, tradeoff {model.tradeoff:g}"


def _trained_for(advice: AdviceDocument, size: float) -> Iterator[AdvisedModel]:
    return (model for model in advice.models if model.worst_group_size == size)


def _plans_own(advice: AdviceDocument) -> AdvisedModel | None:
    own = (advice.plan_size, advice.plan_tradeoff)
    return next((model for model in advice.models if (model.worst_group_size, model.tradeoff) == own), None)
