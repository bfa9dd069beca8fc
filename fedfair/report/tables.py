"""Tables for the terminal that a policy maker can read: who is served how well, by which model.

Losses are cross-entropy in nats: 0 is a sure and right answer, the floor of the uniform classifier is the loss of
saying "every outcome is equally likely" each time (the table calls it the uniform guess).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from fedfair.aggregation.loss_metrics import WORST_EXCESS_BOUND
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.description import percent
from fedfair.report.baseline_lines import baseline_lines
from fedfair.report.calibration_lines import calibration_lines
from fedfair.report.figure_names import (
    ACCURACY,
    BY_GROUP_SIZE,
    DISPARITY,
    OVERALL,
    TOO_FEW,
    UNIFORM_GUESS,
    interval,
)
from fedfair.report.set_section import set_lines
from fedfair.results.document import ResultDocument
from fedfair.results.loss_text import loss_text
from fedfair.results.risks import SplitRisk
from fedfair.results.scores import SplitScores

NAMES: Mapping[str, str] = {name: facts.title for name, facts in ALGORITHMS.items()}
SPLIT_WORDS = {"test": "people the model has not seen", "train": "people the model was trained on"}


def comparison(labelled: Mapping[str, ResultDocument], group_sizes: Sequence[float]) -> Table:
    """Return one row per result, and one for the uniform classifier.

    Args:
        labelled: at least one result, by the name of its row; all over the same split.
        group_sizes: which worst groups to show, as fractions; the disparity is that of the first.
    """
    results = [*labelled.values()]
    split, first = results[0].shown
    title = f"Mean loss ({results[0].loss_unit}), {first.n} {SPLIT_WORDS[split]}"
    table = Table(title=title, title_justify="left")
    table.add_column("model", no_wrap=True)
    table.add_column(OVERALL, justify="right")
    for size in group_sizes:
        table.add_column(f"worst {percent(size)}", justify="right")
    table.add_column(DISPARITY, justify="right")
    table.add_column(ACCURACY, justify="right")
    for label, result in labelled.items():
        table.add_row(escape(label), *_cells(result.shown[1], group_sizes))
    if results[0].uniform_floor is not None:
        floor = loss_text(results[0].uniform_floor)
        table.add_row(UNIFORM_GUESS, floor, *[floor] * len(group_sizes), "0.000", "", style="dim")
    return table


def share(value: float | None) -> str:
    """Return an accuracy in percent; a dash where nothing was classified."""
    return "-" if value is None else f"{value:.1%}"


def metric_rows(metrics: Mapping[str, float | tuple[float | None, ...] | None]) -> Iterator[tuple[str, ...]]:
    """Yield the name of each metric with its value or interval, or with those of each label, interval or class."""
    for name, found in metrics.items():
        values = found if isinstance(found, tuple) else (found,)
        words = ["-" if value is None else f"{value:.4g}" for value in values]
        yield (name.replace("_", " "), *([" to ".join(words)] if name == WORST_EXCESS_BOUND else words))


def _cells(risk: SplitRisk, group_sizes: Sequence[float]) -> list[str]:
    worst = [risk.worst(size) for size in group_sizes]
    first = worst[0]
    disparity = None if first is None else first.disparity
    return [
        loss_text(risk.mean),
        *(
            "-" if group is None or group.worst is None else loss_text(group.worst, beside=risk.mean)
            for group in worst
        ),
        "-" if disparity is None else loss_text(disparity, beside=risk.mean),
        share(risk.accuracy),
    ]


def by_group_size(result: ResultDocument, label: str = "") -> Table:
    """Return the whole curve of one result: worst and best group of every size, with the proven interval.

    Args:
        result: the result.
        label: its name beside others; empty for that of its algorithm.
    """
    split, risk = result.shown
    name = label or NAMES.get(result.algorithm, result.algorithm)
    title = f"{escape(name)}: mean loss ({result.loss_unit}), {risk.n} {SPLIT_WORDS[split]}"
    table = Table(title=title, title_justify="left")
    for heading in BY_GROUP_SIZE:
        table.add_column(heading, justify="right")
    for size, group in sorted(risk.by_group_size.items(), key=lambda item: float(item[0])):
        if group.worst is None:
            table.add_row(percent(float(size)), TOO_FEW, "", "", "", style="dim")
            continue
        table.add_row(
            percent(float(size)),
            loss_text(group.worst, 4, risk.mean),
            interval(group.bound, group.likely),
            "-" if group.best is None else loss_text(group.best, 4, risk.mean),
            "-" if group.disparity is None else loss_text(group.disparity, 4, risk.mean),
        )
    accuracy = "" if risk.accuracy is None else f", {ACCURACY} {risk.accuracy:.1%}"
    guess = "" if result.uniform_floor is None else f"; {UNIFORM_GUESS} {loss_text(result.uniform_floor, 4)}"
    table.caption = "\n".join(
        (
            f"{OVERALL} {loss_text(risk.mean, 4)}{accuracy}{guess}",
            *baseline_lines(result),
            *score_lines(risk.scores),
            *calibration_lines(result),
            *set_lines(result),
            *(f"{name} {', '.join(values)}" for name, *values in metric_rows(risk.metrics or {})),
            *above_range_lines(risk),
        )
    )
    table.caption_justify = "left"
    return table


def above_range_lines(risk: SplitRisk) -> Iterator[str]:
    """Yield how many losses are above the range of the histogram, where it is enough people to be reported."""
    if risk.above_range is not None:
        yield f"losses at or above evaluation.loss_range {risk.above_range:.1%}"


def score_lines(scores: SplitScores | None) -> Iterator[str]:
    """Yield the lines about scores: none where they were not asked for."""
    if scores is None:
        return
    if scores.auc is None or scores.brier is None:
        yield f"AUC, Brier score and calibration: {TOO_FEW} in a class"
        return
    error = "-" if scores.calibration_error is None else f"{scores.calibration_error:.4f}"
    between = interval(scores.auc_bound)
    yield f"AUC {scores.auc:.4f} ({between}), Brier score {scores.brier:.4f}, calibration error {error}"
