"""What a masked header does to numbers: counts stay exact, reals lose less than the intervals allow for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.cvar_bounds import MASKED_STEP
from fedfair.aggregation.masked_encoding import MAX_REST, HeaderParts, plain_totals
from fedfair.aggregation.sum_kinds import MAX_INTEGER
from fedfair.secagg.fixedpoint import decode_header, encode_header
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.shape import HeaderRun
from fedfair.terms.local_change import LocalChange
from fedfair.training.masked_update import header_update, training_update

COUNTS = np.array([True, False, False, True])
PARTS = HeaderParts(np.zeros(4, bool), COUNTS, ~COUNTS)
RUNS = (
    HeaderRun(2, 2.0**40, whole=True), HeaderRun(2, MAX_INTEGER, whole=False), HeaderRun(2, MAX_REST, whole=False),
)  # fmt: skip
REALS = st.floats(-(2.0**50), 2.0**50) | st.floats(-1.0, 1.0)


def summed(headers: list[list[float]], members: int) -> np.ndarray:
    """Return the totals of these plain headers after a masked sum among `members`."""
    total = np.zeros(6, np.uint64)
    for header in headers:
        update = header_update(Contribution(np.array(header), np.zeros(0, np.float32)), PARTS)
        total += encode_header(update.header, RUNS, members)
    opened = OpenedSum(
        "evaluation", (1, 2), len(headers), len(headers), decode_header(total, RUNS, members), np.zeros(0), 0, (),
        (),
    )  # fmt: skip
    return plain_totals(opened, PARTS).header


@settings(deadline=None, max_examples=70)
@given(st.lists(st.tuples(st.integers(0, 2**40), REALS, REALS), min_size=2, max_size=8), st.integers(8, 200))
def test_counts_are_exact_and_reals_lose_a_step(sites: list[tuple[int, float, float]], members: int) -> None:
    headers = [[float(count), first, second, 1.0] for count, first, second in sites]
    found = summed(headers, members)
    assert found[0] == sum(count for count, _, _ in sites)
    assert found[3] == len(sites)
    for column in (1, 2):
        magnitude = sum(abs(header[column]) for header in headers)
        # Half a step a site; then adding integers and rests, and the oracle's own sum, round relative to the size.
        allowed = len(sites) * MASKED_STEP + (len(sites) + 2) * 2.0**-53 * magnitude
        assert abs(found[column] - sum(header[column] for header in headers)) <= allowed


@pytest.mark.parametrize(
    ("value", "sent"), [(2.0**55, 2.0**54), (np.inf, 2.0**54), (-np.inf, -(2.0**54)), (np.nan, 0.0)]
)
def test_a_number_that_is_too_large_or_not_finite_is_replaced_and_counted(value: float, sent: float) -> None:
    contribution = Contribution(np.array([1.0, value, 0.0, 1.0]), np.zeros(0), replaced=2)
    assert header_update(contribution, PARTS).replaced == 3
    assert summed([contribution.header.tolist()], 3).tolist() == [1.0, sent, 0.0, 1.0]


def test_a_training_update_is_not_weighted_twice() -> None:
    update = training_update(LocalChange(3, 0.75, np.array([1.0, -2.0])))
    assert update.weight == 3
    assert update.body.tolist() == [1.0, -2.0]
    assert update.header.tolist() == [2.0, 0.25]  # 3 * 0.75, as an integer and a rest
