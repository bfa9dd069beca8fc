"""What a site lacks to be at the aggregator's state: nothing, one sum, or the whole state."""

import ast
from pathlib import Path

import pytest

from fedfair.ids import ParticipantId
from fedfair.rounds import events
from fedfair.rounds.exit_reasons import TRY_AGAIN, ExitReason
from fedfair.rounds.slowness.steadiness import LASTING_SECONDS, PROBATION_SECONDS, SHORT_STREAMS, Steadiness
from fedfair.rounds.state_steps import LastOpened, StateSteps
from fedfair.run.opened_totals import decode_totals
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.recovery import Announcement
from tests.run.test_training_run import answer, make_plan, make_training_run
from tests.trees import nodes

PLAN_DIGEST = bytes(range(32))
A, B, C = (ParticipantId(f"clinic-{letter}") for letter in "abc")
PLAN = make_plan()


class Steps:
    """A continued run sum by sum, and what its aggregator notes of it."""

    def __init__(self, *, masked: bool = False, last: LastOpened | None = None) -> None:
        self.run: TrainingRun = make_training_run(PLAN)
        self.masked = masked
        self.steps = StateSteps(self.run, PLAN_DIGEST, last, masked=masked)
        self.digests = [self.steps.present]

    def open_sum(self, told: tuple[ParticipantId, ...] = (A, B)) -> LastOpened:
        request, before = self.run.next_sum(), self.steps.present
        assert request is not None
        totals = answer(request, PLAN)
        self.run.apply_aggregate(totals, told)
        if self.masked:
            last = LastOpened.under_masks(before, Announcement(b"opened", b"words"), told)
        else:
            last = LastOpened.in_the_clear(before, totals, told)
        self.steps.moved(last)
        self.digests.append(self.steps.present)
        return last


def test_before_the_first_sum_every_site_at_the_beginning_is_in_step() -> None:
    steps = Steps().steps
    assert steps.initial == steps.present
    assert steps.is_present(steps.initial)
    assert steps.lacks(A, steps.initial) is None
    assert steps.reaches(A, steps.initial)
    assert not steps.reaches(A, bytes(32))


def test_a_site_that_is_one_sum_behind_is_told_that_sum() -> None:
    run = Steps()
    last = run.open_sum()
    for participant in (A, B, C):  # In the clear anybody can take it.
        assert run.steps.lacks(participant, run.digests[0]) is last
        assert run.steps.reaches(participant, run.digests[0])
    assert run.steps.lacks(A, run.digests[1]) is None


def test_a_site_that_is_two_sums_behind_or_elsewhere_needs_the_state() -> None:
    run = Steps()
    run.open_sum()
    run.open_sum()
    for held in (run.digests[0], b"", bytes(32)):
        assert run.steps.lacks(A, held) is None
        assert not run.steps.reaches(A, held)


def test_under_masks_only_who_was_in_the_round_can_check_its_sum() -> None:
    run = Steps(masked=True)
    last = run.open_sum()
    assert run.steps.lacks(A, run.digests[0]) is last
    assert run.steps.lacks(C, run.digests[0]) is None
    assert not run.steps.reaches(C, run.digests[0])
    assert run.steps.reaches(C, run.digests[1])


def test_the_digest_follows_an_evaluation_that_was_left_out_and_who_saw_the_sum_before_it_is_in_step() -> None:
    run = Steps()
    for _ in range(3):  # An evaluation, and two rounds.
        run.open_sum()
    run.run.skip("nobody came")
    assert run.steps.present != run.digests[-1]
    assert run.steps.is_present(run.digests[-1])
    assert run.steps.lacks(A, run.digests[-1]) is None
    last = run.steps.last
    assert last is not None
    assert run.steps.lacks(A, run.digests[-2]) is last  # Its request tells the site of the rest.


def test_the_last_sum_outlives_the_process_that_opened_it() -> None:
    before = Steps()
    last = before.open_sum()
    after = StateSteps(before.run, PLAN_DIGEST, last, masked=False)
    assert after.lacks(A, before.digests[0]) is last
    assert after.initial == before.digests[0]


@pytest.mark.parametrize("masked", [False, True])
def test_a_sum_of_a_run_under_other_masks_is_not_told(masked: bool) -> None:
    assert Steps(masked=not masked, last=Steps(masked=masked).open_sum()).steps.last is None


def test_the_telling_in_the_clear_is_the_opened_totals_about_the_state_before() -> None:
    run = Steps()
    request, told = run.run.next_sum(), run.open_sum().effect(B)
    opened = decode_totals(told.totals, request.spec)
    assert (told.participant, opened.state, opened.members) == (B, run.digests[0], (A, B))


def test_the_telling_under_masks_is_the_message_of_secure_aggregation_with_its_vector() -> None:
    assert Steps(masked=True).open_sum().effect(A) == events.SendMessage(A, b"opened", b"words")


# ---------------------------------------------------------------- whose streams last

FIRST, SECOND = ParticipantId("clinic-a"), ParticipantId("clinic-b")


def flapping() -> Steadiness:
    streams = Steadiness()
    for _ in range(SHORT_STREAMS):
        assert streams.seconds_until_heard(FIRST) == 0.0
        streams.ended(FIRST, 0.1, contributed=False)
    return streams


def test_who_only_comes_and_goes_is_heard_later_and_nobody_waits_for_it() -> None:
    streams = flapping()
    assert streams.seconds_until_heard(FIRST) == PROBATION_SECONDS
    assert not streams.is_steady(FIRST)
    assert streams.is_steady(SECOND)


def test_one_stream_that_lasts_makes_up_for_all_short_ones() -> None:
    streams = flapping()
    streams.ended(FIRST, LASTING_SECONDS, contributed=False)
    assert streams.seconds_until_heard(FIRST) == 0.0


def test_a_bad_line_that_carries_a_contribution_now_and_then_stays_steady() -> None:
    streams = Steadiness()
    for number in range(100):
        streams.ended(FIRST, 6.0, contributed=bool(number % 2))
        assert streams.is_steady(FIRST)


SOURCES = Path(__file__).resolve().parents[2]

FINAL = {ExitReason.FINISHED, ExitReason.NOT_ADMITTED, ExitReason.MISBEHAVED, ExitReason.REPLACED}
"""What nobody mends by waiting: another plan, a revoked or removed site, a broken protocol, a second process."""


@pytest.mark.parametrize("reason", ExitReason)
def test_a_site_tries_again_after_everything_that_an_operator_can_mend(reason: ExitReason) -> None:
    assert TRY_AGAIN[reason] == (reason not in FINAL)


def test_nobody_but_the_table_decides_whether_a_site_tries_again() -> None:
    stated = [
        f"{place}:{keyword.lineno}"
        for place, keyword in nodes(ast.keyword)
        if place.startswith(("aggregator/", "fedfair/rounds/"))
        if keyword.arg == "try_again" and isinstance(keyword.value, ast.Constant | ast.Compare)
    ]
    assert not stated
