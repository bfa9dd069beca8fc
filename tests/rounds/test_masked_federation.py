"""Whole runs whose sums are masked: one session, drop-outs, clips, and sums that are lost or waited for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.masking_terms import (
    check_protection,
    guarantee,
    masking_cost,
    session_plan,
    session_terms,
)
from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.running_sum import PlainSum
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import LocalProtocolError, PlanError, RemoteProtocolError
from fedfair.ids import ParticipantId, RoundNumber, SumNumber
from fedfair.plan.sections import SecureAggregationSection
from fedfair.rounds import events
from fedfair.rounds.phases import Phase
from fedfair.rounds.plain_sum import TRANSITIONS, PlainSumRound
from fedfair.rounds.sum_round import MemberStanding, Step, SumState
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.params import MAX_MEMBERS
from fedfair.statistics.table import Purpose
from tests.attacks.harness import check_of
from tests.held_terms import holding
from tests.plans import parsed
from tests.rounds.masked_play import LAYOUT, RUN, SCHEMA, Play, make_plan
from tests.rounds.rounds_play import state_of

LAST_EVALUATION = (Purpose.EVALUATION, 2, 1)
"""Of a run of two rounds: its purpose, its round, and how many evaluations came before it."""


def test_a_whole_run_needs_one_session_and_adds_every_sites_change() -> None:
    play = Play(make_plan(4))
    play.begin()
    assert (play.federation.phase, play.set_ups()) == (Phase.FINISHED, 1)
    # The mean of four unit vectors times 0.5 is 0.125 in each coordinate; four rounds. The error of a mean is less
    # than n C W 2^-f / (sum of w) = 4 * 16 * 2^-28 / 4 in each round (f = 28: 4 * 2^28 <= 2^31 - 1).
    np.testing.assert_allclose(
        play.training_run.model.vector, 4 * np.array([0.125] * 4 + [0.0]), atol=4 * 16 * 2.0**-28
    )
    assert play.training_run.result().evaluation.splits["train"].mean == 0.5


def test_a_hybrid_session_adds_up_and_survives_a_drop_out() -> None:
    play = Play(make_plan(4, quorum=3, rounds=2, key_agreement="x25519-mlkem768"))
    play.silent = lambda name, kind: (
        name == "clinic-d" and kind is Kind.UPLOAD and play.training_run.rounds_done == 1
    )
    play.begin()
    play.pass_deadline(events.DeadlineKind.SUM)
    assert play.federation.phase is Phase.FINISHED
    # The bound of the test above, with 3 contributors in the second of two rounds.
    expected = np.array([0.125] * 4 + [0.0]) + np.array([0.5 / 3] * 3 + [0.0] * 2)
    np.testing.assert_allclose(play.training_run.model.vector, expected, atol=2 * 4 * 16 * 2.0**-28 / 3)


def test_a_run_with_a_sparse_graph_adds_up_survives_drop_outs_and_draws_anew_where_too_few_are_left() -> None:
    play = Play(make_plan(10, quorum=6, rounds=3, neighbours=6))
    play.silent = lambda name, kind: (
        name == "clinic-d" and kind is Kind.UPLOAD and play.training_run.rounds_done == 1
    )
    play.begin()
    play.pass_deadline(events.DeadlineKind.SUM)
    assert play.federation.phase is Phase.FINISHED
    assert {kind for _, kind in play.said} >= {Kind.REVEAL, Kind.CONSISTENCY_CHECK}
    # Ten unit vectors times 0.5 in five coordinates, in the second round nine; the bound is as in the first test.
    expected = 2 * np.array([0.1] * 5) + np.array([1.0, 1.0, 1.0, 0.5, 1.0]) / 9
    np.testing.assert_allclose(play.training_run.model.vector, expected, atol=3 * 10 * 16 * 2.0**-27 / 9)


@pytest.mark.parametrize(
    "other",
    [
        {"neighbours": "all"}, {"neighbours": 4}, {"key_agreement": "x25519"}, {"mode": "semi-honest"},
        {"colluders": 0}, {"colluders": 2}, {"ring_bits": 16}, {"most_records": 1 << 20},
        {"most_records": 1},
    ],
)  # fmt: skip
def test_an_aggregator_that_proposes_other_terms_than_the_plan_is_refused(other: dict[str, object]) -> None:
    plan = make_plan(5, key_agreement="x25519-mlkem768", colluders=1)
    approved = session_plan(plan, bytes(32))
    approved.check(bytes(32), session_terms(plan))
    stated = plan.secure_aggregation.model_dump() | other
    terms = session_terms(plan.model_copy(update={"secure_aggregation": SecureAggregationSection(**stated)}))
    assert check_of(approved.check, bytes(32), terms) is Check.POLICY


def test_the_automatic_clip_follows_the_changes_up_and_down_and_never_beyond_what_the_plan_allows() -> None:
    sizes = [0.5, 2.0**-10, 2.0**-10, 100.0, 100.0, 0.25]
    play = Play(make_plan(4, rounds=6, clip="auto", max_clip=64.0))
    play.size = sizes.__getitem__
    play.begin()
    assert play.federation.phase is Phase.FINISHED
    reports = [e for e in play.effects if isinstance(e, events.Report) and e.clipping is not None]
    clips = [e.clipping.clip for e in reports if e.clipping]
    # Four times the next power of two: 0.5 lies below 1 = 2^0, 2^-10 below 2^-9 and 100 below 128.
    assert clips == [1.0, 4.0, 2.0**-7, 2.0**-7, 64.0, 64.0]
    assert [e.clipping.clipped for e in reports if e.clipping] == [0, 0, 0, 4, 4, 0]
    assert play.training_run.state.clip == 4 * 0.5
    assert {copy.state.clip for copy in play.copies.values()} == {4 * 0.5}
    # In each round the mean is off by less than n C W 2^-f / (sum of w), with f = 28 and a sum of weights of 4.
    counted = sum(min(size, clip) for size, clip in zip(sizes, clips, strict=True)) / 4
    bound = sum(4 * clip * 16 * 2.0**-28 / 4 for clip in clips)
    np.testing.assert_allclose(play.training_run.model.vector, np.array([counted] * 4 + [0.0]), atol=bound)


def test_a_total_that_is_refused_leaves_the_clip_where_it_was() -> None:
    play = Play(make_plan(4, rounds=2, clip="auto"))
    play.size = [0.25, 100.0].__getitem__
    # In their first upload all four move the threshold by 16, which no honest site does; each can have 1 at most.
    lies = iter([16.0] * 4)
    play.threshold = lambda: next(lies, 0.0)
    play.begin()
    assert play.federation.phase is Phase.FINISHED
    lost = [effect for effect in play.effects if isinstance(effect, events.SumLost)]
    assert ["would move the threshold by" in effect.reason for effect in lost] == [True]
    reports = [e.clipping for e in play.effects if isinstance(e, events.Report) and e.clipping is not None]
    # The refused total was over changes of 0.25, whose clip is 2; the second attempt still has the first one.
    assert [clipping.clip for clipping in reports] == [1.0, 2.0]


def test_an_aggregator_that_starts_again_goes_on_with_the_clip_it_had() -> None:
    def first_clip(**stated: object) -> float | None:
        return TrainingRun(make_plan(3, **stated), LAYOUT, SCHEMA, np.zeros(5)).state.clip

    assert (first_clip(clip="auto"), first_clip(clip="auto", max_clip=0.5)) == (1.0, 0.5)
    assert first_clip(clip=3.0) == 3.0
    play = Play(make_plan(4, rounds=2, clip="auto"))
    play.size = [0.5, 2.0**-10].__getitem__
    play.begin()
    again = TrainingRun(play.plan, LAYOUT, SCHEMA, np.zeros(5))
    again.restore(play.training_run.snapshot())
    assert again.state.clip == 2.0**-7


def with_clip(run: TrainingRun, clip: float) -> None:
    run.state = holding(run.state, clip=clip)


def test_a_round_whose_clip_is_beyond_what_a_site_approved_is_not_contributed_to() -> None:
    play = Play(make_plan(3, rounds=1, clip="auto", max_clip=2.0))
    with_clip(play.training_run, 4.0)
    for copy in play.copies.values():  # As if the sites' own state could come to it.
        copy.restore(RUN, holding(copy.state, clip=4.0))
    with pytest.raises(SecaggError) as refusal:
        play.begin()
    assert refusal.value.check is Check.POLICY
    assert "a clip of 4, this site demands more than 0 and at most 2" in refusal.value.message


def test_a_round_about_a_state_with_another_clip_than_the_run_has_is_not_contributed_to() -> None:
    play = Play(make_plan(3, rounds=1, clip="auto", max_clip=2.0))
    with_clip(play.training_run, 0.5)
    assert check_of(play.begin) is Check.STATE
    assert not [kind for _, kind in play.said if kind is Kind.UPLOAD]


def test_a_session_ends_after_a_day() -> None:
    play = Play(make_plan(3, rounds=2))
    play.silent = lambda name, kind: (
        name == "clinic-c" and kind is Kind.UPLOAD and play.training_run.rounds_done == 1
    )
    play.begin()
    assert play.federation.phase is Phase.SUMMING
    play.hours = 25.0
    play.silent = lambda _name, _kind: False
    play.pass_deadline(events.DeadlineKind.SUM)
    assert (play.federation.phase, play.set_ups()) == (Phase.FINISHED, 2)


def test_a_sum_below_the_quorum_is_lost_before_anything_is_opened_and_changes_nothing() -> None:
    play = Play(make_plan(3))
    play.silent = lambda name, kind: (
        name == "clinic-c" and kind is Kind.UPLOAD and play.training_run.rounds_done == 1
    )
    play.begin()
    before = play.training_run.model.vector.copy()
    answers = sum(kind is Kind.UNMASK_SHARES for _, kind in play.said)
    play.silent = lambda _name, _kind: True
    play.pass_deadline(events.DeadlineKind.SUM)
    lost = [effect for effect in play.effects if isinstance(effect, events.SumLost)]
    assert [effect.reason for effect in lost] == ["2 of 3 contributed, 3 are needed"]
    assert np.array_equal(play.training_run.model.vector, before)
    assert sum(kind is Kind.UNMASK_SHARES for _, kind in play.said) == answers
    assert play.federation.request.attempt == 2


@pytest.mark.parametrize(
    ("steps", "counted"),
    [
        ((Kind.UPLOAD, Kind.UPLOAD), "cde"),
        ((Kind.UPLOAD, Kind.PAIR_MASKS), "cde"),
        ((Kind.UPLOAD, Kind.CONSISTENCY_CHECK), "bcde"),
        ((Kind.UNMASK_SHARES, Kind.UNMASK_SHARES), "abcde"),
    ],
)
def test_sites_that_fall_silent_at_a_step_are_done_without(steps: tuple[Kind, Kind], counted: str) -> None:
    play = Play(make_plan(5, quorum=3, rounds=2))
    fatal = set(zip(("clinic-a", "clinic-b"), steps, strict=True))
    play.silent = lambda name, kind: play.training_run.rounds_done == 1 and (name, kind) in fatal
    play.begin()
    while play.federation.phase is Phase.SUMMING:
        play.pass_deadline(next(reversed(play.deadlines)).kind)
    assert play.federation.phase is Phase.FINISHED
    second = [0.5 / len(counted) if letter in counted else 0.0 for letter in "abcde"]
    # As above with n = 5 and 3 contributors in the worst case, over two rounds.
    np.testing.assert_allclose(
        play.training_run.model.vector, 0.1 + np.array(second), atol=2 * 5 * 16 * 2.0**-28 / 3
    )


def evaluations(play: Play) -> list[tuple[int, int]]:
    """Return (round, contributors) of every evaluation that was taken."""
    reports = (effect.progress for effect in play.effects if isinstance(effect, events.Report))
    return [(p.round, p.contributors) for p in reports if p.purpose is Purpose.EVALUATION]


def silent_at(play: Play, name: str, kind: Kind, rounds_done: int) -> None:
    """Swallow one kind of message of one site during the evaluation of a round."""

    def silent(who: ParticipantId, said: Kind) -> bool:
        evaluating = play.questions[who].request.purpose is not Purpose.TRAINING
        return (who, said, play.training_run.rounds_done) == (name, kind, rounds_done) and evaluating

    play.silent = silent


def test_an_evaluation_that_lacks_an_upload_is_repeated_without_that_site() -> None:
    play = Play(make_plan(4, quorum=3, rounds=4, every=2))
    silent_at(play, "clinic-d", Kind.UPLOAD, 2)
    play.begin()
    play.pass_deadline(events.DeadlineKind.SUM)
    assert (play.federation.phase, evaluations(play)) == (Phase.FINISHED, [(0, 4), (2, 3), (4, 4)])


def test_an_evaluation_that_lost_an_answer_is_left_out_and_training_goes_on() -> None:
    play = Play(make_plan(4, quorum=3, rounds=4, every=2))
    silent_at(play, "clinic-d", Kind.UNMASK_SHARES, 2)
    play.begin()
    play.pass_deadline(events.DeadlineKind.SUM)
    assert (play.federation.phase, evaluations(play)) == (Phase.FINISHED, [(0, 4), (4, 4)])
    assert play.training_run.result().left_out == (2,)
    (skipped,) = [effect for effect in play.effects if isinstance(effect, events.Skipped)]
    assert skipped.reason == "3 answers, 4 are needed"


def lose_the_last_answer(play: Play, name: str, rounds_done: int) -> None:
    silent_at(play, name, Kind.UNMASK_SHARES, rounds_done)
    play.begin()
    play.tell(events.Disconnected(ParticipantId(name)))
    play.pass_deadline(events.DeadlineKind.GRACE)
    assert (play.federation.phase, play.federation.waiting_for) == (Phase.WAITING, (name,))


@pytest.mark.parametrize(("standardize", "lost_at"), [("none", 2), ("secure", 0)])
def test_a_sum_that_is_needed_waits_for_the_very_sites_that_opened_it(standardize: str, lost_at: int) -> None:
    play = Play(make_plan(4, quorum=3, rounds=2, standardize=standardize))
    lose_the_last_answer(play, "clinic-d", lost_at)
    play.silent = lambda _name, _kind: False
    play.connect(ParticipantId("clinic-d"))
    assert (play.federation.phase, play.training_run.result().left_out) == (Phase.FINISHED, ())
    assert [n for n, _ in evaluations(play)] == [0, 2]


@pytest.mark.parametrize(
    ("standardize", "lost_at", "words"),
    [("none", 2, "the evaluation sum of round 2"), ("secure", 0, "the standardisation sum of round 0")],
)
def test_a_sum_whose_sites_do_not_come_back_ends_the_run(standardize: str, lost_at: int, words: str) -> None:
    play = Play(make_plan(4, quorum=3, rounds=2, standardize=standardize))
    lose_the_last_answer(play, "clinic-d", lost_at)
    play.pass_deadline(events.DeadlineKind.JOIN)
    assert play.federation.phase is Phase.ABORTED
    (ending,) = [effect for effect in play.effects if isinstance(effect, events.Abort)]
    assert ending.reason == (
        f"{words} was interrupted, and only clinic-a, clinic-b, clinic-c, clinic-d together can open it from what "
        "they have sent; the join deadline has passed without clinic-d"
    )
    assert "start the aggregator again once they are back" in ending.remedy
    assert play.training_run.rounds_done == lost_at


def test_a_training_sum_that_some_have_helped_to_open_is_repeated_by_the_very_same_sites() -> None:
    play = Play(make_plan(5, quorum=3, rounds=2))
    away = ("clinic-c", "clinic-d", "clinic-e")
    play.silent = lambda name, kind: (
        play.training_run.rounds_done == 1 and kind is Kind.UNMASK_SHARES and name in away
    )
    play.begin()
    play.tell(events.Disconnected(ParticipantId("clinic-e")))
    play.pass_deadline(events.DeadlineKind.GRACE)
    play.pass_deadline(events.DeadlineKind.SUM)
    (lost,) = [effect for effect in play.effects if isinstance(effect, events.SumLost)]
    assert lost.reason == "2 answers, 3 are needed"
    # Four are connected, more than a quorum; but two of them open this sum for all five only.
    assert (play.federation.phase, play.federation.waiting_for) == (Phase.WAITING, ("clinic-e",))
    play.silent = lambda _name, _kind: False
    play.connect(ParticipantId("clinic-e"))
    assert play.federation.phase is Phase.FINISHED
    trained = [e.progress for e in play.effects if isinstance(e, events.Report) and e.clipping is not None]
    assert [progress.contributors for progress in trained] == [5, 5]


def test_the_output_model_is_evaluated_by_the_sites_that_evaluated_the_last_one() -> None:
    """To a site both are the evaluation after round 2, which it opens for one set of sites only."""
    plan = make_plan(4, quorum=3, rounds=2)
    play = Play(plan.model_copy(update={"training": plan.training.model_copy(update={"output": "average"})}))
    receive, leaver = play.federation.receive, ParticipantId("clinic-a")

    def leaving(event: events.Event) -> list[events.Effect]:
        effects = receive(event)
        if isinstance(event, events.MessageArrived) and event.participant == leaver:
            asked, answers = play.questions[leaver].request, kind_of(event.message) is Kind.UNMASK_SHARES
            if answers and (asked.purpose, asked.round, len(evaluations(play))) == LAST_EVALUATION:
                effects += receive(events.Disconnected(leaver))
        return effects

    play.federation.receive = leaving  # type: ignore[method-assign]  # a site that leaves when it has answered
    play.begin()
    assert (play.federation.phase, play.federation.waiting_for) == (Phase.WAITING, (leaver,))
    play.connect(leaver)
    assert (play.federation.phase, evaluations(play)) == (Phase.FINISHED, [(0, 4), (2, 4), (2, 4)])


def test_what_a_plan_promises_and_what_it_cannot() -> None:
    words = guarantee(make_plan(5, quorum=4, colluders=1))
    for figures in (
        "up to 1 of 5 collaborators", "1 drop-out is survived", "policy.max_reopened_sums above 0",
        "min_collaborators: 4 lets the aggregator leave 1 of 5 sites out",
        "unless its policy.evaluation_cohort is same",
    ):  # fmt: skip
        assert figures in words
    assert "ML-KEM" not in words
    assert "each can read the other's part" in guarantee(make_plan(2))
    assert "X25519 and ML-KEM-768" in guarantee(make_plan(5, key_agreement="x25519-mlkem768"))
    whole = guarantee(make_plan(5, colluders=1))
    assert "leave" not in whole
    assert "by federation.min_collaborators: 5, none of these drop-outs may happen" in whole
    with pytest.raises(PlanError, match="a sum over 2 of 5 collaborators, 1 of whom may collude"):
        check_protection(make_plan(5, quorum=2, colluders=1))


def test_a_plan_of_many_sites_states_its_graph_and_its_odds() -> None:
    names = [f"clinic-{number}" for number in range(1000)]
    words = masking_cost(parsed(names, secure_aggregation={"colluders": 20}))
    assert "a site sends 14.0 kB a round beyond its vector" in words
    assert "each shares masks with 106 others, 75 of these and itself open its mask" in words
    assert "34 of a committee of 51 decide who has survived" in words
    assert "hides every site but with a probability of at most 2^-41" in words
    assert "where 1 site in 10 vanishes at random a round is lost with a probability of at most 2^-20" in words
    assert "hides every site for certain" in masking_cost(parsed(names))
    assert "counts as missing, too, where too many of these vanish" in guarantee(parsed(names))
    assert "committee" not in masking_cost(parsed(names, secure_aggregation={"neighbours": "all"}))
    assert "committee" not in masking_cost(parsed(names[:128]))
    with pytest.raises(PlanError, match="neighbours: 8 of 1000 collaborators, 20 of whom may collude"):
        masking_cost(parsed(names, secure_aggregation={"colluders": 20, "neighbours": 8}))


def test_more_sites_than_can_add_under_masks_are_refused_with_the_limit() -> None:
    names = [f"clinic-{number}" for number in range(MAX_MEMBERS + 1)]
    with pytest.raises(PlanError, match=r"names 1001, and at most 1000 can add under masks") as refusal:
        guarantee(parsed(names))
    assert "name at most 1000" in refusal.value.remedy
    check_protection(parsed(names[1:]))
    check_protection(parsed(names, secure_aggregation={"mode": "off"}))


# ---- one sum: every step from every standing, and when it closes

A, B, C = (ParticipantId(name) for name in ("clinic-a", "clinic-b", "clinic-c"))
SPEC = SumSpec(Purpose.TRAINING, 2, 3, np.dtype("<f4"))
REQUEST = SumRequest(Purpose.TRAINING, RoundNumber(1), 1, SPEC)
WAYS = {
    MemberStanding.ASKED: [], MemberStanding.AWAY: [Step.LEAVE],
    MemberStanding.LAPSED: [Step.LEAVE, Step.LAPSE], MemberStanding.COUNTED: [Step.UPLOAD],
    MemberStanding.ABSTAINED: [Step.ABSTAIN], MemberStanding.EXPELLED: [Step.EXPEL],
}  # fmt: skip


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
def test_every_step_from_every_standing_is_in_the_table_or_nothing(standing: MemberStanding, step: Step) -> None:
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
    assert (sum_.state, sum_.waiting_for) == (SumState.OPEN, (B, C))
    sum_.step(B, Step.ABSTAIN)
    sum_.upload(C, payload(C))
    assert (sum_.state, sum_.counted) == (SumState.COMPLETE, (A, C))
    totals = sum_.totals()
    assert (totals.body.tolist(), totals.header.tolist()) == ([1.0, 0.0, 1.0], [2.0, 0.0])
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
    assert (with_quorum.state, without.state) == (SumState.COMPLETE, SumState.LOST)
    with pytest.raises(LocalProtocolError, match="sum 7 is lost and has no totals"):
        without.totals()


def test_a_closed_sum_takes_nothing_more() -> None:
    sum_ = machine(cohort=(A,), quorum=1)
    with pytest.raises(LocalProtocolError, match="sum 7 is open and has no totals"):
        sum_.totals()
    sum_.upload(A, payload(A))
    before = state_of(sum_)
    for late in (lambda: sum_.upload(A, payload(A)), lambda: sum_.step(A, Step.LEAVE), sum_.pass_deadline):
        with pytest.raises(LocalProtocolError, match=r"sum 7 is complete; .* comes too late"):
            late()
    assert state_of(sum_) == before


def test_an_upload_without_a_payload_is_our_bug() -> None:
    with pytest.raises(LocalProtocolError, match="goes through upload"):
        machine().step(A, Step.UPLOAD)


@given(st.lists(st.tuples(st.sampled_from((A, B, C)), st.sampled_from(Step)), max_size=30), st.integers(1, 3))
@settings(deadline=None)
def test_a_total_counts_each_once_and_a_quorum(steps: list[tuple[ParticipantId, Step]], quorum: int) -> None:
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
