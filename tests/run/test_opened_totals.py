"""An opened sum in the clear as bytes: there and back, and what is no sum of the plan is refused in words."""

from __future__ import annotations

import contextlib
import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import RemoteProtocolError
from fedfair.run.opened_totals import OpenedTotals, decode_totals, totals_bytes
from fedfair.run.training_run import TrainingRun
from tests.run.test_training_run import answer, make_plan, make_training_run

STATE = bytes(range(32))
MEMBERS = ("clinic-a", "Zürich")
PLAN = make_plan(standardize="secure", method="exact")


def sums() -> list[tuple[TrainingRun, SumRequest, Totals]]:
    """Return every sum of a run, with a training run that waits for it."""
    ahead, found = make_training_run(PLAN), []
    while (request := ahead.next_sum()) is not None:
        waiting = make_training_run(PLAN)
        waiting.state = ahead.state
        totals = answer(request, PLAN)
        found.append((waiting, request, totals))
        ahead.apply_aggregate(totals, MEMBERS)
    return found


SUMS = sums()

ONE_OF_EACH = [*{due[1].purpose: due for due in SUMS}.values()]
"""The last sum of each purpose."""


def encoded(totals: Totals) -> bytes:
    return OpenedTotals(STATE, MEMBERS, totals).encode()


@pytest.mark.parametrize(("request_", "totals"), [(request, totals) for _, request, totals in SUMS])
def test_every_sum_of_a_run_comes_back_bit_for_bit(request_: SumRequest, totals: Totals) -> None:
    raw = encoded(totals)
    assert len(raw) == totals_bytes(request_.spec, MEMBERS)
    found = decode_totals(raw, request_.spec)
    assert (found.state, found.members, found.totals.contributors) == (STATE, MEMBERS, 2)
    assert found.totals.header.tobytes() == totals.header.tobytes()
    assert found.totals.body.tobytes() == totals.body.astype(request_.spec.body_dtype).tobytes()
    assert found.encode() == raw


@pytest.mark.parametrize(("request_", "totals"), [(request, totals) for _, request, totals in ONE_OF_EACH])
def test_a_sum_that_is_cut_anywhere_or_has_a_byte_too_many_is_refused(
    request_: SumRequest, totals: Totals
) -> None:
    raw = encoded(totals)
    for damaged in (*(raw[:length] for length in range(len(raw))), raw + b"\x00"):
        with pytest.raises(RemoteProtocolError, match="an opened sum"):
            decode_totals(damaged, request_.spec)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(SUMS), st.data())
def test_a_damaged_byte_gives_a_sum_of_the_same_shape_or_one_kind_of_error(
    due: tuple[TrainingRun, SumRequest, Totals], data: st.DataObject
) -> None:
    waiting, request, totals = due
    raw = bytearray(encoded(totals))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    before = waiting.state
    try:
        found = decode_totals(bytes(raw), request.spec)
        assert found.totals.header.shape == totals.header.shape
        assert found.totals.body.shape == totals.body.shape
        # In the clear nobody can tell a number that is wrong from one that is right; the rules take it or refuse.
        waiting.rules.step(before, found.totals, found.members).state.digest(STATE)
    except RemoteProtocolError:
        pass


@pytest.mark.thorough
@pytest.mark.parametrize("due", ONE_OF_EACH, ids=[request.purpose.value for _, request, _ in ONE_OF_EACH])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 1e300])
def test_numbers_that_no_sum_has_move_the_state_or_are_refused_and_never_break_a_site(
    due: tuple[TrainingRun, SumRequest, Totals], value: float
) -> None:
    waiting, request, totals = due
    for place in range(request.spec.header_length):
        header = totals.header.copy()
        header[place] = value
        found = decode_totals(encoded(Totals(header, totals.body, 2)), request.spec)
        with contextlib.suppress(RemoteProtocolError):
            waiting.rules.step(waiting.state, found.totals, found.members).state.digest(STATE)


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused_in_words(raw: bytes, framed: bool) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_totals(struct.pack("<I", len(raw)) + raw if framed else raw, SUMS[0][1].spec)


@pytest.mark.parametrize(
    "words",
    [
        [STATE.hex(), ["a", "b"], 0],
        [STATE.hex(), ["a", "b"], 1 << 70],
        [STATE.hex(), ["a", "b"], 3],
        [STATE.hex(), ["a", "b"], 2.0],
        [STATE.hex(), ["a", 7], 2],
        [STATE.hex(), "ab", 2],
        [STATE.hex(), ["a", "a"], 2],
        ["00", ["a", "b"], 2],
        ["no hex", ["a", "b"], 2],
        [7, ["a", "b"], 2],
        [STATE.hex(), ["a", "b"]],
        {},
        3,
    ],
)
def test_words_that_no_sum_has_are_refused(words: object) -> None:
    _, request, totals = SUMS[0]
    said = json.dumps(words).encode()
    raw = struct.pack("<I", len(said)) + said + totals.header.astype("<f8").tobytes()
    with pytest.raises(RemoteProtocolError, match="an opened sum"):
        decode_totals(raw, request.spec)
