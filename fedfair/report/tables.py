"""Tables for the terminal that a policy maker can read: who is served how well, by which model.

Losses are cross-entropy in nats: 0 is a sure and right answer, the floor of the uniform classifier is the loss of
saying "every outcome is equally likely" to everybody (the table calls it the uniform guess).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.results.document import ResultDocument
from fedfair.results.risks import SplitRisk
from fedfair.results.scores import SplitScores

NAMES: Mapping[str, str] = {name: facts.title for name, facts in ALGORITHMS.items()}
TOO_FEW = "too few people"
ESTIMATE = "estimate"
"""In place of the figures of a group smaller than the plan's `evaluation.min_group`."""

SPLIT_WORDS = {"test": "people the model has not seen", "train": "people the model was trained on"}


def comparison(results: Sequence[ResultDocument], group_sizes: Sequence[float]) -> Table:
    """Return one row per result, and one for the uniform classifier.

    Args:
        results: at least one; all over the same split.
        group_sizes: which worst groups to show, as fractions; the disparity is that of the first.
    """
    split, first = results[0].shown
    table = Table(title=f"Mean loss (nats), {first.n} {SPLIT_WORDS[split]}", title_justify="left")
    table.add_column("model", no_wrap=True)
    table.add_column("everybody", justify="right")
    for size in group_sizes:
        table.add_column(f"worst {size:.0%}", justify="right")
    table.add_column("disparity", justify="right")
    table.add_column("accuracy", justify="right")
    for result in results:
        table.add_row(escape(NAMES.get(result.algorithm, result.algorithm)), *_cells(result.shown[1], group_sizes))
    floor = f"{results[0].uniform_floor:.3f}"
    table.add_row("uniform guess", floor, *[floor] * len(group_sizes), "0.000", "", style="dim")
    return table


def _cells(risk: SplitRisk, group_sizes: Sequence[float]) -> list[str]:
    worst = [risk.worst(size) for size in group_sizes]
    first = worst[0]
    disparity = None if first is None else first.disparity
    return [
        f"{risk.mean:.3f}",
        *("-" if group is None or group.worst is None else f"{group.worst:.3f}" for group in worst),
        "-" if disparity is None else f"{disparity:.3f}",
        f"{risk.accuracy:.1%}",
    ]


def by_group_size(result: ResultDocument) -> Table:
    """Return the whole curve of one result: worst and best group of every size, with the proven interval."""
    split, risk = result.shown
    title = (
        f"{escape(NAMES.get(result.algorithm, result.algorithm))}: mean loss (nats), {risk.n} {SPLIT_WORDS[split]}"
    )
    table = Table(title=title, title_justify="left")
    for heading in ("group size", "worst group", "between", "best group", "disparity"):
        table.add_column(heading, justify="right")
    for size, group in sorted(risk.by_group_size.items(), key=lambda item: float(item[0])):
        if group.worst is None:
            table.add_row(f"{float(size):.0%}", TOO_FEW, "", "", "", style="dim")
            continue
        table.add_row(
            f"{float(size):.0%}",
            f"{group.worst:.4f}",
            _between(group.bound),
            "-" if group.best is None else f"{group.best:.4f}",
            "-" if group.disparity is None else f"{group.disparity:.4f}",
        )
    table.caption = "\n".join(
        (
            f"everybody {risk.mean:.4f}, accuracy {risk.accuracy:.1%}; uniform guess {result.uniform_floor:.4f}",
            *score_lines(risk.scores),
        )
    )
    table.caption_justify = "left"
    return table


def score_lines(scores: SplitScores | None) -> Iterator[str]:
    """Yield the lines about scores: none where nobody asked for them."""
    if scores is None:
        return
    if scores.auc is None or scores.brier is None:
        yield f"AUC, Brier score and calibration: {TOO_FEW} in a class"
        return
    error = "-" if scores.calibration_error is None else f"{scores.calibration_error:.4f}"
    between = _between(scores.auc_bound)
    yield f"AUC {scores.auc:.4f} ({between}), Brier score {scores.brier:.4f}, calibration error {error}"


def _between(bound: tuple[float, float] | None) -> str:
    """Return where the truth lies; sums under noise tell only about where."""
    if bound is None:
        return ESTIMATE
    low, high = bound
    return "exact" if low == high else f"{low:.4f} .. {high:.4f}"
