"""How long a sum waits for a slow site, played on a clock that only the test moves."""

import pytest

from fedfair.ids import ParticipantId, SumNumber
from fedfair.rounds import events
from fedfair.rounds.events import DeadlineKind
from fedfair.rounds.phases import Phase
from fedfair.rounds.slowness.stragglers import (
    AWAY_SHARE,
    AWAY_WAITS,
    FACTOR,
    FACTOR_OF_ALL,
    FRAIL_BREAKS,
    FRAIL_MIN_SECONDS,
    FRAIL_SECONDS,
    MARGIN,
    MIN_SECONDS,
    SHARE,
    Question,
    Stragglers,
)
from fedfair.secagg.messages import Kind
from fedfair.statistics.table import Purpose
from tests.rounds.masked_play import Play as MaskedPlay
from tests.rounds.masked_play import make_plan
from tests.rounds.rounds_play import Play, kinds, of_kind, plan_of

A, B, C = (ParticipantId(f"clinic-{letter}") for letter in "abc")
DEADLINE, GRACE = 600.0, 15.0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def question(number: int, *, needs_all: bool = False) -> Question:
    return Question(SumNumber(number), "training", "uploads", needs_all)


def timed(clock: Clock, seconds: dict[ParticipantId, float], number: int = 1) -> Stragglers:
    """Return the times after one sum that each of these answered after so many seconds."""
    times = Stragglers(clock, 2, DEADLINE, GRACE)
    play_sum(times, clock, seconds, number)
    return times


def play_sum(times: Stragglers, clock: Clock, seconds: dict[ParticipantId, float], number: int) -> None:
    began = clock.now
    times.begin(question(number), tuple(seconds))
    for who, took in sorted(seconds.items(), key=lambda one: one[1]):
        clock.now = began + took
        times.answered(who)
    times.close()


def test_a_step_that_was_never_timed_waits_for_the_deadline_of_the_plan() -> None:
    times = Stragglers(Clock(), 2, DEADLINE, GRACE)
    times.begin(question(1), (A, B, C))
    times.answered(A)
    assert times.patience((B, C)) is None  # One answer is no median of two sites.


@pytest.mark.parametrize(("needs_all", "factor"), [(False, FACTOR), (True, FACTOR_OF_ALL)])
def test_the_patience_follows_the_median_of_the_sites_last_answers(*, needs_all: bool, factor: float) -> None:
    clock = Clock()
    times = timed(clock, {A: 2.0, B: 4.0, C: 40.0})
    times.begin(question(2, needs_all=needs_all), (A, B, C))
    clock.now += 1.5
    assert times.patience((C,)) == factor * 4.0 - 1.5


def test_nobody_is_left_behind_within_the_shortest_patience() -> None:
    clock = Clock()
    times = timed(clock, {A: 0.01, B: 0.02, C: 0.03})
    times.begin(question(2), (A, B, C))
    clock.now += 5.0  # As when somebody has just come back after a broken line.
    assert times.patience((C,)) == MIN_SECONDS


def test_a_slow_half_is_not_left_behind_by_a_quick_one_that_answers_more_often() -> None:
    clock = Clock()
    times = timed(clock, {A: 1.0, B: 30.0, C: 30.0})
    for number in range(2, 20):
        play_sum(times, clock, {A: 1.0}, number)
    times.begin(question(20), (A, B, C))
    assert times.patience((B, C)) == FACTOR * 30.0


def test_no_patience_is_longer_than_the_deadline() -> None:
    times = timed(Clock(), {A: 500.0, B: 500.0})
    times.begin(question(2), (A, B))
    assert times.patience((B,)) == DEADLINE


def left_behind(clock: Clock) -> Stragglers:
    """Return the times after a sum of a second that continued without C."""
    times = timed(clock, {A: 1.0, B: 1.0, C: 1.0})
    times.begin(question(2), (A, B, C))
    clock.now += 1.0
    times.answered(A)
    times.answered(B)
    seconds = times.patience((C,))
    assert seconds == FACTOR - 1.0
    clock.now += seconds
    late = times.leave_behind((C,))
    times.close()
    assert (late[C].seconds, late[C].median) == (FACTOR, 1.0)
    return times


def test_who_was_left_behind_rests_until_it_has_answered_and_the_run_can_afford_it() -> None:
    clock = Clock()
    times = left_behind(clock)
    assert times.pace.left_behind == (C,)
    for number in range(3, 100):
        play_sum(times, clock, {A: 1.0, B: 1.0}, number)
    assert times.owes(C)
    assert times.resting == {C}  # It still works; there is nothing to ask it.
    assert times.caught_up(C).seconds == clock.now - 1.0
    assert not times.owes(C)
    needed = MARGIN * (clock.now - 1.0) - FACTOR
    assert times.resting == {C}
    sums = 0
    while C in times.resting:
        play_sum(times, clock, {A: 1.0, B: 1.0}, 100 + sums)
        sums += 1
    # What is saved before is a share of the time that the first hundred sums took.
    assert sums == pytest.approx(needed / SHARE - 98, abs=12)


def test_who_comes_back_on_a_new_stream_owes_nothing_and_is_given_twice_the_time() -> None:
    clock = Clock()
    times = left_behind(clock)
    times.gone(C)
    assert not times.owes(C)
    number = 3
    while C in times.resting:
        play_sum(times, clock, {A: 1.0, B: 1.0}, number)
        number += 1
    times.begin(question(number), (A, B, C))
    clock.now += 1.0
    times.answered(A)
    times.answered(B)
    assert times.patience((C,)) == 2 * FACTOR - 1.0


def test_a_site_that_never_answers_costs_the_others_no_more_than_the_share() -> None:
    clock = Clock()
    times = left_behind(clock)
    rounds, began, tried = 0, clock.now, 0
    while rounds < 5000:
        times.gone(C)  # It reconnects after each sum, and answers none.
        rounds += 1
        if C in times.resting:
            play_sum(times, clock, {A: 1.0, B: 1.0}, 3 + rounds)
            continue
        tried += 1
        times.begin(question(3 + rounds), (A, B, C))
        clock.now += 1.0
        times.answered(A)
        times.answered(B)
        clock.now += times.patience((C,)) or 0.0
        times.leave_behind((C,))
        times.close()
    assert tried > 2
    assert rounds / (clock.now - began) >= 1.0 / (1.0 + SHARE) - 0.02


def test_a_site_that_is_quick_again_is_forgiven() -> None:
    clock = Clock()
    times = left_behind(clock)
    times.gone(C)
    while C in times.resting:
        play_sum(times, clock, {A: 1.0, B: 1.0}, int(clock.now) + 3)
    play_sum(times, clock, {A: 1.0, B: 1.0, C: 1.1}, 10_000)
    for number in range(10_001, 10_004):
        assert C not in times.resting
        play_sum(times, clock, {A: 1.0, B: 1.0, C: 1.1}, number)


def test_who_answers_just_within_the_shortest_patience_does_not_slow_short_rounds_for_long() -> None:
    """Rounds take a tenth of a second, and C answers after 1.9 seconds, always in time."""
    clock = Clock()
    times = timed(clock, {A: 0.1, B: 0.1, C: 0.1})
    began, rounds, with_c = clock.now, 20_000, 0
    for number in range(2, 2 + rounds):
        asked = (A, B) if C in times.resting else (A, B, C)
        times.begin(question(number), asked)
        start = clock.now
        clock.now += 0.1
        times.answered(A)
        times.answered(B)
        if C in asked:
            patience = times.patience((C,))
            assert patience is not None
            if patience >= 1.8:
                clock.now = start + 1.9
                times.answered(C)
                with_c += 1
            else:
                clock.now += patience
                times.leave_behind((C,))
        elif times.owes(C):
            times.caught_up(C)
        times.close()
    assert with_c > 100
    assert 0.1 * rounds / (clock.now - began) >= 0.7


def breaking(clock: Clock, every: float) -> Stragglers:
    """Return the times of a run in which C has lost its line some times, once in so many seconds."""
    times = timed(clock, {A: 0.01, B: 0.01, C: 0.01})
    for _ in range(FRAIL_BREAKS):
        clock.now += every
        times.gone(C)
    return times


def test_a_line_that_breaks_every_few_seconds_is_not_waited_for_and_one_that_breaks_now_and_then_is() -> None:
    clock = Clock()
    frail = breaking(clock, 6.0)
    assert not frail.is_waited_for(C)
    assert frail.is_waited_for(B)
    frail.begin(question(2), (A, B, C))
    assert (frail.patience((C,)), frail.patience((B, C))) == (FRAIL_MIN_SECONDS, MIN_SECONDS)
    clock.now += FRAIL_SECONDS
    assert frail.is_waited_for(C)
    assert breaking(Clock(), FRAIL_SECONDS + 1.0).is_waited_for(C)


def test_who_contributes_and_goes_away_again_costs_no_more_than_its_share() -> None:
    """Each round it answers, loses its line in the next one, and comes back just before it is given up."""
    clock, waited = Clock(), 0.0
    times = timed(clock, {A: 1.0, B: 1.0, C: 1.0})
    rounds, began = 2000, clock.now
    for number in range(2, 2 + rounds):
        times.begin(question(number), (A, B, C))
        clock.now += 1.0
        times.answered(A)
        times.answered(B)
        times.note_away((C,))
        if times.is_waited_for(C):
            clock.now += GRACE - 0.1
            waited += GRACE - 0.1
        times.note_away(())
        times.answered(C)
        times.close()
    assert waited > AWAY_WAITS * GRACE
    assert waited <= AWAY_SHARE * (clock.now - began) + (AWAY_WAITS + 1) * GRACE


def test_waiting_for_one_broken_line_takes_nothing_from_the_account_of_another() -> None:
    clock = Clock()
    times = timed(clock, {A: 1.0, B: 1.0, C: 1.0})
    times.begin(question(2), (A, B, C))
    times.note_away((C,))
    clock.now += AWAY_WAITS * GRACE
    times.close()
    # What the sum itself took is earned again, which is a tenth.
    assert times.is_waited_for(C)
    times.begin(question(3), (A, B, C))
    times.note_away((C,))
    clock.now += AWAY_WAITS * GRACE
    assert times.is_waited_for(C)  # Its account is settled when it is back, or the sum closes.
    times.note_away(())
    assert not times.is_waited_for(C)
    assert times.is_waited_for(B)


# ------------------------------------------------------------------ in a federation


def in_training(minimum: int | None = 2, rounds: int = 6) -> Play:
    """Return a federation of three in its second training sum, so that training answers were timed."""
    play = Play(plan_of(3, minimum, rounds))
    play.start(A, B, C)
    while play.asked[A].request.purpose is not Purpose.TRAINING or play.asked[A].request.round < 2:
        play.upload(*play.federation.waiting_for)
    return play


def test_a_sum_that_a_quorum_has_answered_goes_on_without_a_slow_site_and_says_so() -> None:
    play = in_training()
    number = play.asked[A].sum_number
    assert not any(token.kind is DeadlineKind.STRAGGLERS for token in play.deadlines)
    play.upload(A, B)
    effects = play.pass_deadline(DeadlineKind.STRAGGLERS)
    (left,) = of_kind(effects, events.LeftBehind)
    assert (left.participant, left.sum_number, play.accepted[number]) == (C, number, {A, B})
    # It still works, so it is not asked for the next sum; when it has answered, it is told apart from a liar.
    asked = of_kind(effects, events.SendSum)
    assert [one.participant for one in asked if isinstance(one, events.SendSum)] == [A, B]
    assert kinds(play.answer(C, number)) == ["CaughtUp"]


def test_a_slow_site_that_invents_a_sum_has_not_caught_up() -> None:
    play = in_training()
    play.upload(A, B)
    play.pass_deadline(DeadlineKind.STRAGGLERS)
    effects = play.tell(events.UploadArrived(C, SumNumber(play.federation.sum_number + 1), b""))
    assert kinds(effects)[0] == "Refuse"
    assert "CaughtUp" not in kinds(effects)


def questions_after_a_late_answer(*, answers: bool) -> dict[str, set[tuple[Purpose, int]]]:
    """Let C miss a sum by ten seconds; return what B and C are asked from then on: purposes and rounds."""
    play = in_training(rounds=6)
    number = play.asked[A].sum_number
    play.upload(A, B)
    play.seconds += 10.0
    play.pass_deadline(DeadlineKind.STRAGGLERS)
    if answers:
        play.answer(C, number)
    del play.asked[C]
    asked: dict[str, set[tuple[Purpose, int]]] = {"clinic-b": set(), "clinic-c": set()}
    while play.federation.phase is Phase.SUMMING:
        for who, questions in asked.items():
            if (one := play.asked.get(ParticipantId(who))) is not None:
                questions.add((one.request.purpose, one.request.round))
        play.seconds += 0.1
        play.upload(*(who for who in (A, B, C) if who in play.federation.waiting_for and who in play.asked))
    return asked


def test_in_the_last_round_every_site_that_has_answered_is_asked() -> None:
    asked = questions_after_a_late_answer(answers=True)
    of_last_round = {(Purpose.TRAINING, 6), (Purpose.EVALUATION, 6)}
    # The run cannot afford its ten seconds in four quick rounds, but it ends with all sites' records.
    assert asked["clinic-c"] == of_last_round < asked["clinic-b"]


def test_who_still_owes_an_answer_does_not_hold_up_the_end_of_the_run() -> None:
    assert questions_after_a_late_answer(answers=False)["clinic-c"] == set()


def test_a_sum_that_needs_every_site_waits_for_the_deadline_of_the_plan() -> None:
    play = in_training(minimum=None)
    play.upload(A, B)
    assert {token.kind for token in play.deadlines} == {DeadlineKind.SUM}


def test_a_site_whose_line_broke_keeps_the_grace_of_the_plan() -> None:
    play = in_training()
    play.upload(A)
    play.disconnect(C)
    assert "LeftBehind" not in kinds(play.upload(B))
    assert not any(token.kind is DeadlineKind.STRAGGLERS for token in play.deadlines)
    play.connect(C)
    assert any(token.kind is DeadlineKind.STRAGGLERS for token in play.deadlines)


def test_a_site_whose_streams_never_last_has_no_grace() -> None:
    (grace,) = of_kind(in_training().tell(events.Disconnected(C, steady=False)), events.SetDeadline)
    assert grace.seconds == 0


def test_a_slow_site_that_the_quorum_needs_is_asked_all_the_same() -> None:
    play = in_training()
    play.upload(A, B)
    play.pass_deadline(DeadlineKind.STRAGGLERS)
    play.disconnect(B)
    play.upload(A)
    play.pass_deadline(DeadlineKind.GRACE)
    assert (play.federation.phase, set(play.federation.waiting_for)) == (Phase.SUMMING, {A, C})


def test_a_site_whose_line_breaks_again_and_again_is_left_out_of_the_sum_and_asked_for_the_next() -> None:
    play = in_training()
    number = play.asked[A].sum_number
    for _ in range(FRAIL_BREAKS):
        play.disconnect(C)
        play.connect(C)
    play.disconnect(C)
    play.upload(A, B)
    (dropped,) = of_kind(play.pass_deadline(DeadlineKind.STRAGGLERS), events.Unawaited)
    assert (dropped.participant, dropped.sum_number, play.accepted[number]) == (C, number, {A, B})
    play.connect(C)
    play.upload(A, B)
    assert play.asked[C].sum_number > number + 1


def test_a_site_that_was_left_behind_on_a_dead_line_is_asked_again_when_its_new_stream_takes_the_place() -> None:
    play = in_training()
    play.upload(A, B)
    play.pass_deadline(DeadlineKind.STRAGGLERS)
    # The aggregator has not noticed that the old stream is dead, so nobody has told of its end.
    play.connect(C)
    assert not play.federation._run.late.times.owes(C)


@pytest.mark.parametrize("how", ["slow", "away"])
def test_no_sum_closes_with_fewer_than_the_quorum_whoever_is_late(how: str) -> None:
    """Whatever sites do to be left behind, no sum is opened for fewer sites than the plan allows."""
    play = in_training(minimum=2)
    for who in (B, C) if how == "away" else ():
        for _ in range(FRAIL_BREAKS):
            play.disconnect(who)
            play.connect(who)
    number = play.asked[A].sum_number
    play.upload(A)
    if how == "away":
        play.disconnect(B)
        play.disconnect(C)
    assert not any(token.kind is DeadlineKind.STRAGGLERS for token in play.deadlines)
    assert (play.accepted[number], play.federation.phase) == ({A}, Phase.SUMMING)
    assert play.federation.sum_number == number


def test_uploads_that_are_sent_again_do_not_shorten_the_time_that_training_is_given() -> None:
    play = MaskedPlay(make_plan(5, quorum=2, rounds=3))
    fatal = {1: {("clinic-a", Kind.UPLOAD), ("clinic-b", Kind.PAIR_MASKS)}, 2: {("clinic-c", Kind.UPLOAD)}}
    play.silent = lambda name, kind: (name, kind) in fatal.get(play.training_run.rounds_done, ())

    def trained(rounds_done: int) -> float:
        play.seconds += 20.0 if rounds_done < 2 else 0.0
        return 0.5

    play.size = trained
    play.begin()
    while play.training_run.rounds_done < 2:
        play.pass_deadline(next(reversed(play.deadlines)).kind)
    (patience,) = [seconds for token, seconds in play.deadlines.items() if token.kind is DeadlineKind.STRAGGLERS]
    assert patience > 20.0
