"""The exact loss at every quantile, and worst-group risks to seven digits, from four sums and nothing else.

A loss is rounded to the nearest float32. The 31 bits of a non-negative float32 (its sign bit is 0), read as a
whole number, are its *key*: keys are ordered as the losses are. The sums narrow the key of the k-th largest loss
down digit by digit, for every worst-group size of the plan at once:

    step 1   how many losses have which first 11 bits                         counts (2048,)
    step 2   of the losses with the first 11 bits found, the next 10          counts (sizes, 1024)
    step 3   of the losses with the first 21 bits found, the last 10          counts (sizes, 1024)
    step 4   losses below, at and above the key found, and their sums         counts and sums (sizes, 3)

What "exact" means. After step 3 the k-th largest of the *rounded* losses is known bit for bit, with k = rho n
rounded up: rounding keeps the order, so it is also the k-th largest loss, rounded. Step 4 adds the *rounded*
losses: a sum over a single loss then tells its key and no more. All losses at the key found are equal, so the sums
give the worst-group risk of the rounded losses (`cvar_bounds.histogram_bounds`, three bins). Each loss is at most
2^-24 of its rounded value away (2^-150 where that is below 2^-126), and so is the risk: the interval is 2^-23 of
the risk wide, beside the rounding of the sums.

A query tells the key of whatever loss is at a quantile, all of its 31 bits: that is one person's loss, and the
reason why a site's policy must name `loss-quantiles`. No loss is disclosed more exactly than its key.

One `SplitQuery` is the state of a query for one split; `apply_aggregate` returns the next one. Nothing here knows
sites, models or messages. A query is answered for all sizes together, so the length of an answer says nothing.
Source: radix selection (Knuth 1998, vol. 3, 5.2.5), over sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.cvar_bounds import Interval, histogram_bounds
from fedfair.errors import LocalProtocolError, RemoteProtocolError, TrainingError
from fedfair.fairness.cvar import tail_count

DIGIT_BITS = (11, 10, 10)
"""Bits of a key that each of the first three steps finds; 31 in all."""

STEPS = len(DIGIT_BITS) + 1
"""Sums of a whole query."""

KEYS = 0xFF << 23
"""Keys of finite float32 numbers are below this one, that of infinity."""

PARTS = 3
"""Step 4 tells the losses below the key, at it and above it apart."""


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """The answer of one split's records to one step, of one site or of all together.

    Attributes:
        counts: float64 array of whole numbers: (2048,), (sizes, 1024) or (sizes, 3).
        sums: float64 array (sizes, 3) in step 4; of no length before.
    """

    counts: NDArray[np.float64] = field(repr=False)
    sums: NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExactRisk:
    """The exact risk of the worst group of one size.

    Attributes:
        at_least: the smallest loss in the worst group, rounded to float32; exact.
        bound: an interval that holds the mean loss of the worst group.
    """

    at_least: float
    bound: Interval


def loss_keys(losses: NDArray[np.floating]) -> NDArray[np.uint32]:
    """Return the key of every loss.

    Args:
        losses: array (n,), finite and not negative; -0.0 counts as 0.

    Returns:
        uint32 array (n,), each below `KEYS`.

    Raises:
        TrainingError: a loss is negative, NaN, infinite, or rounds to infinity; the message quotes none.
    """
    values = np.asarray(losses, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(np.float32)
    if not (np.isfinite(rounded) & (values >= 0.0)).all():
        raise TrainingError(
            "this site's losses are not all finite single-precision numbers from 0 on; nothing was sent",
            "lower learning_rate, or look for missing or extreme values in the local data",
        )
    # Adding 0 turns -0.0, whose sign bit would make it the greatest key, into 0.0.
    keys: NDArray[np.uint32] = (rounded + np.float32(0.0)).view(np.uint32)
    return keys


def key_loss(key: int) -> float:
    """Return the float32 number that a key stands for."""
    return float(np.array(key, np.uint32).view(np.float32))


def _next_loss(key: int) -> float:
    """Return the float32 number after that of a key; after the greatest one, what would be next."""
    return key_loss(key + 1) if key + 1 < KEYS else 2.0**128


def _before_rounding(risk: Interval) -> Interval:
    """Return an interval that holds the risk of the losses, from one that holds that of the rounded ones."""
    away, least = 2.0**-24 * (1.0 + 2.0**-20), 2.0**-150
    return Interval(max(risk.lower * (1.0 - away) - least, 0.0), risk.upper * (1.0 + away) + least)


def answer_shapes(step: int, sizes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of the counts and the sums that answer a step about so many group sizes."""
    if step == 1:
        return (1 << DIGIT_BITS[0],), (0,)
    if step < STEPS:
        return (sizes, 1 << DIGIT_BITS[step - 1]), (0,)
    return (sizes, PARTS), (sizes, PARTS)


def answer(losses: NDArray[np.floating], step: int, prefixes: Sequence[int]) -> StepAnswer:
    """Return what some records answer to one step.

    Args:
        losses: array (n,), as in `loss_keys`; n may be 0.
        step: 1 to 4.
        prefixes: for each group size the bits of the key that are known: 11 in step 2, 21 in step 3, all 31 in
            step 4; none in step 1.

    Raises:
        TrainingError: as in `loss_keys`.
    """
    keys = loss_keys(losses)
    if step == STEPS:
        return _around(keys, prefixes)
    bits = DIGIT_BITS[step - 1]
    digits = (keys >> np.uint32(sum(DIGIT_BITS[step:]))).astype(np.int64)
    if step == 1:
        return StepAnswer(np.bincount(digits, minlength=1 << bits).astype(np.float64), np.zeros(0))
    rows = [
        np.bincount(digits[digits >> bits == prefix] & ((1 << bits) - 1), minlength=1 << bits)
        for prefix in prefixes
    ]
    return StepAnswer(np.array(rows, np.float64), np.zeros(0))


def _around(keys: NDArray[np.uint32], found: Sequence[int]) -> StepAnswer:
    losses = keys.view(np.float32).astype(np.float64)
    parts = [np.sign(keys.astype(np.int64) - key) + 1 for key in found]
    counts = [np.bincount(part, minlength=PARTS) for part in parts]
    sums = [np.bincount(part, weights=losses, minlength=PARTS) for part in parts]
    return StepAnswer(np.array(counts, np.float64), np.array(sums, np.float64))


@dataclass(frozen=True, slots=True)
class SplitQuery:
    """The state of the query about one split.

    Attributes:
        group_sizes: the shares (rho) asked about, each in (0, 1].
        step: the step that is to be asked next, 1 to 4; 5 when everything is known.
        records: how many losses there are; 0 before step 1, and for a split without records.
        prefixes: for each size, what is known of the key; zeros for a split without records.
        above: for each size, how many losses have a greater prefix.
        within: for each size, how many losses have this prefix.
        bounds: for each size, what step 4 has proved.
        mean: an interval that holds the mean loss, which step 4 proves too; None before, and without records.
    """

    group_sizes: tuple[float, ...]
    step: int = 1
    records: int = 0
    prefixes: tuple[int, ...] = ()
    above: tuple[int, ...] = ()
    within: tuple[int, ...] = ()
    bounds: tuple[Interval, ...] = ()
    mean: Interval | None = None

    @property
    def risks(self) -> dict[float, ExactRisk]:
        """Return what is proved about each group size, in the end; nothing for a split without records."""
        if self.step <= STEPS:
            raise LocalProtocolError(f"step {self.step} of a query has not been answered")
        if not self.records:
            return {}
        found = zip(self.group_sizes, self.prefixes, self.bounds, strict=True)
        return {size: ExactRisk(key_loss(key), bound) for size, key, bound in found}

    def apply_aggregate(self, total: StepAnswer) -> SplitQuery:
        """Return the query after the sum of all answers to the step that is due.

        Raises:
            RemoteProtocolError: the sum is not over the same losses as those before; nothing can be concluded.
            LocalProtocolError: the answer has another shape than the step's.
        """
        self._check_shape(total)
        if (total.counts < 0.0).any() or (total.counts != np.floor(total.counts)).any():
            raise RemoteProtocolError(
                f"step {self.step} of a query counts a negative or fractional number of losses"
            )
        if self.step == 1:
            return self._first(total.counts)
        if self.step < STEPS:
            return self._next_digit(total.counts)
        return self._last(total)

    def _first(self, counts: NDArray[np.float64]) -> SplitQuery:
        records, sizes = int(counts.sum()), len(self.group_sizes)
        if not records:
            nothing = (0,) * sizes
            return replace(self, step=2, prefixes=nothing, above=nothing, within=nothing)
        started = replace(
            self, records=records, prefixes=(0,) * sizes, above=(0,) * sizes, within=(records,) * sizes
        )
        return started._narrowed(np.tile(counts, (sizes, 1)))  # noqa: SLF001 - the same class

    def _next_digit(self, counts: NDArray[np.float64]) -> SplitQuery:
        self._check_same(counts.sum(axis=1), self.within)
        return self._narrowed(counts) if self.records else replace(self, step=self.step + 1)

    def _narrowed(self, counts: NDArray[np.float64]) -> SplitQuery:
        """Return the query with one more digit of every key, from how many losses have which digit."""
        bits = DIGIT_BITS[self.step - 1]
        prefixes, above, within = [], [], []
        for size, prefix, beyond, row in zip(self.group_sizes, self.prefixes, self.above, counts, strict=True):
            from_top = beyond + np.cumsum(row[::-1])
            at = int(np.searchsorted(from_top, tail_count(self.records, size), side="left"))
            digit = len(row) - 1 - at
            prefixes.append(prefix << bits | digit)
            within.append(int(row[digit]))
            above.append(int(from_top[at]) - int(row[digit]))
        return replace(
            self, step=self.step + 1, prefixes=tuple(prefixes), above=tuple(above), within=tuple(within)
        )

    def _last(self, total: StepAnswer) -> SplitQuery:
        if not self.records:
            self._check_same(total.counts.sum(axis=1), self.within)
            return replace(self, step=STEPS + 1)
        self._check_same(total.counts[:, 1], self.within)
        self._check_same(total.counts[:, 2], self.above)
        self._check_same(total.counts.sum(axis=1), (self.records,) * len(self.group_sizes))
        bounds: list[Interval] = []
        means: list[Interval] = []
        for size, key, counts, sums in zip(self.group_sizes, self.prefixes, total.counts, total.sums, strict=True):
            edges = np.array([0.0, key_loss(key), _next_loss(key)])
            risk, mean = map(_before_rounding, histogram_bounds(edges, counts, sums, [size, 1.0]))
            bounds, means = [*bounds, risk], [*means, mean]
        return replace(self, step=STEPS + 1, bounds=tuple(bounds), mean=means[0])

    def _check_shape(self, total: StepAnswer) -> None:
        if self.step > STEPS:
            raise LocalProtocolError("a finished query accepts no further total")
        expected = answer_shapes(self.step, len(self.group_sizes))
        if (total.counts.shape, total.sums.shape) != expected:
            raise LocalProtocolError(
                f"step {self.step} of a query has totals of shapes {total.counts.shape} and {total.sums.shape}, "
                f"not {expected[0]} and {expected[1]}"
            )

    def _check_same(self, counts: NDArray[np.float64], expected: Sequence[int]) -> None:
        if tuple(counts) != tuple(expected):
            raise RemoteProtocolError(
                f"step {self.step} of a query is not over the losses of the steps before it",
                "every step must be answered by the same collaborators with the same records",
            )
