"""Figures 2 to 4 of the paper, drawn from a study's marks.

Intervals are one standard error of the mean over the repetitions, to each side. The uniform classifier's loss is
drawn in every panel of a risk: below it, a model knows something about the group; above it, guessing was better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from fedfair.report.figures import Chart, ChartAxis, Level, Series, draw
from fedfair.studies.reproduction.evidence import Evidence, Mark
from fedfair.studies.reproduction.execution import Done
from fedfair.studies.reproduction.methods import METHODS
from fedfair.studies.reproduction.runs import LOCAL_STEPS, ours
from fedfair.studies.reproduction.study import Figure
from fedfair.studies.sweep.figures import DISPARITY, WORST, figure_name

Lines = Sequence[tuple[str, Sequence[Mark]]]
"""For each line, its text in the legend and its marks."""

_SIZE = ChartAxis("size of the worst group, as a share of all records", share=True)
_PANELS = {
    "worst": "mean loss of the worst group (nats)",
    "mean": "overall mean loss (nats)",
    "disparity": "worst group minus the others (nats)",
}


def charts(done: Done) -> Iterator[tuple[Figure, Markup]]:
    """Yield the pictures of a study's figures, in the order of the paper."""
    found, name = done.evidence, done.study.name
    if Figure.BASELINES in done.study.figures:
        lines = [
            (METHODS[method].label, found.of(Figure.BASELINES, method=method)) for method in done.study.methods
        ]
        panels = [_panel(lines, quantity, "test") for quantity in _PANELS]
        panels.append(_panel(lines, "worst", "train"))
        yield (
            Figure.BASELINES,
            draw(panels, f"{name}-baselines", "All methods against the group size", _DESCRIPTION, columns=2),
        )
    if Figure.TRADEOFFS in done.study.figures:
        lines = [
            (f"tradeoff {tradeoff:g}", found.of(Figure.TRADEOFFS, tradeoff=tradeoff))
            for tradeoff in done.size.tradeoffs
        ]
        panels = [_panel(lines, quantity, "test") for quantity in ("worst", "mean")]
        yield (
            Figure.TRADEOFFS,
            draw(panels, f"{name}-tradeoffs", "The fan over the tradeoff", _DESCRIPTION, columns=2),
        )
    if Figure.LOCAL_STEPS in done.study.figures:
        panels = [_panel(_step_lines(found, ours(done.study)), quantity, "test") for quantity in _PANELS]
        yield (
            Figure.LOCAL_STEPS,
            draw(panels, f"{name}-local-steps", "One, five and ten local steps", _DESCRIPTION, columns=2),
        )


_DESCRIPTION = (
    "One line for each method or setting, over the sizes of the worst group; bands are one standard error."
)


def _step_lines(found: Evidence, name: str) -> Lines:
    own = [
        (f"FedSRCVaR, {steps} local step{'s' if steps > 1 else ''}",
         found.of(Figure.LOCAL_STEPS, method=name, local_steps=steps))
        for steps in LOCAL_STEPS
    ]  # fmt: skip
    return [*own, ("FedAvg", found.of(Figure.LOCAL_STEPS, method="fedavg"))]


def _panel(lines: Lines, quantity: str, split: str) -> Chart:
    series = [_series(label, marks, quantity, split) for label, marks in lines if marks]
    floors = {mark.uniform_floor for _, marks in lines for mark in marks}
    levels = [Level("uniform guess", floor) for floor in floors] if quantity != "disparity" else []
    people = "test records" if split == "test" else "training records"
    return Chart(_SIZE, ChartAxis(_PANELS[quantity]), series, levels, people)


def _series(label: str, marks: Sequence[Mark], quantity: str, split: str) -> Series:
    sizes, middle, low, high = [], [], [], []
    for mark in sorted(marks, key=lambda each: each.cell.group_size):
        figures = mark.train if split == "train" else mark.test
        value = figures.get(_name(quantity, mark.cell.group_size))
        if value is None:
            continue
        error = value.standard_error or 0.0
        sizes.append(mark.cell.group_size)
        middle.append(value.mean)
        low.append(value.mean - error)
        high.append(value.mean + error)
    return Series(label, sizes, middle, low, high)


def _name(quantity: str, group_size: float) -> str:
    kinds = {"worst": WORST, "disparity": DISPARITY}
    return figure_name(kinds[quantity], group_size) if quantity in kinds else quantity
