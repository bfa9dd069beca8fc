"""Where a site's samples and noise come from, and what that is worth.

At a collaborator every stream is seeded with fresh entropy of the operating system, by `system_entropy`, and never
by the plan or the aggregator: whoever knows the seed can redraw the sample and take the noise off again. A
simulation passes seeds that follow from the plan instead, so that it can be repeated; it holds everybody's records
anyway, and its noise protects nobody. The generators are statistical, not cryptographic, and every statement says
so. Seeds must at least be too many to try. PCG64 DXSM takes 128 bits. On a GPU the generator is Philox, whose 63
bits a large computing centre could try, so noise there is the sum of four streams with seeds of their own,

    z = (z_1 + z_2 + z_3 + z_4) / 2

which is standard normal as each of them is, and takes 2^126 trials even where two halves are met in the middle.
PyTorch's own CPU generator, which Opacus's sampler draws from, is not used: it keeps 32 bits of its seed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ENTROPY_BITS = 256

STREAMS_ON_GPU = 4
"""Their root is 2, and dividing by it rounds nothing."""

Entropy: TypeAlias = Callable[..., int]
"""From words that say what a stream is for to its seed, a whole number from 0 on of any size."""


def system_entropy(*words: str | int) -> int:  # noqa: ARG001 - a seed that nobody can repeat depends on nothing
    """Return a seed of 256 bits from the operating system, another one with every call."""
    return secrets.randbits(ENTROPY_BITS)


class Draws:
    """The stream of random numbers for one purpose; use it once.

    Args:
        seed: a whole number from 0 on; 128 bits of it count, 252 on a GPU.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._source = np.random.Generator(np.random.PCG64DXSM(seed))
        self._on_gpu: list[torch.Generator] = []

    def again(self) -> Draws:
        """Return the same stream from its beginning, for a computation that is made anew and released once."""
        return Draws(self._seed)

    def poisson_sample(self, count: int, rate: float) -> NDArray[np.int64]:
        """Return which of `count` records are in a sample that each joins with probability `rate`, on its own.

        How many join is binomial, and given how many, every subset is equally likely: that is the same
        distribution as one coin for each record, for the price of those that join. In no particular order.
        """
        joining = int(self._source.binomial(count, rate))
        return self._source.choice(count, joining, replace=False, shuffle=False)

    def gaussian(self, like: Tensor) -> Tensor:
        """Return independent standard normal numbers in the shape and width and on the device of `like`."""
        if like.device.type == "cuda":
            self._on_gpu = self._on_gpu or gpu_generators(self._seed, like.device)
            return normal_sum(like, self._on_gpu)
        width = np.float64 if like.dtype == torch.float64 else np.float32
        values = self._source.standard_normal(tuple(like.shape), dtype=width)
        return torch.as_tensor(values).to(like)


def gpu_generators(seed: int, device: torch.device) -> list[torch.Generator]:
    """Return PyTorch's generators on a device whose seeds follow from one seed of any size, 63 bits each."""
    digest = hashlib.sha256(b"fedfair/gpu-noise/v1" + seed.to_bytes(seed.bit_length() // 8 + 1, "big")).digest()
    words = (int.from_bytes(digest[start : start + 8], "big") for start in range(0, 8 * STREAMS_ON_GPU, 8))
    return [torch.Generator(device).manual_seed(word >> 1) for word in words]


def normal_sum(like: Tensor, sources: Sequence[torch.Generator]) -> Tensor:
    """Return standard normal numbers, shaped as `like`, of which every source has an equal share."""
    total, share = torch.zeros_like(like), torch.empty_like(like)
    for source in sources:
        total.add_(share.normal_(generator=source))
    return total.div_(len(sources) ** 0.5)
