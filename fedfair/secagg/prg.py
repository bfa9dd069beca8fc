"""Masks: AES-256 in counter mode, added to or taken from a vector block by block.

The outer loop runs over blocks of 256 KiB, the inner one over the pairs of a member, so that the block of the
vector and the one scratch block stay in the cache; what remains is the cost of the keystream and of one
addition. The counter starts at the block's own offset, so any part of a mask can be made by any thread.
Decides nothing about whose seed it is. Source: NIST SP 800-38A (CTR).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError
from fedfair.secagg.keys import Secret, derive

BLOCK_BYTES = 1 << 18
AES_BLOCK_BYTES = 16
KEY_BYTES = 32
ZEROS = memoryview(bytes(BLOCK_BYTES))
"""Encrypting them gives a keystream."""

Word = TypeVar("Word", np.uint16, np.uint32, np.uint64)


@dataclass(frozen=True, slots=True)
class Mask:
    """One keystream with its sign.

    Attributes:
        key: 32 bytes, AES-256; for one segment of one vector only.
        negative: True where the keystream is taken away.
    """

    key: Secret
    negative: bool


def segment_key(seed: Secret, segment: str) -> Secret:
    """Return the AES key of one segment, `hdr` or `body`, of the mask that grows from a 31-byte seed."""
    return derive(seed, f"ctr-key/{segment}", length=KEY_BYTES)


class Keystreams:
    """Several keystreams at one place in a vector; applied to consecutive blocks.

    Args:
        masks: keys and signs.
        byte_offset: where in the vector to begin; a multiple of 16.
    """

    __slots__ = ("_pairs", "_scratch")

    def __init__(self, masks: Sequence[Mask], byte_offset: int = 0) -> None:
        if byte_offset % AES_BLOCK_BYTES:
            raise LocalProtocolError(f"a keystream cannot begin at byte {byte_offset}")
        self._pairs = [(open_stream(mask.key, byte_offset), mask.negative) for mask in masks]
        self._scratch = np.empty(0, np.uint8)

    def apply(self, block: NDArray[Word]) -> None:
        """Add every mask to `block` in its own ring, in place, and move on by its length.

        Args:
            block: contiguous little-endian words, at most BLOCK_BYTES; all but the last a multiple of 16 bytes.
        """
        if self._scratch.size < block.nbytes:
            self._scratch = np.empty(block.nbytes, np.uint8)
        zeros, scratch = ZEROS[: block.nbytes], self._scratch
        stream = scratch[: block.nbytes].view(block.dtype)
        for context, negative in self._pairs:
            context.update_into(zeros, scratch.data)
            if negative:
                np.subtract(block, stream, out=block)
            else:
                np.add(block, stream, out=block)


def open_stream(key: Secret, byte_offset: int = 0) -> CipherContext:
    """Return the keystream of `key` from `byte_offset` on; encrypting zeros gives its bytes."""
    counter = (byte_offset // AES_BLOCK_BYTES).to_bytes(AES_BLOCK_BYTES, "big")
    return Cipher(algorithms.AES(key.reveal()), modes.CTR(counter)).encryptor()


def apply_masks(words: NDArray[Word], masks: Sequence[Mask], byte_offset: int = 0) -> None:
    """Add every mask to `words`, in place, block by block."""
    streams = Keystreams(masks, byte_offset)
    step = BLOCK_BYTES // words.itemsize
    for start in range(0, words.size, step):
        streams.apply(words[start : start + step])
