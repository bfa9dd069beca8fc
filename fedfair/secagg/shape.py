"""The shape of one masked sum: which numbers are in its header, how long its body is.

Both sides know it from the plan; only its digest travels, and every round is bound to it. The header always
begins with what the protocol itself counts (weights, contributors, replaced values and the sites that had any,
clipped values, a histogram of sizes) and with the check tag (`sum_check`), so that these are masked like
everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from fedfair.errors import LocalProtocolError, PlanError
from fedfair.secagg.params import RING_BITS
from fedfair.secagg.transcript import digest, f64, u32

SIZE_BUCKETS = 32
MAX_BUCKET_EXPONENT = 11
MAX_HEADER_VALUES = 1 << 16
MAX_REPLACED = 1 << 40
COUNTED = 4
"""Values that every masked header begins with: weight, contributors, replaced values, sites that had any."""

TAG_LIMBS = 4
LIMB_BITS = 32
"""A check tag travels as four whole numbers below 2^32: those of 1000 members add up in words of 64 bits."""

MAX_MASKED_HEADER_VALUES = MAX_HEADER_VALUES + COUNTED + 1 + SIZE_BUCKETS + TAG_LIMBS


@dataclass(frozen=True, slots=True)
class HeaderRun:
    """Consecutive values of a header that mean the same kind of thing.

    Attributes:
        length: how many values.
        bound: no value is larger than this in magnitude; a site sends the bound in place of a larger one.
        whole: True for counts: integers from 0 to bound, summed exactly. False for real numbers.
    """

    length: int
    bound: float
    whole: bool


@dataclass(frozen=True)
class SumShape:
    """The shape of one contribution.

    Attributes:
        header: the user's header values, run by run.
        groups: lengths of the consecutive parts of the body that have a clip of their own; () for no body.
        unit: value of one ring step, where the body is whole numbers that are summed as they are, noise included;
            None where it is real numbers. Then nothing that the protocol counts depends on the numbers either.
        checked: whether the header carries a check tag, by which every site checks the opened sum.
    """

    header: tuple[HeaderRun, ...]
    groups: tuple[int, ...]
    unit: float | None = None
    checked: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be encoded.

        Raises:
            PlanError: a length is negative, a bound is not a positive finite number, or the header is too long.
        """
        runs_are_sound = all(run.length >= 0 and 0 < run.bound < float("inf") for run in self.header)
        if not runs_are_sound or any(length < 0 for length in self.groups):
            raise PlanError("a sum needs lengths of 0 or more and positive, finite header bounds")
        if self.unit is not None and not 0 < self.unit < float("inf"):
            raise PlanError(f"one step of a sum of whole numbers is worth {self.unit}, not a positive number")
        if self.header_length > MAX_HEADER_VALUES:
            raise PlanError(f"a header of {self.header_length} values, at most {MAX_HEADER_VALUES} are supported")

    @cached_property
    def header_length(self) -> int:
        """Return the number of the user's header values."""
        return sum(run.length for run in self.header)

    @cached_property
    def body_length(self) -> int:
        """Return the number of body values."""
        return sum(self.groups)

    def header_runs(self, greatest_weight: int) -> tuple[HeaderRun, ...]:
        """Return every run of the header as it is masked, the protocol's own first."""
        return _header_runs(self, greatest_weight)

    @cached_property
    def own_length(self) -> int:
        """Return the number of words at the beginning of a masked header that are the protocol's own."""
        return COUNTED + (1 + SIZE_BUCKETS if self.body_length else 0) + (TAG_LIMBS if self.checked else 0)

    @cached_property
    def tag_words(self) -> slice:
        """Return where in a masked header the check tag is: the last of the protocol's own words."""
        return slice(self.own_length - (TAG_LIMBS if self.checked else 0), self.own_length)

    def masked_header_length(self) -> int:
        """Return the number of u64 words of a masked header."""
        return self.own_length + self.header_length

    def header_bytes(self) -> int:
        """Return the bytes of a masked header."""
        return 8 * self.masked_header_length()

    def body_bytes(self, ring_bits: int) -> int:
        """Return the bytes of the body of a masked vector, and of the body of an opened sum."""
        return packed_bytes(self.body_length, ring_bits)

    def vector_bytes(self, ring_bits: int) -> int:
        """Return the bytes of a whole masked vector; anything longer or shorter is refused."""
        return self.header_bytes() + self.body_bytes(ring_bits)

    def digest(self) -> bytes:
        """Return 32 bytes that stand for this shape."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        runs = [u32(run.length) + f64(run.bound) + bytes([run.whole]) for run in self.header]
        whole = () if self.unit is None else (f64(self.unit),)
        checked = bytes([self.checked])
        return digest("shape", b"".join(runs), b"".join(u32(length) for length in self.groups), checked, *whole)


@lru_cache(maxsize=32)
def _header_runs(shape: SumShape, greatest_weight: int) -> tuple[HeaderRun, ...]:
    own = [HeaderRun(1, greatest_weight, whole=True), HeaderRun(1, 1, whole=True)]
    own += [HeaderRun(1, MAX_REPLACED, whole=True), HeaderRun(1, 1, whole=True)]
    if shape.body_length:
        own += [HeaderRun(1, shape.body_length, whole=True), HeaderRun(SIZE_BUCKETS, 1, whole=True)]
    own += [HeaderRun(TAG_LIMBS, (1 << LIMB_BITS) - 1, whole=True)] if shape.checked else []
    return (*own, *shape.header)


def packed_bytes(length: int, ring_bits: int) -> int:
    """Return the bytes that `length` words of `ring_bits` take; 20-bit words travel in pairs of 5 bytes."""
    if ring_bits not in RING_BITS:
        raise PlanError(f"a ring of {ring_bits} bits, choose one of {', '.join(map(str, RING_BITS))}")
    return -(-length * ring_bits // 8)


def check_shapes(shapes: Mapping[str, SumShape], *, checked: bool) -> None:
    """Refuse shapes that carry check tags where the terms of the session have none, or none where they have.

    Raises:
        LocalProtocolError: a bug of whoever made shapes and terms of one plan.
    """
    different = [purpose for purpose, shape in shapes.items() if shape.checked != checked]
    if different:
        raise LocalProtocolError(f"the terms say check_sums {checked}, the shape of {different[0]} says otherwise")


def layout_digest(shapes: Mapping[str, SumShape]) -> bytes:
    """Return 32 bytes that stand for every purpose and its shape."""
    fields = [part for name in sorted(shapes) for part in (name.encode("utf-8"), shapes[name].digest())]
    return digest("layout", *fields)
