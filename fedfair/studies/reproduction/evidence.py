"""From results to marks: which candidate validation records choose, and what it does on training and test records.

Every repetition chooses by itself, by its own validation records: those of one fold are test records of another,
so that one choice for all folds would be made, in part, by records that it is then tested on. What it chooses by
is the method's own objective. A mark is the mean over the repetitions with its standard error, which covers the
choice too. A candidate that failed or diverged in one repetition is out; a cell without any is left out and named,
never filled in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedfair.aggregation.loss_metrics import MEAN_EXCESS, WORST_EXCESS
from fedfair.results.document import ResultDocument
from fedfair.studies.reproduction.methods import METHODS, ChosenBy
from fedfair.studies.reproduction.runs import Candidate, Cell, RunList
from fedfair.studies.reproduction.study import Figure, Study, Values
from fedfair.studies.sweep.figures import WORST, Spread, figure_name, split_figures
from fedfair.studies.sweep.grid import Point
from fedfair.studies.sweep.selection import Criterion, Yardstick

Results = Mapping[str, ResultDocument]
"""Results by the identity of their points."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The outcome of one cell.

    Attributes:
        cell: which.
        settings: those of the chosen candidates, one for each repetition.
        points: the chosen runs, one for each repetition.
        results: of these runs.
        train: figures over the training records.
        test: figures over the test records; `worst_0.1`, `disparity_0.1`, `mean` and so on.
        uniform_floor: loss of the uniform classifier, in nats.
    """

    cell: Cell
    settings: tuple[Values, ...]
    points: tuple[Point, ...]
    results: tuple[ResultDocument, ...]
    train: Mapping[str, Spread]
    test: Mapping[str, Spread]
    uniform_floor: float

    def worst(self, split: str, group_size: float | None = None) -> Spread | None:
        """Return the worst-group risk of a split, at the cell's own group size unless another is asked for."""
        figures = self.train if split == "train" else self.test
        return figures.get(figure_name(WORST, group_size or self.cell.group_size))

    def values(self, split: str, figure: str) -> tuple[float, ...]:
        """Return a figure of every repetition; none of them where one has no such figure."""
        found = [(split_figures([one], split) or {}).get(figure) for one in self.results]
        there = tuple(value.mean for value in found if value is not None)
        return there if len(there) == len(found) else ()

    def worst_values(self, split: str, group_size: float | None = None) -> tuple[float, ...]:
        """Return the worst-group risk of every repetition; arguments as of `worst`."""
        return self.values(split, figure_name(WORST, group_size or self.cell.group_size))


@dataclass(frozen=True, slots=True)
class Evidence:
    """The findings of a study.

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


def evidence_of(runs: RunList, results: Results, study: Study) -> Evidence:
    """Return what the results say about every cell of a study."""
    found = {cell: _mark(cell, candidates, results, study) for cell, candidates in runs.candidates.items()}
    marks = tuple(mark for mark in found.values() if mark is not None)
    return Evidence(marks, tuple(cell for cell, mark in found.items() if mark is None))


@dataclass(frozen=True, slots=True)
class _Complete:
    """A candidate that finished everywhere: its results and its objective on validation, for each repetition."""

    candidate: Candidate
    results: tuple[ResultDocument, ...]
    objectives: tuple[float, ...]


def _mark(cell: Cell, candidates: Sequence[Candidate], results: Results, study: Study) -> Mark | None:
    """Return the mark of the candidates whose validation records have the least of the method's own objective."""
    complete = list(_completed(cell, candidates, results, study))
    if not complete:
        return None
    # The first of those with the least objective in each repetition.
    chosen = [
        complete[found.index(min(found))] for found in zip(*(one.objectives for one in complete), strict=True)
    ]
    own = tuple(one.results[place] for place, one in enumerate(chosen))
    train, test = split_figures(own, "train"), split_figures(own, "test")
    if train is None or test is None:
        return None
    settings = tuple(one.candidate.settings for one in chosen)
    points = tuple(one.candidate.points[place] for place, one in enumerate(chosen))
    return Mark(cell, settings, points, own, train, test, own[0].uniform_floor or math.nan)


def _completed(cell: Cell, candidates: Sequence[Candidate], results: Results, study: Study) -> Iterator[_Complete]:
    """Yield the candidates whose objective is known on the validation records of every repetition."""
    for candidate in candidates:
        own = tuple(results[point.id] for point in candidate.points if point.id in results)
        known = tuple(value for one in own if (value := own_objective(cell, study, one)) is not None)
        if known and len(known) == len(candidate.points):
            yield _Complete(candidate, own, known)


def own_objective(cell: Cell, study: Study, result: ResultDocument) -> float | None:
    """Return what a cell's method minimises, on validation records; None where the result does not tell it."""
    criterion = METHODS[cell.method].criterion
    by_collaborator = criterion is ChosenBy.WORST_COLLABORATOR or (
        criterion is ChosenBy.WORST_GROUP and study.groups_are_collaborators
    )
    if by_collaborator:
        return _worst_collaborator(result)
    if criterion is ChosenBy.EXCESS:
        return _excess(result, cell.tradeoff or 0.0)
    figures = split_figures([result], "validation") or {}
    yardstick = Criterion.OBJECTIVE if criterion is ChosenBy.OBJECTIVE else Criterion.MEAN
    return Yardstick(yardstick, cell.group_size, cell.tradeoff or 0.0).score(figures)


def _excess(result: ResultDocument, tradeoff: float) -> float | None:
    """Return the objective of the excess over references, at the size that the model was trained for."""
    validation = result.splits["validation"]
    told = (validation.metrics if validation is not None else None) or {}
    worst, mean = told.get(WORST_EXCESS), told.get(MEAN_EXCESS)
    if not isinstance(worst, float) or not isinstance(mean, float):
        return None
    return (1 - tradeoff) * worst + tradeoff * mean


def _worst_collaborator(result: ResultDocument) -> float | None:
    """Return the greatest mean loss of a collaborator's validation records."""
    told = [one.validation for one in (result.collaborators or {}).values() if one is not None]
    means = [one.mean for one in told if one is not None and one.mean is not None]
    return max(means, default=None)
