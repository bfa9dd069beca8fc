"""The rows of single sites in an evaluation: what they add up to, and what is kept back of them."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedfair.aggregation.header import Bits, Field, Group, Header, Number
from fedfair.aggregation.loss_histogram import HistogramSpec
from fedfair.aggregation.site_means import SplitMeans, check_site_sums, own_values, row_fields, site_means
from fedfair.errors import RemoteProtocolError

Site = list[tuple[float, bool]]
RECORDS = st.lists(st.tuples(st.floats(0.0, 20.0), st.booleans()), max_size=12)


def table(sites: list[Site], fewest: int) -> NDArray[Any]:
    """Return the sum of what the sites send: rows (sites, splits), with these records in `train` and `test`."""
    layout = Header(Group("sites", row_fields(HistogramSpec(256, 5.0)), (len(sites), 3)))
    total = layout.zeros()
    for place, site in enumerate(sites):
        own = layout.zeros()
        losses, correct = np.array([loss for loss, _ in site]), np.array([right for _, right in site], bool)
        row = layout.read(own)["sites"][place]
        row[0] = row[2] = own_values(losses, correct, fewest)
        total += own
    return layout.read(total)["sites"]


def pooled_splits(records: list[float], correct: list[float]) -> NDArray[Any]:
    """Return as much of the blocks of three splits as the rows are held against."""
    counted = Field("records", Number.COUNT, lone=Bits(0)), Field("correct", Number.COUNT, lone=Bits(1))
    layout = Header(Group("splits", counted, (3,)))
    return layout.read(np.ravel(list(zip(records, correct, strict=True))).astype(float))["splits"]


def blocks(sites: list[Site]) -> NDArray[Any]:
    """Return the records of all sites, and how many are correct, for each split."""
    everybody = [record for site in sites for record in site]
    n, right = len(everybody), sum(right for _, right in everybody)
    return pooled_splits([n, 0, n], [right, 0, right])


@given(st.lists(RECORDS, min_size=1, max_size=6))
def test_the_rows_of_all_sites_add_up_to_the_overall_figures(sites: list[Site]) -> None:
    rows, pooled = table(sites, 1), blocks(sites)
    check_site_sums(rows, pooled, 1)
    told = site_means(rows, pooled["records"], 1)
    everybody = [record for site in sites for record in site]
    for split in ("train", "test"):
        means = [means[split] for means in told if split in means]
        assert sum(each.n for each in means) == len(everybody)
        # A mean times its n is the sum again up to two roundings of a number below 240: far less than 1e-9.
        assert sum(each.n * each.accuracy for each in means) == pytest.approx(
            float(pooled["correct"][0]), abs=1e-9
        )
        losses = math.fsum(loss for loss, _ in everybody)
        assert sum(each.n * each.mean for each in means) == pytest.approx(losses, abs=1e-9)
    assert not any("validation" in means for means in told)


@given(st.lists(RECORDS, min_size=1, max_size=6), st.integers(1, 8))
def test_nothing_that_is_told_leaves_a_few_people_over_or_is_about_a_few(sites: list[Site], fewest: int) -> None:
    rows, pooled = table(sites, fewest), blocks(sites)
    check_site_sums(rows, pooled, fewest)
    told = [means["train"].n for means in site_means(rows, pooled["records"], fewest) if "train" in means]
    assert all(n >= fewest for n in told)
    left_over = int(pooled["records"][0]) - sum(told)
    assert left_over == 0 or left_over >= fewest or not told
    # No more is kept back than that takes: the sites that are too small, and one more.
    assert len(told) >= sum(len(site) >= fewest for site in sites) - 1


def test_one_small_site_keeps_another_back_and_without_rows_nothing_is_checked() -> None:
    small, middle, large = [(1.0, True)] * 4, [(2.0, True), (4.0, False)] * 3, [(1.0, True)] * 10
    sites = [small, middle, large]
    told = site_means(table(sites, 5), blocks(sites)["records"], 5)
    assert told == ({}, {}, {"train": SplitMeans(10, 1.0, 1.0), "test": SplitMeans(10, 1.0, 1.0)})
    # Two small sites hide each other.
    sites = [small, small, middle]
    told = site_means(table(sites, 5), blocks(sites)["records"], 5)
    assert [means.get("train") for means in told] == [None, None, SplitMeans(6, 3.0, 0.5)]
    rows = table([], 5)
    check_site_sums(rows, blocks([[(1.0, True)]]), 5)
    assert site_means(rows, np.array([1.0, 0.0, 1.0]), 5) == ()


@pytest.mark.parametrize(
    "lie",
    [(6, 7, 1.0), (6, -1, 1.0), (-6, -6, 1.0), (3, 3, 1.0), (21, 9, 1.0), (6, 0, 1.0), (0, 1, 1.0)],
    ids=[
        "all-right-and-more", "negative", "nobody", "below-the-floor", "too-many", "too-few-right",
        "right-of-none",
    ],
)  # fmt: skip
def test_a_row_that_no_records_have_is_refused(lie: tuple[float, float, float]) -> None:
    rows = table([[], [(1.0, True)] * 8], 5)
    rows[0, 0] = lie
    pooled = pooled_splits([20.0, 0.0, 20.0], [18.0, 0.0, 18.0])
    with pytest.raises(RemoteProtocolError, match="the rows of the sites"):
        check_site_sums(rows, pooled, 5)
