"""Every site replays a masked run: by the sums that it has checked, and by states for which others vouch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfair.ids import ParticipantId
from fedfair.rounds import events
from fedfair.rounds.phases import Phase
from fedfair.run.state import RunState
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.messages import Kind
from fedfair.statistics.table import Purpose
from tests.rounds.masked_play import Kept, Play, make_plan


@pytest.mark.parametrize("ring_bits", [16, 24, 32])
@pytest.mark.parametrize("output", ["last", "average", "best"])
def test_every_site_replays_the_run_and_ends_with_the_result_of_the_aggregator(
    output: str, ring_bits: int
) -> None:
    plan = make_plan(4, quorum=3, rounds=4, every=2, standardize="secure", ring_bits=ring_bits)
    play = Play(plan.model_copy(update={"training": plan.training.model_copy(update={"output": output})}))
    play.begin()
    assert play.federation.phase is Phase.FINISHED
    assert play.is_in_step()
    results = [copy.training_run.result() for copy in play.copies.values()]
    assert results == [play.training_run.result()] * 4
    assert not [effect for effect in play.effects if isinstance(effect, events.SendState)]


def states_sent(play: Play) -> list[ParticipantId]:
    return [effect.participant for effect in play.effects if isinstance(effect, events.SendState)]


def test_a_site_whose_upload_came_too_late_is_told_the_sum_and_stays_in_step() -> None:
    play = Play(make_plan(4, quorum=3, rounds=4))
    play.silent = lambda name, kind: (
        name == "clinic-d" and kind is Kind.UPLOAD and play.training_run.rounds_done in {1, 2}
    )
    play.begin()
    while play.federation.phase is Phase.SUMMING:
        play.pass_deadline(next(iter(play.deadlines)).kind)
    assert play.federation.phase is Phase.FINISHED
    assert play.is_in_step()
    assert states_sent(play) == []
    assert play.set_ups() == 1


A, D = ParticipantId("clinic-a"), ParticipantId("clinic-d")


def at_a_halt_in_round_three() -> Play:
    """Return a run in which clinic-d left in round 2, and clinic-a keeps round 3 from its quorum."""
    play = Play(make_plan(4, quorum=3, rounds=4))
    play.silent = lambda name, kind: (
        kind is Kind.UPLOAD and (name, play.training_run.rounds_done) in {(D, 1), (A, 2)}
    )
    play.begin()
    play.tell(events.Disconnected(D))
    play.pass_deadline(events.DeadlineKind.GRACE)
    assert play.training_run.rounds_done == 2
    assert play.copies[D].state.rounds_done == 1
    play.silent = lambda _name, _kind: False
    return play


def without_its_disk(play: Play, name: ParticipantId) -> None:
    play.disks[name] = Kept()
    play.copies[name], play.sites[name] = play.copy(name), play.site(name)


@pytest.mark.parametrize(
    ("is_new", "sent"),
    # The same process has entered round 2 and can check its sum. Clinic-a is left out of the repeated round 3.
    [(False, [A]), (True, [D, A])],
    ids=["the same process", "a new process without its disk"],
)
def test_a_site_that_missed_sums_is_told_the_one_it_can_check_or_takes_the_state_that_the_others_vouch_for(
    is_new: bool, sent: list[ParticipantId]
) -> None:
    play = at_a_halt_in_round_three()
    if is_new:
        without_its_disk(play, D)
    play.connect(D)
    assert states_sent(play) == []
    play.pass_deadline(events.DeadlineKind.SUM)
    assert play.federation.phase is Phase.FINISHED
    assert states_sent(play) == sent
    assert play.is_in_step()
    reports = [effect.progress for effect in play.effects if isinstance(effect, events.Report)]
    trained = [(p.round, p.contributors) for p in reports if p.purpose is Purpose.TRAINING]
    assert trained == [(1, 4), (2, 3), (3, 3), (4, 4)]


def test_a_state_for_which_nobody_vouches_is_taken_by_no_site() -> None:
    play = at_a_halt_in_round_three()
    without_its_disk(play, D)
    held, honest = play.copies[D].state, play.received

    def lying(event: events.Event) -> list[tuple[events.Effect, RunState]]:
        model = replace(held.model, vector=np.full(5, 7.0))
        return [(effect, replace(state, model=model)) for effect, state in honest(event)]

    play.received = lying  # type: ignore[method-assign]  # an aggregator that sends a state of its own
    play.connect(D)
    with pytest.raises(SecaggError) as refusal:
        play.pass_deadline(events.DeadlineKind.SUM)
    assert refusal.value.check is Check.STATE
    assert "was sent no copy of theirs" in refusal.value.message
    assert play.copies[D].state is held
