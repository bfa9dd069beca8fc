import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.aggregation.radix_select import (
    KEYS,
    STEPS,
    ExactRisk,
    SplitQuery,
    StepAnswer,
    answer,
    answer_shapes,
    key_loss,
    loss_keys,
)
from fedfair.errors import LocalProtocolError, RemoteProtocolError, TrainingError
from fedfair.fairness.cvar import cvar, tail_count

SIZES = (0.01, 0.1, 0.3, 0.5, 1.0)
GREATEST = float(np.finfo(np.float32).max)

a_loss = st.one_of(
    st.sampled_from([0.0, -0.0, 5e-324, 1e-45, 2.0**-126, 0.1, 0.5, math.log(2.0), 1.0, 7.25, 1e30, GREATEST]),
    st.floats(0.0, 20.0),
    st.floats(0.0, 3.0, width=32),
)
some_sites = st.lists(st.lists(a_loss, max_size=12), min_size=1, max_size=4).filter(any)


def summed(sites: list[np.ndarray], query: SplitQuery) -> StepAnswer:
    counts, sums = (np.zeros(shape) for shape in answer_shapes(query.step, len(query.group_sizes)))
    for losses in sites:
        own = answer(losses, query.step, query.prefixes)
        assert (own.counts.shape, own.sums.shape) == (counts.shape, sums.shape)
        counts, sums = counts + own.counts, sums + own.sums
    return StepAnswer(counts, sums)


def ask(sites: list[np.ndarray], sizes: tuple[float, ...] = SIZES) -> dict[float, ExactRisk]:
    query = SplitQuery(sizes)
    for _ in range(STEPS):
        query = query.apply_aggregate(summed(sites, query))
    return query.risks


@given(some_sites)
def test_the_loss_at_every_quantile_is_that_of_the_pooled_sort(sites: list[list[float]]) -> None:
    arrays = [np.array(site, np.float64) for site in sites]
    pooled = np.concatenate(arrays)
    for size, risk in ask(arrays).items():
        rank = math.ceil(tail_count(len(pooled), size))
        assert risk.at_least == np.sort(pooled.astype(np.float32))[-rank]
        # Rounding keeps the order, so this is also the loss of the unrounded rank, rounded.
        assert risk.at_least == np.float32(np.sort(pooled)[-rank])


@given(some_sites)
def test_the_risk_of_the_unrounded_losses_is_inside_an_interval_of_seven_digits(sites: list[list[float]]) -> None:
    arrays = [np.array(site, np.float64) for site in sites]
    pooled = np.concatenate(arrays)
    for size, risk in ask(arrays).items():
        exact = math.fsum(np.sort(pooled)[::-1][: int(tail_count(len(pooled), size))])
        truth = cvar(np.abs(pooled), size)
        assert risk.bound.lower <= truth <= risk.bound.upper
        # Each loss is up to 2^-24 of itself from its key, either way; the slack, twice (n + 3 + 16) 2^-52 of all
        # sums (which a worst group of k of n records divides by k), and 2^-56 a record for masks.
        k, n = tail_count(len(pooled), size), len(pooled)
        gap = max(truth * 2.0**-23, 2.0**-149)
        slack = 2.0 * ((n + 19) * 2.0**-52 * (exact + 2.0 * n * risk.at_least) + n * 2.0**-56) / k
        assert risk.bound.upper - risk.bound.lower <= gap * 1.01 + slack + 8 * 2.0**-53 * truth


@pytest.mark.parametrize("bad", [-1e-300, -1.0, math.nan, math.inf, 2.0**128, GREATEST * (1 + 2.0**-24)])
def test_a_loss_that_is_no_single_precision_number_never_leaves_the_site(bad: float) -> None:
    with pytest.raises(TrainingError, match="nothing was sent") as caught:
        loss_keys(np.array([0.5, bad]))
    assert str(bad) not in caught.value.message


@given(a_loss, a_loss)
def test_keys_are_ordered_as_the_losses_are_and_are_those_of_single_precision(one: float, other: float) -> None:
    lower, higher = sorted((abs(one), abs(other)))
    keys = loss_keys(np.array([lower, higher]))
    assert 0 <= keys[0] <= keys[1] < KEYS
    for loss, key in zip((lower, higher), keys, strict=True):
        assert key_loss(int(key)) == np.float32(loss)


def test_a_hand_worked_query_with_ties_lone_records_and_zeros() -> None:
    # The worst half of 4, 3, 2, 1 is {4, 3}; the worst 37.5 % is 4 and half of 3.
    risks = ask([np.array([1.0, 4.0]), np.array([3.0]), np.array([2.0])], (0.375, 0.5))
    assert (risks[0.5].at_least, risks[0.375].at_least) == (3.0, 3.0)
    assert risks[0.5].bound.midpoint == pytest.approx(3.5, rel=1e-14)
    assert risks[0.375].bound.midpoint == pytest.approx(5.5 / 1.5, rel=1e-14)
    risks = ask([np.full(5, 0.7), np.full(3, 0.7), np.array([0.7, 0.1])], (0.3, 0.9))
    assert risks[0.3].at_least == risks[0.9].at_least == np.float32(0.7)
    # 0.7 is not more than 2^-24 of itself from its key, either way.
    assert risks[0.3].bound.upper - risks[0.3].bound.lower <= 0.7 * 2.0**-23 * 1.01
    assert ask([np.zeros(0), np.zeros(0)]) == {}
    for size, risk in ask([np.array([0.3]), np.zeros(0)]).items():
        assert risk.at_least == np.float32(0.3)
        assert risk.bound.lower <= 0.3 <= risk.bound.upper
        # Below one record the worst group is the largest loss still, and the slack is divided by its share.
        slack = (4 * 20 * 2.0**-52 * 0.3 + 2.0**-54) / size
        assert risk.bound.upper - risk.bound.lower <= 0.3 * 2.0**-23 * 1.01 + slack
    assert loss_keys(np.array([-0.0, 0.0])).tolist() == [0, 0]
    assert ask([np.array([-0.0])])[1.0].at_least == 0.0


@pytest.mark.parametrize("step", [2, 3, 4])
def test_a_step_over_other_records_than_the_one_before_proves_nothing_and_changes_nothing(step: int) -> None:
    sites = [np.array([0.1, 0.5]), np.array([0.9]), np.array([0.5])]
    query = SplitQuery((0.5, 0.9))
    for _ in range(1, step):
        query = query.apply_aggregate(summed(sites, query))
    with pytest.raises(RemoteProtocolError, match=f"step {step} of a query is not over the losses"):
        query.apply_aggregate(summed(sites[:1], query))
    # The same query continues with the right sum, for nothing has changed.
    while query.step <= STEPS:
        query = query.apply_aggregate(summed(sites, query))
    assert query.risks[0.5].at_least == 0.5


def test_impossible_sums_are_refused_and_a_query_is_asked_in_order() -> None:
    query = SplitQuery((0.5,))
    for _ in range(1, STEPS):
        query = query.apply_aggregate(summed([np.array([0.1, 0.5])], query))
    good = summed([np.array([0.1, 0.5])], query)
    with pytest.raises(RemoteProtocolError, match="count and edges do not allow"):
        query.apply_aggregate(StepAnswer(good.counts, good.sums + 1.0))
    with pytest.raises(RemoteProtocolError, match="fractional"):
        query.apply_aggregate(StepAnswer(good.counts + 0.5, good.sums))
    query = SplitQuery((0.5,))
    with pytest.raises(LocalProtocolError, match="has not been answered"):
        _ = query.risks
    with pytest.raises(LocalProtocolError, match="shapes"):
        query.apply_aggregate(StepAnswer(np.zeros((1, 1024)), np.zeros(0)))


@given(st.lists(st.floats(0.0, 20.0), min_size=1, max_size=8))
def test_what_is_added_last_says_no_more_of_a_loss_than_its_key(losses: list[float]) -> None:
    query = SplitQuery((0.5,))
    exact, rounded = (np.array(losses, width).astype(np.float64) for width in (np.float64, np.float32))
    for _ in range(1, STEPS):
        query = query.apply_aggregate(summed([exact], query))
    told = [answer(values, STEPS, query.prefixes) for values in (exact, rounded)]
    assert told[0].sums.tolist() == told[1].sums.tolist()
