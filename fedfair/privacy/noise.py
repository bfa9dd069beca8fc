"""Where a site's samples and noise come from, and what that is worth.

At a collaborator every stream is seeded with fresh entropy of the operating system, by `system_entropy`, and never
by the plan or the aggregator: whoever knows the seed can redraw the sample and take the noise off again. A
simulation passes seeds that follow from the plan instead, so that it can be repeated; it holds everybody's records
anyway, and its noise protects nobody. The generators are statistical (PCG64 DXSM with 128 bits of state, Philox on
an accelerator), not cryptographic, and every statement says so. PyTorch's own CPU generator is not used: it keeps
32 bits of its seed, few enough to try them all. Nor is Opacus's sampler, which draws from that generator.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ENTROPY_BITS = 256

Entropy: TypeAlias = Callable[..., int]
"""From words that say what a stream is for to its seed, a whole number from 0 on of any size."""


def system_entropy(*words: str | int) -> int:  # noqa: ARG001 - a seed that nobody can repeat depends on nothing
    """Return a seed of 256 bits from the operating system, another one with every call."""
    return secrets.randbits(ENTROPY_BITS)


class Draws:
    """The stream of random numbers for one purpose; use it once.

    Args:
        seed: a whole number from 0 on; 128 bits of it count, 63 on an accelerator.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._source = np.random.Generator(np.random.PCG64DXSM(seed))
        self._on_device: torch.Generator | None = None

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
            if self._on_device is None:
                self._on_device = torch.Generator(like.device).manual_seed(self._seed % (1 << 63))
            return torch.empty_like(like).normal_(generator=self._on_device)
        width = np.float64 if like.dtype == torch.float64 else np.float32
        values = self._source.standard_normal(tuple(like.shape), dtype=width)
        return torch.as_tensor(values).to(like)
