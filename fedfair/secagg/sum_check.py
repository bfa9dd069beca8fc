"""The sum check: shows a site that an opened sum is what the survivors added, to the last unit.

Every survivor k adds a check tag to its masked header, beside its contribution x_k (body, ring integers) and h_k
(every other word of the masked header):

    tag_k = sum over blocks b of u_b * (sum over j of v_j x_k[b, j]) + sum over i of w_i h_k[i] + r_k   modulo M

M is the prime 2^127 - 1; v_j, u_b and w_i are uniform numbers of 64 bits, and r_k is a pad of member k, uniform
modulo M. All come from a key that the members have in common and the aggregator has not, and that is of one round.
So the sum of the tags is the same function of the sum of the contributions, plus the pads of the survivors.

Nobody without the key has a wrong sum accepted, but with probability 2^-63 a try. A claim is a
body X', a header H', a set of survivors S' and a tag T' modulo M; the true ones are X, H, S and T. All are
integers: a sum of contributions does not wrap (see `fixedpoint`). Let d = X' - X and e = H' - H.

1. The pads make T uniform and independent of v, u, w, whatever X and H are. So the claim is independent of them.
2. S' is not S: the sums of the pads over S' and over S are independent, so the check holds with probability 1/M.
3. S' = S and d is not 0: take a block where it is not. |d_j| < 2^32 there, so |sum of v_j d_j| < 2^112 < M; over
   the integers it is 0 for at most one value of one v_j, that is, with probability at most 2^-64. Where it is not
   0, it has an inverse modulo M, so at most one u_b of 2^64 makes the check hold.
4. S' = S, d = 0 and some e_i is not 0: |e_i| < 2^65 < M has an inverse, so at most one w_i of 2^64 does.
5. Only T' differs modulo M: the check fails. Limbs that stand for the same T' mean nothing else, and nothing is
   computed from them.

Case 3 is the worst: 2^-64 and 2^-64. "Uniform" is the output of HKDF-SHA256 and AES-256-CTR here.

Why not less. Without the pads, an aggregator that knows X and its tag <s, X> claims (k X, k <s, X>) for any k,
zero included, and every site believes it. With a single number modulo a prime near 2^31, two headers of 64 bits
that differ by a multiple of it have one tag.

A body of whole numbers with noise is summed modulo 2^b, and tags know no wrap: the tag is that of the integers as
each site drew them. Where their sum wraps round the ring, which the plan makes less probable than
`privacy.collaborator_level.OVERFLOW_PROBABILITY` over a whole run, every site refuses the sum: it would have been
a wrong one.

A member knows the key, so a member that colludes with the aggregator can have any sum accepted.

Speed: x is cut into two limbs of 16 bits and v into four, as float64. A product of limbs is below 2^32 and 2^16 of
them are added, so every partial sum is an integer below 2^53 and the matrix product is exact, in whatever order.
Source: Carter & Wegman 1979 (universal hashing); Wegman & Carter 1981 (the pad).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedfair.secagg.fixedpoint import BLOCK_VALUES
from fedfair.secagg.keys import Secret, derive
from fedfair.secagg.prg import KEY_BYTES, open_stream
from fedfair.secagg.shape import LIMB_BITS, TAG_LIMBS, SumShape
from fedfair.secagg.transcript import u16

CHECK_KEY_BYTES = 32
MODULUS = 2**127 - 1
COEFFICIENT_BYTES = 8
PAD_BYTES = 32
"""256 bits modulo M: the bias of a pad is below 2^-128."""

_HALF_BITS = 16
_QUARTERS = COEFFICIENT_BYTES * 8 // _HALF_BITS


def round_key(session_key: Secret, transcript: bytes) -> Secret:
    """Return K (32 bytes), the key of the sum check in one round.

    Args:
        session_key: G, which the members of a session have in common.
        transcript: T_r, 32 bytes.
    """
    return derive(session_key, "sum-check", transcript, length=CHECK_KEY_BYTES)


class SumCheck:
    """The secret function of one round that every tag is a value of.

    Its numbers are made when a tag is first asked for: one round asks for that of the upload and that of the sum.

    Args:
        key: K.
        body_length: values in the body.
        header_length: words of the masked header without the tag's own.

    Attributes:
        key: K.
    """

    def __init__(self, key: Secret, body_length: int, header_length: int) -> None:
        self.key = key
        self._body_length, self._header_length = body_length, header_length

    def erase(self) -> None:
        """Forget the key and its numbers; no tag can be computed any more."""
        self.key.erase()
        for name in ("_inner", "_outer", "_header"):
            self.__dict__.pop(name, None)

    @cached_property
    def _inner(self) -> NDArray[np.float64]:
        """Return (4, values): quarter q of v_j, lowest first; its bytes are those of v_j, little-endian."""
        inner = self._numbers("inner", min(self._body_length, BLOCK_VALUES))
        return np.ascontiguousarray(inner.view("<u2").reshape(-1, _QUARTERS).T, np.float64)

    @cached_property
    def _outer(self) -> list[int]:
        blocks: list[int] = self._numbers("blocks", -(-self._body_length // BLOCK_VALUES)).tolist()
        return blocks

    @cached_property
    def _header(self) -> list[int]:
        words: list[int] = self._numbers("header", self._header_length).tolist()
        return words

    def body(self, words: NDArray[np.uint32], first_block: int = 0) -> int:
        """Return the share of consecutive body values in a tag, from 0 to M - 1.

        Args:
            words: contiguous (n,), the low 32 bits of integers that lie in [-2^31, 2^31).
            first_block: words begin with the first value of this block.
        """
        halves = np.empty((2, min(words.size, BLOCK_VALUES)))
        total: int = 0
        for number, start in enumerate(range(0, words.size, BLOCK_VALUES), first_block):
            signed = words[start : start + BLOCK_VALUES].view(np.int32)
            both = halves[:, : signed.size]
            both[0] = signed.view(np.uint16)[::2]
            both[1] = signed >> _HALF_BITS
            products = self._inner[:, : signed.size] @ both.T
            inner: int = sum(
                int(products[quarter, half]) << _HALF_BITS * (quarter + half)
                for quarter in range(_QUARTERS)
                for half in range(2)
            )
            total += self._outer[number] * inner
        return total % MODULUS

    def header(self, words: NDArray[np.uint64]) -> int:
        """Return the share of the header in a tag, from 0 to M - 1.

        Args:
            words: (header_length,), elements of Z_2^64 that stand for signed integers; without the tag's own.
        """
        signed: list[int] = words.view(np.int64).tolist()
        total: int = sum(map(operator.mul, self._header, signed))
        return total % MODULUS

    def pad(self, member: int) -> int:
        """Return r_k of a member, by its roster index."""
        raw = derive(self.key, "sum-check/pad", u16(member), length=PAD_BYTES)
        pad = int.from_bytes(raw.reveal(), "big") % MODULUS
        raw.erase()
        return pad

    def tag_of_sum(self, header: NDArray[np.uint64], body: NDArray[np.uint32], survivors: Iterable[int]) -> int:
        """Return the tag that a sum over exactly these survivors must have, from 0 to M - 1.

        Args:
            header: the summed header without the tag's own words.
            body: the summed body, as signed integers of 32 bits.
            survivors: their roster indices.
        """
        return (self.body(body) + self.header(header) + sum(map(self.pad, survivors))) % MODULUS

    def _numbers(self, label: str, count: int) -> NDArray[np.uint64]:
        key = derive(self.key, f"sum-check/{label}", length=KEY_BYTES)
        stream = open_stream(key).update(bytes(COEFFICIENT_BYTES * count))
        key.erase()
        return np.frombuffer(stream, "<u8")


@dataclass(frozen=True, slots=True)
class Tagging:
    """The means by which a site tags its own contribution.

    Attributes:
        check: of the round.
        member: its roster index.
    """

    check: SumCheck
    member: int


def check_of(key: Secret, shape: SumShape) -> SumCheck:
    """Return the sum check of a round over contributions of this shape, which carries tags."""
    return SumCheck(key, shape.body_length, shape.masked_header_length() - TAG_LIMBS)


def tag_limbs(tag: int) -> NDArray[np.uint64]:
    """Return a tag (0 to M - 1) as four words of 32 bits, the lowest first."""
    mask = (1 << LIMB_BITS) - 1
    return np.array([tag >> LIMB_BITS * place & mask for place in range(TAG_LIMBS)], np.uint64)


def tag_of_limbs(limbs: NDArray[np.uint64]) -> int:
    """Return the tag, modulo M, that four added words stand for."""
    added: list[int] = limbs.tolist()
    return sum(limb << LIMB_BITS * place for place, limb in enumerate(added)) % MODULUS
