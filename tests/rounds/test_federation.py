"""A whole run in memory: who is waited for, what a lost quorum means, how it ends."""

import numpy as np
import pytest

from fedfair.errors import LocalProtocolError
from fedfair.ids import ParticipantId, SumNumber
from fedfair.rounds import events
from fedfair.rounds.continued import Continued
from fedfair.rounds.events import AfterWaiting, DeadlineKind
from fedfair.rounds.exit_reasons import ExitReason
from fedfair.rounds.phases import PHASES, Phase
from fedfair.statistics.table import Purpose
from tests.rounds.rounds_play import ENDED, A, B, C, D, Play, kinds, of_kind, plan_of, state_of


def messages(effects: list[events.Effect]) -> list[str]:
    return [effect.message for effect in effects if isinstance(effect, events.Refuse)]


def unawaited(effects: list[events.Effect]) -> list[tuple[ParticipantId, int, str]]:
    named = [effect for effect in effects if isinstance(effect, events.Unawaited)]
    return [(effect.participant, effect.sum_number, effect.reason) for effect in named]


def playing(minimum: int | None = None, collaborators: int = 3, **changes: object) -> Play:
    """Return a play of which the first sum, the baseline evaluation, has begun with all sites."""
    play = Play(plan_of(collaborators, minimum, **changes))
    play.start(*play.members)
    return play


def training(minimum: int | None = None, collaborators: int = 3, **changes: object) -> Play:
    """Return a play in its first training sum."""
    play = playing(minimum, collaborators, **changes)
    play.upload(*play.members)
    assert play.federation.request.purpose is Purpose.TRAINING
    return play


# ------------------------------------------------------------------ a run without incidents


def test_a_run_of_two_rounds_is_worked_by_hand() -> None:
    play = Play(plan_of(collaborators=2))
    assert kinds(play.tell(events.Started())) == ["Checkpoint", "SetDeadline", "Waiting"]
    assert kinds(play.connect(A)) == ["Waiting"]
    asks_for_all = ["SendSum", "SendSum"]
    assert kinds(play.connect(B)) == ["CancelDeadline", "SetDeadline", *asks_for_all]  # evaluation, round 0
    assert kinds(play.upload(A)) == ["Accept"]
    # Whoever is connected is told the sum and needs nothing else; the first evaluation is the best.
    closes = ["Accept", "CancelDeadline", "SendTotals", "SendTotals", "Report"]
    assert kinds(play.upload(B)) == [*closes, "Checkpoint", "Checkpoint", "SetDeadline", *asks_for_all]
    play.upload(A)
    assert kinds(play.upload(B)) == [*closes, "SetDeadline", *asks_for_all]  # training, round 2
    # theta = mean of the unit vectors of a and b; c = 0.5 + (1/16 + 1/32) / 2.
    assert play.training_run.model.vector.tolist() == [0.5, 0.5, 0.0, 0.0]
    assert play.training_run.model.threshold == 0.5 + 3 / 64
    play.upload(A)
    assert kinds(play.upload(B)) == [*closes, "SetDeadline", *asks_for_all]  # the last evaluation
    play.upload(B)
    last = play.upload(A)
    assert kinds(last)[-2:] == ["Checkpoint", "Finish"]
    assert (last[-1], play.federation.phase) == (events.Finish(2, "all 2 rounds are done"), Phase.FINISHED)
    assert not play.deadlines
    assert play.training_run.model.vector.tolist() == [1.0, 1.0, 0.0, 0.0]


def in_step(play: Play) -> bool:
    """Return whether every site's copy is at the aggregator's state, bit for bit."""
    return {copy.digest for copy in play.copies.values()} == {play.present()}


def test_the_scaling_follows_from_its_sum_and_reaches_a_new_process_with_the_state() -> None:
    play = playing(standardize="secure")
    assert play.federation.request.purpose is Purpose.STANDARDISATION
    play.upload(*play.members)
    assert play.training_run.scaling is not None
    assert in_step(play)
    play.upload(*play.members)
    assert not of_kind(play.effects, events.SendState)
    play.disconnect(B)
    assert kinds(play.connect_anew(B))[1:] == ["SendState", "SendSum"]
    play.run_to_the_end()
    assert of_kind(play.effects, events.SendState) == [events.SendState(B)]
    assert play.federation.phase is Phase.FINISHED
    assert in_step(play)


def test_a_site_that_missed_one_sum_is_told_it_and_one_that_missed_two_is_sent_the_state() -> None:
    play = training(minimum=2, rounds=4)
    play.disconnect(C)
    play.pass_deadline(DeadlineKind.GRACE)
    play.upload(A, B)
    assert kinds(play.connect(C)) == []  # the next sum has begun without it
    effects = play.upload(A, B)
    assert kinds(effects)[-4:] == ["SendSum", "SendSum", "SendState", "SendSum"]
    assert of_kind(effects, events.SendState) == [events.SendState(C)]
    assert in_step(play)
    play.upload(A)
    play.disconnect(C)
    play.pass_deadline(DeadlineKind.GRACE)
    play.disconnect(A)
    play.upload(B)
    assert play.federation.phase is Phase.WAITING
    assert kinds(play.connect(C)) == ["SendTotals", "SetDeadline", "Waiting"]
    play.connect(A)
    play.run_to_the_end()
    assert of_kind(play.effects, events.SendState) == [events.SendState(C)]
    assert in_step(play)


def test_after_an_evaluation_that_was_left_out_sites_are_told_sums_as_before() -> None:
    play = playing(rounds=2, every=1, minimum=2, attempts=2)
    play.upload(*play.members)
    play.upload(*play.members)
    assert play.asked[A].request.purpose is Purpose.EVALUATION
    for _ in range(2):
        play.pass_deadline(DeadlineKind.SUM)
    assert of_kind(play.effects, events.Skipped)
    play.run_to_the_end()
    assert play.training_run.left_out == (1,)
    assert in_step(play)
    assert not of_kind(play.effects, events.SendState)


@pytest.mark.parametrize("output", ["last", "average", "tail", "best"])
def test_every_kind_of_output_comes_to_an_end_with_the_model_of_the_plain_loop(output: str) -> None:
    play = playing(rounds=3, every=1, output=output)
    play.run_to_the_end()
    assert (play.federation.phase, play.training_run.rounds_done) == (Phase.FINISHED, 3)
    replay = play.replayed()
    assert play.model_bytes() == replay.model.vector.tobytes() + np.float64(replay.model.threshold).tobytes()


def test_a_view_says_how_far_the_run_is_and_whom_it_waits_for() -> None:
    play = Play(plan_of())
    play.start(A, C)
    view = play.federation
    assert (view.phase, view.rounds_done, view.rounds_total) == (Phase.WAITING, 0, 2)
    assert (view.connected, view.waiting_for, view.request, view.sum_number) == ((A, C), (B,), None, 0)
    play.connect(B)
    play.upload(C)
    assert (view.phase, view.connected, view.waiting_for, view.sum_number) == (Phase.SUMMING, (A, B, C), (A, B), 1)


# ------------------------------------------------------------------ beginning


def test_nothing_begins_until_every_site_is_there() -> None:
    play = Play(plan_of(minimum=2))
    play.start(A, B)
    assert play.federation.phase is Phase.WAITING
    last = play.effects[-1]
    assert last == events.Waiting(
        (C,), 2, 3, 2, tuple(play.deadlines), AfterWaiting.START_WITHOUT, play.training_run.next_sum()
    )
    assert [token.kind for token in play.deadlines] == [DeadlineKind.JOIN]


def test_who_is_waited_for_until_when_and_what_then_is_told_once_for_each_change() -> None:
    play = Play(plan_of(minimum=2))
    play.start(A)
    play.connect(B)
    play.disconnect(B)
    told = [effect for effect in play.effects if isinstance(effect, events.Waiting)]
    assert [(each.missing, each.present, each.then) for each in told] == [
        ((A, B, C), 0, AfterWaiting.END),
        ((B, C), 1, AfterWaiting.END),
        ((C,), 2, AfterWaiting.START_WITHOUT),
        ((B, C), 1, AfterWaiting.END),
    ]
    assert {each.until for each in told} == {tuple(play.deadlines)}


def test_after_an_interruption_the_shorter_patience_for_the_others_is_told_too() -> None:
    play = training(minimum=2)
    play.disconnect(A)
    play.disconnect(B)
    play.pass_deadline(DeadlineKind.SUM)
    play.connect(B)
    last = play.effects[-1]
    assert (last.missing, last.present, last.then) == ((A,), 2, AfterWaiting.START_WITHOUT)
    assert [token.kind for token in last.until] == [DeadlineKind.JOIN, DeadlineKind.SETTLE]


def test_the_join_deadline_begins_with_a_quorum() -> None:
    play = Play(plan_of(minimum=2))
    play.start(A, C)
    assert list(play.deadlines.values()) == [300]
    play.pass_deadline(DeadlineKind.JOIN)
    assert (play.federation.phase, set(play.asked)) == (Phase.SUMMING, {A, C})


def test_the_join_deadline_without_a_quorum_aborts_and_names_who_is_missing() -> None:
    play = Play(plan_of(minimum=2))
    play.start(B)
    effects = play.pass_deadline(DeadlineKind.JOIN)
    assert kinds(effects) == ["Checkpoint", "Abort"]
    abort = effects[-1]
    assert abort.reason == (
        "1 of 3 collaborators are connected, 2 are needed, "
        "and the join deadline has passed without clinic-a, clinic-c"
    )
    assert "min_collaborators" in abort.remedy


def test_who_leaves_before_the_beginning_is_waited_for() -> None:
    play = Play(plan_of())
    play.start(A, B)
    play.disconnect(A)
    play.connect(C)
    assert play.federation.phase is Phase.WAITING
    play.connect(A)
    assert play.federation.phase is Phase.SUMMING


def test_a_training_run_that_was_restored_continues_with_larger_numbers() -> None:
    play = Play(plan_of(), last_sum_number=41, continued=Continued("0" * 32, 0, 1, 2))
    play.start(A, B, C)
    assert play.federation.sum_number == 42
    assert events.Checkpoint(events.CheckpointKind.INITIAL) not in play.effects


def test_a_training_run_that_was_finished_before_ends_at_once() -> None:
    earlier = playing()
    earlier.run_to_the_end()
    play = Play(earlier.plan, earlier.training_run, continued=Continued("0" * 32, 2, 1, 2))
    assert kinds(play.tell(events.Started())) == ["Checkpoint", "Checkpoint", "Finish"]


# ------------------------------------------------------------------ coming late, leaving, returning


def test_who_comes_late_takes_part_in_the_next_sum() -> None:
    play = Play(plan_of(minimum=2))
    play.start(A, B)
    play.pass_deadline(DeadlineKind.JOIN)
    assert play.connect(C) == []
    play.upload(A, B)
    assert (play.counted_in(SumNumber(1)).tolist(), set(play.asked)) == ([1, 1, 0, 0], {A, B, C})
    play.upload(A, B, C)
    assert play.counted_in(SumNumber(2)).tolist() == [1, 1, 1, 0]


def test_who_drops_out_and_returns_is_asked_again_under_the_same_number() -> None:
    play = training()
    number, dropped = play.asked[B].sum_number, play.disconnect(B)
    assert [effect.seconds for effect in dropped if isinstance(effect, events.SetDeadline)] == [5]
    assert (kinds(play.connect(B)), play.asked[B].sum_number) == (["CancelDeadline", "SendSum"], number)
    play.upload(A, B, C)
    assert play.counted_in(number).tolist() == [1, 1, 1, 0]


def test_who_returns_after_its_upload_is_not_asked_again() -> None:
    play = training()
    number = play.asked[B].sum_number
    play.upload(B)
    play.disconnect(B)
    assert play.connect(B) == []
    assert kinds(play.answer(B, number)) == ["Accept"]  # It had not seen the first acceptance.
    play.upload(A, C)
    assert play.counted_in(number).tolist() == [1, 1, 1, 0]


def test_a_second_connection_replaces_the_first() -> None:
    play = training()
    assert (kinds(play.connect(A)), play.federation.connected) == (["SendSum"], (A, B, C))
    play.run_to_the_end()
    assert play.federation.phase is Phase.FINISHED


def test_a_sum_goes_on_without_who_stays_away_longer_than_the_grace() -> None:
    play = training(minimum=2)
    number = play.asked[A].sum_number
    play.disconnect(C)
    play.upload(A, B)
    assert play.federation.sum_number == number, "within the grace, everybody waits"
    assert unawaited(play.pass_deadline(DeadlineKind.GRACE)) == [(C, number, "it did not return within 5 s")]
    assert (play.federation.sum_number, play.counted_in(number).tolist()) == (number + 1, [1, 1, 0, 0])
    assert set(play.asked) >= {A, B}


def test_who_returns_after_its_grace_is_asked_again_while_others_still_work() -> None:
    play = training(minimum=2)
    play.disconnect(C)
    play.pass_deadline(DeadlineKind.GRACE)
    assert (play.federation.waiting_for, kinds(play.connect(C))) == ((A, B), ["SendSum"])
    number = play.asked[C].sum_number
    play.upload(A, B, C)
    assert play.counted_in(number).tolist() == [1, 1, 1, 0]


# ------------------------------------------------------------------ quorum, deadline, retry


def test_the_deadline_of_a_sum_closes_it_with_a_quorum() -> None:
    play = training(minimum=2)
    number = play.asked[A].sum_number
    play.upload(A, C)
    assert unawaited(play.pass_deadline(DeadlineKind.SUM)) == [(B, number, "no answer within 60 s")]
    assert (play.counted_in(number).tolist(), play.training_run.rounds_done) == ([1, 0, 1, 0], 1)
    assert play.training_run.model.vector.tolist() == [0.5, 0.0, 0.5, 0.0]


def test_a_lost_quorum_leaves_the_model_and_asks_again_under_a_new_number() -> None:
    play = training(minimum=2)
    first, model = play.asked[A].sum_number, play.model_bytes()
    play.upload(A)
    effects = play.pass_deadline(DeadlineKind.SUM)
    assert kinds(effects) == ["Unawaited"] * 2 + ["SumLost", "SetDeadline"] + ["SendSum"] * 3
    assert play.model_bytes() == model
    again = play.asked[A]
    assert (again.sum_number, again.request.round, again.request.attempt) == (first + 1, 1, 2)
    play.upload(A, B, C)
    assert play.counted_in(again.sum_number).tolist() == [1, 1, 1, 0]


def test_attempts_come_to_an_end_and_the_model_is_that_of_the_last_good_sum() -> None:
    play = training(minimum=2)
    model = play.model_bytes()
    for _ in range(3):
        assert play.federation.phase is Phase.SUMMING
        play.pass_deadline(DeadlineKind.SUM)
    assert (play.federation.phase, play.model_bytes()) == (Phase.ABORTED, model)
    abort = play.effects[-1]
    assert abort.reason == (
        "the training sum of round 1 failed 3 times; the last time, 0 of 3 contributed, 2 are needed"
    )


def test_a_success_gives_the_next_sum_all_its_attempts_again() -> None:
    play = training(minimum=2)
    play.pass_deadline(DeadlineKind.SUM)
    play.pass_deadline(DeadlineKind.SUM)
    play.upload(A, B, C)
    assert play.asked[A].request.attempt == 1


def test_a_sum_that_nobody_can_complete_is_given_up_without_waiting_for_its_deadline() -> None:
    play = training()  # every site is needed
    play.disconnect(C)
    play.upload(A, B)
    effects = play.pass_deadline(DeadlineKind.GRACE)
    assert kinds(effects) == ["Unawaited", "CancelDeadline", "SumLost", "SetDeadline", "Waiting"]
    assert effects[-1] == events.Waiting(
        (C,), 2, 3, 3, tuple(play.deadlines), AfterWaiting.END, play.training_run.next_sum()
    )
    play.connect(C)
    assert (play.asked[A].request.attempt, set(play.asked)) == (2, {A, B, C})


def test_after_an_interruption_a_quorum_waits_for_the_others_no_longer_than_the_grace() -> None:
    play = training(minimum=2)
    play.disconnect(B, C)
    play.upload(A)
    play.pass_deadline(DeadlineKind.GRACE)
    play.pass_deadline(DeadlineKind.GRACE)
    assert play.federation.phase is Phase.WAITING
    settle = play.connect(B)
    assert [token.kind for token in play.deadlines] == [DeadlineKind.JOIN, DeadlineKind.SETTLE]
    assert kinds(settle) == ["SetDeadline", "Waiting"]
    assert kinds(play.disconnect(B)) == ["CancelDeadline", "Waiting"]
    play.connect(B)
    play.pass_deadline(DeadlineKind.SETTLE)
    assert (play.federation.phase, set(play.asked)) == (Phase.SUMMING, {A, B})


def test_an_interruption_between_two_sums_is_waited_out() -> None:
    play = training()
    play.upload(A)
    play.disconnect(A)
    number = play.asked[B].sum_number
    play.upload(B, C)
    assert (play.counted_in(number).tolist(), play.federation.phase) == ([1, 1, 1, 0], Phase.WAITING)
    play.connect(A)
    assert set(play.asked) == {A, B, C}
    play.run_to_the_end()
    assert play.federation.phase is Phase.FINISHED


def test_abstaining_is_an_answer_without_an_upload() -> None:
    play = training(minimum=2)
    number = play.asked[B].sum_number
    assert unawaited(play.abstain(B)) == [
        (B, number, "it abstains: no data; the sum continues with 2 of 3; 2 are needed")
    ]
    assert play.federation.waiting_for == (A, C)
    assert play.tell(events.Abstained(B, number, "still no data")) == []
    play.upload(A, C)
    assert play.counted_in(number).tolist() == [1, 0, 1, 0]
    assert B in play.asked, "who abstains is asked for the next sum"


def test_a_quorum_that_abstains_loses_the_sum() -> None:
    play = training(minimum=2)
    play.upload(A)
    play.abstain(B)
    assert "SumLost" in kinds(play.abstain(C))


# ------------------------------------------------------------------ leaving in words


def test_who_leaves_in_words_is_not_waited_for_nor_asked_again_though_its_stream_has_not_ended_yet() -> None:
    play = training(minimum=2)
    number = play.asked[A].sum_number
    play.upload(A, B)
    effects = play.abstain(C, leaving=True)
    assert of_kind(effects, events.Departed) == [events.Departed(C, 0, "no data")]
    assert play.counted_in(number).tolist() == [1, 1, 0, 0]
    # The next sum begins in the same breath, before the driver hears that the stream of C has ended.
    assert {effect.participant for effect in of_kind(effects, events.SendSum)} == {A, B}
    assert play.disconnect(C) == []
    assert not [token for token in play.deadlines if token.kind is DeadlineKind.GRACE]
    play.run_to_the_end()
    assert play.federation.phase is Phase.FINISHED


def test_who_has_left_may_come_back_and_is_asked_in_the_next_sum() -> None:
    play = training(minimum=2, rounds=3)
    play.abstain(C, leaving=True)
    play.disconnect(C)
    play.upload(A, B)
    play.connect(C)
    play.upload(A, B)
    assert C in play.asked
    play.run_to_the_end()
    assert play.federation.phase is Phase.FINISHED


def test_where_the_quorum_needs_who_leaves_the_run_waits_for_its_return() -> None:
    play = training()
    play.upload(A, B)
    effects = play.abstain(C, leaving=True)
    assert kinds(effects)[-1] == "Waiting"
    assert "SumLost" in kinds(effects)
    assert play.federation.waiting_for == (C,)
    play.disconnect(C)
    play.connect(C)
    play.run_to_the_end()
    assert play.federation.phase is Phase.FINISHED


def test_a_leave_that_answers_a_sum_that_is_over_is_heard_all_the_same() -> None:
    play = training(minimum=2, rounds=3)
    late = play.asked[C].sum_number
    play.upload(A, B)
    play.pass_deadline(DeadlineKind.SUM)
    effects = play.tell(events.Abstained(C, late, "no budget", leaving=True))
    assert of_kind(effects, events.Departed) == [events.Departed(C, 1, "no budget")]
    assert play.federation.waiting_for == (A, B)
    assert play.tell(events.Abstained(C, late, "no budget", leaving=True)) == []


# ------------------------------------------------------------------ answers out of place


def test_an_upload_to_a_sum_that_closed_without_it_is_dropped_in_silence() -> None:
    play = training(minimum=2)
    old = play.asked[C].sum_number
    play.upload(A, B)
    play.pass_deadline(DeadlineKind.SUM)
    before = state_of(play.federation)
    assert (play.answer(C, old), play.tell(events.Abstained(C, old, "too slow"))) == ([], [])
    assert state_of(play.federation) == before
    assert C in play.federation.connected


def test_an_upload_that_was_counted_is_accepted_again_after_its_sum() -> None:
    play = training()
    old = play.asked[C].sum_number
    play.upload(A, B, C)
    assert (play.answer(C, old), play.counted_in(old).tolist()) == ([events.Accept(C, old)], [1, 1, 1, 0])


@pytest.mark.parametrize("number", [0, -1, 3, 2**62])
def test_an_answer_to_a_sum_that_never_was_is_refused(number: int) -> None:
    play = training(minimum=2)
    assert play.federation.sum_number == 2
    (refusal,) = play.tell(events.UploadArrived(A, SumNumber(number), b""))
    assert refusal.message == f"an answer to sum {number} arrived, the newest sum is 2"
    assert not refusal.try_again
    (refusal,) = play.tell(events.Abstained(B, SumNumber(number), ""))
    assert isinstance(refusal, events.Refuse)


def test_an_accusation_in_a_plain_sum_is_refused_and_one_of_a_sum_that_is_over_is_passed_over() -> None:
    play = training(minimum=2)
    number = play.federation.sum_number
    assert play.tell(events.Abstained(B, SumNumber(number - 1), "", accused=1)) == []
    refusal, *_ = play.tell(events.Abstained(B, number, "", accused=1))
    assert refusal.message == f"clinic-b accuses member 1 in sum {number}, which is plain"


def test_an_answer_to_a_sum_that_the_sender_was_not_asked_for_is_refused() -> None:
    play = Play(plan_of(minimum=2))
    play.start(A, B)
    play.pass_deadline(DeadlineKind.JOIN)
    play.connect(C)
    assert messages(play.answer(C, SumNumber(1))) == ["sum 1: upload of clinic-c, who was not asked"]
    play.upload(A, B)
    assert play.counted_in(SumNumber(1)).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("bad", [b"", bytes(3), np.full(6, np.nan).tobytes()])
def test_a_malformed_upload_sends_its_sender_away_and_spares_the_sum(bad: bytes) -> None:
    play = training(minimum=2)
    number = play.asked[B].sum_number
    refusal = play.tell(events.UploadArrived(B, number, bad))[0]
    assert "training upload" in refusal.message
    assert play.federation.waiting_for == (A, C)
    assert play.tell(events.UploadArrived(B, number, bad)) == [], "a stream that is being closed is not heard"
    assert play.disconnect(B) == []
    assert play.connect(B) == [], "who was sent away is not asked again in this sum"
    play.upload(A, C)
    assert play.counted_in(number).tolist() == [1, 0, 1, 0]
    assert B in play.asked


def test_an_answer_cannot_be_turned_into_the_other() -> None:
    play = training(minimum=1, collaborators=4)
    number = play.asked[A].sum_number
    play.upload(A)
    play.abstain(B)
    assert messages(play.tell(events.Abstained(A, number, ""))) == [
        "sum 2: abstain of clinic-a, whose standing is 'counted'"
    ]
    assert messages(play.answer(B, number)) == ["sum 2: upload of clinic-b, whose standing is 'abstained'"]
    play.upload(C, D)
    assert play.counted_in(number).tolist() == [1, 0, 1, 1]


def test_a_frame_that_the_border_could_not_read_counts_as_misbehaviour() -> None:
    play = training(minimum=2)
    (refusal,) = play.tell(events.Misbehaved(A, "a frame is cut off", "update fedfair"))
    assert refusal == events.Refuse(A, "a frame is cut off", "update fedfair", try_again=False)
    assert (play.federation.connected, play.tell(events.Misbehaved(A, "again", ""))) == ((B, C), [])


def test_the_last_one_waited_for_misbehaves_and_the_sum_closes_without_it() -> None:
    play = training(minimum=2)
    number = play.asked[A].sum_number
    play.upload(A, B)
    assert "Report" in kinds(play.tell(events.Misbehaved(C, "a frame is cut off", "")))
    assert play.counted_in(number).tolist() == [1, 1, 0, 0]


def test_what_is_counted_counts_for_the_quorum_though_its_sender_is_sent_away() -> None:
    play = training(minimum=2)
    number = play.asked[A].sum_number
    play.upload(A)
    play.tell(events.Misbehaved(A, "a frame is cut off", ""))
    play.abstain(C)
    assert "Report" in kinds(play.upload(B))
    assert play.counted_in(number).tolist() == [1, 1, 0, 0]


def test_who_is_sent_away_while_we_wait_is_missing_and_its_end_is_no_news() -> None:
    play = Play(plan_of())
    play.start(A, B)
    assert kinds(play.tell(events.Misbehaved(A, "a frame is cut off", ""))) == ["Refuse", "Waiting"]
    assert (play.federation.waiting_for, play.disconnect(A)) == ((A, C), [])


def test_a_total_that_cannot_be_right_loses_the_attempt_and_not_the_model() -> None:
    play = training()
    model, number = play.model_bytes(), play.federation.sum_number
    nobody = np.zeros(6).tobytes()  # weight 0, from all sites
    for who in (A, B, C):
        effects = play.tell(events.UploadArrived(who, number, nobody))
    assert "SumLost" in kinds(effects)
    assert (play.model_bytes(), play.asked[A].request.attempt) == (model, 2)


# ------------------------------------------------------------------ the end


@pytest.mark.parametrize("stage", ["new", "waiting", "summing"])
def test_a_stop_is_orderly_at_any_time(stage: str) -> None:
    play = Play(plan_of())
    if stage != "new":
        play.start(A, B)
    if stage == "summing":
        play.connect(C)
        play.upload(A)
    model = play.model_bytes()
    effects = play.tell(events.StopRequested("interrupted from the keyboard"))
    assert kinds(effects)[-2:] == ["Checkpoint", "Abort"]
    assert effects[-1] == events.Abort("interrupted from the keyboard", "", ExitReason.STOPPED)
    assert not play.deadlines
    assert (play.model_bytes(), play.federation.phase) == (model, Phase.ABORTED)


@pytest.mark.parametrize("end", ["finished", "aborted"])
def test_after_the_end_nothing_is_answered(end: str) -> None:
    play = playing()
    if end == "finished":
        play.run_to_the_end()
    else:
        play.tell(events.StopRequested("enough"))
    before = state_of(play.federation)
    for event in one_of_each(A):
        assert play.tell(event) == []
    assert state_of(play.federation) == before


# ------------------------------------------------------------------ who takes no part any more


@pytest.mark.parametrize("when", ["before the start", "while waiting", "while others wait for it alone"])
def test_nothing_waits_for_who_is_excused(when: str) -> None:
    play = Play(plan_of(minimum=2))
    if when == "before the start":
        play.tell(events.Excused(C, "it has withdrawn"))
        play.start(A, B)
    elif when == "while waiting":
        play.start(A)
        play.tell(events.Excused(C, "it has withdrawn"))
        assert play.federation.phase is Phase.WAITING
        play.tell(events.Connected(B))
    else:
        play.start(A, B)
        assert play.federation.phase is Phase.WAITING
        play.tell(events.Excused(C, "it has withdrawn"))
    assert play.federation.phase is Phase.SUMMING
    play.run_to_the_end()
    assert play.federation.phase is Phase.FINISHED


def test_too_few_that_are_not_excused_begin_nothing() -> None:
    play = Play(plan_of(minimum=2))
    play.start(A)
    for who in (B, C):
        play.tell(events.Excused(who, "it has withdrawn"))
    assert play.federation.phase is Phase.WAITING
    play.pass_deadline(DeadlineKind.JOIN)
    assert play.federation.phase is Phase.ABORTED


def test_who_is_excused_in_the_middle_of_a_sum_leaves_it() -> None:
    play = playing(minimum=2)
    (departed, *_) = play.tell(events.Excused(C, "it has withdrawn"))
    assert departed == events.Departed(C, play.federation.rounds_done, "it has withdrawn")
    assert C not in play.federation.connected
    play.run_to_the_end()
    assert play.federation.phase is Phase.FINISHED


# ------------------------------------------------------------------ events that cannot be


def one_of_each(who: ParticipantId) -> list[events.Event]:
    return [
        events.Started(),
        events.Connected(who),
        events.Disconnected(who),
        events.UploadArrived(who, SumNumber(1), b""),
        events.Abstained(who, SumNumber(1), ""),
        events.Misbehaved(who, "", ""),
        events.Excused(who, ""),
        events.DeadlinePassed(events.DeadlineToken(DeadlineKind.JOIN, 1)),
        events.StopRequested(""),
    ]


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in ENDED])
def test_an_event_that_the_table_does_not_allow_changes_nothing(phase: Phase) -> None:
    for event in one_of_each(A):
        play = Play(plan_of())
        if phase is not Phase.NEW:
            play.start(A, B, *([C] if phase is Phase.SUMMING else []))
        assert play.federation.phase is phase
        if type(event) in PHASES[phase]:
            play.tell(event)
            continue
        before = state_of(play.federation), state_of(play.training_run)
        with pytest.raises(LocalProtocolError, match=f"{type(event).__name__} cannot happen .* {phase.value}"):
            play.federation.receive(event)
        assert (state_of(play.federation), state_of(play.training_run)) == before


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (events.Connected(ParticipantId("stranger")), "stranger is not a collaborator of this plan"),
        (events.Disconnected(ParticipantId("stranger")), "stranger is not a collaborator of this plan"),
        (events.UploadArrived(ParticipantId("stranger"), SumNumber(1), b""), "stranger is not a collaborator"),
        (events.Disconnected(C), "clinic-c is reported as disconnected, but was not connected"),
        (events.UploadArrived(C, SumNumber(1), b""), "clinic-c is not connected"),
        (events.Abstained(C, SumNumber(1), ""), "clinic-c is not connected"),
        (events.Misbehaved(C, "", ""), "clinic-c is not connected"),
        (events.DeadlinePassed(events.DeadlineToken(DeadlineKind.SUM, 99)), "sum deadline 99 passed, but was"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.SUMMING])
def test_an_event_against_the_state_changes_nothing(phase: Phase, event: events.Event, complaint: str) -> None:
    play = Play(plan_of(minimum=2))
    play.start(A, B)
    if phase is Phase.SUMMING:
        play.pass_deadline(DeadlineKind.JOIN)
    assert play.federation.phase is phase
    before = state_of(play.federation), state_of(play.training_run)
    with pytest.raises(LocalProtocolError, match=complaint):
        play.federation.receive(event)
    assert (state_of(play.federation), state_of(play.training_run)) == before


def test_a_deadline_that_fires_after_it_was_cancelled_is_ignored() -> None:
    play = playing()
    stale, before = play.cancelled[0], state_of(play.federation)
    assert (play.tell(events.DeadlinePassed(stale)), state_of(play.federation)) == ([], before)
