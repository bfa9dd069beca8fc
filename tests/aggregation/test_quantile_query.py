from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.quantile_query import ExactQuery, QueryStep, exact_header, exact_layout
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.fairness.cvar import cvar
from fedfair.secagg.shape import MAX_HEADER_VALUES

SIZES = (0.1, 0.4)
Site = Mapping[str, np.ndarray]

some_losses = st.lists(st.floats(0.0, 50.0), max_size=6).map(np.array)
a_site = st.fixed_dictionaries({}, optional=dict.fromkeys(SPLITS, some_losses))


def total(sites: list[Site], step: QueryStep, sizes: int = len(SIZES)) -> np.ndarray:
    return sum((exact_header(site, step, sizes) for site in sites), np.zeros(exact_layout(sizes).length))


def started(sites: list[Site], steps: int) -> ExactQuery:
    query = ExactQuery.of(SIZES)
    for _ in range(steps):
        assert query.step is not None
        query = query.apply_aggregate(total(sites, query.step), "ab")
    return query


@given(st.lists(a_site, min_size=1, max_size=3))
def test_every_split_is_told_apart_and_the_truth_is_inside(sites: list[Site]) -> None:
    query = started(sites, 4)
    assert query.step is None
    for name in SPLITS:
        pooled = np.concatenate([np.zeros(0), *(site.get(name, np.zeros(0)) for site in sites)])
        assert query.records[name] == len(pooled)
        assert (name in query.risks) == (len(pooled) > 0)
        for size, risk in query.risks.get(name, {}).items():
            assert risk.bound.lower <= cvar(pooled, size) <= risk.bound.upper


@given(a_site, st.sampled_from([1, 7, 20]))
def test_the_length_of_an_answer_says_nothing_about_a_site_or_a_step(site: Site, sizes: int) -> None:
    lengths = {len(exact_header(site, QueryStep(1, ()), sizes))}
    lengths |= {len(exact_header(site, QueryStep(step, (0,) * 3 * sizes), sizes)) for step in (2, 3, 4)}
    assert lengths == {exact_layout(sizes).length}


@pytest.mark.parametrize("step", [2, 3, 4])
def test_a_step_that_other_members_answered_ends_the_query(step: int) -> None:
    site = {"train": np.array([0.1, 0.5, 0.9])}
    query = started([site], step - 1)
    assert query.step is not None
    with pytest.raises(RemoteProtocolError, match=f"step {step} of .* answered by a, b, c, step 1 by a, b"):
        query.apply_aggregate(total([site], query.step), "abc")


def test_a_query_asks_for_its_own_numbers_and_step_only() -> None:
    query, site = ExactQuery.of(SIZES), {"train": np.array([0.1])}
    assert query.step is not None
    header = total([site], query.step)
    header[-1] = 1.0
    with pytest.raises(RemoteProtocolError, match="not asked for"):
        query.apply_aggregate(header, "ab")
    with pytest.raises(RemoteProtocolError, match="has 3 prefixes, the plan needs 6"):
        exact_header({}, QueryStep(2, (0, 0, 0)), 2)
    with pytest.raises(RemoteProtocolError, match="has 6 prefixes, the plan needs 0"):
        exact_header({}, QueryStep(1, (0,) * 6), 2)
    with pytest.raises(LocalProtocolError, match="a finished query accepts no further total"):
        started([{"train": np.array([0.1])}], 4).apply_aggregate(np.zeros(exact_layout(2).length), "ab")
    # 20 sizes at three splits: 61440 counts, and 180 sums in two limbs each. Five values are the protocol's own.
    assert exact_layout(20).length + 180 + 40 <= MAX_HEADER_VALUES
