"""All randomness of training and partitioning, as a function of the plan's seed and of words that say what for.

Everything that is drawn names its purpose, such as `generator(seed, "batch", round, attempt, participant, step)`,
so that round 40 can be replayed without rounds 1 to 39 and a deployed site draws what the simulation drew for it.
None of this is secret: masks and keys never come from here.

PyTorch's CPU generator is a Mersenne Twister that keeps 32 bits of its seed (checked with 2.13). Two purposes
share a stream with probability 2^-32, which is harmless for sampling and would not be for a mask.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

LABEL = "fedfair/seed/v1"
OWN_WORDS = 2
"""The last words of a purpose, such as participant and step; many draws of a round have those before in common."""

REJECTION_FACTOR = 8
"""Below n / 8 a draw repeats an index at most every eighth time; above, shuffling all n is quicker."""


def generator(seed: int, *words: str | int) -> torch.Generator:
    """Return a fresh CPU generator for one purpose.

    Args:
        seed: the plan's seed, any integer.
        words: what the draws are for; the word "1" and the number 1 are different.
    """
    return torch.Generator().manual_seed(derived_seed(seed, *words))


def array_generator(seed: int, *words: str | int) -> np.random.Generator:
    """Return a fresh numpy generator for one purpose: PyTorch has no seeded Dirichlet draw.

    Args:
        seed: the plan's seed, any integer.
        words: what the draws are for, as for `generator`.
    """
    return np.random.Generator(np.random.PCG64(derived_seed(seed, *words)))


def derived_seed(seed: int, *words: str | int) -> int:
    """Return 64 bits of SHA-256 over the label, the seed and the words, each with its kind and length in front."""
    sha = _absorbed(LABEL, seed, *words[:-OWN_WORDS]).copy()
    sha.update(b"".join(map(_framed, words[-OWN_WORDS:])))
    return int.from_bytes(sha.digest()[:8], "big")


@lru_cache(maxsize=64, typed=True)
def _absorbed(*words: str | int) -> hashlib._Hash:
    """Return SHA-256 after these words; to be copied, never to be updated."""
    return hashlib.sha256(b"".join(map(_framed, words)))


def _framed(word: str | int) -> bytes:
    text = str(word).encode()
    return (b"i" if isinstance(word, int) else b"s") + len(text).to_bytes(8, "big") + text


def draw_batch(source: torch.Generator, n: int, batch_size: int) -> Tensor:
    """Return distinct indices below n, every ordered choice of them equally likely.

    Args:
        source: where the draws come from.
        n: number of records, at least 1.
        batch_size: at least 1; n or more means all records, in their own order.

    Returns:
        int64 tensor (min(batch_size, n),) on the CPU.
    """
    if batch_size >= n:
        return torch.arange(n)
    if batch_size * REJECTION_FACTOR > n:
        return torch.randperm(n, generator=source)[:batch_size]
    # Given the values seen so far, the next value that is new is uniform over all the others.
    drawn = torch.randint(n, (batch_size,), generator=source)
    chosen = dict.fromkeys(drawn.tolist())
    if len(chosen) == batch_size:
        return drawn
    while len(chosen) < batch_size:
        missing = batch_size - len(chosen)
        chosen.update(dict.fromkeys(torch.randint(n, (missing,), generator=source).tolist()))
    return torch.from_numpy(np.fromiter(chosen, np.int64, batch_size))
