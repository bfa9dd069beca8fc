"""Evaluation sums under noise: what one record can change, and histograms that could have been."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedfair.aggregation.cvar_bounds import summarise
from fedfair.aggregation.dp_histogram import (
    EVALUATION_ROUNDED,
    EVALUATION_SENSITIVITY,
    added_up,
    evaluation_units,
    middles,
    noised_split,
    possible_header,
    split_units,
)
from fedfair.aggregation.evaluation_sums import confusion_matrix
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec, loss_block
from tests.oracles.header_places import block_length, evaluation_header_length, split_header

SPEC, CLASSES, GREATEST = HistogramSpec(8, 2.0), 3, 15.0

losses = st.lists(st.floats(0.0, 2.0), max_size=12)


def split(values: list[float], smoothed: list[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the block and the matrix of records whose class is 0 and whose prediction follows the loss."""
    held = np.array(values)
    predictions = (held > 0.7).astype(int)
    block = loss_block(held, predictions == 0, sum(smoothed), SPEC)
    return block, confusion_matrix(np.zeros(len(held), int), predictions, CLASSES)


def parts(found: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the block and the matrix of what a site says about one split."""
    block = [*(found[name] for name in ("records", "correct", "smoothed")), *found["counts"], *found["losses"]]
    return np.array(block), found["confusion"]


def in_units(values: list[float], smoothed: list[float], classes: int = CLASSES) -> NDArray[np.float64]:
    """Return what is released of such records, in units and without noise."""
    block, matrix = split(values, smoothed)
    shown = matrix if classes == CLASSES else np.zeros((0, 0))
    return split_units(np.array(values), np.array(smoothed), int(block[1]), shown, GREATEST, SPEC)


@settings(deadline=None)
@given(losses, st.floats(0.0, 2.0), st.floats(0.0, 1.0), st.sampled_from([CLASSES, 65]))
def test_one_record_changes_its_sensitivity(others: list[float], loss: float, share: float, classes: int) -> None:
    smoothed = [1.0] * len(others)
    without = in_units(others, smoothed, classes)
    with_it = in_units([*others, loss], [*smoothed, share * GREATEST], classes)
    # Every number is a multiple of 2^-32, so that no sum is off.
    assert np.linalg.norm(with_it - without) <= EVALUATION_SENSITIVITY
    # Rounding to any coarser grid can move those entries alone that are not whole numbers.
    change = with_it - without
    assert np.count_nonzero(change != np.rint(change)) <= EVALUATION_ROUNDED


@pytest.mark.parametrize("values", [[2.0, -3.0, math.inf], [math.nan, 0.3, 1e300]])
def test_a_number_beyond_its_unit_counts_as_one_unit(values: list[float]) -> None:
    for place, value in enumerate(values):
        alone = added_up(np.array([value]))
        assert abs(alone) <= 1.0
        rest = np.array(values[:place] + values[place + 1 :])
        assert added_up(np.array(values)) - added_up(rest) == pytest.approx(alone, abs=1e-9)


def test_the_sensitivity_is_attained_and_sums_do_not_depend_on_their_order() -> None:
    change = in_units([SPEC.loss_range], [GREATEST]) - in_units([], [])
    assert np.linalg.norm(change) == pytest.approx(EVALUATION_SENSITIVITY, rel=1e-12)
    source = np.random.Generator(np.random.PCG64(3))
    values = source.uniform(-1, 1, 50_000)
    found = added_up(values)
    assert found == added_up(values[source.permutation(len(values))])
    assert found == pytest.approx(values.sum(), abs=1e-5)


def test_everything_but_the_number_of_records_carries_noise_or_is_not_released() -> None:
    values = [0.125, 1.875, 2.0]  # which the block does not round
    block, matrix = split(values, [1.0] * 3)
    units, exact = evaluation_units(SPEC, CLASSES, GREATEST), in_units(values, [1.0] * 3)
    unmoved, same_matrix = parts(noised_split(3, exact, units, SPEC, CLASSES))
    # Without noise it is the block itself, up to the fine grid; correct ones are told by the matrix, and losses by
    # one sum.
    bins = SPEC.bins + 1
    np.testing.assert_allclose(np.delete(unmoved, 1)[:-bins], np.delete(block, 1)[:-bins], atol=1e-8)
    np.testing.assert_allclose(unmoved[-bins:], [*[0.0] * SPEC.bins, sum(values)], atol=1e-8)
    np.testing.assert_array_equal(same_matrix, matrix)
    noised, noised_matrix = parts(noised_split(3, exact + 1.0, units, SPEC, CLASSES))
    assert noised[0] == 3
    assert noised[1] == 0.0
    assert not noised[-bins:-1].any()
    released = np.concatenate([noised[2:-bins], noised[-1:], (noised_matrix - matrix).ravel()])
    assert (released - np.concatenate([unmoved[2:-bins], unmoved[-1:], np.zeros(matrix.size)]) != 0.0).all()
    many = evaluation_units(SPEC, 65, GREATEST)
    assert many.shape == (block_length(SPEC),)
    assert many[1] == 1.0


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(0, 40), min_size=3, max_size=3), st.floats(0.0, 30.0), st.integers(0, 2**32),
    st.sampled_from([CLASSES, 65]),
)  # fmt: skip
def test_noise_gives_possible_histograms(records: list[int], deviation: float, seed: int, classes: int) -> None:
    source = np.random.Generator(np.random.PCG64(seed))
    header = source.normal(0.0, deviation, evaluation_header_length(SPEC, classes))
    blocks, _ = split_header(header, SPEC, classes)
    blocks[:, 0] = records
    possible = possible_header(header, SPEC, classes)
    blocks, matrices = split_header(possible, SPEC, classes)
    for place in range(len(SPLITS)):
        if records[place]:
            # Raises where no losses whatsoever have these sums.
            assert summarise(blocks[place], [0.3, 1.0], SPEC).n == records[place]
        else:
            assert not blocks[place].any()
        if matrices is not None:
            assert matrices[place].sum() == records[place]
            assert np.trace(matrices[place]) == blocks[place, 1]


def test_without_noise_a_possible_header_has_the_same_counts_and_every_loss_in_the_middle_of_its_bin() -> None:
    header = np.zeros(evaluation_header_length(SPEC, CLASSES))
    blocks, matrices = split_header(header, SPEC, CLASSES)
    assert matrices is not None
    # In the middles of their bins, so that counts and sum agree.
    for place, values in enumerate(([0.125, 0.375, 1.875], [], [0.125, 0.625, 1.125])):
        block, matrix = split(values, [0.5] * len(values))
        blocks[place], matrices[place] = block, matrix
        blocks[place, -SPEC.bins - 1 :] = [*[0.0] * SPEC.bins, sum(values)]
    possible, same = split_header(possible_header(header, SPEC, CLASSES), SPEC, CLASSES)
    np.testing.assert_array_equal(same, matrices)
    np.testing.assert_allclose(possible[:, : -SPEC.bins - 1], blocks[:, : -SPEC.bins - 1], rtol=0, atol=1e-12)
    counts = possible[:, 3 : 4 + SPEC.bins]
    np.testing.assert_allclose(possible[:, -SPEC.bins - 1 :], counts * middles(SPEC))


def test_with_many_records_the_estimate_is_near_the_truth() -> None:
    values = np.random.Generator(np.random.PCG64(1)).gamma(2.0, 0.2, 20_000).clip(0.0, 2.0)
    block, matrix = split(values.tolist(), [0.0])
    units = evaluation_units(SPEC, CLASSES, GREATEST)
    noise = 40.0 * np.random.Generator(np.random.PCG64(2)).standard_normal(len(units))
    exact = split_units(values, np.zeros(len(values)), int(block[1]), matrix, GREATEST, SPEC)
    noised, cells = parts(noised_split(len(values), exact + noise, units, SPEC, CLASSES))
    header = np.zeros(evaluation_header_length(SPEC, CLASSES))
    blocks, matrices = split_header(header, SPEC, CLASSES)
    assert matrices is not None
    blocks[0], matrices[0] = noised, cells
    possible, _ = split_header(possible_header(header, SPEC, CLASSES), SPEC, CLASSES)
    found, exact = (summarise(one, [0.1], SPEC) for one in (possible[0], block))
    # Nine counts, each off by a few times 40 of 20 000, at distances of at most 2: under 9 * 4 * 40 * 2 / 20 000.
    assert found.mean == pytest.approx(exact.mean, abs=0.15)
    assert found.by_group_size[0.1].worst == pytest.approx(exact.by_group_size[0.1].worst, abs=0.15)
