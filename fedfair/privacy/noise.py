"""Draws a site's samples and noise, says what that is worth, and adds noise in the one way there is.

Noise is added in whole cells of a public grid (`grid.py`) by `with_noise`, and nowhere else: a float sum with
float noise would tell of a record by its low bits. Noise that is shared among sites is `skellam.py`'s, in whole
numbers too.

At a collaborator every stream is seeded with fresh entropy of the operating system, by `system_entropy`, and never
by the plan or the aggregator: anyone who knows the seed can redraw the sample and take the noise off again. A
simulation passes seeds that follow from the plan instead, so that it can be repeated; it has all records anyway,
and its noise protects no one. The generators are statistical, not cryptographic, and every statement says
so. Seeds must at least be too many to try. PCG64 DXSM takes 128 bits. On a GPU the generator is Philox, whose 63
bits a large computing centre could try, so noise there is the sum of four streams with seeds of their own,

    z = (z_1 + z_2 + z_3 + z_4) / 2

in float64, which is standard normal as each of them is, and takes 2^126 trials even where two halves are met in
the middle. PyTorch's own CPU generator, which Opacus's sampler draws from, is not used: it keeps 32 bits of its
seed.

On a CPU normal numbers are numpy's ziggurat in float64. Its values lie less than 2^-50 apart up to 3.65 deviations
and e^(3.65 (x - 3.65)) times that at x beyond, so that a cell of at least 2^-20 deviations holds some 2^30 of
them. A grid this coarse shows nothing of which values the sampler can make, which is what attacks on samplers need
(Holohan and Braghin 2021, "Secure Random Sampling in Differential Privacy"; Haney et al. 2022, "Precision-based
attacks and interval refining").
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

from fedfair.privacy.grid import Grid

ENTROPY_BITS = 256

STREAMS_ON_GPU = 4
"""Their root is 2, and dividing by it rounds nothing."""

Entropy: TypeAlias = Callable[..., int]
"""From words that say what a stream is for to its seed, a whole number from 0 on of any size."""


def system_entropy(*words: str | int) -> int:  # noqa: ARG001 - a seed that cannot be repeated depends on nothing
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
        """Return the same stream from its beginning, for a computation that is made again and released once."""
        return Draws(self._seed)

    def poisson_sample(self, count: int, rate: float) -> NDArray[np.int64]:
        """Return which of `count` records are in a sample that each joins with probability `rate`, on its own.

        How many join is binomial, and given how many, every subset is equally likely: that is the same
        distribution as one coin for each record, for the price of those that join. In no particular order.
        """
        joining = int(self._source.binomial(count, rate))
        return self._source.choice(count, joining, replace=False, shuffle=False)

    def whole_noise(self, like: Tensor, deviation: float) -> Tensor:
        """Return independent normal numbers of a standard deviation, each rounded to a whole one.

        Args:
            like: gives shape, device and width; float32 holds the numbers exactly while they are below 2^24.
            deviation: positive.
        """
        if like.device.type == "cuda":
            self._on_gpu = self._on_gpu or gpu_generators(self._seed, like.device)
            wide = torch.empty_like(like, dtype=torch.float64)
            return _normal_sum(wide, self._on_gpu).mul_(deviation).round_().to(like.dtype)
        values = self._source.standard_normal(tuple(like.shape))
        values *= deviation
        np.rint(values, out=values)
        return torch.as_tensor(values).to(like.dtype).to(like.device)


def whole_cells(values: Tensor, grid: Grid) -> Tensor:
    """Return values in cells of a grid, rounded to whole numbers, in place: F of `grid.py`; exact in any width."""
    return values.mul_(1.0 / grid.cell).round_()


def with_noise(cells: Tensor, grid: Grid, draws: Draws, where: Tensor | None = None) -> Tensor:
    """Return what may leave a site: whole cells with whole noise, in the units of the grid, in place.

    Args:
        cells: whole numbers in float32 or float64, from `whole_cells` or a sum of such in float64.
        grid: for which they were rounded; its noise is added.
        draws: of this release.
        where: bool tensor, False at entries that are 0 whatever the records and stay 0; None for none.
    """
    noise = draws.whole_noise(cells, grid.cells)
    return cells.add_(noise if where is None else noise.mul_(where.to(noise.device))).mul_(grid.cell)


def gpu_generators(seed: int, device: torch.device) -> list[torch.Generator]:
    """Return PyTorch's generators on a device whose seeds follow from one seed of any size, 63 bits each."""
    digest = hashlib.sha256(b"fedfair/gpu-noise/v1" + seed.to_bytes(seed.bit_length() // 8 + 1, "big")).digest()
    words = (int.from_bytes(digest[start : start + 8], "big") for start in range(0, 8 * STREAMS_ON_GPU, 8))
    return [torch.Generator(device).manual_seed(word >> 1) for word in words]


def _normal_sum(like: Tensor, sources: Sequence[torch.Generator]) -> Tensor:
    """Return standard normal numbers, shaped as `like`, of which every source has an equal share."""
    total, share = torch.zeros_like(like), torch.empty_like(like)
    for source in sources:
        total.add_(share.normal_(generator=source))
    return total.div_(len(sources) ** 0.5)
