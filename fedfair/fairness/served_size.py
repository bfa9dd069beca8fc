"""The group size from which on one model serves every group better than guessing.

Decides what losses, or intervals around the risks of a few group sizes, say of all the sizes between. With g(s)
for s times the mean loss of the worst share s (the integral of the largest losses), the worst group of size s is
served better than guessing if and only if g(s) < s log(classes). g rises, is concave, and g(0) = 0. So between two
known sizes it lies above the chord, and below the line that continues the slope from the next known size on. A
size whose worst group beats guessing is followed by such sizes only. No torch, no scipy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.fairness.cvar import descending

ROUNDING = 1e-9
"""A loss beats guessing by more than this part of it: sums of up to 10^6 losses are off by less."""


@dataclass(frozen=True, slots=True)
class ServedSizes:
    """The group sizes at which one model's worst group beats guessing, as far as is known.

    Attributes:
        not_served_to: at this size and all smaller ones the worst group certainly fares no better than guessing; 0
            where that is certain of no size.
        served_from: above this size every group certainly fares better than guessing; None where that is certain
            of no size.
    """

    not_served_to: float
    served_from: float | None


def smallest_served_size(losses: NDArray[np.floating], guess: float) -> float | None:
    """Return the size above which every worst group of these losses beats guessing; None where none does.

    Args:
        losses: array (n,), n >= 1, finite and not negative.
        guess: the loss of the uniform guess, above 0.

    Returns:
        A share in [0, 1); 0 where every record beats guessing.

    Raises:
        DataError: there are no losses, or one is negative or not finite.
    """
    ordered, limit = descending(losses), guess * (1.0 - ROUNDING)
    sums = np.append(0.0, ordered.cumsum())
    counts = np.arange(len(sums))
    beaten = np.flatnonzero(sums[1:] < limit * counts[1:])
    if not len(beaten):
        return None
    first = int(beaten[0])
    if first == 0:
        return 0.0
    # Between first and first + 1 records the sum rises by one loss, the guess's by `guess`; they meet once.
    lead = float(sums[first]) - limit * first
    return (first + lead / (limit - float(ordered[first]))) / len(ordered)


def served_sizes(intervals: Mapping[float, tuple[float, float]], mean: float, guess: float) -> ServedSizes:
    """Return what certain intervals of the worst groups' risks say of every size.

    Args:
        intervals: by group size, in (0, 1]: two numbers with the worst group's mean loss between them.
        mean: the mean loss of all records; it is the risk at size 1.
        guess: the loss of the uniform guess, above 0.

    Raises:
        DataError: a size is outside (0, 1], or an interval is empty or negative.
    """
    for size, (low, high) in intervals.items():
        if not (0.0 < size <= 1.0 and 0.0 <= low <= high):
            raise DataError(f"the worst group of size {size} has the interval {low} to {high}")
    known = {size: ends for size, ends in intervals.items() if size < 1.0} | {1.0: (mean, mean)}
    sizes = sorted(known)
    lower = {size: size * known[size][0] for size in sizes}
    upper = {size: size * known[size][1] for size in sizes}
    limit = guess * (1.0 - ROUNDING)
    below, above = _not_served_to(sizes, lower, limit), _served_from(sizes, upper, lower, limit)
    # Risks of one model never make these cross; rounded figures, or estimates under noise, may.
    return ServedSizes(below, None if above is None else max(above, below))


def _not_served_to(sizes: list[float], lower: Mapping[float, float], guess: float) -> float:
    """Return where the chord between the last size above the guess and the next one crosses it."""
    above = [size for size in sizes if lower[size] >= guess * size]
    if not above:
        return 0.0
    last = above[-1]
    later = [size for size in sizes if size > last]
    crossings = [
        last
        + (size - last) * (lower[last] - guess * last) / (lower[last] - guess * last + guess * size - lower[size])
        for size in later
    ]
    return max(crossings, default=last)


def _served_from(
    sizes: list[float], upper: Mapping[float, float], lower: Mapping[float, float], guess: float
) -> float | None:
    """Return the smallest size above which the upper end of g is below the guess."""
    found = [math.inf]
    for size in sizes:
        if upper[size] >= guess * size:
            continue
        # g grows at least as fast before `size` as it does on average after it, at most to the next sizes.
        slope = max(
            (max(0.0, (lower[later] - upper[size]) / (later - size)) for later in sizes if later > size),
            default=0.0,
        )
        slope = min(slope, upper[size] / size)
        found.append((upper[size] - slope * size) / (guess - slope))
    smallest = min(found)
    return None if math.isinf(smallest) else max(0.0, smallest)
