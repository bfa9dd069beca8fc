"""Real numbers as ring elements: exact sums, stated errors, no overflow.

Body: x = floor(2^f * w/W * clip(v, -C, C)/C + u) with u uniform in [0, 1), so the sum of w*v is unbiased given
clipping. Header: integers exactly; other numbers rounded to nearest in Z_2^64.

No overflow. f = floor(log2((2^(b-1) - 1) / n)). The scaled value is at most 2^f (1 + 2^-51) in magnitude, as
w <= W and |v| <= C after clipping; rounded to the grid 2^-16 (f + 16 <= 47 bits, so the grid is exact in
float64) it is at most 2^f; adding u <= 1 - 2^-16 and taking the floor stays at most 2^f. Hence the sum of n values
is at most n 2^f <= 2^(b-1) - 1. In the header n * bound < 2^63 in the same way.

Error of the sum of w*v over m contributors: below m * C * W * 2^-f; of the mean: that over the sum of w.
u comes from a keystream on the grid 2^-16, which leaves a bias below 2^-16 of one step of the ring.

A site never leaves a sum because of a value, which would tell of its records in the clear. NaN becomes 0, what is
beyond a bound becomes the bound, and both are counted in the masked header. `replaced` counts values of the body
that are NaN or infinite, and values of the header that are NaN or beyond their bound. `clipped` counts values of
the body beyond the clip.

A body of whole numbers (differential privacy of collaborators) is summed as it is, modulo 2^b.
Decides the clip of the next round from the histogram of sizes, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError, PlanError
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.shape import (
    LIMB_BITS,
    MAX_BUCKET_EXPONENT,
    SIZE_BUCKETS,
    HeaderRun,
    SumShape,
    packed_bytes,
)

Body: TypeAlias = NDArray[np.floating] | NDArray[np.int64]
"""The summand of one site in the long part of a sum: real numbers, or whole ones that carry noise already."""

HEADER_BITS = 64
GRID_BITS = 16
RING_OF_WHOLE_WORDS = 32
BLOCK_VALUES = 1 << 16
# Adding 1.5 * 2^52 to a float64 below 2^51 in magnitude leaves the nearest integer in the low bits of its
# pattern, in two's complement; it costs one addition, where a conversion to int64 costs three times as much.
_TO_INTEGER = 1.5 * 2.0**52
AUTOMATIC_CLIP_FACTOR = 4.0


def fraction_bits(ring_bits: int, members: int) -> int:
    """Return f: how many bits one value may have so that n of them never overflow."""
    bits = ((1 << (ring_bits - 1)) - 1) // members
    if bits < 1:
        raise PlanError(f"{members} members do not fit a ring of {ring_bits} bits")
    return min(bits.bit_length() - 1, 62)


@dataclass(frozen=True, slots=True)
class BodyCode:
    """The encoding of body values as ring elements in one round.

    Attributes:
        ring_bits: b.
        members: n, the size of the cohort.
        greatest_weight: W.
        groups: lengths of the parts with a clip of their own.
        clips: C of each part.
        unit: value of one ring step of a body of whole numbers; None for real numbers.
    """

    ring_bits: int
    members: int
    greatest_weight: int
    groups: tuple[int, ...]
    clips: tuple[float, ...]
    unit: float | None = None

    def __post_init__(self) -> None:
        """Refuse clips that do not fit the groups.

        Raises:
            PlanError: their numbers differ, a clip is not positive and finite, or there are too many members.
        """
        if len(self.groups) != len(self.clips) or not all(0 < clip < math.inf for clip in self.clips):
            raise PlanError(f"{len(self.clips)} clips for {len(self.groups)} groups; each needs one above 0")
        fraction_bits(self.ring_bits, self.members)

    @property
    def bits(self) -> int:
        """Return f."""
        return fraction_bits(self.ring_bits, self.members)

    def parts(self, start: int, stop: int) -> list[tuple[int, int, float]]:
        """Return (first, last + 1, clip) of every group's part of body[start:stop]."""
        found, first = [], 0
        for length, clip in zip(self.groups, self.clips, strict=True):
            low, high = max(start, first), min(stop, first + length)
            if low < high:
                found.append((low, high, clip))
            first += length
        return found

    def step(self, clip: float) -> float:
        """Return the value of one ring step in the sum of w*v: C * W * 2^-f."""
        return clip * self.greatest_weight * 2.0**-self.bits if self.unit is None else self.unit

    def sum_error(self, clip: float, contributors: int) -> float:
        """Return the bound on the error of each coordinate of the sum of w*clip(v); whole numbers have none."""
        return contributors * self.step(clip) if self.unit is None else 0.0


@dataclass(slots=True)
class SizeReport:
    """The sizes seen while encoding.

    Attributes:
        clipped: how many values were beyond the clip, infinities among them.
        largest: the largest magnitude; an infinity has that of the clip.
        replaced: how many values were NaN or infinite.
    """

    clipped: int = 0
    largest: float = 0.0
    replaced: int = 0

    def include(self, other: SizeReport) -> None:
        """Take in what was seen of another part of the same body."""
        self.clipped += other.clipped
        self.largest = max(self.largest, other.largest)
        self.replaced += other.replaced


def measured(values: NDArray[np.floating], clip: float) -> tuple[NDArray[np.floating], SizeReport]:
    """Return finite values for what a site would add, not yet clipped, and the report of their sizes.

    Args:
        values: float array (n,), n at least 1; it stays as it is.
        clip: C, above 0.
    """
    report = SizeReport()
    low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        report.replaced = int(np.count_nonzero(~np.isfinite(values)))
        report.clipped = int(np.count_nonzero(np.isinf(values)))
        values = np.nan_to_num(values, nan=0.0, posinf=clip, neginf=-clip)
        low, high = float(values.min()), float(values.max())
    report.largest = max(-low, high)
    if report.largest > clip:
        report.clipped += int(np.count_nonzero(np.abs(values) > clip))
    return values, report


def clipped_values(values: NDArray[np.floating], clip: float) -> tuple[NDArray[np.floating], SizeReport]:
    """Return what counts of a site's values in a sum, up to one step of the ring, and the report of their sizes.

    Args:
        values: float array (n,), n at least 1; it stays as it is, and is returned where nothing is to be clipped.
        clip: C, above 0.
    """
    finite, report = measured(values, clip)
    return (np.clip(finite, -clip, clip) if report.largest > clip else finite), report


class BodyEncoder:
    """Encodes blocks of a body into ring elements, in memory that is used again.

    Args:
        code: the round's parameters.
        weight: w, from 0 to W; 0 encodes zeros.
    """

    __slots__ = ("_code", "_scale", "_words", "report")

    def __init__(self, code: BodyCode, weight: int) -> None:
        self._code = code
        self._scale = 2.0 ** (code.bits + GRID_BITS) * (weight / code.greatest_weight)
        self._words = np.empty(BLOCK_VALUES)
        self.report = SizeReport()

    def encode(self, body: Body, start: int, uniform: NDArray[np.uint16], out: NDArray[np.uint32]) -> None:
        """Encode body[start : start + len(out)] into `out`.

        Args:
            body: the whole body: float32 or float64, or int64 where the code has a unit.
            start: where the block begins.
            uniform: random 16-bit words, one for each value.
            out: uint32, at most 65536 values.
        """
        if self._code.unit is not None:
            out[:] = body[start : start + out.size].astype(np.uint32)
            return
        real = cast("NDArray[np.floating]", body)  # Only a code with a unit has whole numbers.
        for first, last, clip in self._code.parts(start, start + out.size):
            values, seen = measured(real[first:last], clip)
            self.report.include(seen)
            here = slice(first - start, last - start)
            self._round(values, clip, uniform[here], out[here])

    def _round(
        self, values: NDArray[np.floating], clip: float, uniform: NDArray[np.uint16], out: NDArray[np.uint32]
    ) -> None:
        words = self._words[: values.size]
        with np.errstate(over="ignore"):  # An infinite product is clipped like any other that is too large.
            np.multiply(values, self._scale / clip, out=words, dtype=np.float64)
        if self.report.largest > clip:
            limit = self._scale
            np.clip(words, -limit, limit, out=words)
        np.add(words, _TO_INTEGER, out=words)
        patterns = words.view(np.int64)
        np.add(patterns, uniform, out=patterns)
        np.right_shift(patterns, GRID_BITS, out=patterns)
        np.copyto(out, words.view(np.uint32)[::2])


def decode_body(words: NDArray[np.uint32], code: BodyCode, dtype: np.dtype[np.floating]) -> NDArray[np.floating]:
    """Return the sum of w * clip(v) from the sum of ring elements.

    Args:
        words: uint32 (d,), only the low ring_bits count. With float32 its memory becomes the result, so nothing
            of the size of the model is allocated.
        code: the round's parameters.
        dtype: float32 or float64.
    """
    result = words.view(np.float32) if dtype == np.float32 else np.empty(words.size)
    for start in range(0, words.size, BLOCK_VALUES):
        stop = min(start + BLOCK_VALUES, words.size)
        signed = _signed(words[start:stop], code.ring_bits)
        for first, last, clip in code.parts(start, stop):
            result[first:last] = signed[first - start : last - start] * code.step(clip)
    return result


def _signed(words: NDArray[np.uint32], ring_bits: int) -> NDArray[np.int32]:
    """Return the low `ring_bits` of every word as a signed integer; whole words are not copied."""
    if ring_bits == RING_OF_WHOLE_WORDS:
        return words.view(np.int32)
    shift = 32 - ring_bits
    signed: NDArray[np.int32] = (words << np.uint32(shift)).view(np.int32) >> shift
    return signed


def pack(words: NDArray[np.uint32], ring_bits: int, out: NDArray[np.uint8]) -> None:
    """Write the low `ring_bits` of every word, little-endian and without gaps, to `out`.

    Z_2^32 -> Z_2^b is a ring homomorphism, so masking before packing is masking in the smaller ring.
    """
    octets = words.view(np.uint8).reshape(-1, 4)
    if ring_bits == 20:
        padded = np.zeros(-(-words.size // 2) * 2, np.uint64)
        padded[: words.size] = words & np.uint32(0xFFFFF)
        pairs = padded[::2] | padded[1::2] << np.uint64(20)
        out[:] = pairs.view(np.uint8).reshape(-1, 8)[:, :5].reshape(-1)[: out.size]
    else:
        width = ring_bits // 8
        out.reshape(-1, width)[:] = octets[:, :width]


def unpack(packed: NDArray[np.uint8], ring_bits: int, out: NDArray[np.uint32]) -> None:
    """Read words that `pack` wrote; their upper bits are zero."""
    if ring_bits == 20:
        pairs = np.zeros((-(-out.size // 2), 8), np.uint8)
        padded = np.zeros(pairs.shape[0] * 5, np.uint8)
        padded[: packed.size] = packed
        pairs[:, :5] = padded.reshape(-1, 5)
        both = pairs.reshape(-1).view(np.uint64)
        out[::2] = both & np.uint64(0xFFFFF)
        out[1::2] = (both >> np.uint64(20))[: out.size // 2] & np.uint64(0xFFFFF)
    else:
        octets = out.view(np.uint8).reshape(-1, 4)
        octets[:] = 0
        octets[:, : ring_bits // 8] = packed.reshape(-1, ring_bits // 8)


def unpack_signed(
    packed: NDArray[np.uint8], ring_bits: int, length: int, *, in_place: bool = False
) -> NDArray[np.uint32]:
    """Return words that `pack` wrote as signed integers: their upper bits repeat the sign.

    Args:
        packed: uint8, as many as `length` words of `ring_bits` take; it stays as it is.
        ring_bits: b.
        length: how many words.
        in_place: whether the memory of `packed` may become that of the words, where they are whole ones.
    """
    if ring_bits == RING_OF_WHOLE_WORDS:
        return packed.view("<u4").astype(np.uint32, copy=not in_place)
    words, leaf_bytes = np.empty(length, np.uint32), packed_bytes(BLOCK_VALUES, ring_bits)
    for number, start in enumerate(range(0, length, BLOCK_VALUES)):
        block = words[start : start + BLOCK_VALUES]
        unpack(packed[number * leaf_bytes : (number + 1) * leaf_bytes], ring_bits, block)
        block[:] = _signed(block, ring_bits).view(np.uint32)
    return words


def packed_blocks(words: NDArray[np.uint32], ring_bits: int) -> Iterator[memoryview]:
    """Yield what `packed_body` returns, block by block; each is to be used before the next one."""
    for start in range(0, words.size, BLOCK_VALUES):
        block = words[start : start + BLOCK_VALUES]
        if ring_bits == RING_OF_WHOLE_WORDS:
            yield block.astype("<u4", copy=False).data.cast("B")
            continue
        out = np.empty(packed_bytes(block.size, ring_bits), np.uint8)
        pack(block, ring_bits, out)
        yield out.data


def packed_body(words: NDArray[np.uint32], ring_bits: int) -> bytes:
    """Return the low `ring_bits` of every word, packed, in memory of their own."""
    if ring_bits == RING_OF_WHOLE_WORDS:
        return words.astype("<u4", copy=False).tobytes()
    packed, leaf_bytes = bytearray(packed_bytes(words.size, ring_bits)), packed_bytes(BLOCK_VALUES, ring_bits)
    out = np.frombuffer(packed, np.uint8)
    for number, start in enumerate(range(0, words.size, BLOCK_VALUES)):
        pack(words[start : start + BLOCK_VALUES], ring_bits, out[number * leaf_bytes : (number + 1) * leaf_bytes])
    return bytes(packed)


def check_header(shape: SumShape, members: int, greatest_weight: int) -> None:
    """Refuse a shape whose header could overflow: n * bound must be below 2^63 for every count.

    Raises:
        PlanError: it could.
    """
    for run in shape.header_runs(greatest_weight):
        if run.whole and members * int(run.bound) >= 1 << (HEADER_BITS - 1):
            raise PlanError(f"a count of up to {run.bound:g} from {members} members overflows 63 bits")


def bounded_header(values: NDArray[np.float64], runs: Sequence[HeaderRun]) -> tuple[NDArray[np.float64], int]:
    """Return header values within their bounds, and how many had to be replaced.

    NaN becomes 0, a value beyond a bound becomes the bound, and a count becomes the nearest count from 0 on.

    Args:
        values: float64 array, one value for each of the runs.
        runs: what the values mean.
    """
    table = _table(tuple(runs), 1)
    bounded = np.where(np.isnan(values), 0.0, values)
    np.minimum(np.maximum(bounded, table.least, out=bounded), table.most, out=bounded)
    np.rint(bounded, out=bounded, where=table.whole)
    # NaN differs from every number, and so counts as replaced.
    return bounded, int(np.count_nonzero(bounded != values))


def encode_header(values: NDArray[np.float64], runs: Sequence[HeaderRun], members: int) -> NDArray[np.uint64]:
    """Return header values as elements of Z_2^64.

    Args:
        values: as `bounded_header` returns them.
        runs: what they mean.
        members: n, the size of the cohort.

    Raises:
        LocalProtocolError: a value is not within its bound (a bug on this side).
    """
    _, beyond = bounded_header(values, runs)
    if beyond:
        raise LocalProtocolError(f"{beyond} header values are not within their bounds")
    table = _table(tuple(runs), members)
    scaled = np.rint(values * table.scale)
    np.minimum(np.maximum(scaled, -table.limit, out=scaled), table.limit, out=scaled)
    return scaled.astype(np.int64).view(np.uint64)


def decode_header(words: NDArray[np.uint64], runs: Sequence[HeaderRun], members: int) -> NDArray[np.float64]:
    """Return the sums of header values.

    Raises:
        SecaggError: PLAUSIBILITY: a sum of counts is negative or more than all members could have given.
    """
    signed, table = words.view(np.int64), _table(tuple(runs), members)
    beyond = (signed < table.least_sum) | (signed > table.greatest_sum)
    if beyond.any():
        run, _, _ = table.run_of(beyond)
        raise SecaggError(
            Check.PLAUSIBILITY,
            f"a sum of counts lies outside 0 to {members} * {run.bound:g}",
            "a contribution was malformed or the masks do not cancel; the round must be discarded",
        )
    decoded: NDArray[np.float64] = signed / table.scale
    return decoded


def check_tag_limbs(limbs: NDArray[np.uint64], survivors: int) -> None:
    """Refuse the sum of check tags of which a limb is more than all survivors could have given.

    Raises:
        SecaggError: PLAUSIBILITY.
    """
    largest = max(limbs.tolist(), default=0)
    require(
        largest <= survivors * ((1 << LIMB_BITS) - 1),
        Check.PLAUSIBILITY,
        f"a part of the check tag is {largest}, more than {survivors} survivors can have",
        "a contribution was malformed or the masks do not cancel; the round must be discarded",
    )


def check_header_sum(
    words: NDArray[np.uint64], runs: Sequence[HeaderRun], members: int, contributors: int, *, but: slice
) -> None:
    """Refuse a sum of headers that no contributors within their bounds have.

    A site can send any element of the ring, and masks hide which; only the sum can be looked at.

    Args:
        words: uint64 array, the unmasked sum.
        runs: what the values mean.
        members: n, the size of the cohort.
        contributors: how many sites contributed.
        but: the words that those add to, too, who contribute nothing.

    Raises:
        SecaggError: PLAUSIBILITY: a value is more than `contributors` times its bound in magnitude.
    """
    signed, table = words.view(np.int64), _table(tuple(runs), members)
    most = table.integer_limit * contributors
    beyond = (signed < -most) | (signed > most)
    beyond[but] = False
    if beyond.any():
        run, part, scale = table.run_of(beyond)
        low, high = int(signed[part].min()), int(signed[part].max())
        raise SecaggError(
            Check.PLAUSIBILITY,
            f"a header value of the sum is {max(-low, high) / scale:g}, {contributors} contributors have at most "
            f"{contributors} * {run.bound:g}",
            "a site sent a number that no honest site sends; the masks do not tell which",
        )


def check_body_sum(words: NDArray[np.uint32], code: BodyCode, weight: int, contributors: int) -> None:
    """Refuse a sum of changes with a coordinate beyond C times the sum of the weights.

    One honest element of the ring is at most floor(2^f w/W) + 1 in magnitude (see the module), so their sum is at
    most floor(2^f (sum of w)/W) + m over m contributors. Whole numbers with noise have no such bound.

    Args:
        words: uint32 (d,), the unmasked sum; only the low ring_bits count.
        code: the round's parameters.
        weight: sum of the weights.
        contributors: m.

    Raises:
        SecaggError: PLAUSIBILITY.
    """
    if code.unit is not None:
        return
    most = (weight << code.bits) // code.greatest_weight + contributors
    for start in range(0, words.size, BLOCK_VALUES):
        signed = _signed(words[start : start + BLOCK_VALUES], code.ring_bits)
        largest = max(-int(signed.min()), int(signed.max()))
        require(
            largest <= most,
            Check.PLAUSIBILITY,
            f"a change in the sum is {largest / most:.3g} times as large as the clip and the weights allow",
            "a site sent a number that no honest site sends; the masks do not tell which",
        )


@dataclass(frozen=True, slots=True)
class _HeaderTable:
    """What the values of a header mean, value by value; every array has one number for each.

    Attributes:
        runs: the runs, each with its place and its scale.
        scale: by what a value is multiplied.
        least: the smallest value that a site sends.
        most: the largest one.
        whole: whether it is a count.
        limit: the largest value in magnitude, scaled.
        integer_limit: the same as a whole number.
        least_sum: the smallest scaled sum of all members; of real numbers any.
        greatest_sum: the largest one.
    """

    runs: tuple[tuple[HeaderRun, slice, float], ...]
    scale: NDArray[np.float64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    whole: NDArray[np.bool_]
    limit: NDArray[np.float64]
    integer_limit: NDArray[np.int64]
    least_sum: NDArray[np.int64]
    greatest_sum: NDArray[np.int64]

    def run_of(self, chosen: NDArray[np.bool_]) -> tuple[HeaderRun, slice, float]:
        """Return the run of the first value that is chosen; one is."""
        first = int(np.flatnonzero(chosen)[0])
        return next(found for found in self.runs if found[1].start <= first < found[1].stop)


@lru_cache(maxsize=32)
def _table(runs: tuple[HeaderRun, ...], members: int) -> _HeaderTable:
    lengths, half_ring = [run.length for run in runs], 1 << (HEADER_BITS - 1)
    # A power of two keeps the scale exact; bound * scale <= 2^f as frexp rounds the bound up to one.
    bits = fraction_bits(HEADER_BITS, members)
    scales = [1.0 if run.whole else 2.0 ** (bits - math.frexp(run.bound)[1]) for run in runs]
    limits = [run.bound * scale for run, scale in zip(runs, scales, strict=True)]
    ends = np.cumsum(lengths).tolist()
    places = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]

    def spread(values: Sequence[float], width: type[np.generic] = np.float64) -> NDArray[Any]:
        return np.repeat(np.array(values, width), lengths)

    return _HeaderTable(
        tuple(zip(runs, places, scales, strict=True)),
        spread(scales),
        spread([0.0 if run.whole else -run.bound for run in runs]),
        spread([run.bound for run in runs]),
        spread([run.whole for run in runs], np.bool_),
        spread(limits),
        spread([int(limit) for limit in limits], np.int64),
        spread([0 if run.whole else -half_ring for run in runs], np.int64),
        spread(
            [min(members * int(run.bound), half_ring - 1) if run.whole else half_ring - 1 for run in runs],
            np.int64,
        ),
    )


def size_histogram(*largest: float) -> NDArray[np.float64]:
    """Return how many sites' largest magnitudes lie in each bucket, over powers of two: float64 array (32,).

    Args:
        largest: of each site, finite and at least 0.
    """
    counts = np.zeros(SIZE_BUCKETS)
    for size in largest:
        position = SIZE_BUCKETS - 1 - (MAX_BUCKET_EXPONENT - math.frexp(size)[1]) if size > 0 else 0
        counts[min(max(position, 0), SIZE_BUCKETS - 1)] += 1.0
    return counts


def automatic_clip(histogram: Sequence[int], present: float, greatest: float) -> float:
    """Return C for the next round: four times the largest bucket edge that anybody reached.

    Args:
        histogram: the summed histogram of the last round.
        present: the clip of the last round, kept where no site contributed.
        greatest: the largest clip that all sites allow.
    """
    reached = [position for position, count in enumerate(histogram) if count > 0]
    if not reached:
        return present
    return min(AUTOMATIC_CLIP_FACTOR * bucket_edge(reached[-1]), greatest)


def bucket_edge(position: int) -> float:
    """Return the upper edge of a bucket: 2^-20 to 2^11."""
    return float(2.0 ** (MAX_BUCKET_EXPONENT - (SIZE_BUCKETS - 1 - position)))
