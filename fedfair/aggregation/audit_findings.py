"""The meaning of an audit's total: how many members each attack finds, of everybody and of groups, and epsilon.

All intervals of one audit hold together with 95 %, and so does the bound on epsilon by itself. A group of fewer
than `evaluation.min_group` records of either kind is not told. Numpy only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.audit_sums import AuditLayout, AuditQuestion
from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.slice_findings import SliceCell, named_cells
from fedfair.privacy.audited_epsilon import epsilon_at_least
from fedfair.privacy.membership import ENDS, FoundShare, ScoreCounts, found_at

MISTAKES = (0.01, 0.001)
"""The shares of held-out records that may be called members, at which it is told how many members are found."""

CHANCE = 0.05
"""The chance that any interval of an audit is wrong, and that its bound on epsilon is."""


@dataclass(frozen=True, slots=True)
class AuditedGroup:
    """How an attack does on the records of a group.

    Attributes:
        attack: the attack's word.
        label: the class of the group; None for everybody and for a slice.
        cells: of a slice; none for everybody and for a class.
        train: how many training records there are.
        held_out: how many others.
        area: under the ROC.
        found: the shares of training records that are found, by `MISTAKES`.
    """

    attack: str
    label: int | None
    cells: tuple[SliceCell, ...]
    train: int
    held_out: int
    area: float
    found: tuple[FoundShare, ...]


@dataclass(frozen=True, slots=True)
class AuditFindings:
    """The outcome of an audit.

    Attributes:
        groups: everybody first, then classes and slices, each by every attack.
        untold: how many groups had too few records of either kind.
        epsilon: that of the training is not below it; None where persons may have records at several sites.
        members: whose records it is of.
    """

    groups: tuple[AuditedGroup, ...]
    untold: int
    epsilon: float | None
    members: tuple[str, ...]


def audit_findings(
    header: NDArray[np.float64],
    members: Sequence[str],
    question: AuditQuestion,
    layout: AuditLayout,
    *,
    scaling: FeatureScaling | None,
    share: float,
    fewest: int,
) -> AuditFindings:
    """Return what an opened audit says.

    Args:
        header: the total, as the layout says, and checked.
        members: whose answers are in it.
        question: what was asked.
        layout: of the plan.
        scaling: of the features; None where the plan makes none.
        share: the chance with which a record was trained on.
        fewest: `evaluation.min_group`.
    """
    sums = layout.header.read(header)
    told = [
        (about, counts)
        for about, counts in _counted(sums, question, layout, scaling)
        if about[1:] == (None, ()) or min(counts.sum(axis=1)) >= fewest
    ]
    tail = CHANCE / (ENDS * len(MISTAKES) * len(told))
    groups = tuple(_group(about, ScoreCounts(*counts), tail) for about, counts in told)
    linked = float(sums["linked"]) > 0
    everybody = [ScoreCounts(*sums[attack]) for attack in layout.attacks]
    epsilon = None if linked else epsilon_at_least(everybody, share, CHANCE)
    all_groups = len(layout.attacks) * (1 + layout.classes + len(question.slices))
    return AuditFindings(groups, all_groups - len(groups), epsilon, tuple(members))


_About = tuple[str, int | None, tuple[SliceCell, ...]]


def _counted(
    sums: NDArray[np.void], question: AuditQuestion, layout: AuditLayout, scaling: FeatureScaling | None
) -> Iterator[tuple[_About, NDArray[np.float64]]]:
    """Yield the counts (sides, bins) of every group by every attack, with what it is."""
    for attack in layout.attacks:
        yield (attack, None, ()), sums[attack]
    for attack in layout.attacks:
        for label in range(layout.classes):
            yield (attack, label, ()), sums[f"{attack}_by_class"][label]
        if layout.sliced is not None:
            for at, one in enumerate(question.slices):
                cells = named_cells(one, question.cuts, layout.sliced, scaling)
                yield (attack, None, cells), sums[f"{attack}_by_slice"][at]


def _group(about: _About, counts: ScoreCounts, tail: float) -> AuditedGroup:
    sizes = int(counts.found[-1]), int(counts.mistaken[-1])
    found = tuple(found_at(counts, mistakes, tail) for mistakes in MISTAKES)
    return AuditedGroup(*about, *sizes, counts.area, found)
