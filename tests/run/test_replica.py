"""A site's own copy of a run: opened sums move it, and nobody's word does."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.running_sum import Totals
from fedfair.errors import RemoteProtocolError
from fedfair.ids import RoundNumber
from fedfair.plan.schema import Plan
from fedfair.run.packed_state import pack_state
from fedfair.run.progress import FinalStage
from fedfair.run.replica import OutOfStepError, RunReplica, Unkept
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from fedfair.statistics.table import Purpose
from tests.held_terms import holding
from tests.run.test_training_run import DIMENSION, answer, make_plan, make_training_run

PLAN_DIGEST = bytes(range(32))
MEMBERS = ("a", "b")
RUN, ANOTHER_RUN = "0" * 32, "1" * 32


class Disk:
    """Remembers what it was told to keep, and knows what it is told that the site has answered."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, bytes]] = []
        self.answered: set[bytes] = set()

    def keep(self, run_id: str, state: RunState) -> None:
        self.kept.append((run_id, state.digest(PLAN_DIGEST)))

    def settle(self) -> None:
        """Do nothing: this memory needs no disk."""

    def has_held(self, digest: bytes) -> bool:
        return digest in self.answered


class Pair:
    """An aggregator's run and a site's copy of it, which begins where the plan says."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan = plan or make_plan()
        self.run = make_training_run(self.plan)
        self.disk = Disk()
        self.copy = RunReplica(make_training_run(self.plan), PLAN_DIGEST, self.disk)
        self.copy.join(RUN)

    @property
    def present(self) -> bytes:
        return self.run.state.digest(PLAN_DIGEST)

    def open_sum(self, *, told: bool = True) -> None:
        """Let the aggregator open the sum that is due, and tell the site of it or not."""
        request = self.run.next_sum()
        assert request is not None
        totals = answer(request, self.plan)
        self.run.apply_aggregate(totals, MEMBERS)
        if told:
            self.copy.apply(totals, MEMBERS)

    def come_to(self, purpose: Purpose, round_number: int) -> None:
        """Continue, both, until this sum is due."""
        while (request := self.run.next_sum()) is not None:
            if (request.purpose, request.round) == (purpose, round_number):
                return
            self.open_sum()
        raise AssertionError("the run has no such sum")


def packed(state: RunState) -> bytes:
    return b"".join(pack_state(state))


def with_another_model(state: RunState) -> RunState:
    return replace(state, model=replace(state.model, vector=np.full(DIMENSION, 7.0)))


# ------------------------------------------------------------------ requests


@pytest.mark.parametrize("output", ["last", "average", "best"])
def test_a_copy_that_is_told_every_sum_ends_where_the_aggregator_ends(output: str) -> None:
    pair = Pair(make_plan(output=output, standardize="secure", method="exact"))
    while (request := pair.run.next_sum()) is not None:
        assert pair.copy.request(pair.present) == request
        pair.open_sum()
        assert pair.copy.digest == pair.present
    assert pair.copy.finish()
    assert pair.copy.training_run.result() == pair.run.result()


def test_a_request_about_any_other_state_than_the_sites_own_is_refused_and_changes_nothing() -> None:
    pair = Pair()
    pair.come_to(Purpose.TRAINING, 2)
    held = pair.copy.state
    others = (
        with_another_model(held),
        replace(held, stage=Purpose.EVALUATION),
        replace(held, rounds_done=RoundNumber(0)),
        replace(held, model=replace(held.model, threshold=0.75)),
        holding(held, clip=9.0),
        pair.run.initial,
    )
    for state in others:
        with pytest.raises(OutOfStepError, match="a request about state"):
            pair.copy.request(state.digest(PLAN_DIGEST))
    with pytest.raises(OutOfStepError):
        pair.copy.request(held.digest(bytes(32)))  # the same state of another plan
    assert pair.copy.state is held


def test_a_finished_run_is_asked_for_nothing() -> None:
    pair = Pair()
    while pair.run.next_sum() is not None:
        pair.open_sum()
    with pytest.raises(OutOfStepError):
        pair.copy.request(pair.present)


def test_an_evaluation_that_was_left_out_is_found_by_the_digest_of_the_next_request() -> None:
    pair = Pair()
    pair.come_to(Purpose.EVALUATION, 2)
    pair.run.skip("2 of 3 came")
    request = pair.copy.request(pair.present)
    assert (request.purpose, request.round, pair.copy.digest) == (Purpose.TRAINING, 3, pair.present)
    assert (pair.copy.state.left_out, pair.disk.kept[-1]) == ((2,), (RUN, pair.present))


def test_a_sum_that_the_run_cannot_do_without_is_never_taken_for_left_out() -> None:
    pair = Pair()
    pair.come_to(Purpose.TRAINING, 2)
    with pytest.raises(OutOfStepError):
        pair.copy.request(replace(pair.copy.state, left_out=(RoundNumber(1),)).digest(PLAN_DIGEST))


def both_left_out(output: str = "best") -> Pair:
    """Return a run that lost its last evaluation and waits for the exact one; a site saw neither."""
    pair = Pair(make_plan(output=output, method="exact"))
    pair.come_to(Purpose.EVALUATION, 3)
    pair.run.skip("nobody came")
    assert pair.run.state.stage is Purpose.EXACT_EVALUATION
    return pair


def test_a_site_that_saw_neither_of_two_evaluations_left_out_at_the_end_has_seen_the_run_to_its_end() -> None:
    pair = both_left_out()
    pair.run.skip("nobody came")
    assert pair.run.state.stage is FinalStage.FINISHED
    assert pair.copy.finish()
    assert pair.copy.digest == pair.present


def test_a_site_follows_two_evaluations_that_were_left_out_when_others_vouch_for_what_came_of_it() -> None:
    pair = both_left_out()
    pair.run.skip("nobody came")
    pair.copy.take_vouched(pair.present)
    assert pair.copy.state.stage is FinalStage.FINISHED


def test_a_run_that_stopped_before_its_last_rounds_is_not_finished() -> None:
    pair = Pair()
    pair.come_to(Purpose.EVALUATION, 2)
    held = pair.copy.state
    assert not pair.copy.finish()
    assert pair.copy.state is held


# ------------------------------------------------------------------ sums


def test_a_sum_that_cannot_be_right_leaves_the_copy_as_it_was() -> None:
    pair = Pair()
    pair.come_to(Purpose.TRAINING, 1)
    held, kept = pair.copy.state, list(pair.disk.kept)
    with pytest.raises(RemoteProtocolError):
        pair.copy.apply(Totals(np.array([0.0, 0.0]), np.zeros(DIMENSION), 2), MEMBERS)
    assert pair.copy.state is held
    assert pair.disk.kept == kept


def test_every_move_is_kept() -> None:
    pair = Pair()
    pair.open_sum()
    pair.open_sum()
    assert ([run for run, _ in pair.disk.kept], pair.disk.kept[-1][1]) == ([RUN] * 3, pair.present)


# ------------------------------------------------------------------ states of others


def missed() -> Pair:
    """Return a pair of which the site has missed two sums."""
    pair = Pair()
    pair.come_to(Purpose.TRAINING, 1)
    pair.open_sum(told=False)
    pair.open_sum(told=False)
    return pair


def test_a_state_that_was_sent_is_taken_only_once_it_is_vouched_for() -> None:
    pair = missed()
    held = pair.copy.state
    pair.copy.offer(packed(pair.run.state))
    assert pair.copy.state is held
    with pytest.raises(OutOfStepError):
        pair.copy.request(pair.present)
    pair.copy.take_vouched(pair.present)
    assert (pair.copy.digest, pair.disk.kept[-1]) == (pair.present, (RUN, pair.present))


def test_another_state_than_the_one_vouched_for_is_not_taken_and_not_kept_for_later() -> None:
    pair = missed()
    held, lie = pair.copy.state, with_another_model(pair.run.state)
    pair.copy.offer(packed(lie))
    with pytest.raises(OutOfStepError, match="was sent no copy of theirs"):
        pair.copy.take_vouched(pair.present)
    assert pair.copy.state is held
    with pytest.raises(OutOfStepError):
        pair.copy.take_vouched(lie.digest(PLAN_DIGEST))  # the offer is forgotten


def test_a_site_that_is_vouched_into_its_own_state_stays_and_forgets_what_was_sent() -> None:
    pair = missed()
    held = pair.copy.state
    pair.copy.offer(packed(pair.run.state))
    pair.copy.take_vouched(pair.copy.digest)
    with pytest.raises(OutOfStepError):
        pair.copy.take_vouched(pair.present)
    assert pair.copy.state is held


def test_a_state_about_which_this_site_has_answered_is_taken_at_once() -> None:
    pair = missed()
    pair.disk.answered.add(pair.present)
    pair.copy.offer(packed(pair.run.state))
    assert pair.copy.digest == pair.present


def test_the_beginning_that_the_plan_gives_is_taken_at_once() -> None:
    pair = missed()
    pair.open_sum(told=False)
    pair.copy.offer(packed(pair.run.initial))
    assert pair.copy.digest == pair.run.initial.digest(PLAN_DIGEST)


def test_where_the_plan_trusts_the_aggregator_its_word_is_taken_once() -> None:
    pair = missed()
    pair.copy.offer(packed(pair.run.state))
    pair.copy.trust()
    assert pair.copy.digest == pair.present
    held = pair.copy.state
    pair.copy.trust()
    assert pair.copy.state is held


def test_a_site_without_a_memory_believes_no_state_to_be_its_own() -> None:
    copy = RunReplica(make_training_run(make_plan()), PLAN_DIGEST, Unkept())
    copy.offer(packed(missed().run.state))
    assert copy.state is copy.training_run.initial


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_damaged_state_is_refused_in_words_or_offered_and_never_taken(data: st.DataObject) -> None:
    pair = missed()
    held, raw = pair.copy.state, bytearray(packed(pair.run.state))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(OutOfStepError):
        pair.copy.offer(bytes(raw))
    assert pair.copy.state is held


# ------------------------------------------------------------------ runs


def test_another_run_begins_at_the_plan_and_forgets_what_was_sent_before() -> None:
    pair = missed()
    pair.copy.offer(packed(pair.run.state))
    pair.copy.join(ANOTHER_RUN)
    assert pair.copy.state is pair.copy.training_run.initial
    assert pair.disk.kept[-1] == (ANOTHER_RUN, pair.copy.digest)
    with pytest.raises(OutOfStepError):
        pair.copy.take_vouched(pair.present)


def test_joining_the_same_run_again_changes_nothing() -> None:
    pair = Pair()
    pair.open_sum()
    held, kept = pair.copy.state, list(pair.disk.kept)
    pair.copy.join(RUN)
    assert pair.copy.state is held
    assert pair.disk.kept == kept


def test_a_new_process_goes_on_where_the_one_before_it_was() -> None:
    pair = Pair()
    pair.come_to(Purpose.TRAINING, 2)
    copy = RunReplica(make_training_run(pair.plan), PLAN_DIGEST, Unkept())
    copy.restore(RUN, pair.copy.state)
    copy.join(RUN)
    assert copy.request(pair.present) == pair.run.next_sum()


def test_a_run_that_evaluates_a_saved_model_asks_for_its_evaluation_and_nothing_else() -> None:
    run = make_training_run(make_plan())
    run.resume_at(0.25, RoundNumber(3), None, None)
    copy = RunReplica(run, PLAN_DIGEST, Unkept())
    copy.join(RUN)
    request = copy.request(run.state.digest(PLAN_DIGEST))
    assert (request.purpose, request.round) == (Purpose.EVALUATION, 3)
    whole: TrainingRun = make_training_run(make_plan())
    with pytest.raises(OutOfStepError):
        copy.request(whole.state.digest(PLAN_DIGEST))
