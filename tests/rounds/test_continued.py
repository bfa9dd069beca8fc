from __future__ import annotations

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.aggregation.running_sum import PlainSum
from fedfair.errors import FedfairError
from fedfair.ids import SumNumber
from fedfair.plan.schema import Plan
from fedfair.rounds import events
from fedfair.rounds.continued import (
    BLOCK_BITS,
    EPOCH_SECONDS,
    MAX_NUMBER,
    NOTHING_SEEN,
    Continued,
    Seen,
    first_block,
)
from fedfair.rounds.events import DeadlineKind, UnfinishedSum
from fedfair.rounds.exit_reasons import TRY_AGAIN, ExitReason
from fedfair.rounds.federation import Federation
from fedfair.rounds.phases import Phase
from fedfair.rounds.secagg_session import SecaggSession
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.messages import Kind
from fedfair.wire.limits import MAX_SUM_NUMBER
from tests.rounds.masked_play import LAYOUT, PLAN_DIGEST, SCHEMA, make_plan
from tests.rounds.masked_play import Play as MaskedPlay
from tests.rounds.rounds_play import Play, plan_of
from tests.rounds.test_federation import A, B, C, of_kind

RUN = "0f" * 16
CONTINUED = Continued(RUN, 40, tolerated=1, vouchers=2)
NOW = 1_800_000_000.0


def seen(rounds_done: int, number: int = 1, run_id: str = RUN) -> Seen:
    return Seen(SumNumber(number), run_id, rounds_done)


# ------------------------------------------------------------------ sum numbers


def test_numbers_fit_on_the_wire() -> None:
    assert MAX_NUMBER == MAX_SUM_NUMBER
    assert 0 < first_block((EPOCH_SECONDS + 68 * 365.25 * 86400), SumNumber(0)) < MAX_SUM_NUMBER


def test_a_clock_beyond_the_numbers_is_refused() -> None:
    with pytest.raises(FedfairError, match="beyond the year 2088"):
        first_block(EPOCH_SECONDS + 2**33, SumNumber(0))


@given(st.lists(st.floats(0, 3.7e9), min_size=1, max_size=20))
def test_every_start_begins_above_all_numbers_before_whatever_the_clock_says(clock: list[float]) -> None:
    last = SumNumber(0)
    for seconds in clock:
        block = first_block(seconds, last)
        assert block > last
        # A process makes far fewer sums than this; the next one begins above them.
        last = SumNumber(block + 1000)


def test_numbers_grow_with_the_clock_also_where_an_old_journal_was_restored() -> None:
    backup = first_block(NOW, SumNumber(0))
    lost = first_block(NOW + 60, backup)
    assert first_block(NOW + 120, backup) > lost + (1 << BLOCK_BITS)


# ------------------------------------------------------------------ what sites say


def test_as_many_sites_as_may_collude_are_not_believed_and_one_more_is() -> None:
    assert CONTINUED.vouched_lead({A: seen(100), B: NOTHING_SEEN, C: NOTHING_SEEN}) == 0
    assert CONTINUED.leads({A: seen(100), B: NOTHING_SEEN}) == {A: 60}
    # A liar among those who vouch cannot make the lead larger than an honest site says.
    assert CONTINUED.vouched_lead({A: seen(2**31 - 1), B: seen(100), C: NOTHING_SEEN}) == 60


def test_another_run_and_what_a_crash_costs_are_no_lead() -> None:
    assert CONTINUED.leads({A: seen(100, run_id="1e" * 16), B: seen(41), C: seen(40)}) == {}


def tell(play: Play, *said: tuple[events.ParticipantId, Seen]) -> None:
    play.tell(events.Started())
    for who, seen_before in said:
        play.tell(events.Connected(who, b"", seen_before))


def test_a_restored_journal_stops_the_run_before_anything_is_summed() -> None:
    play = Play(plan_of(minimum=2), continued=CONTINUED)
    tell(play, (A, seen(100)), (B, seen(100)), (C, seen(99)))
    abort = play.effects[-1]
    assert abort.why is ExitReason.RESTORED
    assert "the sites are ahead by 60 rounds" in abort.reason
    assert "--after-restore continue" in abort.remedy
    assert not of_kind(play.effects, events.SendSum)
    assert play.federation.phase is Phase.ABORTED


def test_a_restored_journal_is_continued_where_the_operator_says_so() -> None:
    going_on = Continued(RUN, 40, tolerated=1, vouchers=2, repeats_rounds=True)
    play = Play(plan_of(minimum=2), last_sum_number=7, continued=going_on)
    tell(play, (A, seen(100, 900)), (B, seen(100, 800)), (C, NOTHING_SEEN))
    assert of_kind(play.effects, events.SitesAhead) == [events.SitesAhead({A: 60, B: 60}, 60)]
    # Above every number that an honest site can have seen; a liar alone would have moved it no further.
    assert (play.federation.sum_number, play.federation.phase) == (801, Phase.SUMMING)


def test_one_site_alone_stops_nothing_and_the_operator_is_told() -> None:
    play = Play(plan_of(minimum=2), last_sum_number=7, continued=CONTINUED)
    tell(play, (A, seen(100, 2**62)), (B, NOTHING_SEEN), (C, NOTHING_SEEN))
    assert of_kind(play.effects, events.SitesAhead) == [events.SitesAhead({A: 60}, 0)]
    assert play.federation.sum_number == 8


# ------------------------------------------------------------------ waiting


def test_a_continued_run_waits_for_a_quorum_and_the_grace_of_the_others() -> None:
    play = Play(plan_of(minimum=2), continued=CONTINUED)
    play.start(A, B)
    assert DeadlineKind.SETTLE in {token.kind for token in play.deadlines}
    play.pass_deadline(DeadlineKind.SETTLE)
    assert set(play.asked) == {A, B}


def test_a_continued_run_begins_at_once_with_all_sites() -> None:
    play = Play(plan_of(minimum=2), continued=CONTINUED)
    play.start(A, B, C)
    assert play.federation.phase is Phase.SUMMING
    assert events.Checkpoint(events.CheckpointKind.INITIAL) not in play.effects


# ------------------------------------------------------------------ nothing is decided before the comparison

GOING_ON = Continued(RUN, 40, tolerated=1, vouchers=2, repeats_rounds=True)


def interrupted_evaluation() -> tuple[Plan, UnfinishedSum, TrainingRun]:
    """Return a plan, an evaluation of it that nobody has opened yet, and the run before that."""
    played = MaskedPlay(make_plan(3, rounds=2, every=1))
    kept: list[UnfinishedSum] = []
    played.silent = lambda _, kind: kind is Kind.UNMASK_SHARES and played.training_run.rounds_done == 1
    played.begin()
    kept += [effect.unfinished for effect in played.effects if isinstance(effect, events.SaveUnfinished)]
    return played.plan, kept[-1], played.training_run


def restored(continued: Continued) -> MaskedPlay:
    """Return a process that begins with a journal in which an evaluation is interrupted."""
    plan, unfinished, training_run = interrupted_evaluation()
    play = MaskedPlay(plan)
    play.training_run.restore(training_run.snapshot())
    protection = SecaggSession(plan, PLAN_DIGEST, LAYOUT, SCHEMA, secrets.token_bytes, lambda: 0.0)
    play.federation = Federation(
        plan, play.training_run, PlainSum, PLAN_DIGEST, protection=protection, continued=continued,
        unfinished=unfinished,
    )  # fmt: skip
    play.tell(events.Started())
    return play


def test_an_interrupted_evaluation_is_not_omitted_before_a_site_was_heard() -> None:
    play = restored(GOING_ON)
    before = play.training_run.state
    assert play.training_run.may_skip
    play.pass_deadline(DeadlineKind.JOIN)
    assert play.training_run.state is before, "a state was made that no site has ever held"
    assert of_kind(play.effects, events.Skipped) == []
    abort = play.effects[-1]
    assert abort.why is ExitReason.QUORUM_MISSING


def test_a_sum_that_the_sites_have_left_behind_is_asked_for_as_a_new_one() -> None:
    play = restored(GOING_ON)
    for who in play.names:
        play.copies[who].restore(RUN, play.training_run.state)
        play.tell(events.Connected(who, b"", seen(100), play.copies[who].digest))
    assert of_kind(play.effects, events.SitesAhead)[0].rounds == 60
    asked = of_kind(play.effects, events.SendSum)
    assert {ask.participant for ask in asked} == set(play.names)
    assert of_kind(play.effects, events.Skipped) == []


def test_rounds_that_sites_remember_are_never_repeated_and_the_sites_wait() -> None:
    why = "its rounds cannot be repeated"
    play = Play(plan_of(minimum=2), continued=Continued(RUN, 40, 1, 2, repeats_rounds=True, cannot_repeat=why))
    tell(play, (A, seen(100)), (B, seen(100)), (C, seen(100)))
    abort = play.effects[-1]
    assert abort.why is ExitReason.RESTORED
    assert TRY_AGAIN[abort.why]
    assert why in abort.reason
    assert "--after-restore" not in abort.remedy
    assert "the sites wait" in abort.remedy
    assert not of_kind(play.effects, events.SendSum)
