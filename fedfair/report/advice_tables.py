"""The table of advice for the terminal: every model looked at, and plain training, on held-out records."""

from __future__ import annotations

from rich.table import Table

from fedfair.plan.description import percent
from fedfair.results.loss_text import loss_text
from fedfair.studies.advice.document import AdviceDocument, AdviceTrials, AdvisedModel, TriedSetting
from fedfair.studies.advice.words import USUAL_SIZE, advised, difference, loss_with_error, setting_words


def advice_table(advice: AdviceDocument) -> Table:
    """Return one row for plain average training and one for every other model; the recommended one is marked."""
    drawing = Table(title="Mean loss (nats) on held-out records, ± standard error", title_justify="left")
    for heading in ("group\nsize", "tradeoff"):
        drawing.add_column(heading)
    for heading in ("its worst\ngroup", "by plain\ntraining", "everybody", "accuracy"):
        drawing.add_column(heading, justify="right")
    chosen = advised(advice)
    for model in advice.models:
        mark = " *" if model is chosen else ""
        style = "bold" if model is chosen else None
        drawing.add_row(
            percent(model.worst_group_size), f"{model.tradeoff:g}{mark}", *_cells(model, advice), style=style
        )
    plain = advice.plain.held_out
    drawing.add_row("plain", "", "", "", f"{plain.mean:.3f}", share(plain.accuracy))
    guess = "-" if advice.guess is None else f"{advice.guess:.3f}"
    drawing.add_row("guess", "", guess, "", guess, "", style="dim")
    drawing.caption = "* recommended" if advice.trials is None else "* the best of these, which measure the loss"
    drawing.caption_justify = "left"
    return drawing


def trials_table(trials: AdviceTrials) -> Table:
    """Return one row for each setting that was tried by the plan's own training; the recommended one is marked."""
    drawing = Table(title="The plan's own training, on held-out records, ± standard error", title_justify="left")
    drawing.add_column("setting")
    for heading in ("everybody", "than plain\ntraining", "worst 10 %\nby hindsight", "accuracy"):
        drawing.add_column(heading, justify="right")
    for place, tried in enumerate(trials.tried):
        chosen = place == trials.chosen
        drawing.add_row(*trial_cells(tried, " *" if chosen else ""), style="bold" if chosen else None)
    if trials.base_rate is not None:
        drawing.add_row("base rate, without features", loss_text(trials.base_rate), "", "", "", style="dim")
    drawing.caption = "* recommended"
    drawing.caption_justify = "left"
    return drawing


def trial_cells(tried: TriedSetting, mark: str) -> tuple[str, str, str, str, str]:
    """Return the cells of one setting, marked behind its name."""
    worst = tried.held_out.group(USUAL_SIZE)
    cost = difference(tried) if tried.mean_cost else ""
    return (
        f"{setting_words(tried)}{mark}",
        loss_with_error(tried.held_out.mean, tried.held_out.error),
        cost,
        loss_with_error(worst.worst, worst.error),
        share(tried.held_out.accuracy),
    )


def _cells(model: AdvisedModel, advice: AdviceDocument) -> tuple[str, str, str, str]:
    size = model.worst_group_size
    group, plain = model.held_out.group(size), advice.plain.held_out.group(size)
    return (
        f"{group.worst:.3f} ± {group.error:.3f}",
        f"{plain.worst:.3f}",
        f"{model.held_out.mean:.3f}",
        share(model.held_out.accuracy),
    )


def share(value: float | None) -> str:
    """Return a share in percent; a dash for none."""
    return "-" if value is None else f"{value:.1%}"
