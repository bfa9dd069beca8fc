"""Compares a site's own columns with those of all others in a survey, and names what is probably wrong here.

Decides what is worth a word, at the site and for it alone. Units, signs and exchanged columns are
`unit_faults.py`'s. A share is odd only where it differs by much and by no chance: Fisher's exact test of the two
groups says how likely it is that records of one population are divided so. Pure functions of two descriptions.
What they find and miss was measured on data that none of it was made for (docs/how-to/check-data.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.survey import (
    CategorySummary,
    NumericColumn,
    NumericSummary,
    SurveyLayout,
    SurveySummary,
    summarised,
    without,
)
from fedfair.aggregation.survey_grid import RELATIVE_BOUND
from fedfair.plan.csv_table import MISSING, OTHER
from fedfair.tables.profile import share
from fedfair.tables.site_survey import SiteColumn, SiteSurvey
from fedfair.tables.unit_faults import Compared, exchanged, explained_by_classes

MIN_VALUES = 10
"""With fewer values on either side a column is not compared."""

CHANCE = 1e-6
"""How likely it may be at most that records like the others' are all alike, or all without a value, by chance."""

MISSING_CODES = (0.0, -1.0, -9.0, -99.0, -999.0, -9999.0, 9.0, 99.0, 999.0, 9999.0, 99999.0)
"""Numbers that are often written where there is none."""

MIN_SPIKE = 0.02
"""The least share of a number that may stand for a missing one."""

RARE = 1e-4
"""The same where a number is one of few that are asked about, a peak or far from the rest, and no other mix of
classes explains it."""

PEAK = 2
"""How many times as frequent as any other value such a number is at an end of a column."""

SPIKE_RATIO = 0.1
"""The greatest share of the same bin at the others, relative to the own one."""

APART = 0.5
"""How far a number that stands for a missing one is from the others, in widths of their middle nine tenths."""

MAX_UNITS = 3
"""The most pairs of units that are named for one column."""

SWAPPED_GAP, SWAPPED_MATCH = 0.5, 0.15
"""How far two shares are apart, and how near one is to the other's complement, where a coding may be swapped."""

OTHER_GAP = 0.25
"""By how much more often a site has a value that the plan does not name, where its coding may differ."""


class SurveyFaultKind(Enum):
    """The kinds of fault; the value is the word in events and JSON."""

    UNIT = "unit"
    SIGN = "turned-sign"
    EXCHANGED = "exchanged-columns"
    MISSING_CODE = "missing-code"
    SWAPPED = "swapped-coding"
    SHIFTED = "shifted-coding"
    OTHER_VALUES = "other-values"
    CONSTANT = "constant"
    ABSENT = "all-missing"


@dataclass(frozen=True, slots=True)
class SurveyFault:
    """One thing that is probably wrong with a column of a site.

    Attributes:
        column: the column; `label` for the classes.
        kind: what it is.
        words: a sentence with the figures, for the site alone.
    """

    column: str
    kind: SurveyFaultKind
    words: str

    @property
    def sentence(self) -> str:
        """Return the column with what is wrong with it."""
        return f"column '{self.column}': {self.words}"


LABEL = "label"
"""The name of the classes in a fault."""


def survey_faults(
    total: NDArray[np.float64],
    own: SiteSurvey,
    layout: SurveyLayout,
    spellings: Mapping[str, str] | None = None,
    *,
    is_member: bool = True,
) -> tuple[SurveyFault, ...]:
    """Return what is probably wrong with a site's own columns, in the order of the columns.

    Args:
        total: the opened survey.
        own: the site's part of it.
        layout: the columns of the plan's survey.
        spellings: by categorical column, what is known of spellings that differ only in case.
        is_member: whether this site's part is in the survey.

    Raises:
        RemoteProtocolError: the total does not have this site's part in it.
    """
    others = without(total, own.header if is_member else layout.header.zeros(), layout)
    mine, theirs = summarised(own.header, layout), summarised(others, layout)
    if not mine.records or not theirs.records:
        return ()
    bins = layout.bins_of(layout.header.read(others)["bins"])
    explained = explained_by_classes(mine.labels, theirs.labels)
    columns = [
        Compared(column, held, summary, counts, explained)
        for column, held, summary, counts in zip(layout.numeric, own.columns, theirs.numeric, bins, strict=True)
    ]
    partners = exchanged([each for each in columns if _is_comparable(each)])
    found = [fault for each in columns if (fault := _number_fault(each, partners)) is not None]
    told = spellings or {}
    for held_values, their_values in zip(mine.categories, theirs.categories, strict=True):
        fault = _category_fault(held_values, their_values, (mine.records, theirs.records), told)
        if fault is not None:
            found.append(fault)
    return (*found, *_label_faults(mine, theirs))


def _is_comparable(compared: Compared) -> bool:
    return min(compared.own.present, compared.others.present) >= MIN_VALUES


def _number_fault(compared: Compared, partners: Mapping[str, str]) -> SurveyFault | None:
    own, others = compared.own, compared.others
    everywhere = others.missing + others.present
    if own.missing and not own.present and _is_odd(others.missing, everywhere, own.missing):
        return _absent(own.name, own.missing, share(others.missing, everywhere))
    if not _is_comparable(compared):
        return None
    if own.name in partners:
        words = f"has the values here that '{partners[own.name]}' has elsewhere, and the other way round"
        return SurveyFault(own.name, SurveyFaultKind.EXCHANGED, words)
    checks = (_coding_fault, _missing_code, _constant_fault, _turned_fault, _unit_fault)
    return next((fault for check in checks if (fault := check(compared)) is not None), None)


def _absent(column: str, records: int, elsewhere: str) -> SurveyFault:
    words = f"has no value in any of the {records} records here; elsewhere {elsewhere} are missing"
    return SurveyFault(column, SurveyFaultKind.ABSENT, words)


def _is_odd(part: float, whole: float, times: int) -> bool:
    """Return whether it is no chance that something is so every time here, of which others have a part."""
    return part < whole and (part / whole) ** times < CHANCE if whole else False


def is_chance(here: tuple[int, int], there: tuple[int, int], chance: float = CHANCE) -> bool:
    """Return whether it may be chance that one group has something so much more often: Fisher's exact test.

    Args:
        here: in how many of how many cases.
        there: the same of the other group.
        chance: the least probability that is called chance.
    """
    (times, cases), (elsewhere, others) = here, there
    held, total = times + elsewhere, cases + others
    # The odds of exactly this table, and then of each that is odder, each from the one before it.
    term = math.exp(
        _log_choose(held, times) + _log_choose(total - held, cases - times) - _log_choose(total, cases)
    )
    odds = 0.0
    for more in range(times, min(held, cases) + 1):
        odds += term
        if odds >= chance or term < CHANCE * odds:
            break
        term *= (held - more) * (cases - more) / ((more + 1) * (total - held - cases + more + 1))
    return odds >= chance


def _log_choose(whole: int, part: int) -> float:
    return math.lgamma(whole + 1) - math.lgamma(part + 1) - math.lgamma(whole - part + 1)


def _constant_fault(compared: Compared) -> SurveyFault | None:
    own, counts = compared.own, compared.counts
    if own.distinct > 1 or not _is_odd(float(counts.max()), float(counts.sum()), own.present):
        return None
    value, times = own.common[0]
    median = _median(compared.column, compared.others)
    words = f"is {value:g} in all {times} records here; elsewhere it varies, with the median {median}"
    return SurveyFault(own.name, SurveyFaultKind.CONSTANT, words)


def _missing_code(compared: Compared) -> SurveyFault | None:
    """Look for a number that is frequent here, no part of the rest here, and as good as unknown elsewhere."""
    own, others, counts = compared.own, compared.others, compared.counts
    # Zero may be one of two codes, or all that there is.
    codes = MISSING_CODES if own.distinct > 2 else MISSING_CODES[1:] if own.distinct == 2 else ()
    for value, times in own.common:
        place = int(compared.column.grid.places(np.array([value]))[0])
        often, elsewhere = times / own.present, int(counts[place])
        is_spike = times > 1 and often >= MIN_SPIKE and elsewhere <= SPIKE_RATIO * often * others.present
        if value not in codes or not is_spike or not _is_code(compared, value, times, place):
            continue
        words = (
            f"is {value:g} in {share(times, own.present)} of the values here and in "
            f"{share(elsewhere, others.present)} elsewhere, where the median is "
            f"{_median(compared.column, others)}; "
            f"{value:g} probably stands for a missing value: declare it under missing_values_of in the plan"
        )
        return SurveyFault(own.name, SurveyFaultKind.MISSING_CODE, words)
    return None


def _is_code(compared: Compared, value: float, times: int, place: int) -> bool:
    """Return whether a number is beyond all others and far from the rest here, or a peak by no chance."""
    own, counts = compared.own, compared.counts
    held = np.flatnonzero(counts)
    is_far = is_far_from_the_rest(own, value)
    rest = own.ordered[own.ordered != value]
    if not held[0] <= place <= held[-1] and (is_far or value < 0 <= rest.min(initial=0.0)):
        return True
    elsewhere = int(counts[place]), compared.others.present
    gap = times / own.present - elsewhere[0] / elsewhere[1]
    chance = RARE if gap > compared.explained else CHANCE
    return (is_far or is_peak_at_an_end(own, value)) and not is_chance((times, own.present), elsewhere, chance)


def is_peak_at_an_end(own: SiteColumn, value: float) -> bool:
    """Return whether a value is at an end of a column and at least `PEAK` times as frequent as any other."""
    rest = own.ordered[own.ordered != value]
    if not len(rest) or rest[0] < value < rest[-1]:
        return False
    times = dict(own.common)
    return times[value] >= PEAK * max((often for other, often in own.common if other != value), default=1)


def is_far_from_the_rest(own: SiteColumn, value: float) -> bool:
    """Return whether a value is far from all other values of a column."""
    rest = own.ordered[own.ordered != value]
    if not len(rest):
        return True
    low, high = np.quantile(rest, [0.05, 0.95])
    return not low < value < high and float(np.abs(rest - value).min()) >= APART * float(high - low)


def _coding_fault(compared: Compared) -> SurveyFault | None:
    """Look for 1 and 2 in place of 0 and 1 or the other way round, and for 0 and 1 exchanged."""
    own, others, counts = compared.own, compared.others, compared.counts
    values = sorted(value for value, _ in own.common)
    zero, one, two = (int(place) for place in compared.column.grid.places(np.array([0.0, 1.0, 2.0])))
    if own.distinct != 2 or len({zero, one, two}) < 3:
        return None
    for here, (low, high), there in (([1.0, 2.0], (zero, one), "0 and 1"), ([0.0, 1.0], (one, two), "1 and 2")):
        held = int(counts[low]), int(counts[high])
        alone = own.present - dict(own.common)[1.0] if 1.0 in values else 0
        if values != here or min(held) == 0 or sum(held) != others.present:
            continue
        # The number that is not among the others' codes; two populations of one coding have it alike.
        if not is_chance((alone, own.present), (0, others.present), RARE):
            words = f"has the values {here[0]:g} and {here[1]:g} here, and {there} elsewhere"
            return SurveyFault(own.name, SurveyFaultKind.SHIFTED, words)
    if values != [0.0, 1.0] or counts[[zero, one]].sum() != counts.sum() or not min(counts[zero], counts[one]):
        return None
    ones = dict(own.common)[1.0]
    if not _is_swapped((ones, own.present), (int(counts[one]), others.present)):
        return None
    here_share = ones / own.present
    words = (
        f"is 1 in {here_share:.0%} of the values here and in {counts[one] / counts.sum():.0%} elsewhere; "
        f"0 and 1 may be the other way round here, which would be {1 - here_share:.0%}"
    )
    return SurveyFault(own.name, SurveyFaultKind.SWAPPED, words)


def _is_swapped(here: tuple[int, int], there: tuple[int, int]) -> bool:
    """Return whether a share is far from another and near its complement, and that is no chance."""
    (times, cases), (elsewhere, others) = here, there
    one, other = times / cases, elsewhere / others
    if abs(one - other) < SWAPPED_GAP or abs(1 - one - other) > SWAPPED_MATCH:
        return False
    if one > other:
        return not is_chance(here, there)
    return not is_chance((cases - times, cases), (others - elsewhere, others))


def _unit_fault(compared: Compared) -> SurveyFault | None:
    found = compared.conversions()
    if not found:
        return None
    words = (
        f"{_medians(compared)}{_factor(compared.own, compared.others)}; probably another unit: "
        f"{'; or '.join(each.words for each in found[:MAX_UNITS])}"
    )
    return SurveyFault(compared.own.name, SurveyFaultKind.UNIT, words)


def _turned_fault(compared: Compared) -> SurveyFault | None:
    if not compared.is_turned():
        return None
    words = f"{_medians(compared)}; nearly all values have the other sign here"
    return SurveyFault(compared.own.name, SurveyFaultKind.SIGN, words)


def _medians(compared: Compared) -> str:
    here = float(np.median(compared.own.ordered))
    return f"the median here is {here:g}, elsewhere {_median(compared.column, compared.others)}"


def _factor(own: SiteColumn, others: NumericSummary) -> str:
    """Return the ratio of the means in words; empty where there is none."""
    here, there = float(own.ordered.mean()), others.mean or 0.0
    if here * there <= 0:
        return ""
    if abs(here) >= abs(there):
        return f", and the mean is {here / there:.3g} times that of the others"
    return f", and the mean of the others is {there / here:.3g} times that"


def _category_fault(
    own: CategorySummary, others: CategorySummary, records: tuple[int, int], spellings: Mapping[str, str]
) -> SurveyFault | None:
    if min(records) < MIN_VALUES:
        return None
    here = {value: count / records[0] for value, count in own.counts.items()}
    there = {value: count / records[1] for value, count in others.counts.items()}
    if own.missing == records[0] and _is_odd(others.missing, records[1], records[0]):
        return _absent(own.name, records[0], share(others.missing, records[1]))
    named = [value for value in own.counts if value not in (OTHER, MISSING)]
    strange = _strange(own), _strange(others)
    gap = strange[0] / records[0] - strange[1] / records[1]
    unused = [
        value
        for value in named
        if not own.counts[value] and not is_chance((others.counts[value], records[1]), (0, records[0]), RARE)
    ]
    chance = RARE if unused else CHANCE
    if (gap >= OTHER_GAP or unused) and not is_chance((strange[0], records[0]), (strange[1], records[1]), chance):
        spelt = f" ({spellings[own.name]})" if own.name in spellings else ""
        words = (
            f"{share(strange[0], records[0])} of the records here have a value that the plan does not name"
            f"{spelt}, elsewhere {share(strange[1], records[1])}"
        )
        if unused:
            elsewhere = share(others.counts[unused[0]], records[1])
            words = f"{words}; {unused[0]} is in no record here, elsewhere in {elsewhere}"
        words = f"{words}; compare the values with those of the plan"
        return SurveyFault(own.name, SurveyFaultKind.OTHER_VALUES, words)
    constant = [value for value in own.counts if own.counts[value] == records[0]]
    if constant and constant[0] in named and _is_odd(others.counts[constant[0]], records[1], records[0]):
        words = f"is {constant[0]} in all {records[0]} records here, elsewhere in {there[constant[0]]:.0%}"
        return SurveyFault(own.name, SurveyFaultKind.CONSTANT, words)
    if len(named) == 2 and all(
        _is_swapped((own.counts[value], records[0]), (others.counts[value], records[1])) for value in named
    ):
        words = (
            f"is {named[0]} in {here[named[0]]:.0%} of the records here and in {there[named[0]]:.0%} elsewhere; "
            f"{named[0]} and {named[1]} may be the other way round here"
        )
        return SurveyFault(own.name, SurveyFaultKind.SWAPPED, words)
    return None


def _strange(column: CategorySummary) -> int:
    """Return how many records have a value that the plan does not name: other, without those that have none."""
    return column.counts[OTHER] - (column.missing - column.counts.get(MISSING, 0))


def _label_faults(own: SurveySummary, others: SurveySummary) -> Iterator[SurveyFault]:
    if min(own.records, others.records) < MIN_VALUES:
        return
    present = [label for label, count in enumerate(own.labels) if count]
    if len(present) == 1 and _is_odd(others.labels[present[0]], others.records, own.records):
        there = share(others.labels[present[0]], others.records)
        words = f"all {own.records} records here are of class {present[0]}, elsewhere {there}"
        yield SurveyFault(LABEL, SurveyFaultKind.CONSTANT, words)
    elif len(own.labels) == 2 and _is_swapped((own.labels[1], own.records), (others.labels[1], others.records)):
        here, there = (f"{each.labels[1] / each.records:.0%}" for each in (own, others))
        words = f"{here} of the records here are of class 1, elsewhere {there}; the two may be the other way round"
        yield SurveyFault(LABEL, SurveyFaultKind.SWAPPED, words)


def _median(column: NumericColumn, others: NumericSummary) -> str:
    """Return the others' median in words: an estimate, with its bound."""
    if others.quartiles is None or others.bound is None:
        return "unknown"
    estimate, bound = others.quartiles[1], others.bound[1]
    if column.grid.range is not None:
        return f"about {estimate:.3g} (to within {bound:.2g})"
    return f"about {estimate:.3g} (to within {RELATIVE_BOUND:.0%})" if estimate else "0"
