"""Samples and noise against their distributions. Thresholds are for seeds that never change; see each test."""

import numpy as np
import pytest
import torch
from scipy import stats

from fedfair.privacy.grid import noise_grid
from fedfair.privacy.noise import (
    ENTROPY_BITS,
    STREAMS_ON_GPU,
    Draws,
    _normal_sum,
    gpu_generators,
    system_entropy,
    whole_cells,
    with_noise,
)

# A correct generator fails one such test with this probability, whatever the seed; with a fixed seed, never again.
CHANCE = 1e-4
SIZE = 2.0**18


def test_every_record_is_in_a_sample_with_the_stated_probability() -> None:
    draws, count, rate, rounds = Draws(11), 200, 0.07, 4000
    seen = np.zeros(count)
    sizes = np.zeros(rounds)
    for place in range(rounds):
        sample = draws.poisson_sample(count, rate)
        assert len(np.unique(sample)) == len(sample)
        seen[sample] += 1
        sizes[place] = len(sample)
    spread = rounds * rate * (1 - rate)
    # Pearson over 200 binomial counts: chi squared with 200 degrees of freedom.
    assert stats.chi2.sf(((seen - rounds * rate) ** 2 / spread).sum(), count) > CHANCE
    # The size of a sample is binomial too, which a batch of fixed size would not be: its variance, by chi squared.
    variance = count * rate * (1 - rate)
    assert CHANCE < stats.chi2.sf(((sizes - count * rate) ** 2 / variance).sum(), rounds) < 1 - CHANCE


def test_samples_are_independent_and_a_rate_of_one_takes_all_records() -> None:
    draws, count, rate, rounds = Draws(12), 12, 0.4, 6000
    members = np.zeros((rounds, count))
    for place in range(rounds):
        members[place, draws.poisson_sample(count, rate)] = 1.0
    pairs = np.triu_indices(count, 1)
    both = (members.T @ members)[pairs]
    # Each pair is together rate^2 of the time if membership is independent; 66 pairs, Bonferroni.
    z = (both - rounds * rate**2) / np.sqrt(rounds * rate**2 * (1 - rate**2))
    assert np.abs(z).max() < stats.norm.isf(CHANCE / (2 * len(both)))
    assert sorted(Draws(1).poisson_sample(5, 1.0).tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("deviation", [0.7, 2.0, 2.0**18 * 1.3])
def test_noise_is_a_normal_number_rounded_to_a_whole_one(deviation: float) -> None:
    count = 400_000
    noise = Draws(19).whole_noise(torch.empty(count, dtype=torch.float64), deviation).numpy()
    # Whole numbers in at most 41 cells of equal width, within three deviations.
    width = max(1, round(deviation / 5))
    ends = (np.arange(-20, 20) * width + 0.5)[np.abs(np.arange(-20, 20) * width) <= 3 * deviation]
    probabilities = np.diff(stats.norm.cdf(ends / deviation), prepend=0.0, append=1.0)
    seen = np.bincount(np.searchsorted(ends, noise), minlength=len(ends) + 1)
    expected = count * probabilities
    # Pearson, with no cell below ten; a correct sampler is outside with a probability of 1e-7 a side.
    found = ((seen - expected) ** 2 / expected).sum()
    assert expected.min() > 10
    assert stats.chi2.isf(1 - 1e-7, len(ends)) < found < stats.chi2.isf(1e-7, len(ends))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_released_is_a_function_of_the_whole_sum_of_record_and_noise(dtype: torch.dtype) -> None:
    """However the whole sum came about: also where a float32 is too narrow for it."""
    grid = noise_grid(1.3, 1.0, 4)
    noise = Draws(21).whole_noise(torch.empty(1000, dtype=dtype), grid.cells)
    for size in (1.0, 1e3, 1e6):
        sums = torch.linspace(-size, size, 1000, dtype=dtype)
        cells = whole_cells(sums.clone(), grid)
        released = with_noise(cells.clone(), grid, Draws(21))
        whole = [int(one) + int(other) for one, other in zip(cells.tolist(), noise.tolist(), strict=True)]
        expected = torch.tensor(np.array(whole, dtype=np.float64), dtype=torch.float64).to(dtype) * grid.cell
        assert torch.equal(released, expected)
        assert torch.equal(released / grid.cell, (released / grid.cell).round())


def test_noise_is_the_same_whole_numbers_with_uniform_low_bits() -> None:
    narrow, wide = (
        Draws(13).whole_noise(torch.empty(300, 100, dtype=dtype), 2.0**19)
        for dtype in (torch.float32, torch.float64)
    )
    assert (narrow.dtype, wide.dtype, wide.shape) == (torch.float32, torch.float64, (300, 100))
    assert torch.equal(narrow.double(), wide)
    assert torch.equal(wide, wide.round())
    assert stats.kstest(wide.numpy().ravel() / 2.0**19, "norm").pvalue > CHANCE
    count, values = 500_000, 256
    noise = Draws(20).whole_noise(torch.empty(count, dtype=torch.float64), 2.0**18).numpy()
    seen = np.bincount(np.mod(noise, values).astype(int), minlength=values)
    # A normal number of 2^18 cells is uniform modulo 2^8 but for exp(-2 pi^2 2^20).
    found = ((seen - count / values) ** 2 / (count / values)).sum()
    assert stats.chi2.isf(1 - 1e-7, values - 1) < found < stats.chi2.isf(1e-7, values - 1)
    grid, where = noise_grid(1.0, 1.0, 2), torch.tensor([True, False])
    released = with_noise(torch.zeros(2), grid, Draws(1), where)
    assert released[0] != 0.0
    assert released[1] == 0.0


def test_streams_go_on_begin_again_and_never_share_a_seed() -> None:
    like = torch.empty(1000)
    draws, again = Draws(3), Draws(3)
    first, second = draws.whole_noise(like, SIZE), draws.whole_noise(like, SIZE)
    assert torch.equal(first, again.whole_noise(like, SIZE))
    assert torch.equal(second, again.whole_noise(like, SIZE))
    # Independent streams of 1000: their correlation has a deviation of 1/sqrt(1000).
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < stats.norm.isf(CHANCE) / 1000**0.5
    like = torch.empty(16)
    first = Draws(5).whole_noise(like, SIZE)
    assert not torch.equal(first, Draws(5 + (1 << 32)).whole_noise(like, SIZE))
    assert not torch.equal(first, Draws(5 + (1 << 100)).whole_noise(like, SIZE))
    seeds = {system_entropy("noise", 1, 1) for _ in range(100)}
    assert len(seeds) == 100
    assert max(seeds) >> (ENTROPY_BITS - 20)  # 100 draws below a share of 2^-20 of the range: never
    draws, like = Draws(9), torch.empty(50)
    first, sample = draws.whole_noise(like, SIZE), draws.poisson_sample(100, 0.3)
    again = draws.again()
    assert torch.equal(again.whole_noise(like, SIZE), first)
    np.testing.assert_array_equal(again.poisson_sample(100, 0.3), sample)


def test_a_gpus_noise_is_a_sum_of_streams_whose_seeds_have_63_bits_each_whatever_they_come_from() -> None:
    cpu = torch.device("cpu")
    words = [source.initial_seed() for seed in (0, 1, 2, 1 << 200) for source in gpu_generators(seed, cpu)]
    assert len(set(words)) == 4 * STREAMS_ON_GPU
    # 16 words below a share of 2^-20 of the range: never.
    assert 1 << 43 < max(words) < 1 << 63
    again = [source.initial_seed() for source in gpu_generators(1 << 200, cpu)]
    assert again == words[-STREAMS_ON_GPU:]


def test_a_sum_of_streams_is_standard_normal_and_every_stream_counts() -> None:
    cpu, like = torch.device("cpu"), torch.empty(30_000, dtype=torch.float64)
    noise = _normal_sum(like, gpu_generators(17, cpu))
    assert stats.kstest(noise.numpy(), "norm").pvalue > CHANCE
    for left_out in range(STREAMS_ON_GPU):
        sources = gpu_generators(17, cpu)
        sources[left_out].manual_seed(5)
        other = _normal_sum(like, sources)
        # Three of four shares are in common: the correlation is 3/4, with a deviation of (1 - 9/16) / sqrt(n).
        correlation = float(torch.corrcoef(torch.stack([noise, other]))[0, 1])
        assert abs(correlation - 0.75) < stats.norm.isf(CHANCE) * (7 / 16) / 30_000**0.5
