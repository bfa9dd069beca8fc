"""Whole masked runs with a site that seals garbage, or accuses others falsely: it goes, and the others finish."""

import secrets
from collections.abc import Callable
from dataclasses import replace

import pytest

from fedfair.ids import ParticipantId, SumNumber
from fedfair.rounds import events
from fedfair.rounds.phases import Phase
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Send, SiteEffect
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.round_messages import Upload
from fedfair.secagg.signing import sign
from fedfair.statistics.table import Purpose
from tests.rounds.masked_play import Play, keys, make_plan

A, B, C, D, E = (ParticipantId(f"clinic-{letter}") for letter in "abcde")


def with_noise(name: ParticipantId, send: Send) -> Send:
    upload = Upload.decode(send.message)
    envelopes = tuple((peer, secrets.token_bytes(len(box))) for peer, box in upload.envelopes)
    upload = replace(upload, envelopes=envelopes)
    signature = sign(keys(name), "upload", *upload.signed_fields())
    return Send(replace(upload, signature=signature).encode(), send.vector)


class LyingPlay(Play):
    """Five sites, the first of which may lie; whoever cannot open an envelope abstains and says whose it is."""

    def __init__(self, *, rounds: int = 3, every: int = 100) -> None:
        super().__init__(make_plan(5, quorum=3, rounds=rounds, every=every))
        self.seals_noise: Callable[[Purpose], bool] = lambda _: False
        self.accuses: Callable[[Purpose], int] = lambda _: 0
        self.refusals: set[Check] = set()
        self.mute: set[ParticipantId] = set()
        self.late: dict[tuple[ParticipantId, int], int] = {}  # (who, round): how many sums later it refuses
        self.owed: dict[ParticipantId, tuple[SumNumber, int]] = {}

    def purpose(self, name: ParticipantId) -> Purpose:
        return self.questions[name].request.purpose

    def carry_out(self, name: ParticipantId, effects: list[SiteEffect]) -> list[Send]:
        sends = super().carry_out(name, effects)
        lies = name == A and self.seals_noise(self.purpose(name))
        return [
            with_noise(name, send) if lies and kind_of(send.message) is Kind.UPLOAD else send for send in sends
        ]

    def answers(self, name: ParticipantId, message: bytes) -> list[events.Event]:
        number, is_open = self.questions[name].sum_number, kind_of(message) is Kind.UNMASK_REQUEST
        accused = self.accuses(self.purpose(name)) if name == A and is_open else 0
        if accused:
            return [events.Abstained(name, number, "a lie", accused=accused)]
        training = self.purpose(name) is Purpose.TRAINING
        place = name, int(self.questions[name].request.round)
        if is_open and training and name in self.mute:
            self.mute.discard(name)
            return []
        if is_open and training and place in self.late:
            self.owed[name] = number, self.late.pop(place)
            return []
        said: list[events.Event] = []
        about, later = self.owed.get(name, (number, 1))
        if number - about >= later:
            del self.owed[name]
            said.append(events.Abstained(name, about, "too late for an answer", accused=1))
        try:
            return [*said, *super().answers(name, message)]
        except SecaggError as fault:
            self.refusals.add(fault.check)
            return [*said, events.Abstained(name, number, fault.message, accused=fault.accused)]

    def of(self, kind: type[events.Effect]) -> list[events.Effect]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def refused(self) -> list[ParticipantId]:
        return [effect.participant for effect in self.effects if isinstance(effect, events.Refuse)]

    def contributors(self, purpose: Purpose) -> list[int]:
        reports = [effect.progress for effect in self.effects if isinstance(effect, events.Report)]
        return [progress.contributors for progress in reports if progress.purpose is purpose]

    def finish(self) -> None:
        """Let deadlines of open sums pass until the run is over."""
        while self.federation.phase is Phase.SUMMING:
            self.pass_deadline(next(iter(self.deadlines)).kind)
        assert self.federation.phase is Phase.FINISHED


@pytest.mark.parametrize("first", [Purpose.EVALUATION, Purpose.TRAINING])
def test_a_site_that_seals_garbage_for_all_sites_loses_one_sum_and_the_others_finish(first: Purpose) -> None:
    play = LyingPlay()
    play.seals_noise = lambda purpose: purpose is first
    play.begin()
    play.finish()
    assert play.refused() == [A]
    (lost,) = [effect for effect in play.effects if isinstance(effect, events.SumLost)]
    assert lost.request.purpose is first
    assert (play.refusals, play.contributors(Purpose.TRAINING)) == ({Check.ENVELOPE}, [4, 4, 4])
    assert (play.contributors(Purpose.EVALUATION)[-1], play.of(events.Skipped)) == (4, [])
    told = [effect.reason for effect in play.effects if isinstance(effect, events.Suspected)]
    assert told == [
        "clinic-a sealed shares that do not open, according to clinic-b",
        "clinic-a sealed shares that do not open, according to clinic-b, clinic-c",
    ]


def test_the_others_go_on_without_a_proven_liar_where_somebody_kept_silent() -> None:
    play = LyingPlay()
    play.seals_noise = lambda purpose: purpose is Purpose.TRAINING
    play.mute = {C}
    play.begin()
    play.finish()
    assert (play.refused(), play.contributors(Purpose.TRAINING)) == ([A], [4, 4, 4])


def test_a_site_that_accuses_another_each_time_names_itself_and_stops_no_training() -> None:
    play = LyingPlay(rounds=5)
    play.accuses = lambda purpose: 2 + play.training_run.rounds_done if purpose is Purpose.TRAINING else 0
    play.begin()
    play.finish()
    assert (play.refused(), play.of(events.SumLost)) == ([A], [])
    assert play.contributors(Purpose.TRAINING) == [5, 5, 5, 4, 4]


def test_a_site_that_accuses_the_same_one_for_ever_is_suspected_and_stops_no_training() -> None:
    play = LyingPlay(rounds=5)
    play.accuses = lambda purpose: 4 if purpose is Purpose.TRAINING else 0
    play.begin()
    play.finish()
    assert (play.refused(), play.of(events.SumLost), play.contributors(Purpose.TRAINING)) == ([], [], [5] * 5)
    told = {effect.reason for effect in play.effects if isinstance(effect, events.Suspected)}
    assert told == {"clinic-d sealed shares that do not open, according to clinic-a"}


@pytest.mark.parametrize("accused", [2, 6, 65535], ids=["itself", "beyond the roster", "far beyond"])
def test_an_accusation_that_no_honest_site_makes_costs_its_sender_the_connection(accused: int) -> None:
    play = LyingPlay()
    play.mute = {B, C, D}
    play.begin()
    assert B in play.federation.waiting_for
    play.tell(events.Abstained(B, play.federation.sum_number, "", accused=accused))
    assert play.refused() == [B]


@pytest.mark.parametrize(("sums_later", "heard"), [(1, True), (2, False)])
def test_a_late_accusation_counts_while_the_next_sum_is_open_and_no_later(sums_later: int, heard: bool) -> None:
    play = LyingPlay()
    play.late = {(D, 1): sums_later}
    play.begin()
    play.finish()
    told = [effect.reason for effect in play.effects if isinstance(effect, events.Suspected)]
    assert told == ["clinic-a sealed shares that do not open, according to clinic-d"] * heard
    assert (play.refused(), play.contributors(Purpose.TRAINING)) == ([], [5, 5, 5])


def test_a_liar_that_is_proven_late_is_sent_away_and_left_out_of_what_it_has_not_uploaded_for() -> None:
    play = LyingPlay()
    play.late = {(D, 1): 1, (E, 1): 1, (C, 2): 1}
    play.begin()
    play.finish()
    assert play.refused() == [A]
    # Its upload was in the third sum already; what is in a sum cannot be taken out of it.
    assert (play.contributors(Purpose.TRAINING), play.contributors(Purpose.EVALUATION)[-1]) == ([5, 5, 5], 4)
