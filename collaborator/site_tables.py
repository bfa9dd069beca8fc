"""A site's own comparisons on its terminal and as JSON; nothing of them is ever sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from fedfair.plan.description import percent
from fedfair.report.figure_names import OVERALL, UNIFORM_GUESS
from fedfair.report.tables import share
from fedfair.results.document import JsonObject
from fedfair.results.loss_text import loss_text
from fedfair.simulation.personalisation import FineTuning, Personalised
from fedfair.simulation.site_comparison import FEDERATED, SiteComparison


def comparison_table(found: SiteComparison) -> Table:
    """Return one row for all records and for each worst group, one column for each model; mean losses."""
    first = found.risks[FEDERATED]
    title = f"Mean loss ({found.loss_unit}), {first.count} {found.split} records of {found.participant}"
    table = Table(title=title, title_justify="left")
    table.add_column("who", no_wrap=True)
    for name in found.risks:
        table.add_column(name, justify="right")
    table.add_column(UNIFORM_GUESS, justify="right", style="dim")
    guess = "-" if found.uniform is None else loss_text(found.uniform)
    for size in found.group_sizes:
        worst = [loss_text(risk.by_group_size[size].worst) for risk in found.risks.values()]
        table.add_row(f"worst {percent(size)} ({found.records(size)})", *worst, guess)
    table.add_row(OVERALL, *(loss_text(risk.mean) for risk in found.risks.values()), guess)
    if all(risk.accuracy is not None for risk in found.risks.values()):
        table.add_row("accuracy", *(share(risk.accuracy) for risk in found.risks.values()), "")
    return table


def comparison_document(found: SiteComparison) -> JsonObject:
    """Return the same figures, unrounded."""
    return {
        "collaborator": str(found.participant),
        "split": found.split,
        "records": found.risks[FEDERATED].count,
        "loss_unit": found.loss_unit,
        "uniform_floor": found.uniform,
        "models": {
            name: {
                "mean": risk.mean,
                "accuracy": risk.accuracy,
                "worst_by_group_size": {str(size): risk.by_group_size[size].worst for size in found.group_sizes},
            }
            for name, risk in found.risks.items()
        },
        "omitted": list(found.omitted),
    }


def personalised_lines(found: Personalised, terms: FineTuning, output: Path) -> Iterator[str]:
    """Yield what came of a fine-tuning, in words."""
    for split, worst in found.worst.items():
        tuned = f", {loss_text(worst.after, 4)} after round {found.round}" if found.round else ""
        yield (
            f"{split}: the worst {percent(terms.group_size)} ({worst.records} records) have a mean loss of "
            f"{loss_text(worst.before, 4)} under the federated model{tuned}"
        )
    if found.round:
        yield f"written: {output}; it is this site's own and no model of the federation"
    else:
        yield (
            f"In {terms.rounds} rounds the worst group of the validation records never gained, so nothing was "
            "written: use the federated model."
        )


def personalised_document(found: Personalised) -> JsonObject:
    """Return the same figures, unrounded."""
    return {
        "kept": found.round > 0,
        "round": found.round,
        "worst": {
            split: {"records": worst.records, "before": worst.before, "after": worst.after}
            for split, worst in found.worst.items()
        },
    }
