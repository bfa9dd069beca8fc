"""The pairs of units in which the same quantity is often written, and what one is in the other.

A table of factors, and one scale with another zero. What it is used for is decided in `unit_faults.py` and
`column_check.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
