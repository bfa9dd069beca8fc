"""Who of a slice has the outcome, whom the model flags, and what the references said: counts of slices' last step.

    outcomes    how many have the outcome: class 1 of two; of more classes, of how many the likeliest came true
    flagged     how many the model takes for class 1, as in the confusion matrix: at a score of one half
    found       how many are both
    chances     the sum of the chances that the references gave to the outcome, in `LEVELS` steps rounded at random

The cells are those whose measures are asked for (`slice_safety`): no cell, and no combination of the sums of two
columns, is over fewer than `evaluation.min_group` people. Yet a count tells more than a mean: where all of a cell
have the outcome, or none, everybody's is known. And `found` is a sum over those who are flagged, who may be one
person. No choice of cells helps against that, because nobody knows before these sums whom the model flags. So they
have a word of their own in a site's policy, slice-outcomes, and what is published has a rule (`may_be_told`): at
least `fewest` people have the outcome, and as many have not; the flagged are nobody or as many, and so are the
others. All this holds also of everybody else, whose counts follow by subtraction from the confusion matrix. A
result has the decisions about one slice, and what references said of one, so that no tables can be subtracted.

The check of the references looks at the mean error of their chances in a group, p* - q, where Delta_G of
`reference_check` would be wanted. With two classes that is the mean of (p* - q)(logit q - logit p): the mean error
times the mean of the difference of the logits, and the covariance of the two within the group. So the check bounds
the first part. The second is not known: q may be too high for some of a slice and too low for others.

An interval is Clopper and Pearson's; of the check it is less the mean chance, which rounding at random moves by no
more than Hoeffding's bound says. All hold together with 95 % (Bonferroni). Numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.slice_sums import LEVELS, STEPS, SliceLayout, levels_of
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.fairness.binomial_tail import chance_interval
from fedfair.fairness.record_losses import Losses

MISTAKES = 0.05
"""The chance that any of the intervals of a search misses."""

_ROUNDING = 0.1
"""The share of that chance that the rounding of chances may take."""

Counts = tuple[int, int, int, int]
"""People, those who have the outcome, those who are flagged, and those who are both."""

_WORDS = {
    "outcomes": "people who have the outcome",
    "flagged": "flagged people",
    "found": "flagged people who have the outcome",
    "chances": "steps of the chances of references",
    "counts": "people",
}
_PARTS = (("outcomes", "counts", 1), ("flagged", "counts", 1), ("found", "outcomes", 1), ("found", "flagged", 1))


@dataclass(frozen=True, slots=True)
class DecidedSlice:
    """How a model of two classes decides about the people of a slice.

    Attributes:
        confusion: ((spared, alarmed), (missed, found)), as in a confusion matrix.
        sensitivity: that holds the true share of those with the outcome who are found.
        specificity: that of the others who are not flagged.
        precision: that of the flagged who have the outcome; None where nobody is flagged.
    """

    confusion: tuple[tuple[int, int], tuple[int, int]]
    sensitivity: tuple[float, float]
    specificity: tuple[float, float]
    precision: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class CheckedSlice:
    """What the references said of the people of a slice, and how often it came true.

    Attributes:
        count: people.
        said: the mean of the chances.
        found: the share of whom it came true.
        interval: that holds the true share less the mean of the chances.
    """

    count: int
    said: float
    found: float
    interval: tuple[float, float]

    @property
    def is_off(self) -> bool:
        """Return whether the references are wrong about these people beyond doubt."""
        return self.interval[0] > 0.0 or self.interval[1] < 0.0


# ------------------------------------------------------------------ at a site


def counted_answers(
    losses: Losses, layout: SliceLayout, draws: NDArray[np.float64]
) -> dict[str, NDArray[np.int64]]:
    """Return what step 3 sums of each record by field: int64 arrays (n,); nothing where the plan counts none.

    Args:
        losses: of n records.
        layout: of the plan.
        draws: array (n,), uniform in [0, 1), as for `levels_of`.
    """
    told: dict[str, NDArray[np.int64]] = {}
    if layout.checks:
        if len(losses.answered) != len(draws):
            raise LocalProtocolError("references are to be checked by slices, and they have not judged")
        told["chances"] = levels_of(losses.answered[:, 0], 1.0, draws)
        told["outcomes"] = losses.answered[:, 1].astype(np.int64)
    if layout.decides:
        has, flagged = losses.labels == 1, losses.predictions == 1
        told |= {name: each.astype(np.int64) for name, each in (("outcomes", has), ("flagged", flagged))}
        told["found"] = (has & flagged).astype(np.int64)
    return told


# ------------------------------------------------------------------ the total


def check_answers(found: NDArray[Any], layout: SliceLayout) -> None:
    """Refuse counts of outcomes that no people of the cells have.

    Args:
        found: record of the fields of step 3.
        layout: of the plan.

    Raises:
        RemoteProtocolError: it names what there is too much of.
    """
    held = {name: found[name] for name in _WORDS if found[name].size}
    for part, whole, most in (*_PARTS, ("chances", "counts", LEVELS)):
        if part in held:
            _check_part(held, part, whole, most)
    if layout.decides and (held["outcomes"] + held["flagged"] - held["found"] > _first(held, "flagged")).any():
        raise _refused("more people who have the outcome or are flagged than there are in a cell")
    for name, values in held.items():
        if name != "counts":
            _check_same_people(name, layout.tables_of(values), layout)


def _first(held: dict[str, NDArray[np.float64]], name: str) -> NDArray[np.float64]:
    """Return the counts of as many cells as a field has."""
    return held["counts"][: len(held[name])]


def _check_part(held: dict[str, NDArray[np.float64]], part: str, whole: str, most: int) -> None:
    parts, wholes = held[part], held[whole][: len(held[part])]
    wrong = np.flatnonzero(parts > most * wholes)
    if wrong.size:
        at = int(wrong[0])
        raise _refused(f"{parts[at]:g} {_WORDS[part]} of {wholes[at]:g} {_WORDS[whole]} in cell {at}")


def _check_same_people(name: str, tables: Sequence[NDArray[np.float64]], layout: SliceLayout) -> None:
    """Refuse tables that are not of the same people; one that is not asked for is 0 everywhere."""
    columns = len(layout.columns)
    totals = {float(table.sum()) for table in tables[:columns] if table.any()}
    fits = len(totals) <= 1
    for table, (left, right) in zip(tables[columns:], layout.pairs, strict=False):
        if table.any():
            fits &= np.array_equal(table.sum(axis=1), tables[left])
            fits &= np.array_equal(table.sum(axis=0), tables[right])
    if not fits:
        raise _refused(f"{_WORDS[name]} that differ between two tables of the same people")


def _refused(words: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"step {STEPS} of slices was answered with {words}",
        "a site sent numbers that no honest site sends; compare the software of the sites",
    )


# ------------------------------------------------------------------ what it means


def may_be_told(held: Counts, everybody: Counts, fewest: int) -> bool:
    """Return whether a slice's outcomes and decisions may be published, beside those of everybody.

    Args:
        held: of the slice; without decisions nobody is flagged.
        everybody: of all records of the split.
        fewest: `evaluation.min_group`.
    """
    rest = [all_ - own for all_, own in zip(everybody, held, strict=True)]
    for people, outcomes, flagged, _ in (held, rest):
        if min(outcomes, people - outcomes) < fewest:
            return False
        if any(0 < some < fewest for some in (flagged, people - flagged)):
            return False
    return True


def decided_slice(held: Counts, slices: int) -> DecidedSlice:
    """Return how a model decides about the people of a slice, of which some have the outcome and some have not.

    Args:
        held: of the slice.
        slices: how many were looked at; each of three shares of each has an interval.
    """
    people, outcomes, flagged, found = held
    tail = MISTAKES / (2 * 3 * slices)
    spared = people - outcomes - flagged + found
    return DecidedSlice(
        ((spared, flagged - found), (outcomes - found, found)),
        chance_interval(found, outcomes, tail),
        chance_interval(spared, people - outcomes, tail),
        chance_interval(found, flagged, tail) if flagged else None,
    )


def checked_slice(people: int, outcomes: int, chances: float, slices: int) -> CheckedSlice:
    """Return what references said of a slice.

    Args:
        people: of the slice, at least 1.
        outcomes: of whom it came true.
        chances: the sum of the chances, in steps.
        slices: how many were looked at.
    """
    said, each = chances / (LEVELS * people), MISTAKES / slices
    moved = math.sqrt(math.log(2.0 / (_ROUNDING * each)) / (2.0 * people)) / LEVELS
    low, high = chance_interval(outcomes, people, (1.0 - _ROUNDING) * each / 2.0)
    return CheckedSlice(people, said, outcomes / people, (low - said - moved, high - said + moved))
