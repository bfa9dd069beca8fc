"""The grid on which everything that carries noise leaves a site, and what rounding to it costs.

A sum of floats with float noise has low bits that tell whether a record was in the sum (Mironov 2012, "On
Significance of the Least Significant Bits for Differential Privacy"). So nothing is released but whole multiples
of a cell g, and the noise is a whole number of cells:

    F = round(f / g),    Z = F + round(N / g),    N normal with deviation s,    released: g Z

F is whole, so F + round(N / g) = round(F + N / g): Z is the Gaussian mechanism on F, rounded afterwards. What is
done afterwards costs nothing, and the accountant of the Gaussian mechanism is exact for Z. Rounding can move two
vectors apart by one cell in each of m entries that a record can change, so the sensitivity of g F is

    S + sqrt(m) g

where S is that of f as it was computed, float errors included (`sensitivity.summed_sensitivity`). The noise grows
with it: s = sigma (S + sqrt(m) g). So the noise multiplier sigma and every epsilon are those that were asked for.

The cell is the power of two with 2^18 g <= sigma S < 2^19 g. It depends on public values only. Dividing by it is
exact, rounding is exact, and a float32 holds all whole noise. The sum F + round(N / g) of two floats that hold
whole numbers is the exact sum, rounded once where the float is too narrow: a function of Z alone. No torch.

The sampler draws N with 53 bits (`noise.py`), about 2^31 values in a cell, so that a cell's probability is off by
a share of less than 2^-28 up to five deviations. How that adds up is said in docs/explain/privacy.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedfair.errors import PrivacyError

FINENESS = 18
"""The deviation of the noise is at least 2^18 cells."""

MAX_ROUNDING = 2.0**18
"""The most that sigma sqrt(m) may be: rounding then costs as much as the noise, and whole noise fits a float32."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The grid of noised numbers, and their noise.

    Attributes:
        cell: distance of neighbouring values (g), a power of two.
        deviation: standard deviation of the noise (s), in the units of the cell.
    """

    cell: float
    deviation: float

    @property
    def cells(self) -> float:
        """Standard deviation of the noise in cells."""
        return self.deviation / self.cell


def noise_grid(noise_multiplier: float, sensitivity: float, entries: int, *, largest: float = math.inf) -> Grid:
    """Return the grid and the noise for sums that one record can move by `sensitivity` before they are rounded.

    Args:
        noise_multiplier: sigma, above 0.
        sensitivity: S, above 0, float errors of the computed sum included.
        entries: how many numbers rounding can move because of one record (m), from 0 on.
        largest: the cell is no larger than this power of two.

    Raises:
        PrivacyError: there is no such cell, or rounding would cost more than the noise hides.
    """
    size = noise_multiplier * sensitivity
    if not (size > 0.0 and math.isfinite(size)):
        raise PrivacyError(
            f"noise of deviation {size} hides nothing", "give a noise multiplier and a clip above 0"
        )
    cell = min(math.ldexp(1.0, math.frexp(size)[1] - 1 - FINENESS), largest)
    if cell == 0.0 or noise_multiplier * math.sqrt(entries) > MAX_ROUNDING:
        raise PrivacyError(
            f"{entries} numbers with noise of deviation {size:.4g} cannot be rounded to a grid",
            "choose a smaller model or a lower noise multiplier, or a clip that is not so close to 0",
        )
    return Grid(cell, noise_multiplier * (sensitivity + math.sqrt(entries) * cell))
