"""The figures of named groups of one site's own records: whom a model finds, misses and alarms for nothing.

Made at the site, of its own losses, for its own eyes; nothing of it is ever sent, and no sum knows the groups.
Decides which figures there are and which groups are too few people to be shown. Shares have intervals
(`fairness.wilson`), for groups are small; with many groups, some intervals miss the truth by chance. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.fairness.ranking import area_under_curve
from fedfair.fairness.record_losses import Losses
from fedfair.fairness.wilson import Proportion, proportion

EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True)
class JudgedRecords:
    """Records and what a model makes of them.

    Attributes:
        losses: of the records, with the classes that they are taken for, n >= 1.
        classes: how many there are; 0 where answers are none.
    """

    losses: Losses
    classes: int


@dataclass(frozen=True, slots=True)
class NamedGroup:
    """The figures of one group.

    Attributes:
        name: of the group.
        records: how many it has, at least 1.
        mean: mean loss, in the unit of the loss.
        accuracy: who is classified correctly; None without classes.
        positives: who is of class 1; None for other than two classes, as all that follow.
        missed: who is of class 1 and not taken for it, of all.
        alarmed: who is not of class 1 and taken for it, of all.
        sensitivity: who is taken for class 1, of those who are; None where there are none.
        specificity: who is not taken for it, of the others; None where there are none.
        auc: how well the scores rank; None without scores, or where all are of one class.
    """

    name: str
    records: int
    mean: float
    accuracy: Proportion | None = None
    positives: Proportion | None = None
    missed: Proportion | None = None
    alarmed: Proportion | None = None
    sensitivity: Proportion | None = None
    specificity: Proportion | None = None
    auc: float | None = None


@dataclass(frozen=True, slots=True)
class GroupTable:
    """The groups of one column.

    Attributes:
        column: as it was asked for.
        groups: everybody first, then those that are shown.
        hidden: how many groups are not.
        hidden_records: how many records these have together.
    """

    column: str
    groups: tuple[NamedGroup, ...]
    hidden: int
    hidden_records: int


def group_table(
    column: str, names: Sequence[str], place: NDArray[np.int64], judged: JudgedRecords, fewest: int
) -> GroupTable:
    """Return the figures of the groups of one column.

    Args:
        column: as it was asked for.
        names: of the groups, each of at least one record.
        place: the number of each record's group, array (n,).
        judged: the same records.
        fewest: groups of fewer records are not shown.
    """
    sizes = np.bincount(place, minlength=len(names))
    shown = [number for number, size in enumerate(sizes) if size >= max(fewest, 1)]
    few = [int(size) for size in sizes if size < fewest]
    everybody = named_group(EVERYBODY, judged, np.ones(len(place), np.bool_))
    groups = (named_group(names[number], judged, place == number) for number in shown)
    return GroupTable(column, (everybody, *groups), len(few), sum(few))


def named_group(name: str, judged: JudgedRecords, inside: NDArray[np.bool_]) -> NamedGroup:
    """Return the figures of one group.

    Args:
        name: of the group.
        judged: all records.
        inside: who is in the group, array (n,), at least one.
    """
    losses = judged.losses
    records, mean, correct = int(inside.sum()), float(losses.values[inside].mean()), losses.correct
    if correct is None:
        return NamedGroup(name, records, mean)
    right = Proportion(int(correct[inside].sum()), records)
    if judged.classes != 2:
        return NamedGroup(name, records, mean, right)
    wanted, named = losses.labels[inside] == 1, losses.predictions[inside] == 1
    found, missed = int((wanted & named).sum()), int((wanted & ~named).sum())
    alarmed = int((~wanted & named).sum())
    spared = records - found - missed - alarmed
    scores = losses.scores[inside, 0] if losses.scores.size else None
    return NamedGroup(
        name,
        records,
        mean,
        right,
        positives=Proportion(found + missed, records),
        missed=Proportion(missed, records),
        alarmed=Proportion(alarmed, records),
        sensitivity=proportion(found, found + missed),
        specificity=proportion(spared, spared + alarmed),
        auc=None if scores is None else area_under_curve(scores, wanted),
    )
