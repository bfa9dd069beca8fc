"""Replay equals aggregator equals simulation: every site comes to the aggregator's states, whatever happens."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.schema import Plan
from fedfair.rounds import events
from fedfair.rounds.phases import Phase
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.messages import Kind
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.simulate import play as simulated
from fedfair.statistics.table import Purpose
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from tests.rounds.replayed_play import NAMES, ReplayedPlay, Site, plan_of

CALM_ROUNDS = 3
"""Rounds at the end in which nothing goes wrong any more, so that everybody can hear of the last sum."""


class Chaos:
    """Plays a run in an order, and with accidents, that a seed decides.

    Args:
        play: the run.
        seed: of everything that happens.
        accidents: how probable one is, at each step.
        patient: whether everybody is waited for, and heard in the plan's order: then every sum is over all sites,
            and numbers are added in one order.
    """

    def __init__(self, play: ReplayedPlay, seed: int, accidents: float, *, patient: bool = False) -> None:
        self.play, self.accidents, self.patient = play, accidents, patient
        self.random = play.random = random.Random(seed)  # noqa: S311 - an order, not a secret

    def to_the_end(self, most_steps: int) -> None:
        """Play until the run is finished, and everybody has heard what was said."""
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


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return an empty folder, in memory where that is possible: a killed process loses nothing it has written."""
    memory = Path("/dev/shm")  # noqa: S108 - what is made there has a name of its own
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as made:
        yield Path(made)


@contextmanager
def played(plan: Plan, folder: Path) -> Iterator[ReplayedPlay]:
    play = ReplayedPlay(plan, folder)
    try:
        yield play
    finally:
        play.close()


@pytest.mark.parametrize("rounds", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_every_site_replays_the_run_whatever_breaks_and_whoever_is_away(rounds: int, folder: Path) -> None:
    plan = plan_of(rounds, {"most_records": 512}, every=max(3, rounds // 20))
    with played(plan, folder) as play:
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
def test_an_evaluation_that_is_left_out_moves_every_copy_alike(killed: bool, folder: Path) -> None:
    """One site leaves when masks are to be opened; then the aggregator may be killed, and forgets nothing."""
    with played(plan_of(6, {"most_records": 512}, every=1), folder) as play:
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
        assert (play.training_run.rounds_done, play.training_run.left_out) == (6, (2,))
        assert all(site.digest == play.digest for site in play.sites.values())


@pytest.mark.parametrize("output", ["last", "average"])
def test_in_the_clear_every_site_comes_to_the_very_states_of_a_simulation(output: str, folder: Path) -> None:
    plan = plan_of(12, {"mode": "off"}, output=output)
    with played(plan, folder) as play:
        model = flat_model(plan, play.binding.schema, torch.device("cpu"), folder)
        tasks = {name: TrainingClient(plan, name, own, model) for name, own in play.records.items()}
        run = TrainingRun(plan, play.binding.layout, play.binding.schema, play.binding.vector)
        digests = [run.state.digest(play.binding.digest)]
        simulated(run, LoopClients(tasks), None, lambda _: digests.append(run.state.digest(play.binding.digest)))
        Chaos(play, 3, 0.0, patient=True).to_the_end(20000)
        assert play.after == dict(itertools.pairwise(digests))
        assert [site.digest for site in play.sites.values()] == [digests[-1]] * len(NAMES)


def test_in_the_clear_breaks_and_restarts_alone_change_no_bit(folder: Path) -> None:
    plan = plan_of(12, {"mode": "off"})
    digests = []
    for name, accidents in (("calm", 0.0), ("rough", 0.02)):
        (folder / name).mkdir()
        with played(plan, folder / name) as play:
            Chaos(play, 5, accidents, patient=True).to_the_end(20000)
            assert (play.counts.happened["restarts of the aggregator"] > 0) == (accidents > 0)
            digests.append(play.digest)
            assert all(site.digest == play.digest for site in play.sites.values())
    assert digests[0] == digests[1]
