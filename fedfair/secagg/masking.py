"""One site's masked vector, and the running sum that such vectors are added to.

y = enc(x) + PRG(b) + sum over peers of sign * PRG(s): header in Z_2^64, body in Z_2^32, of which the low bits
travel. Encoding, tagging, masking and packing happen block by block, so beside the outgoing vector a site
needs a few blocks of memory, and the aggregator needs one vector whatever the number of sites. Decides no protocol
order; seeds come from `client` and `recovery`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError, TrainingError
from fedfair.secagg.arriving import ArrivingVector
from fedfair.secagg.checks import Check, require
from fedfair.secagg.fixedpoint import (
    BLOCK_VALUES,
    RING_OF_WHOLE_WORDS,
    Body,
    BodyCode,
    BodyEncoder,
    SizeReport,
    bounded_header,
    encode_header,
    pack,
    size_histogram,
    unpack,
)
from fedfair.secagg.keys import Secret
from fedfair.secagg.prg import ZEROS, Keystreams, Mask, apply_masks, open_stream, segment_key
from fedfair.secagg.shape import MAX_REPLACED, TAG_LIMBS, SumShape, packed_bytes
from fedfair.secagg.sum_check import MODULUS, Tagging, tag_limbs
from fedfair.secagg.transcript import root_digest
from fedfair.secagg.vector_digest import frames_sha256, vector_digest

UNIFORM_BYTES = 2


@dataclass(frozen=True, slots=True)
class Update:
    """One site's contribution to one sum, before anything is hidden.

    Attributes:
        header: float64 (header_length,); what is beyond the bounds of the shape is replaced and counted.
        body: float32 or float64 (body_length,): the change itself, not yet weighted, NaN and infinities included;
            int64 where the shape has a unit.
        weight: integer in [1, W]; 0 with an abstention.
        abstains: True for a site that takes part with nothing, so that nobody can tell.
        replaced: how many values were replaced already because they could not be summed; at least 0.
    """

    header: NDArray[np.float64] = field(repr=False)
    body: Body
    weight: int
    abstains: bool = False
    replaced: int = 0


def abstention(shape: SumShape) -> Update:
    """Return the update of a site that has nothing to contribute: zeros with weight 0."""
    zeros = np.broadcast_to(np.float32(0.0), (shape.body_length,))
    return Update(np.zeros(shape.header_length), zeros, 0, abstains=True)


@dataclass(frozen=True, slots=True)
class SignedSeed:
    """A 31-byte seed and whether its mask is added or taken away."""

    seed: Secret
    negative: bool


def segment_masks(seeds: Sequence[SignedSeed], segment: str) -> list[Mask]:
    """Return the keystreams of one segment, `hdr` or `body`."""
    return [Mask(segment_key(seed.seed, segment), seed.negative) for seed in seeds]


def masked_vector(
    update: Update,
    shape: SumShape,
    code: BodyCode,
    seeds: Sequence[SignedSeed],
    rounding_key: Secret,
    threads: int = 1,
    tagging: Tagging | None = None,
    encoded: NDArray[np.uint32] | None = None,
    frames: list[bytes] | None = None,
) -> tuple[bytearray, bytes]:
    """Return the vector that leaves the site, and its digest.

    Args:
        update: what is contributed.
        shape: its shape.
        code: ring, cohort size, weights and clips of the round.
        seeds: the own mask and one for each other member of the cohort.
        rounding_key: 32 fresh bytes for the stochastic rounding.
        threads: how many threads share the blocks.
        tagging: makes the check tag; None just where the shape has none.
        encoded: uint32 (body_length,), filled with the body as it is added, clipped and rounded, before it is
            masked; `fixedpoint.decode_body` reads it. None where it is not asked for. It is a secret of the site.
        frames: filled with the SHA-256 of each frame that carries the vector, for the record of what leaves.

    Raises:
        LocalProtocolError: the update does not have the shape, or there is a tag too many or too few.
        TrainingError: the weight is larger than W; nothing must be sent.
    """
    _check_update(update, shape, code)
    if shape.checked != (tagging is not None):
        raise LocalProtocolError("a contribution carries a check tag exactly where the shape of its sum has one")
    vector = bytearray(shape.vector_bytes(code.ring_bits))
    work = _BodyWork(update, shape, code, segment_masks(seeds, "body"), rounding_key, vector, tagging, encoded)
    blocks = -(-shape.body_length // BLOCK_VALUES)
    bounds = [blocks * thread // threads for thread in range(threads + 1)]
    with ExitStack() as stack:
        # One thread needs no pool, which takes longer to make than a short vector.
        mapped = stack.enter_context(ThreadPoolExecutor(threads)).map if threads > 1 else map
        parts = list(mapped(work.run, bounds[:-1], bounds[1:]))
        report = SizeReport(
            sum(part.report.clipped for part in parts),
            max(part.report.largest for part in parts),
            sum(part.report.replaced for part in parts),
        )
        header = _header_words(update, shape, code, report)
        if tagging is not None:
            tag_of_body = sum(part.tag for part in parts)
            header[shape.tag_words] = _limbs(tagging, untagged(header, shape), tag_of_body)
        apply_masks(header, segment_masks(seeds, "hdr"))
        vector[: shape.header_bytes()] = header.tobytes()
        hashed = frames_sha256(vector, mapped)
    if frames is not None:
        frames[:] = hashed
    return vector, root_digest(len(vector), hashed)


MaskedVector = bytes | bytearray | memoryview | ArrivingVector
"""A masked vector at the aggregator: whole in memory, or added to the running sum while it arrived."""


class MaskedSum:
    """The running sum of masked vectors: one header and one body, whatever the number of sites.

    While a vector is added as it arrives there is a second body (`arriving`).

    Args:
        shape: of every contribution.
        ring_bits: width of a body value on its way.
        spare: memory for a second body, whatever is in it; it is made where there is none.
    """

    __slots__ = ("_arriving", "_block", "_spare", "body", "header", "ring_bits", "shape")

    def __init__(self, shape: SumShape, ring_bits: int, spare: NDArray[np.uint32] | None = None) -> None:
        self.shape = shape
        self.ring_bits = ring_bits
        self.header = np.zeros(shape.masked_header_length(), np.uint64)
        self.body = np.zeros(shape.body_length, np.uint32)
        self._block = np.empty(BLOCK_VALUES, np.uint32)
        self._spare = spare
        self._arriving: ArrivingVector | None = None

    def clear(self) -> None:
        """Begin again with nothing; a vector that is arriving does not count any more."""
        self._stop_arriving()
        self.header[:] = 0
        self.body[:] = 0

    def arriving(self) -> ArrivingVector | None:
        """Return what adds one vector while it arrives, for `add`; None while another one is arriving."""
        if self._arriving is not None:
            return None
        if self._spare is None or self._spare.shape != self.body.shape:
            self._spare = np.empty_like(self.body)
        bodies = (self.body, self._spare)
        self._arriving = ArrivingVector(self.shape, self.ring_bits, *bodies, self._forget_arriving)
        return self._arriving

    def take_spare(self) -> NDArray[np.uint32] | None:
        """Return memory of the length of the body that nothing needs any more, once; None where there is none.

        A vector that is arriving does not count any more.
        """
        self._stop_arriving()
        spare, self._spare = self._spare, None
        return spare

    def _stop_arriving(self) -> None:
        if self._arriving is not None:
            self._arriving.close()

    def _forget_arriving(self) -> None:
        self._arriving = None

    def check(self, vector: MaskedVector, expected_digest: bytes) -> None:
        """Refuse a vector that cannot be added.

        Raises:
            SecaggError: VECTOR: wrong length or digest; LATE: it arrived for a sum that has begun again.
        """
        expected = self.shape.vector_bytes(self.ring_bits)
        require(
            len(vector) == expected,
            Check.VECTOR,
            f"a masked vector of {len(vector)} bytes, expected {expected}",
            "the sender works on another model layout; compare the plan digests",
        )
        if isinstance(vector, ArrivingVector):
            require(vector is self._arriving, Check.LATE, "a masked vector arrived while its sum began again")
            found = vector.digest()
        else:
            found = vector_digest(vector)
        require(found == expected_digest, Check.VECTOR, "a masked vector was altered on its way")

    def add(self, vector: MaskedVector, expected_digest: bytes) -> None:
        """Add one vector; it is not needed afterwards.

        Raises:
            SecaggError: as `check`; nothing was added.
        """
        self.check(vector, expected_digest)
        if isinstance(vector, ArrivingVector):
            header, body = vector.take()
            self.header += header
            self.body, self._spare = body, self.body
            return
        self.header += np.frombuffer(vector, np.uint64, self.header.size)
        packed, arriving = np.frombuffer(vector, np.uint8, offset=self.shape.header_bytes()), self._arriving
        for start, block in self._blocks(packed):
            self.body[start : start + block.size] += block
            if arriving is not None:
                arriving.include(block, start)

    def _blocks(self, packed: NDArray[np.uint8]) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        """Yield where each block of a packed body begins, and its words, in memory that is used again."""
        leaf_bytes = packed_bytes(BLOCK_VALUES, self.ring_bits)
        for number, start in enumerate(range(0, self.body.size, BLOCK_VALUES)):
            part = packed[number * leaf_bytes : (number + 1) * leaf_bytes]
            if self.ring_bits == RING_OF_WHOLE_WORDS:
                yield start, part.view(np.uint32)
                continue
            block = self._block[: min(BLOCK_VALUES, self.body.size - start)]
            unpack(part, self.ring_bits, block)
            yield start, block

    def remove(self, seeds: Sequence[SignedSeed], threads: int = 1) -> None:
        """Take every mask away, given with the sign with which it was added."""
        opposite = [SignedSeed(seed.seed, not seed.negative) for seed in seeds]
        apply_masks(self.header, segment_masks(opposite, "hdr"))
        masks = segment_masks(opposite, "body")
        blocks = -(-self.body.size // BLOCK_VALUES)
        bounds = [BLOCK_VALUES * (blocks * thread // threads) for thread in range(threads + 1)]

        def work(start: int, stop: int) -> None:
            apply_masks(self.body[start:stop], masks, 4 * start)

        if threads == 1:
            work(0, self.body.size)
            return
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, bounds[:-1], bounds[1:]))


@dataclass(frozen=True, slots=True)
class _Part:
    """The outcome of a range of blocks: the sizes seen, and their share of the tag."""

    report: SizeReport
    tag: int


class _BodyWork:
    """Encodes, masks and packs any range of blocks of one body; threads share nothing they write."""

    def __init__(
        self,
        update: Update,
        shape: SumShape,
        code: BodyCode,
        masks: Sequence[Mask],
        rounding_key: Secret,
        vector: bytearray,
        tagging: Tagging | None,
        encoded: NDArray[np.uint32] | None,
    ) -> None:
        self._tagging = tagging
        self._encoded = encoded
        self._update = update
        self._code = code
        self._masks = masks
        self._rounding_key = rounding_key
        self._packed = np.frombuffer(vector, np.uint8, offset=shape.header_bytes())

    def run(self, first_block: int, last_block: int) -> _Part:
        """Fill blocks [first_block, last_block) and return what came of them."""
        code, length = self._code, self._update.body.size
        encoder = BodyEncoder(code, self._update.weight)
        streams = Keystreams(self._masks, 4 * first_block * BLOCK_VALUES)
        rounding = open_stream(self._rounding_key, UNIFORM_BYTES * first_block * BLOCK_VALUES)
        uniform, scratch = np.empty(BLOCK_VALUES, np.uint16), np.empty(BLOCK_VALUES, np.uint32)
        leaf_bytes = packed_bytes(BLOCK_VALUES, code.ring_bits)
        tag = 0
        for number in range(first_block, last_block):
            start = number * BLOCK_VALUES
            packed = self._packed[number * leaf_bytes : (number + 1) * leaf_bytes]
            size = min(BLOCK_VALUES, length - start)
            words = packed.view(np.uint32) if code.ring_bits == 32 else scratch[:size]
            rounding.update_into(ZEROS[: UNIFORM_BYTES * size], uniform.view(np.uint8).data)
            encoder.encode(self._update.body, start, uniform[:size], words)
            if self._tagging is not None:
                tag += self._tagging.check.body(words, number)
            if self._encoded is not None:
                self._encoded[start : start + size] = words
            streams.apply(words)
            if code.ring_bits != 32:
                pack(words, code.ring_bits, packed)
        return _Part(encoder.report, tag)


def untagged(header: NDArray[np.uint64], shape: SumShape) -> NDArray[np.uint64]:
    """Return the words of a masked header without those of the check tag."""
    tag = shape.tag_words
    return np.concatenate([header[: tag.start], header[tag.stop :]])


def _limbs(tagging: Tagging, header: NDArray[np.uint64], tag_of_body: int) -> NDArray[np.uint64]:
    check = tagging.check
    return tag_limbs((tag_of_body + check.header(header) + check.pad(tagging.member)) % MODULUS)


def _header_words(update: Update, shape: SumShape, code: BodyCode, report: SizeReport) -> NDArray[np.uint64]:
    header, beyond = bounded_header(update.header, shape.header)
    replaced = min(update.replaced + report.replaced + beyond, MAX_REPLACED)
    if shape.unit is not None or update.abstains:
        replaced = 0  # Nothing that is counted of a sum under noise may depend on the numbers.
    present = 0.0 if update.abstains else 1.0
    own = [np.array([update.weight, present, float(replaced), float(replaced > 0)])]
    if shape.body_length:
        histogram = size_histogram(report.largest) * (not update.abstains)
        own += [np.array([float(report.clipped)]), histogram]
    # The tag is that of all the other words, so it is put in place of these zeros afterwards.
    own += [np.zeros(TAG_LIMBS)] if shape.checked else []
    values = np.concatenate([*own, header])
    return encode_header(values, shape.header_runs(code.greatest_weight), code.members)


def _check_update(update: Update, shape: SumShape, code: BodyCode) -> None:
    if update.header.shape != (shape.header_length,) or update.body.shape != (shape.body_length,):
        raise LocalProtocolError(
            f"the update has {update.header.shape} header and {update.body.shape} body values, "
            f"the sum needs ({shape.header_length},) and ({shape.body_length},)"
        )
    if (update.body.dtype == np.int64) != (shape.unit is not None):
        # Real numbers carry no noise, and nobody may leave a sum of noised numbers without adding a share of it.
        raise LocalProtocolError(f"a body of {update.body.dtype} values for a sum with unit {shape.unit}")
    if not (0 if update.abstains else 1) <= update.weight <= code.greatest_weight:
        raise TrainingError(
            "the weight of this site's contribution is not one that the plan allows, so nothing was sent",
            "compare the number of training records with secure_aggregation.most_records of the plan",
        )
