"""One sum: every step from every standing, and when it closes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.running_sum import PlainSum
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.ids import ParticipantId, RoundNumber, SumNumber
from fedfair.rounds.plain_sum import TRANSITIONS, PlainSumRound
from fedfair.rounds.sum_round import MemberStanding, Step, SumState
from fedfair.statistics.table import Purpose
from tests.rounds.rounds_play import state_of

A, B, C = (ParticipantId(name) for name in ("clinic-a", "clinic-b", "clinic-c"))
SPEC = SumSpec(Purpose.TRAINING, 2, 3, np.dtype("<f4"))
REQUEST = SumRequest(Purpose.TRAINING, RoundNumber(1), 1, SPEC)
WAYS = {
    MemberStanding.ASKED: [],
    MemberStanding.AWAY: [Step.LEAVE],
    MemberStanding.LAPSED: [Step.LEAVE, Step.LAPSE],
    MemberStanding.COUNTED: [Step.UPLOAD],
    MemberStanding.ABSTAINED: [Step.ABSTAIN],
    MemberStanding.EXPELLED: [Step.EXPEL],
}


def payload(who: ParticipantId) -> bytes:
    unit = np.zeros(3, "<f4")
    unit[(A, B, C).index(who)] = 1
    return np.array([1.0, 0.0]).tobytes() + unit.tobytes()


def machine(cohort: tuple[ParticipantId, ...] = (A, B, C), quorum: int = 2) -> PlainSumRound:
    return PlainSumRound(SumNumber(7), REQUEST, cohort, quorum, PlainSum(SPEC))


def take(sum_: PlainSumRound, who: ParticipantId, step: Step) -> None:
    if step is Step.UPLOAD:
        sum_.upload(who, payload(who))
    else:
        sum_.step(who, step)


def standing_of(sum_: PlainSumRound, who: ParticipantId) -> MemberStanding:
    return sum_._standings[who]


def test_the_table_names_every_standing() -> None:
    assert set(TRANSITIONS) == set(MemberStanding) == set(WAYS)


@pytest.mark.parametrize("standing", MemberStanding)
@pytest.mark.parametrize("step", Step)
def test_every_step_from_every_standing_follows_the_table_or_changes_nothing(
    standing: MemberStanding, step: Step
) -> None:
    sum_ = machine()  # B and C are still asked, so the sum stays open whatever A does.
    for earlier in WAYS[standing]:
        take(sum_, A, earlier)
    assert standing_of(sum_, A) is standing
    before = state_of(sum_)
    if step in TRANSITIONS[standing]:
        take(sum_, A, step)
        assert standing_of(sum_, A) is TRANSITIONS[standing][step]
        return
    blame = RemoteProtocolError if step in (Step.UPLOAD, Step.ABSTAIN) else LocalProtocolError
    with pytest.raises(blame, match=f"sum 7: {step.value} of clinic-a, whose standing is '{standing.value}'"):
        take(sum_, A, step)
    assert state_of(sum_) == before


def test_a_sum_of_three_is_worked_by_hand() -> None:
    sum_ = machine()
    sum_.upload(A, payload(A))
    sum_.upload(A, payload(A))  # a resend
    assert sum_.state is SumState.OPEN
    assert sum_.waiting_for == (B, C)
    sum_.step(B, Step.ABSTAIN)
    sum_.upload(C, payload(C))
    assert sum_.state is SumState.COMPLETE
    assert sum_.counted == (A, C)
    totals = sum_.totals()
    assert totals.body.tolist() == [1.0, 0.0, 1.0]
    assert totals.header.tolist() == [2.0, 0.0]
    assert totals.contributors == 2


def test_nobody_but_the_cohort_may_answer() -> None:
    sum_ = machine(cohort=(A, B))
    before = state_of(sum_)
    with pytest.raises(RemoteProtocolError, match="upload of clinic-c, who was not asked"):
        sum_.upload(C, payload(C))
    with pytest.raises(LocalProtocolError, match="leave of clinic-c, who was not asked"):
        sum_.step(C, Step.LEAVE)
    assert state_of(sum_) == before


@pytest.mark.parametrize("bad", [b"", payload(A)[:-1], payload(A) + b"\0", np.full(7, np.nan, "<f4").tobytes()])
def test_a_malformed_upload_leaves_the_sum_as_it_was(bad: bytes) -> None:
    sum_ = machine()
    sum_.upload(B, payload(B))
    before = state_of(sum_)
    with pytest.raises(RemoteProtocolError):
        sum_.upload(A, bad)
    assert state_of(sum_) == before


def test_the_deadline_closes_a_sum_with_a_quorum_and_loses_one_without() -> None:
    with_quorum, without = machine(), machine()
    for who in (A, B):
        with_quorum.upload(who, payload(who))
    without.upload(A, payload(A))
    for sum_ in (with_quorum, without):
        sum_.pass_deadline()
    assert with_quorum.state is SumState.COMPLETE
    assert without.state is SumState.LOST
    with pytest.raises(LocalProtocolError, match="sum 7 is lost and has no totals"):
        without.totals()


def test_a_closed_sum_takes_nothing_more() -> None:
    sum_ = machine(cohort=(A,), quorum=1)
    with pytest.raises(LocalProtocolError, match="sum 7 is open and has no totals"):
        sum_.totals()
    sum_.upload(A, payload(A))
    before = state_of(sum_)
    for late in (
        lambda: sum_.upload(A, payload(A)),
        lambda: sum_.step(A, Step.LEAVE),
        sum_.pass_deadline,
    ):
        with pytest.raises(LocalProtocolError, match=r"sum 7 is complete; .* comes too late"):
            late()
    assert state_of(sum_) == before


def test_an_upload_without_a_payload_is_our_bug() -> None:
    with pytest.raises(LocalProtocolError, match="goes through upload"):
        machine().step(A, Step.UPLOAD)


@given(st.lists(st.tuples(st.sampled_from((A, B, C)), st.sampled_from(Step)), max_size=30), st.integers(1, 3))
@settings(deadline=None)
def test_a_total_counts_everybody_once_and_never_fewer_than_the_quorum(
    steps: list[tuple[ParticipantId, Step]], quorum: int
) -> None:
    sum_ = machine(quorum=quorum)
    for who, step in steps:
        if sum_.state is not SumState.OPEN:
            break
        try:
            take(sum_, who, step)
        except (LocalProtocolError, RemoteProtocolError):
            continue
    if sum_.state is SumState.OPEN:
        sum_.pass_deadline()
    if sum_.state is SumState.COMPLETE:
        indicator = [float(who in sum_.counted) for who in (A, B, C)]
        assert sum_.totals().body.tolist() == indicator
        assert sum(indicator) >= quorum
    else:
        assert len(sum_.counted) < quorum
