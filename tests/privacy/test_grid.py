"""The grid of noised numbers: its cell, its price, and what a record can do to a sum that floats computed."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import PrivacyError
from fedfair.privacy.grid import FINENESS, noise_grid
from fedfair.privacy.noise import whole_cells
from fedfair.privacy.sensitivity import MAX_SUMMED, summed_sensitivity

WIDTHS = {24: torch.float32, 53: torch.float64}


@given(st.floats(1e-3, 1e3), st.floats(1e-6, 1e6), st.integers(0, 1 << 20))
def test_cells_are_powers_of_two_below_noise(noise_multiplier: float, sensitivity: float, entries: int) -> None:
    if noise_multiplier * math.sqrt(entries) > 2.0**18:
        return
    grid = noise_grid(noise_multiplier, sensitivity, entries)
    assert math.frexp(grid.cell)[0] == 0.5
    assert 2.0**FINENESS * grid.cell <= noise_multiplier * sensitivity < 2.0 ** (FINENESS + 1) * grid.cell
    # In units of the noise, what a record moves after rounding is 1 / sigma: what the accountant counts with.
    moved = sensitivity + math.sqrt(entries) * grid.cell
    assert grid.deviation / moved == pytest.approx(noise_multiplier, rel=1e-14)
    # Whole noise of fifteen deviations fits the significand of a float32.
    assert 15 * grid.cells < 2.0**24


@pytest.mark.parametrize(
    ("noise_multiplier", "sensitivity", "entries"),
    [(0.0, 1.0, 1), (1.0, math.inf, 1), (math.nan, 1.0, 1), (1e-320, 1e-3, 1), (1e6, 1.0, 1 << 20)],
)
def test_noise_without_a_grid_is_refused(noise_multiplier: float, sensitivity: float, entries: int) -> None:
    with pytest.raises(PrivacyError):
        noise_grid(noise_multiplier, sensitivity, entries)


def test_a_record_can_move_every_entry_by_one_cell_more_and_that_is_what_is_paid_for() -> None:
    """An adversary who knows all the others puts every entry of the sum at the edge of its cell."""
    entries, grid = 400, noise_grid(1.0, 1.0, 400)
    edge = torch.full((entries,), 0.5 * grid.cell, dtype=torch.float64)
    tiny = torch.full((entries,), 1e-12 * grid.cell, dtype=torch.float64)
    longer = torch.full((entries,), 1.0 / math.sqrt(entries), dtype=torch.float64)
    for record in (tiny, longer + tiny):
        before, after = whole_cells(edge - tiny, grid), whole_cells(edge - tiny + record + tiny, grid)
        moved = float((after - before).norm()) * grid.cell
        bound = float(record.norm()) + math.sqrt(entries) * grid.cell
        assert moved <= bound * (1 + 1e-9)
    # Whatever the length of the record: one of no length moves a whole cell in every entry.
    assert float((whole_cells(edge + tiny, grid) - whole_cells(edge - tiny, grid)).norm()) == math.sqrt(entries)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([24, 53]), st.integers(1, 128), st.integers(1, 40), st.integers(0, 2**32),
    st.sampled_from(["equal", "any", "opposite"]), st.floats(0.1, 10.0),
)  # fmt: skip
def test_zeroing_a_record_out_moves_a_computed_and_rounded_sum_by_at_most_the_sensitivity(
    bits: int, records: int, entries: int, seed: int, kind: str, noise_multiplier: float
) -> None:
    source, dtype = np.random.default_rng(seed), WIDTHS[bits]
    rows = source.normal(size=(records, entries))
    if kind == "equal":
        rows[:] = rows[0]
    elif kind == "opposite":
        rows[1::2] = -rows[: len(rows[1::2]) * 2 : 2]
    vectors = torch.tensor(rows / np.linalg.norm(rows, axis=1, keepdims=True)).to(dtype)
    computed = summed_sensitivity(1.0, bits)
    grid = noise_grid(noise_multiplier, computed, entries)
    factors = torch.ones(records, dtype=dtype)
    whole = whole_cells(factors @ vectors, grid).double()
    for place in {0, int(source.integers(records)), records - 1}:
        zeroed = factors.clone()
        zeroed[place] = 0.0
        moved = float((whole - whole_cells(zeroed @ vectors, grid).double()).norm()) * grid.cell
        # The vectors are one unit long up to the rounding of their entries.
        assert moved <= (computed + math.sqrt(entries) * grid.cell) * (1 + 2.0**-bits)


@pytest.mark.parametrize("bits", [24, 53])
def test_an_adversary_who_steers_rounding_stays_within_the_bound_only(bits: int) -> None:
    """Records whose sums are rounded the other way, one after the other, once the first one is there."""
    records, dtype = 128, WIDTHS[bits]
    roundoff = 2.0**-bits
    # From 1 on, adding 0.75 steps of the last place rounds up to a whole step; from just below 1, where steps are
    # half as long, to 0.5 or 1 by turns. What the first record decides is by how much all later sums are off.
    nudge = 0.75 * 2 * roundoff
    later = torch.full((records - 1,), nudge, dtype=dtype)
    found = []
    for first in (1.0, 0.0):
        total = torch.tensor(first, dtype=dtype)
        for one in later:
            total = total + one
        found.append(float(total))
    apart = abs(found[0] - found[1])
    assert apart > 1.0
    assert apart <= summed_sensitivity(1.0, bits)


def test_the_price_of_computed_sums_by_hand_and_by_width() -> None:
    # sigma S = 3 lies in [2, 4): the cell is 2 / 2^18. Sixteen entries: the noise is 1.5 (2 + 4 cells).
    grid = noise_grid(1.5, 2.0, 16)
    assert grid.cell == 2.0**-17
    assert grid.deviation == 1.5 * (2.0 + 4 * 2.0**-17)
    assert noise_grid(1e9, 1.0, 0, largest=1.0).cell == 1.0
    assert MAX_SUMMED[24] == 128
    # 2 m^2 u = 2 * 128^2 / 2^24 = 2^-9, and a little more.
    assert 2.0**-9 < summed_sensitivity(1.0, 24) - 1.0 < 2.0**-9 + 2.0**-16
    assert summed_sensitivity(1.0, 53) - 1.0 < 1e-6
