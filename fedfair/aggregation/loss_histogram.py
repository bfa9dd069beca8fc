"""The loss histogram that one site adds to an evaluation, as numbers that are summed over sites.

Decides what is in the block of a split; what the summed numbers prove is `cvar_bounds.py`'s business. Blocks of
different sites add up to the block of all their records together, so nothing but sums need ever be seen.

A block holds the number of records, of correct classifications, the sum of the smoothed objective f~, and per bin
how many losses it holds and their sum. Bin b < bins holds edge_b <= loss < edge_{b+1}; the last one holds every
loss from the end of the range on. There is one block for each split, always all three, with zeros where a site has
no such records. What else an evaluation sums is said in `evaluation_sums.py`.

A bin may hold one loss, and then its sum is that loss. So every loss is rounded at the site before anything is
computed from it (`rounded_losses`): below the end of the range to the nearest eighth of a bin's width, from there
on to one of eight values for each power of two. A lone record thus shows its bin and three bits more, and every
other number of an evaluation is a function of rounded losses. What that costs the proofs is said by
`HistogramSpec.rounding`.

Rounding of sums: a bin's sum adds up count_b non-negative numbers, over all sites and in whatever order, so it is
off by less than count_b * 2^-53 of itself to first order (Higham 2002, section 4.2), and counts are exact below
2^53.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Bits, Field, Header, Number, one_of
from fedfair.errors import LocalProtocolError, TrainingError

SPLITS: Final = ("train", "validation", "test")
"""The splits of an evaluation header, in the order of their blocks."""


@dataclass(frozen=True, slots=True)
class HistogramSpec:
    """Equal bins over [0, loss_range], and one more for everything above.

    Attributes:
        bins: number of equal bins, at least 1.
        loss_range: where the overflow bin begins, positive and finite, in units of the loss.
        has_classes: whether records are classified, so that correct classifications are counted.
    """

    bins: int
    loss_range: float
    has_classes: bool = True

    def __post_init__(self) -> None:
        if self.bins < 1 or not (self.loss_range > 0.0 and math.isfinite(self.loss_range)):
            raise LocalProtocolError(f"{self.bins} bins over [0, {self.loss_range}] make no histogram")

    @property
    def edges(self) -> NDArray[np.float64]:
        """Lower edges of all bins, the overflow bin's last: increasing array (bins + 1,), read-only."""
        return _edges(self.bins, self.loss_range)

    @property
    def rounding(self) -> Rounding:
        """Return how far a loss may be from the rounded one, as `rounded_losses` leaves it.

        Below the range it is half a step, and what the division by the step and the product with it lose: with at
        most 8 bins steps, less than 2^-51 of the range. Above it a step is an eighth of the power of two below.
        """
        step = self.loss_range / (self.bins * STEPS)
        return Rounding(0.5 * step + self.loss_range * 2.0**-51, 0.5 / STEPS, self.loss_range)

    @property
    def rounded_values(self) -> int:
        """Return how many values a rounded loss may have, up to `MAX_LOSS`: 2201 with 256 bins for two classes."""
        octaves = math.ceil(max(math.log2(MAX_LOSS) - math.log2(self.loss_range), 0.0)) + 1
        return (self.bins + octaves) * STEPS + 1


@lru_cache(maxsize=8)
def _edges(bins: int, loss_range: float) -> NDArray[np.float64]:
    edges = np.linspace(0.0, loss_range, bins + 1)
    edges.flags.writeable = False
    return edges


@dataclass(frozen=True, slots=True)
class Rounding:
    """How far losses may be from the rounded ones whose sums are known.

    Attributes:
        inside: most for a loss that is rounded to less than `end`.
        beyond: most for any other, as a share of the rounded loss.
        end: where the open bin begins.
    """

    inside: float
    beyond: float
    end: float


UNROUNDED: Final = Rounding(0.0, 0.0, math.inf)
"""Of losses that are summed as they are."""


_LEAST: Final = 5e-324
"""The smallest number above 0."""


STEPS: Final = 8
"""So many values a loss may have within a bin, and within a power of two beyond the range."""


MAX_LOSS = 2.0**20
"""In a masked sum no loss counts for more than this, or than the range where that is larger: the sum of the losses
of 2^34 records stays within what a masked header holds."""


MAX_SINGLE = float(np.finfo(np.float32).max)
"""The greatest loss that an exact evaluation has a key for."""


def bounded_losses(losses: NDArray[np.floating], spec: HistogramSpec) -> tuple[NDArray[np.float64], int]:
    """Return losses that every histogram holds, and how many had to be replaced.

    NaN and infinities become the end of the range, so that they are in the overflow bin. A loss beyond `MAX_LOSS`
    and the range becomes the larger of the two, a negative one becomes 0. No loss is beyond the greatest float32,
    which an exact evaluation rounds to, however large the range is. No bound that is proved from a sum with
    replaced losses holds for the model, which is why they are counted.

    Args:
        losses: array (n,), of any values; n may be 0.
        spec: the histogram of the plan.
    """
    values, end = np.asarray(losses, np.float64), spec.loss_range
    finite = np.where(np.isfinite(values), values, end)
    bounded = np.clip(finite, 0.0, min(max(MAX_LOSS, end), MAX_SINGLE))
    return bounded, int(np.count_nonzero(bounded != values))


def rounded_losses(losses: NDArray[np.floating], spec: HistogramSpec) -> NDArray[np.float64]:
    """Return losses as they may be summed: of `STEPS` values in each bin, and in each power of two beyond them.

    An edge of a bin stays what it is, and so does the loss of guessing, which is one where the range is the plan's
    default. A loss just below an edge may become the edge, and then counts in the next bin. Rounding twice changes
    nothing.

    Args:
        losses: array (n,), finite and not negative; n may be 0.
        spec: the histogram of the plan.
    """
    values, end, steps = np.asarray(losses, np.float64), spec.loss_range, spec.bins * STEPS
    # In the smallest of all ranges a step would be 0.
    step = max(end / steps, _LEAST)
    places = np.rint(np.minimum(values, end) / step)
    inside = np.where(places < steps, np.minimum(places * step, end), end)
    mantissas, exponents = np.frexp(values)
    # What would be rounded down to below the range stays at its end, in the bin that it is in.
    beyond = np.maximum(np.ldexp(np.rint(mantissas * 2.0 * STEPS) / (2.0 * STEPS), exponents), end)
    return np.where(values <= end, inside, beyond)


def block_fields(spec: HistogramSpec) -> tuple[Field, ...]:
    """Return the fields of one split's block: the losses of each bin are their sum."""
    bins = (spec.bins + 1,)
    return (
        Field("records", Number.PUBLIC_COUNT, lone=Bits(0)),
        Field("correct", Number.COUNT, () if spec.has_classes else (0,), lone=one_of(2)),
        Field("smoothed", Number.REAL, lone=one_of(spec.rounded_values)),
        Field("counts", Number.COUNT, bins, lone=one_of(spec.bins + 1)),
        Field("losses", Number.REAL, bins, lone=one_of(spec.rounded_values)),
    )


def block_layout(spec: HistogramSpec) -> Header:
    """Return the layout of one split's block."""
    return Header(*block_fields(spec))


def loss_block(
    losses: NDArray[np.floating], correct: NDArray[np.bool_] | None, smoothed_sum: float, spec: HistogramSpec
) -> NDArray[np.float64]:
    """Return one site's block for one split.

    Args:
        losses: array (n,), finite and not negative, rounded or not; n may be 0.
        correct: bool array (n,), True where the record was classified correctly; None where there are no classes.
        smoothed_sum: sum of f~ over these records at the broadcast threshold. Where it is infinite, whatever sends
            the block refuses it, or replaces and counts it.
        spec: the histogram of the plan.

    Returns:
        float64 array, as `block_layout` says.

    Raises:
        LocalProtocolError: losses and `correct` do not have the same length.
        TrainingError: a loss is negative, NaN or infinite.
    """
    values = np.asarray(losses, np.float64)
    if values.ndim != 1 or (correct is not None and correct.shape != values.shape):
        other = None if correct is None else correct.shape
        raise LocalProtocolError(f"losses have shape {values.shape}, `correct` has {other}; both must be (n,)")
    bad = ~(np.isfinite(values) & (values >= 0.0))
    if bad.any():
        raise TrainingError(
            "this site's losses are not all finite numbers from 0 on; nothing was sent",
            f"{int(bad.sum())} of {len(values)} are not: lower learning_rate, or look for missing or extreme "
            "values in the local data",
        )
    values = rounded_losses(values, spec)
    bin_of = np.searchsorted(spec.edges, values, side="right") - 1
    counts = np.bincount(bin_of, minlength=spec.bins + 1)
    sums = np.bincount(bin_of, weights=values, minlength=spec.bins + 1)
    right = () if correct is None else np.count_nonzero(correct)
    return block_layout(spec).built(
        records=len(values), correct=right, smoothed=smoothed_sum, counts=counts, losses=sums
    )
