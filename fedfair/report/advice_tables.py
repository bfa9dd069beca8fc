"""The table of advice for the terminal: every model looked at, and plain training, on held-out records."""

from __future__ import annotations

from rich.table import Table

from fedfair.plan.description import percent
from fedfair.studies.advice.document import AdviceDocument, AdvisedModel
from fedfair.studies.advice.words import advised


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
    drawing.add_row("plain", "", "", "", f"{plain.mean:.3f}", f"{plain.accuracy:.1%}")
    guess = f"{advice.guess:.3f}"
    drawing.add_row("guess", "", guess, "", guess, "", style="dim")
    drawing.caption = "* recommended"
    drawing.caption_justify = "left"
    return drawing


def _cells(model: AdvisedModel, advice: AdviceDocument) -> tuple[str, str, str, str]:
    size = model.worst_group_size
    group, plain = model.held_out.group(size), advice.plain.held_out.group(size)
    return (
        f"{group.worst:.3f} ± {group.error:.3f}",
        f"{plain.worst:.3f}",
        f"{model.held_out.mean:.3f}",
        f"{model.held_out.accuracy:.1%}",
    )
