"""Replay equals aggregator equals simulation: every site comes to the aggregator's states, whatever happens."""

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.schema import Plan
from fedfair.rounds import events
from fedfair.rounds.phases import Phase
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.messages import Kind
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.simulate import play as simulated
from fedfair.statistics.table import Purpose
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from tests.rounds.masked_play import Kept, Play, make_plan
from tests.rounds.replayed_play import NAMES, ReplayedPlay, Site, plan_of

CALM_ROUNDS = 3
"""Rounds at the end in which nothing goes wrong any more, so that every site can hear of the last sum."""


class Chaos:
    """Plays a run in an order, and with accidents, that a seed decides.

    Args:
        play: the run.
        seed: of everything that happens.
        accidents: how probable one is, at each step.
        patient: whether every site is waited for, and heard in the plan's order: then every sum is over all sites,
            and numbers are added in one order.
    """

    def __init__(self, play: ReplayedPlay, seed: int, accidents: float, *, patient: bool = False) -> None:
        self.play, self.accidents, self.patient = play, accidents, patient
        self.random = play.random = random.Random(seed)  # noqa: S311 - an order, not a secret

    def to_the_end(self, most_steps: int) -> None:
        """Play until the run is finished, and every site has heard what was said."""
        play = self.play
        for _ in range(most_steps):
            if play.federation.phase is Phase.FINISHED:
                break
            self.step()
        assert play.federation.phase is Phase.FINISHED
        while busy := [site for site in play.sites.values() if self.may_hear(site)]:
            self.hear(self.random.choice(busy))

    def step(self) -> None:
        """Let one thing happen."""
        play, calm = self.play, self.is_calm
        absent = [site for site in play.sites.values() if not site.connected]
        if absent and self.patient:
            absent[0].connect()
        elif not calm and self.random.random() < self.accidents:
            self.accident()
        elif absent and (calm or self.random.random() < 0.1):
            self.random.choice(absent).connect()
        elif busy := [site for site in play.sites.values() if self.may_hear(site) or self.may_tell(site)]:
            self.advance(self.random.choice(busy))
        elif absent and self.random.random() < 0.8:
            self.random.choice(absent).connect()
        else:
            self.let_a_deadline_pass()

    @property
    def is_calm(self) -> bool:
        """Return whether nothing may go wrong any more."""
        return self.play.plan.training.rounds - self.play.training_run.rounds_done <= CALM_ROUNDS

    def may_hear(self, site: Site) -> bool:
        """Return whether something waits for a site."""
        return site.may_listen or len(site.mailbox) > 0

    def may_tell(self, site: Site) -> bool:
        """Return whether the aggregator can hear of a site now."""
        if not site.said:
            return False
        waited_for = self.play.federation.waiting_for
        in_turn = not self.patient or waited_for[:1] == (site.name,)
        return in_turn or not isinstance(site.said[0], events.UploadArrived)

    def advance(self, site: Site) -> None:
        """Let a site hear, or the aggregator hear of it."""
        if self.may_tell(site) and (self.random.random() < 0.5 or not self.may_hear(site)):
            self.play.tell(site.said.popleft())
        else:
            self.hear(site)

    def hear(self, site: Site) -> None:
        """Let a site's mailbox take something, or the site work on what it has taken."""
        if site.may_listen and (self.random.random() < 0.7 or not len(site.mailbox)):
            site.listen()
        else:
            site.work()

    def let_a_deadline_pass(self) -> None:
        """Let the deadline pass that matters least; that of joining may end the run, until it is started again."""
        tokens = sorted(
            self.play.deadlines, key=lambda token: (token.kind is events.DeadlineKind.JOIN, str(token))
        )
        assert tokens
        self.play.pass_deadline(tokens[0])

    def accident(self) -> None:
        """Break a stream, kill a process, lose a file, or lose patience."""
        play, kinds = self.play, ("break", "break", "kill", "kill", "lose", "again", "patience")
        kind = self.random.choice((*kinds, "aggregator", "before writing", "amid sending"))
        connected = [site for site in play.sites.values() if site.connected]
        happened = play.counts.happened
        if kind == "aggregator":
            play.restart()
        elif kind in ("before writing", "amid sending"):
            play.breaks = kind
        elif kind == "patience" and play.deadlines:
            if not self.patient:
                self.let_a_deadline_pass()
        elif connected and kind == "again":
            happened["streams opened again"] += 1
            self.random.choice(connected).connect()
        elif connected:
            site = self.random.choice(connected)
            self.cut(site)
            if kind != "break":
                self.kill(site, loses=kind == "lose")

    def cut(self, site: Site) -> None:
        """Break a site's stream."""
        self.play.counts.happened["streams broken"] += 1
        site.forget()
        site.connected = False
        self.play.tell(events.Disconnected(site.name))

    def kill(self, site: Site, *, loses: bool) -> None:
        """Kill a site's process; it begins where it was, but for a file that a failure of power has damaged."""
        play, before = self.play, site.digest
        others = [each for each in play.sites.values() if each is not site]
        # Members vouch for a state where enough of them hold it.
        loses = loses and site.kept.exists() and all(each.digest == play.digest for each in others)
        if loses:
            site.kept.write_bytes(site.kept.read_bytes()[: self.random.randrange(100)])
            play.counts.happened["states of sites lost"] += 1
        site.restart()
        play.counts.happened["restarts of sites"] += 1
        assert loses or site.digest == before
        play.known(site.digest)


@contextmanager
def played(plan: Plan, folder: Path) -> Iterator[ReplayedPlay]:
    play = ReplayedPlay(plan, folder)
    try:
        yield play
    finally:
        play.close()


@pytest.mark.parametrize("rounds", [12, pytest.param(120, marks=pytest.mark.slow)])
def test_every_site_replays_the_run_whatever_breaks_and_whoever_is_away(rounds: int, tmp_path: Path) -> None:
    plan = plan_of(rounds, {"most_records": 512}, every=max(3, rounds // 20))
    with played(plan, tmp_path) as play:
        Chaos(play, rounds, 0.01).to_the_end(1000 * rounds)
        assert play.training_run.rounds_done == rounds
        assert all(site.digest == play.digest for site in play.sites.values())
        # The play is about what it is meant to be about.
        counts, happened = play.counts, play.counts.happened
        assert counts.sums > rounds
        assert counts.digests > len(NAMES) * rounds
        assert happened["restarts of the aggregator"] > rounds // 10
        assert happened["restarts of sites"] > rounds // 10
        assert min(happened[each] for each in ("streams broken", "states sent", "SumLost")) > 0


@pytest.mark.parametrize("killed", [False, True])
def test_an_evaluation_that_is_left_out_moves_every_copy_alike(killed: bool, tmp_path: Path) -> None:
    """One site leaves when masks are to be opened; then the aggregator may be killed, and forgets nothing."""
    with played(plan_of(4, {"most_records": 512}, every=1), tmp_path) as play:
        chaos, late = Chaos(play, 11, 0.0), play.sites[ParticipantId(NAMES[-1])]

        def opens() -> bool:
            request = play.federation.request
            due = request is not None and request.purpose is Purpose.EVALUATION and request.round == 2
            return due and late.awaits(Kind.UNMASK_REQUEST)

        while not opens():
            chaos.step()
        chaos.cut(late)
        while not play.counts.happened["Skipped"]:
            if busy := [site for site in play.sites.values() if chaos.may_hear(site) or chaos.may_tell(site)]:
                chaos.advance(busy[0])
            else:
                chaos.let_a_deadline_pass()
        assert play.training_run.left_out == (RoundNumber(2),)
        if killed:
            play.restart()
        chaos.to_the_end(20000)
        assert (play.training_run.rounds_done, play.training_run.left_out) == (4, (2,))
        assert all(site.digest == play.digest for site in play.sites.values())


@pytest.mark.parametrize("output", ["last", "average"])
def test_in_the_clear_every_site_comes_to_the_very_states_of_a_simulation(output: str, tmp_path: Path) -> None:
    plan = plan_of(6, {"mode": "off"}, output=output)
    with played(plan, tmp_path) as play:
        model = flat_model(plan, play.binding.schema, torch.device("cpu"), tmp_path)
        tasks = {name: TrainingClient(plan, name, own, model) for name, own in play.records.items()}
        run = TrainingRun(plan, play.binding.layout, play.binding.schema, play.binding.vector)
        digests = [run.state.digest(play.binding.digest)]
        simulated(run, LoopClients(tasks), None, lambda _: digests.append(run.state.digest(play.binding.digest)))
        Chaos(play, 3, 0.0, patient=True).to_the_end(20000)
        assert play.after == dict(itertools.pairwise(digests))
        assert [site.digest for site in play.sites.values()] == [digests[-1]] * len(NAMES)


def test_in_the_clear_breaks_and_restarts_alone_change_no_bit(tmp_path: Path) -> None:
    plan, digests = plan_of(8, {"mode": "off"}), []
    for name, accidents in (("calm", 0.0), ("rough", 0.02)):
        (tmp_path / name).mkdir()
        with played(plan, tmp_path / name) as play:
            Chaos(play, 5, accidents, patient=True).to_the_end(20000)
            assert (play.counts.happened["restarts of the aggregator"] > 0) == (accidents > 0)
            digests.append(play.digest)
            assert all(site.digest == play.digest for site in play.sites.values())
    assert digests[0] == digests[1]


# ---- every site replays a masked run: by the sums that it has checked, and by states for which others vouch


@pytest.mark.parametrize(("output", "ring_bits"), [("last", 16), ("average", 24), ("best", 32)])
def test_every_site_replays_the_run_and_ends_with_the_aggregators_result(output: str, ring_bits: int) -> None:
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
    assert (states_sent(play), play.set_ups()) == ([], 1)


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
    assert (play.training_run.rounds_done, play.copies[D].state.rounds_done) == (2, 1)
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
    assert (play.federation.phase, states_sent(play)) == (Phase.FINISHED, sent)
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
