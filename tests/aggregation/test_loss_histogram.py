import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.contribution import Contribution, encode
from fedfair.aggregation.cvar_bounds import summarise
from fedfair.aggregation.evaluation_sums import confusion_matrix
from fedfair.aggregation.loss_histogram import (
    MAX_LOSS,
    SPLITS,
    HistogramSpec,
    bounded_losses,
    loss_block,
    rounded_losses,
)
from fedfair.aggregation.radix_select import loss_keys
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import LocalProtocolError, TrainingError
from fedfair.statistics.table import Purpose
from tests.oracles.header_places import block_length, evaluation_header_length

SPEC = HistogramSpec(4, 2.0)
losses_lists = st.lists(st.floats(0, 5), max_size=30)


def block(losses: list[float], spec: HistogramSpec = SPEC) -> np.ndarray:
    return loss_block(np.array(losses), np.zeros(len(losses), bool), 0.0, spec)


@settings(deadline=None, max_examples=70)
@given(st.lists(losses_lists, min_size=1, max_size=5), st.integers(1, 40), st.floats(0.01, 6))
def test_blocks_add_up_to_that_of_their_union(sites: list[list[float]], bins: int, loss_range: float) -> None:
    spec = HistogramSpec(bins, loss_range)
    total = sum((block(site, spec) for site in sites), np.zeros(block_length(spec)))
    union = block([loss for site in sites for loss in site], spec)
    counts = slice(0, 3 + bins + 1)
    assert total[counts].tolist() == union[counts].tolist()
    # At most 150 additions of non-negative numbers in either order.
    assert total == pytest.approx(union, rel=300 * 2.0**-53)


@settings(deadline=None, max_examples=70)
@given(losses_lists, st.integers(1, 40), st.floats(1e-3, 6))
def test_every_rounded_loss_is_between_its_bins_edges(losses: list[float], bins: int, loss_range: float) -> None:
    spec = HistogramSpec(bins, loss_range)
    found, rounded = block(losses, spec), rounded_losses(np.array(losses), spec).tolist()
    bounds = [*spec.edges.tolist(), math.inf]
    for number in range(bins + 1):
        inside = [loss for loss in rounded if bounds[number] <= loss < bounds[number + 1]]
        assert found[3 + number] == len(inside)
        assert found[3 + bins + 1 + number] == pytest.approx(math.fsum(inside), rel=1e-14)
    assert found[0] == len(losses) == found[3 : 3 + bins + 1].sum()


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0, 1e6)), st.integers(1, 300), st.floats(1e-3, 40))
def test_a_rounded_loss_is_near_and_one_of_few_values(losses: list[float], bins: int, loss_range: float) -> None:
    spec = HistogramSpec(bins, loss_range)
    edges = [*spec.edges.tolist(), *np.nextafter(spec.edges, 0.0).tolist()]
    exact = np.array([*losses, *(loss / 1e6 * loss_range for loss in losses), *edges])
    rounded, rounding = rounded_losses(exact, spec), spec.rounding
    beyond = rounded >= loss_range
    away = np.where(beyond, np.maximum(rounding.beyond * rounded, rounding.inside), rounding.inside)
    assert (np.abs(rounded - exact) <= away).all()
    assert rounded_losses(rounded, spec).tolist() == rounded.tolist()
    assert set(rounded[~beyond]) <= set((np.linspace(0.0, loss_range, 8 * bins + 1)).tolist())
    assert np.frexp(rounded[rounded > loss_range])[0].tolist() == [
        round(16 * mantissa) / 16 for mantissa in np.frexp(rounded[rounded > loss_range])[0]
    ]
    # Larger losses never become smaller ones, and what is on an edge of a bin stays there.
    assert (np.diff(rounded[np.argsort(exact, kind="stable")]) >= 0.0).all()
    assert rounded_losses(spec.edges, spec).tolist() == spec.edges.tolist()


def test_losses_are_rounded_to_as_many_values_as_stated_and_summed_in_float64() -> None:
    for classes in (2, 3, 7, 10, 1000):
        for bins in (8, 64, 256, 1024):
            spec = HistogramSpec(bins, 8 * math.log(classes))
            assert rounded_losses(np.array([math.log(classes)]), spec).tolist() == [math.log(classes)]
    spec = HistogramSpec(8, 2.0)
    many = np.concatenate([np.linspace(0.0, 2.0, 10_000), np.geomspace(2.0, MAX_LOSS, 100_000)])
    assert len(set(rounded_losses(many, spec).tolist())) == 64 + 8 * 19 + 1 <= spec.rounded_values
    assert HistogramSpec(256, 8 * math.log(2)).rounded_values == 2201
    losses = np.full(100_000, 0.125, np.float32)
    found = loss_block(losses, np.ones(100_000, bool), 0.0, SPEC)
    # 1e5 float64 additions, each wrong by 2^-53 of the sum.
    assert found[8] == pytest.approx(1e5 * 0.125, rel=1e5 * 2.0**-53)


@pytest.mark.parametrize("bad", [-1e-12, math.nan, math.inf])
def test_a_loss_that_is_negative_or_not_finite_never_leaves_the_site(bad: float) -> None:
    with pytest.raises(TrainingError, match="nothing was sent") as fault:
        block([0.5, bad])
    assert fault.value.remedy.startswith("1 of 2 are not")


@given(st.lists(st.floats(), max_size=30))
def test_losses_of_any_kind_become_a_block_that_some_losses_have(losses: list[float]) -> None:
    values = np.array(losses, np.float64)
    bounded, replaced = bounded_losses(values, SPEC)
    assert replaced == sum(not 0.0 <= loss <= max(MAX_LOSS, SPEC.loss_range) for loss in losses)
    honest = (values >= 0.0) & (values <= MAX_LOSS)
    np.testing.assert_array_equal(bounded[honest], values[honest])
    assert (bounded[~np.isfinite(values)] == SPEC.loss_range).all(), "in the overflow bin, at the end of the range"
    if losses:
        made = loss_block(bounded, np.zeros(len(losses), bool), 0.0, SPEC)
        assert summarise(made, [0.3, 1.0], SPEC).n == len(losses)


@given(st.lists(st.floats(), max_size=30), st.sampled_from([1e-300, 1.0, 2.0**128, 1e40, 1e300]))
def test_every_bounded_loss_has_a_key_however_large_the_range(losses: list[float], end: float) -> None:
    """A site that could not answer would tell of a record by leaving."""
    bounded, _ = bounded_losses(np.array(losses, np.float64), HistogramSpec(8, end))
    assert loss_keys(bounded).size == len(losses)


def test_bad_losses_tell_nothing_and_are_not_sent_in_the_clear() -> None:
    messages = set()
    for losses in ([math.nan], [0.5, math.inf, math.nan]):
        with pytest.raises(TrainingError) as fault:
            block(losses)
        messages.add(fault.value.message)
    assert len(messages) == 1
    header = loss_block(np.ones(1), np.ones(1, bool), math.nan, SPEC)
    spec = SumSpec(Purpose.EVALUATION, len(header), 0, np.dtype("<f8"))
    with pytest.raises(TrainingError, match="1 values that are NaN or infinite"):
        encode(Contribution(header, np.zeros(0)), spec)
    with pytest.raises(LocalProtocolError, match="shape"):
        loss_block(np.ones(2), np.ones(3, bool), 0.0, SPEC)
    with pytest.raises(LocalProtocolError, match="shape"):
        loss_block(np.ones((2, 1)), np.ones((2, 1), bool), 0.0, SPEC)


@pytest.mark.parametrize(("bins", "loss_range"), [(0, 1.0), (4, 0.0), (4, -1.0), (4, math.inf), (4, math.nan)])
def test_a_histogram_without_bins_or_range_is_our_own_bug(bins: int, loss_range: float) -> None:
    with pytest.raises(LocalProtocolError, match="histogram"):
        HistogramSpec(bins, loss_range)


def test_a_hand_worked_block_its_lengths_and_confusion() -> None:
    losses, correct = np.array([0.1, 0.5, 0.6, 1.99, 2.0, 7.0]), np.array([1, 1, 0, 0, 1, 0], bool)
    # Edges 0, .5, 1, 1.5, 2 and everything above; a loss on an edge belongs to the bin above it. Losses are
    # rounded to sixteenths first, so that 0.1 becomes 2/16, 0.6 becomes 10/16, and 1.99 is on the edge at 2.
    expected = [6, 3, 4.25, 1, 2, 0, 0, 3, 2 / 16, 18 / 16, 0, 0, 11.0]
    assert loss_block(losses, correct, 4.25, SPEC).tolist() == pytest.approx(expected, rel=1e-15)
    assert block_length(SPEC) == 13 == len(block([]))
    assert evaluation_header_length(SPEC, 2) == 3 * (13 + 4)
    assert evaluation_header_length(SPEC, 64) == 3 * (13 + 64**2)
    assert evaluation_header_length(SPEC, 65) == 39
    assert SPLITS == ("train", "validation", "test")
    assert len(block([0.1] * 1000)) == len(block([9.0]))
    assert not block([]).any()
    # Two of class 0: one taken for 0, one for 2. One of class 2, taken for 0.
    labels, predictions = np.array([0, 0, 2]), np.array([0, 2, 0])
    assert confusion_matrix(labels, predictions, 3).tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert confusion_matrix(labels[:0], predictions[:0], 3).sum() == 0
