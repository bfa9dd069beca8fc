"""Lists the plans that a study runs, and those behind each mark of each figure.

A `Cell` is one mark before its error bar: a method under one group size, tradeoff and number of local steps. It
has candidates (learning rates of model and adversary, and tradeoffs where several stand for "about 0"), and every
candidate has one run for each repetition. Cells share runs: FedAvg does not know the group size, so one model
serves all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedfair.plan.schema import Plan
from fedfair.plan.yaml_reader import Value
from fedfair.studies.reproduction.methods import METHODS, OURS, Method, Variation
from fedfair.studies.reproduction.study import Figure, Repeats, Size, Study, Values, merged
from fedfair.studies.sweep.grid import Point, point_id

LOCAL_STEPS = (1, 5, 10)
"""Figure 4 (tau in the paper)."""

FIRST_FIGURES = (
    Figure.KNOWN_GROUPS,
    Figure.BASELINES,
    Figure.LOCAL_THRESHOLDS,
    Figure.LOCAL_STEPS,
    Figure.TRADEOFFS,
)
"""The order in which figures are run, for a repetition whose time is up before its end."""

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
        self._plan = Plan.model_validate(self.base)
        self.candidates: dict[Cell, tuple[Candidate, ...]] = {
            cell: tuple(self._candidates(cell)) for cell in _cells(study, size)
        }

    @property
    def points(self) -> tuple[Point, ...]:
        """Return every run once; those of one repetition stand together, since they share their records."""
        return _distinct(self.candidates.values())

    def by_figure(self) -> Iterator[tuple[Point, ...]]:
        """Yield the runs of each figure, the first figure first; a run that several need is in each of them.

        The tables come first, since they need the fewest runs; then the comparison of all methods.
        """
        for figure in FIRST_FIGURES:
            groups = [group for cell, group in self.candidates.items() if cell.figure is figure]
            if groups:
                yield _distinct(groups)

    def _candidates(self, cell: Cell) -> Iterator[Candidate]:
        method, size = METHODS[cell.method], self._size
        small = size.small_tradeoffs if cell.tradeoff is None else (cell.tradeoff,)
        varied = itertools.product(
            method.rates(size),
            small if method.has_tradeoff else (None,),
            size.adversary_rates if method.adversary_steps else (None,),
        )
        for rate, tradeoff, adversary_rate in varied:
            setting = Variation(rate, cell.group_size, tradeoff, cell.local_steps, adversary_rate)
            whole = merged(self.base, method.changes(self._study, size, setting, self._plan))
            settings = _in_words(method, setting)
            yield Candidate(settings, tuple(self._repeated(whole, settings)))

    def _repeated(self, whole: Values, settings: Mapping[str, Value]) -> Iterator[Point]:
        for number in range(1, self._size.repeats + 1):
            part: Values = {"task": {"test_fold": number}}
            if self._study.repeats is Repeats.SEEDS:
                part = {"training": {"seed": number}}
            plan = Plan.model_validate(merged(whole, part))
            yield Point(point_id(plan), {**settings, "repetition": number}, plan)


def _distinct(groups: Iterable[tuple[Candidate, ...]]) -> tuple[Point, ...]:
    distinct = {point.id: point for group in groups for one in group for point in one.points}
    return tuple(sorted(distinct.values(), key=lambda point: (str(point.settings["repetition"]), point.id)))


def _in_words(method: Method, setting: Variation) -> dict[str, Value]:
    """Return a setting as it is written beside a result."""
    settings: dict[str, Value] = {
        "method": method.name,
        "learning_rate": setting.learning_rate,
        "tradeoff": setting.tradeoff,
        "adversary_learning_rate": setting.adversary_rate,
        "worst_group_size": setting.group_size if method.knows_group_size else None,
        "local_steps": None if setting.local_steps == 1 else setting.local_steps,
    }
    return {name: value for name, value in settings.items() if value is not None}


def ours(study: Study) -> str:
    """Return which of the study's methods the paper's claims are held against."""
    return OURS if OURS in study.methods else study.methods[0]


def _cells(study: Study, size: Size) -> Iterator[Cell]:
    """Yield the marks of the figures of a study."""
    own, sizes, ends = ours(study), size.group_sizes, (size.group_sizes[0], size.group_sizes[-1])
    fair = {name for name in study.methods if METHODS[name].algorithm == "fedsrcvar"}
    told = [name for name in study.methods if name in fair or name in {"fedminmax", "fedavg"}]
    known = {name: KNOWN_GROUP_TRADEOFF if name in fair else None for name in told}
    first, last = size.small_tradeoffs[0], size.small_tradeoffs[-1]
    made = [
        *(Cell(Figure.BASELINES, name, rho, None) for name in study.methods for rho in sizes),
        *(Cell(Figure.TRADEOFFS, own, rho, tradeoff) for tradeoff in size.tradeoffs for rho in sizes),
        *(Cell(Figure.LOCAL_STEPS, own, rho, last, steps) for steps in LOCAL_STEPS for rho in ends),
        *(Cell(Figure.LOCAL_STEPS, "fedavg", rho, None) for rho in ends if "fedavg" in study.methods),
        *(Cell(Figure.KNOWN_GROUPS, name, rho, known[name]) for rho in KNOWN_GROUP_SIZES for name in known),
        *(Cell(Figure.LOCAL_THRESHOLDS, name, sizes[0], first) for name in (OURS, "localbpf")),
    ]
    return (cell for cell in made if cell.figure in study.figures)
