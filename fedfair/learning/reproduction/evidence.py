"""From results to marks: which candidate validation records choose, and what it does on training and test records.

A mark is the mean over the repetitions with its standard error. A candidate that failed or diverged in one of them
is out; a cell without any is left out and named, never filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedfair.learning.reproduction.runs import Candidate, Cell, RunList
from fedfair.learning.reproduction.study import Figure, Values
from fedfair.learning.result import JsonObject
from fedfair.learning.sweep.figures import WORST, Spread, figure_name, split_figures

Results = Mapping[str, JsonObject]
"""Results by the identity of their points."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What one cell came to.

    Attributes:
        cell: which.
        settings: the chosen candidate's.
        train: figures over the training records.
        test: figures over the test records; `worst_0.1`, `disparity_0.1`, `mean` and so on.
        results: those of the chosen candidate, one for each repetition.
        uniform_floor: loss of the uniform classifier, in nats.
    """

    cell: Cell
    settings: Values
    train: Mapping[str, Spread]
    test: Mapping[str, Spread]
    results: tuple[JsonObject, ...]
    uniform_floor: float

    def worst(self, split: str, group_size: float | None = None) -> Spread | None:
        """Return the worst-group risk of a split, at the cell's own group size unless another is asked for."""
        figures = self.train if split == "train" else self.test
        return figures.get(figure_name(WORST, group_size or self.cell.group_size))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a study found.

    Attributes:
        marks: in the order of the cells.
        missing: cells of which no candidate finished.
    """

    marks: tuple[Mark, ...]
    missing: tuple[Cell, ...]

    def of(self, figure: Figure, **wanted: object) -> list[Mark]:
        """Return the marks of a figure whose cells have the wanted values."""
        return [
            mark
            for mark in self.marks
            if mark.cell.figure is figure
            and all(getattr(mark.cell, key) == value for key, value in wanted.items())
        ]


def evidence_of(runs: RunList, results: Results) -> Evidence:
    """Return what the results say about every cell of a study."""
    marks, missing = [], []
    for cell, candidates in runs.candidates.items():
        mark = _mark(cell, candidates, results)
        if mark is None:
            missing.append(cell)
        else:
            marks.append(mark)
    return Evidence(tuple(marks), tuple(missing))


def _mark(cell: Cell, candidates: Sequence[Candidate], results: Results) -> Mark | None:
    """Return the mark of the candidate whose validation records have the smallest worst-group risk."""
    judged = []
    for place, candidate in enumerate(candidates):
        own = _results(candidate, results)
        validation = split_figures(own, "validation") if own else None
        risk = validation.get(figure_name(WORST, cell.group_size)) if validation else None
        if risk is not None:
            judged.append((risk.mean, place, own))
    if not judged:
        return None
    _, place, own = min(judged, key=lambda entry: entry[:2])
    train, test = split_figures(own, "train"), split_figures(own, "test")
    if train is None or test is None:
        return None
    floor = own[0]["uniform_floor"]
    return Mark(cell, candidates[place].settings, train, test, tuple(own), float(str(floor)))


def _results(candidate: Candidate, results: Results) -> list[JsonObject]:
    """Return the candidate's results, or none unless all repetitions have one."""
    there = [results[point.id] for point in candidate.points if point.id in results]
    return there if len(there) == len(candidate.points) else []
