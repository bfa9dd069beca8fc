"""Lists the plans that a study runs, and those behind each mark of each figure.

A `Cell` is one mark before its error bar: a method under one group size, tradeoff and number of local steps. It
has candidates (learning rates, and tradeoffs where several stand for "about 0"), and every candidate has one run
for each repetition. Cells share runs: FedAvg does not know the group size, so one model serves all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfair.experiments.reproduction.methods import METHODS, Method
from fedfair.experiments.reproduction.study import Figure, Repeats, Size, Study, Values, merged
from fedfair.experiments.sweep.grid import Point, point_id
from fedfair.plan.schema import Plan
from fedfair.plan.yaml_reader import Value

LOCAL_STEPS = (1, 5, 10)
"""Figure 4 (tau in the paper)."""

KNOWN_GROUP_SIZES = (0.1, 0.3)
KNOWN_GROUP_TRADEOFF = 0.05
"""Tables A.1 and A.2."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One mark of a figure.

    Attributes:
        figure: which figure.
        method: name of the method.
        group_size: the size that the mark is reported for, and trained for where the method knows it.
        tradeoff: the tradeoff; None where it is about 0, or the method has none.
        local_steps: steps in a round.
    """

    figure: Figure
    method: str
    group_size: float
    tradeoff: float | None
    local_steps: int = 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting of what validation records decide, with its run for each repetition."""

    settings: Mapping[str, Value]
    points: tuple[Point, ...]


class RunList:
    """All runs of a study, each once.

    Args:
        study: the study.
        size: how much of it.
        folder: where its data are.
    """

    def __init__(self, study: Study, size: Size, folder: Path) -> None:
        self._study, self._size = study, size
        self.base = merged(study.base(folder), {"evaluation": {"group_sizes": list(size.group_sizes)}})
        self.candidates: dict[Cell, tuple[Candidate, ...]] = {
            cell: tuple(self._candidates(cell)) for cell in _cells(study, size)
        }

    @property
    def points(self) -> tuple[Point, ...]:
        """Return every run once; those of one repetition stand together, since they share their records."""
        every = [point for group in self.candidates.values() for one in group for point in one.points]
        distinct = {point.id: point for point in every}
        return tuple(sorted(distinct.values(), key=lambda point: (str(point.settings["repetition"]), point.id)))

    def _candidates(self, cell: Cell) -> Iterator[Candidate]:
        method = METHODS[cell.method]
        tradeoffs = self._size.small_tradeoffs if cell.tradeoff is None else (cell.tradeoff,)
        for rate in self._rates(cell):
            for tradeoff in tradeoffs if method.has_tradeoff else (None,):
                settings: dict[str, Value] = {"method": cell.method, "learning_rate": rate}
                settings |= {} if tradeoff is None else {"tradeoff": tradeoff}
                settings |= {"worst_group_size": cell.group_size} if method.knows_group_size else {}
                settings |= {} if cell.local_steps == 1 else {"local_steps": cell.local_steps}
                change = method.changes(self._study, self._size, cell.group_size, tradeoff)
                steps: Values = {} if cell.local_steps == 1 else {"training": {"local_steps": cell.local_steps}}
                whole = merged(self.base, change, steps, {"training": {"learning_rate": rate}})
                yield Candidate(settings, tuple(self._repeated(whole, settings)))

    def _rates(self, cell: Cell) -> Sequence[float]:
        return self._size.learning_rates if cell.figure in CHOOSING else self._size.learning_rates[:1]

    def _repeated(self, whole: Values, settings: Mapping[str, Value]) -> Iterator[Point]:
        for number in range(1, self._size.repeats + 1):
            part: Values = {"task": {"test_fold": number}}
            if self._study.repeats is Repeats.SEEDS:
                part = {"training": {"seed": number}}
            plan = Plan.model_validate(merged(whole, part))
            yield Point(point_id(plan), {**settings, "repetition": number}, plan)


CHOOSING = (Figure.BASELINES, Figure.KNOWN_GROUPS)
"""Figures whose learning rate is chosen among all; the others show one setting change, at the first rate."""


def _cells(study: Study, size: Size) -> Iterator[Cell]:
    makers = {
        Figure.BASELINES: _baselines,
        Figure.TRADEOFFS: _tradeoffs,
        Figure.LOCAL_STEPS: _local_steps,
        Figure.KNOWN_GROUPS: _known_groups,
    }
    for figure, maker in makers.items():
        if figure in study.figures:
            yield from maker(study, size)


def _methods(study: Study) -> Iterable[Method]:
    return [METHODS[name] for name in study.methods]


def _baselines(study: Study, size: Size) -> Iterator[Cell]:
    for method in _methods(study):
        for group_size in size.group_sizes:
            yield Cell(Figure.BASELINES, method.name, group_size, None)


def _tradeoffs(_: Study, size: Size) -> Iterator[Cell]:
    for tradeoff in size.tradeoffs:
        for group_size in size.group_sizes:
            yield Cell(Figure.TRADEOFFS, "fedsrcvar", group_size, tradeoff)


def _local_steps(_: Study, size: Size) -> Iterator[Cell]:
    small = size.small_tradeoffs[-1]
    for steps in LOCAL_STEPS:
        for group_size in size.group_sizes:
            yield Cell(Figure.LOCAL_STEPS, "fedsrcvar", group_size, small, steps)
    for group_size in size.group_sizes:
        yield Cell(Figure.LOCAL_STEPS, "fedavg", group_size, None)


def _known_groups(study: Study, _: Size) -> Iterator[Cell]:
    for group_size in KNOWN_GROUP_SIZES:
        yield Cell(Figure.KNOWN_GROUPS, "fedsrcvar", group_size, KNOWN_GROUP_TRADEOFF)
        for name in ("fedminmax", "fedavg"):
            if name in study.methods:
                yield Cell(Figure.KNOWN_GROUPS, name, group_size, None)
