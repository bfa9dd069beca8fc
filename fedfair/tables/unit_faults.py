"""Tells another unit, a turned sign or two exchanged columns from another population, by whole distributions.

Decides when a conversion explains a difference and nothing else does. The distance D of two distributions is the
greatest difference of their shares below the end of a bin, a lower bound of the Kolmogorov-Smirnov distance. Two
honest causes of a large D are ruled out first.

Another mix of classes. If the values of each class are alike everywhere, D is at most half the sum of the
differences of the shares of the classes. Only what is above that needs another cause.

A population that is shifted. It has another mean and about the same spread. So the values are also shifted to the
others' mean, median and quartiles. Where the best shift brings them near, a conversion must leave clearly less. It
need not where no shift is credible, because the means are more than `SEPARATE` of the greater spread apart.

A factor leaves zeros and signs as they are. So where bins tell zeros, it is sought in the sizes of other values.
Pure functions of two descriptions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.survey import QUARTILES, NumericColumn, NumericSummary
from fedfair.aggregation.survey_grid import LEAST, MAGNITUDES, ColumnGrid, quantile
from fedfair.tables.site_survey import SiteColumn

FAR, NEAR = 0.6, 0.5
"""The distance from which on two distributions are hardly of one quantity in one unit, and up to which they can be
after a conversion by a factor above `SMALL_FACTOR`."""

SMALL_FACTOR = 3.0
"""A greatest factor that people themselves may differ by."""

NEAR_BY_LITTLE = 0.35
"""The most that may be left after a factor of at most that, a turned sign, an exchange of columns or a shift."""

GAIN = 0.6
"""The most that may be left of a distance, and of what a near shift leaves, after a conversion."""

SEPARATE = 5.0
"""How many of the greater of two spreads means must be apart before no shift is credible. By Chebyshev's
inequality at most 1/25 of the values of each are then as far from their mean as the mean of the other is."""

ONE_SIGN = 0.95
"""The least share of values of one sign, where a sign may be turned."""

MIN_SIZES = 10
"""With fewer values other than zero on either side no factor is sought."""

_CRITICAL = 1.63
"""Times sqrt(1/n + 1/m), the distance that samples of one population exceed in one of a hundred cases."""

_Distributions = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Own values in rising order, the ends of the others' bins, and how many of their values each bin has."""


@dataclass(frozen=True, slots=True)
class UnitPair:
    """A value in one unit is `factor` times the value in the other, plus `offset`.

    Attributes:
        factor: above 1.
        words: the larger number's unit against the smaller number's, and for what.
        offset: what is added, after the factor.
    """

    factor: float
    words: str
    offset: float = 0.0


UNIT_PAIRS = (
    UnitPair(1.8, "degrees Fahrenheit against degrees Celsius", 32.0),
    UnitPair(2.20462262, "pounds against kilograms"),
    UnitPair(2.54, "centimetres against inches"),
    UnitPair(2.8011, "mg/dl against mmol/l of urea nitrogen"),
    UnitPair(4.008, "mg/dl against mmol/l of calcium"),
    UnitPair(7.50062, "mmHg against kPa"),
    UnitPair(10.0, "a factor of 10, such as mm against cm, or g/l against g/dl"),
    UnitPair(12.0, "months against years"),
    UnitPair(18.0156, "mg/dl against mmol/l of glucose"),
    UnitPair(28.3495, "grams against ounces"),
    UnitPair(38.67, "mg/dl against mmol/l of cholesterol"),
    UnitPair(60.0, "minutes against hours, or seconds against minutes"),
    UnitPair(88.42, "umol/l against mg/dl of creatinine"),
    UnitPair(100.0, "a factor of 100, such as cm against m, or percent against shares"),
    UnitPair(365.25, "days against years"),
    UnitPair(1000.0, "a factor of 1000, such as g against kg"),
    UnitPair(1000000.0, "a factor of a million, such as single cells against millions"),
)
"""From the smallest factor to the greatest."""


@dataclass(frozen=True, slots=True, order=True)
class Conversion:
    """A pair of units, and which of the two the values here are in.

    Attributes:
        pair: the units.
        larger: whether the larger numbers are here.
    """

    pair: UnitPair
    larger: bool

    @property
    def words(self) -> str:
        """Return the units, and which is which."""
        return f"{self.pair.words}, with the {'larger' if self.larger else 'smaller'} numbers here"

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values in the other unit."""
        if self.larger:
            return (values - self.pair.offset) / self.pair.factor
        return values * self.pair.factor + self.pair.offset


CONVERSIONS = tuple(Conversion(pair, larger) for pair in UNIT_PAIRS for larger in (True, False))
"""Of every pair, from either unit."""


@dataclass(frozen=True, slots=True)
class _Values:
    """Own values beside the others': all of a column, or those other than zero.

    Attributes:
        grid: the bins.
        own: float64 array, own values in rising order, evenly spaced.
        present: how many own values there are.
        counts: how many of the others' values each bin has.
        mean: of the others.
        spread: of the others.
    """

    grid: ColumnGrid
    own: NDArray[np.float64] = field(repr=False)
    present: int
    counts: NDArray[np.float64] = field(repr=False)
    mean: float
    spread: float

    @property
    def noise(self) -> float:
        """Return the distance that samples of one population hardly exceed."""
        return _CRITICAL * math.sqrt(1 / self.present + 1 / float(self.counts.sum()))

    @property
    def as_it_is(self) -> float:
        """Return the distance of both."""
        return distance(self.own, self.grid.edges, self.counts)

    @property
    def most_left(self) -> float:
        """Return the most that a conversion may leave, so that a shift to mean or quartile explains less."""
        apart = abs(float(self.own.mean()) - self.mean)
        if apart > SEPARATE * max(float(self.own.std()), self.spread):
            return 1.0  # no shift of a population is credible
        there = [quantile(self.counts, self.grid, share) for share in QUARTILES]
        here = np.quantile(self.own, QUARTILES)
        shifts = [self.mean - float(self.own.mean())]
        shifts += [value - float(own) for value, own in zip(there, here, strict=True) if value is not None]
        left = min(distance(self.own + shift, self.grid.edges, self.counts) for shift in shifts)
        return GAIN * left if left <= NEAR_BY_LITTLE else 1.0

    @property
    def sizes(self) -> _Distributions:
        """Return own sizes in rising order, with the ends and counts of the others' bins of sizes."""
        if self.grid.range is not None:
            return self.own, self.grid.edges, self.counts
        # The bins of both signs hold the same sizes (`survey_grid.py`).
        folded = self.counts[MAGNITUDES + 1 :] + self.counts[:MAGNITUDES][::-1]
        return np.sort(np.abs(self.own)), self.grid.edges[MAGNITUDES + 1 :], folded

    def other_than_zero(self) -> _Values | None:
        """Return the values other than zero; None where they are too few. Bins over a range do not tell zeros."""
        if self.grid.range is not None:
            return self
        own = self.own[np.abs(self.own) >= LEAST]
        counts = self.counts.copy()
        counts[MAGNITUDES] = 0.0
        here, there = round(self.present * len(own) / len(self.own)), float(counts.sum())
        if min(here, there) < MIN_SIZES:
            return None
        whole = float(self.counts.sum())
        mean, square = self.mean * whole / there, (self.spread**2 + self.mean**2) * whole / there
        return _Values(self.grid, own, here, counts, mean, math.sqrt(max(square - mean**2, 0.0)))


@dataclass(frozen=True, slots=True)
class Compared:
    """A column of one site beside that of all others, each with ten values or more.

    Attributes:
        column: its grid.
        own: the site's own values.
        others: what is known of the others' values.
        counts: how many of the others' values each bin has.
        explained: the distance that another mix of classes explains, from 0 to 1.
    """

    column: NumericColumn
    own: SiteColumn
    others: NumericSummary
    counts: NDArray[np.float64] = field(repr=False)
    explained: float = 0.0

    @property
    def is_far(self) -> bool:
        """Return whether the columns are hardly of one quantity in one unit."""
        return self._all.as_it_is >= self._least(self._all)

    def conversions(self) -> tuple[Conversion, ...]:
        """Return the conversions that explain a difference, the best first; none where nothing needs one."""
        if self.own.distinct <= 2 or not self.others.spread:
            return ()
        whole, sized = self._all, self._all.other_than_zero()
        found = list(self._explaining(whole, (whole.own, whole.grid.edges, whole.counts), has_offset=True))
        if sized is not None:
            found += self._explaining(sized, sized.sizes, has_offset=False)
        found.sort()
        return tuple(each for left, _, each in found if left <= found[0][0] + whole.noise / 2)

    def is_turned(self) -> bool:
        """Return whether nearly all values have the other sign here, and the sizes are alike."""
        values = self._all.other_than_zero()
        if self.column.grid.range is not None or values is None or not self.is_far:
            return False
        here = float(np.mean(values.own < 0))
        there = float(values.counts[:MAGNITUDES].sum() / values.counts.sum())
        if max(here, there) < ONE_SIGN or min(here, there) > 1 - ONE_SIGN:
            return False
        return distance(*values.sizes) <= NEAR_BY_LITTLE

    def is_like(self, other: Compared) -> bool:
        """Return whether this column's values here are like another column's elsewhere."""
        left = distance(self.own.ordered, other.column.grid.edges, other.counts)
        return left <= min(NEAR_BY_LITTLE, GAIN * self._all.as_it_is)

    @property
    def _all(self) -> _Values:
        mean, spread = self.others.mean or 0.0, self.others.spread or 0.0
        return _Values(self.column.grid, self.own.ordered, self.own.present, self.counts, mean, spread)

    def _least(self, values: _Values) -> float:
        return max(FAR, self.explained) + values.noise / 2

    def _explaining(
        self, values: _Values, sizes: _Distributions, *, has_offset: bool
    ) -> Iterator[tuple[float, float, Conversion]]:
        """Yield what is left after each conversion that brings values and sizes near, which no shift does.

        Args:
            values: own values beside the others'.
            sizes: of them, or the values themselves: a factor is sought in sizes, and turns no sign.
            has_offset: whether conversions with another zero are looked at, or factors.
        """
        own, edges, counts = sizes
        as_it_is = distance(*sizes)
        if as_it_is < self._least(values):
            return
        most = values.most_left
        for each in CONVERSIONS:
            if bool(each.pair.offset) == has_offset:
                signed = distance(each.of(values.own), values.grid.edges, values.counts)
                left = max(distance(each.of(own), edges, counts), signed)
                if left <= min(_near(each), GAIN * as_it_is, most):
                    yield left, each.pair.factor, each


def _near(conversion: Conversion) -> float:
    """Return the most that may be left after a conversion."""
    return NEAR_BY_LITTLE if conversion.pair.factor <= SMALL_FACTOR else NEAR


def distance(values: NDArray[np.float64], edges: NDArray[np.float64], counts: NDArray[np.float64]) -> float:
    """Return the greatest difference between two shares of values below an end of a bin, from 0 to 1.

    Args:
        values: own values in rising order, at least one.
        edges: where bins end, rising.
        counts: how many of the others' values each bin has, at least one in all.
    """
    below = np.searchsorted(values, edges, side="left") / len(values)
    theirs = np.cumsum(counts)[:-1] / counts.sum()
    return float(np.abs(below - theirs).max())


def exchanged(columns: Sequence[Compared]) -> dict[str, str]:
    """Return which columns have each other's values here, both ways; only where each has one such partner."""
    far = [each for each in columns if each.own.distinct > 2 and each.is_far]
    pairs = [
        (one.own.name, two.own.name)
        for place, one in enumerate(far)
        for two in far[place + 1 :]
        if one.is_like(two) and two.is_like(one)
    ]
    named = [name for pair in pairs for name in pair]
    alone = [pair for pair in pairs if all(named.count(name) == 1 for name in pair)]
    return {**dict(alone), **{two: one for one, two in alone}}


def explained_by_classes(own: Sequence[int], others: Sequence[int]) -> float:
    """Return how far apart columns can be that are alike in each class: half of what the shares differ.

    Args:
        own: how many records each class has here.
        others: the same elsewhere.
    """
    here, there = sum(own), sum(others)
    if not here or not there:
        return 0.0
    return sum(abs(one / here - other / there) for one, other in zip(own, others, strict=True)) / 2
