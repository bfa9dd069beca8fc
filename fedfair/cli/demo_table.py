"""The table of `fedfair demo`: how held-out patients fare, in all and by hospital, and what luck explains.

In every draw each patient is held out once, and judged by a model that has not seen him. A figure is its mean over
the draws. What two methods find hard in the same patients says nothing about which is better, so differences are
paired (`fedfair.fairness.paired_difference`). The ends of an interval are the means of the draws' own ends: the
deviation of a mean of draws is at most the mean of theirs, however alike they are, so it holds at least 95 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from rich.table import Table

from fedfair.fairness.paired_difference import PairedDifference, paired_difference, worst_group_terms
from fedfair.fairness.record_losses import Losses
from fedfair.plan.description import percent
from fedfair.report.blocks import paragraph, table
from fedfair.report.figure_names import ACCURACY, OVERALL
from fedfair.report.html import PageSection
from fedfair.results.loss_text import loss_text

Draw = Mapping[str, Losses]
"""The held-out losses of every hospital's patients, by its name."""


@dataclass(frozen=True, slots=True)
class HeldOutFigure:
    """One figure of one method.

    Attributes:
        figure: its name.
        patients: how many it is of.
        method: the name of the method.
        value: a mean loss in nats, or the accuracy as a share.
        difference: from the first method; None for the first itself.
    """

    figure: str
    patients: int
    method: str
    value: float
    difference: PairedDifference | None


def held_out_figures(judged: Mapping[str, Sequence[Draw]], sizes: Sequence[float]) -> tuple[HeldOutFigure, ...]:
    """Return the figures of all methods, one figure after the other.

    Args:
        judged: the draws of each method by its name, at least one, with the same patients in the same order.
        sizes: of the worst groups.
    """
    first, *_ = judged
    terms = {method: [dict(_terms(draw, sizes)) for draw in draws] for method, draws in judged.items()}
    return tuple(
        HeldOutFigure(
            figure,
            len(numbers),
            method,
            float(np.mean([draw[figure].mean() for draw in draws])),
            None if method == first else _mean_difference(figure, terms[first], draws),
        )
        for figure, numbers in terms[first][0].items()
        for method, draws in terms.items()
    )


def _terms(draw: Draw, sizes: Sequence[float]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield each figure with one number for each patient, whose mean it is."""
    everybody = Losses.joined([*draw.values()])
    correct = np.equal(everybody.labels, everybody.predictions)
    yield OVERALL, everybody.values
    for size in sizes:
        yield f"worst {percent(size)}", worst_group_terms(everybody.values, size)
    yield ACCURACY, correct.astype(np.float64)
    for hospital, own in draw.items():
        yield hospital, own.values


def _mean_difference(
    figure: str,
    first: Sequence[Mapping[str, NDArray[np.float64]]],
    other: Sequence[Mapping[str, NDArray[np.float64]]],
) -> PairedDifference:
    each = [paired_difference(one[figure], two[figure]) for one, two in zip(first, other, strict=True)]
    value, low, high = np.mean([(one.value, one.low, one.high) for one in each], axis=0).tolist()
    return PairedDifference(value, low, high)


def held_out_table(figures: Sequence[HeldOutFigure], title: str) -> Table:
    """Return the table for a terminal: a column for each method, and under a value its difference."""
    made = Table(title=title, title_justify="left")
    headings, rows = _cells(figures)
    for heading in headings:
        made.add_column(heading, justify="left" if heading == headings[0] else "right")
    for row in rows:
        made.add_row(*row)
    return made


def held_out_section(figures: Sequence[HeldOutFigure], title: str, words: Sequence[str]) -> PageSection:
    """Return the table as a part of a page."""
    headings, rows = _cells(figures)
    # Two lines of a cell, or the table would be wider than a phone.
    lines = [[Markup("<br>").join(cell.split("\n")) for cell in row] for row in rows]
    body = table(f"{title}.", headings, lines)
    for sentence in words:
        body += paragraph(sentence)
    return PageSection("held-out", "How patients fare whom no training has seen", body)


def to_json(figures: Sequence[HeldOutFigure]) -> list[dict[str, object]]:
    """Return the figures as JSON values."""
    return [asdict(each) for each in figures]


def _cells(figures: Sequence[HeldOutFigure]) -> tuple[list[str], list[list[str]]]:
    """Return the headings, and a row for each figure; a difference is the second line of its cell."""
    rows: dict[str, list[str]] = {}
    for each in figures:
        whom = f"{each.figure}\n{each.patients} people" if _is_hospital(each, figures) else each.figure
        rows.setdefault(whom, []).append(_cell(each))
    return ["figure", *dict.fromkeys(each.method for each in figures)], [
        [whom, *cells] for whom, cells in rows.items()
    ]


def _is_hospital(each: HeldOutFigure, figures: Sequence[HeldOutFigure]) -> bool:
    return each.patients < figures[0].patients


def _cell(each: HeldOutFigure) -> str:
    if each.figure == ACCURACY:
        value, scale, digits = f"{each.value:.1%}", 100.0, 1
    else:
        value, scale, digits = loss_text(each.value), 1.0, 3
    apart = each.difference
    if apart is None:
        return value
    return f"{value}\n{scale * apart.low:+.{digits}f}…{scale * apart.high:+.{digits}f}"
