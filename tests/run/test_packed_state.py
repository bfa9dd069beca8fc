"""A state of a run as bytes: there and back, and what is cut, damaged or of another plan is refused in words."""

import contextlib
import json
import struct
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.requests import SumRequest, vector_sha256
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.run.opened_totals import OpenedTotals, decode_totals, totals_bytes
from fedfair.run.packed_state import FORMAT, StatePacker, greatest_state_bytes, pack_state, unpack_state
from fedfair.run.snapshot import snapshot_of
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from tests.run.test_run_state import PLAN_DIGEST, states
from tests.run.test_training_run import DIMENSION, answer, make_plan, make_training_run

OUTPUTS = ("last", "average", "tail", "best")


@cache
def run_of(output: str = "average", optimizer: str = "adam") -> tuple[RunState, ...]:
    """Return every state of a run that has everything a state can have but a clip."""
    stepping = {"name": optimizer}
    return tuple(states(output=output, standardize="secure", method="exact", server_optimizer=stepping))


def packed(state: RunState) -> bytes:
    return b"".join(pack_state(state))


def words_of(state: RunState) -> dict[str, object]:
    """Return the words of a state, without what is for people and no part of its digest."""
    return {name: value for name, value in snapshot_of(state).state.items() if name != "query_fault"}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "yogi"])
@pytest.mark.parametrize("output", OUTPUTS)
def test_every_state_of_a_run_comes_back_bit_for_bit(output: str, optimizer: str) -> None:
    initial, *_ = run = run_of(output, optimizer)
    for state in run:
        raw = packed(state)
        assert len(raw) <= greatest_state_bytes(DIMENSION)
        found = unpack_state(raw, initial)
        assert (found.digest(PLAN_DIGEST), packed(found)) == (state.digest(PLAN_DIGEST), raw)


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_packer_of_states_that_follow_one_another_says_what_json_says_of_each(output: str) -> None:
    packer = StatePacker()
    for state in run_of(output):
        taken, parts = snapshot_of(state), packer.parts(state)
        table = [[name, vector.dtype.str, vector.size] for name, vector in taken.vectors.items()]
        header = json.dumps({"format": FORMAT, "state": taken.state, "vectors": table}).encode()
        assert parts.words == struct.pack("<Q", len(header)) + header
        assert b"".join([parts.words, *parts.vectors]) == packed(state)
        assert parts.digests == [vector_sha256(vector) for vector in taken.vectors.values()]


def test_vectors_are_not_copied_when_a_state_is_packed() -> None:
    state = run_of()[-1]
    assert any(
        isinstance(part, memoryview) and np.shares_memory(np.asarray(part), state.model.vector)
        for part in pack_state(state)
    )


def test_a_state_that_is_cut_anywhere_or_has_a_byte_too_many_is_refused() -> None:
    initial, *_, last = run_of()
    raw = packed(last)
    for length in (*range(64), *range(64, len(raw) - 16, 61), *range(len(raw) - 16, len(raw))):
        with pytest.raises(LocalProtocolError, match="cannot be read"):
            unpack_state(raw[:length], initial)
    with pytest.raises(LocalProtocolError, match="1 bytes too many"):
        unpack_state(raw + b"\x00", initial)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(OUTPUTS), st.data())
def test_a_damaged_byte_is_refused_or_gives_a_state_with_another_digest(output: str, data: st.DataObject) -> None:
    initial, *_ = run = run_of(output)
    state = data.draw(st.sampled_from(run))
    raw = bytearray(packed(state))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack_state(bytes(raw), initial)
    except LocalProtocolError:
        return
    if found.digest(PLAN_DIGEST) == state.digest(PLAN_DIGEST):
        # JSON has more than one blank, and words for people are in no digest.
        assert words_of(found) == words_of(state)


def repacked(state: RunState, **words: object) -> bytes:
    """Return a packed state of which some words are others."""
    raw = packed(state)
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    for name, value in words.items():
        header["state" if name in header["state"] else name] |= {name: value}
    changed = json.dumps(header).encode()
    return struct.pack("<Q", len(changed)) + changed + raw[8 + length :]


@pytest.mark.parametrize("value", [-1, 1 << 64, 0.5, "many"])
def test_a_count_that_no_run_has_is_refused(value: object) -> None:
    initial, *_, last = run_of()
    for words in ({"rounds_done": value}, {"mean": {"threshold": 0.5, "count": value}}):
        with pytest.raises(LocalProtocolError, match="1 entries are wrong"):
            unpack_state(repacked(last, **words), initial)


@pytest.mark.parametrize("name", ["stage", "rounds_done", "model", "history", "left_out", "query_fault", "mean"])
def test_a_state_without_what_every_state_of_its_plan_has_is_refused(name: str) -> None:
    initial, *_, last = run_of("average")
    with pytest.raises(LocalProtocolError, match="does not fit this training run"):
        unpack_state(repacked(last, **{name: None}), initial)


@pytest.mark.parametrize("digest", ["", "00", "x" * 64, "0" * 63, "0" * 66])
def test_the_name_of_an_evaluated_model_is_a_digest(digest: str) -> None:
    initial, *_, last = run_of()
    subject = snapshot_of(last).state["evaluated"]
    with pytest.raises(LocalProtocolError, match="1 entries are wrong"):
        unpack_state(repacked(last, evaluated=subject | {"vector_sha256": digest}), initial)


def test_a_state_of_a_plan_with_another_output_or_model_is_refused() -> None:
    state = run_of("average")[-1]
    with pytest.raises(LocalProtocolError, match="does not fit this training run"):
        unpack_state(packed(run_of("last")[-1]), run_of("average")[0])
    narrow = states(output="average", precision="fp32")[0]
    longer = snapshot_of(narrow).vectors["model"].repeat(2)
    other = RunState(narrow.stage, type(narrow.model)(longer, 0.5), mean=narrow.mean)
    with pytest.raises(LocalProtocolError, match="does not fit this training run"):
        unpack_state(packed(state), other)


def test_a_header_that_is_announced_longer_than_there_is_allocates_nothing() -> None:
    with pytest.raises(LocalProtocolError, match="a header of 18446744073709551615 bytes in 16"):
        unpack_state(b"\xff" * 8 + bytes(8), run_of()[0])


# ---- an opened sum in the clear as bytes: there and back, and what is no sum of the plan is refused in words

STATE = bytes(range(32))
MEMBERS = ("clinic-a", "Zürich")
PLAN = make_plan(standardize="secure", method="exact")
PLAN = PLAN.model_copy(update={"evaluation": PLAN.evaluation.model_copy(update={"bins": 16})})
"""With few bins, so that nearly every number of a sum is tried."""


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


def some_of(places: int) -> list[int]:
    """Return the first places, where counts and words are, every so many of the others, and the last one."""
    return sorted({*range(min(places, 150)), *range(0, places, 1 + places // 100), places - 1})


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
def test_a_sum_that_is_cut_or_has_a_byte_too_many_is_refused(request_: SumRequest, totals: Totals) -> None:
    raw = encoded(totals)
    for damaged in (*(raw[:length] for length in some_of(len(raw))), raw + b"\x00"):
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


@pytest.mark.parametrize("due", ONE_OF_EACH, ids=[request.purpose.value for _, request, _ in ONE_OF_EACH])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 1e300])
def test_numbers_that_no_sum_has_move_the_state_or_are_refused_and_never_break_a_site(
    due: tuple[TrainingRun, SumRequest, Totals], value: float
) -> None:
    waiting, request, totals = due
    for place in some_of(request.spec.header_length):
        header = totals.header.copy()
        header[place] = value
        found = decode_totals(encoded(Totals(header, totals.body, 2)), request.spec)
        with contextlib.suppress(RemoteProtocolError):
            waiting.rules.step(waiting.state, found.totals, found.members).state.digest(STATE)


@pytest.mark.parametrize(
    "words",
    [
        [STATE.hex(), ["a", "b"], 0], [STATE.hex(), ["a", "b"], 1 << 70], [STATE.hex(), ["a", "b"], 3],
        [STATE.hex(), ["a", "b"], 2.0], [STATE.hex(), ["a", 7], 2], [STATE.hex(), "ab", 2],
        [STATE.hex(), ["a", "a"], 2], ["00", ["a", "b"], 2], ["no hex", ["a", "b"], 2], [7, ["a", "b"], 2],
        [STATE.hex(), ["a", "b"]], {}, 3,
    ],
)  # fmt: skip
def test_words_that_no_sum_has_are_refused(words: object) -> None:
    _, request, totals = SUMS[0]
    said = json.dumps(words).encode()
    raw = struct.pack("<I", len(said)) + said + totals.header.astype("<f8").tobytes()
    with pytest.raises(RemoteProtocolError, match="an opened sum"):
        decode_totals(raw, request.spec)
