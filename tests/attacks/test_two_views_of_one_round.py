"""An aggregator that has sites compute about different things, in the hope that their masks cancel all the same.

Real collaborators over real sockets; the aggregator is the real one with one lie in it. What it wants is a sum in
which everybody but the target adds zeros, for that sum is the target's own update. No site believes it: what each
computes follows from its own copy of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray

from aggregator.admission import Admission
from aggregator.broadcast import Broadcast
from aggregator.driver import RunDriver
from aggregator.outcome import Ending
from collaborator.preparation import make_ready
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.round_subject import round_subject
from fedfair.aggregation.running_sum import Totals
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import FedfairError, RemoteProtocolError
from fedfair.identity.store import load_signing_key
from fedfair.ids import FederationName, ParticipantId, parse_participant_id
from fedfair.plan.approval import approve
from fedfair.plan.loading import load_plan
from fedfair.rounds.cohort_selection import CohortSelection
from fedfair.rounds.events import Effect, SendSum
from fedfair.rounds.secagg_session import SecaggSession
from fedfair.rounds.sum_round import OutgoingMessage
from fedfair.run.packed_state import pack_state
from fedfair.run.progress import Progress
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.effects import SendTo, ServerEffect
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.round_messages import RoundStart
from fedfair.secagg.server import Server
from fedfair.secagg.transcript import RoundSubject
from fedfair.statistics.table import Purpose
from fedfair.terms.local_change import LocalChange
from fedfair.training.binding import plan_binding
from fedfair.training.local_descent import LocalDescent
from fedfair.wire.frames import BroadcastKind
from tests.interop.federation_kit import Federation, play
from tests.plans import small_plan
from tests.site_reading import read_site

NAMES = ("clinic-a", "clinic-b", "clinic-c")
TARGET = "clinic-c"
FEATURELESS = 1e300
"""Under this scale every feature is 0, and so is the gradient of every weight that multiplies one."""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Spy:
    """What the aggregator opens, and what every site really made; the test alone sees both."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[NDArray[np.floating]] = []
        self.own: dict[str, NDArray[np.floating]] = {}
        take, change = Server.take_sum, LocalDescent.training_change

        def seen(server: Server) -> OpenedSum:
            opened = take(server)
            if opened.purpose == Purpose.TRAINING.value:
                self.opened.append(np.array(opened.body))
            return opened

        def made(descent: LocalDescent, *args: object, **options: object) -> LocalChange | None:
            found = change(descent, *args, **options)  # type: ignore[arg-type]  # forwarded as they are
            if found is not None:
                self.own.setdefault(descent.records.participant, found.model * found.weight)
            return found

        monkeypatch.setattr(Server, "take_sum", seen)
        monkeypatch.setattr(LocalDescent, "training_change", made)

    def error(self) -> float:
        """Return how far the weights of the first opened sum are from the target's own update, relatively."""
        weights = slice(2, 62)  # after the two biases
        own = self.own[TARGET][weights]
        return float(np.abs(self.opened[0][weights] - own).max() / np.abs(own).max())


def stubborn(workspace: Workspace, notes: list[str]) -> Ending:
    """Let everybody take part for as long as the aggregator goes on; what ends a site is part of the play."""

    async def everybody(federation: Federation) -> None:
        endings = await until_served(federation, workspace.collaborators)
        known = FedfairError | asyncio.CancelledError
        assert all(not isinstance(ending, BaseException) or isinstance(ending, known) for ending in endings)
        notes.extend(federation.watching.notes)

    return play(workspace, everybody)


async def until_served(federation: Federation, names: Iterable[str]) -> list[object]:
    """Let these take part until the aggregator ends; after that, a site would call again for ever."""
    sites = [asyncio.create_task(federation.take_part(name)) for name in names]
    await asyncio.wait([federation.serving])
    for site in sites:
        site.cancel()
    return list(await asyncio.gather(*sites, return_exceptions=True))


def lying_plan(*, quorum: int | None = None, attempts: int = 1, **training: object) -> dict[str, object]:
    federation = {
        "max_attempts": attempts,
        "round_deadline_seconds": 5,
        "reconnect_grace_seconds": 1,
        "min_collaborators": quorum,
        "join_deadline_seconds": 2,
    }
    protection = {"mode": "malicious", "most_records": 512}
    plan = small_plan(federation=federation, protection=protection, **{"rounds": 1, **training})
    # No evaluation of the model before round 1 is needed for this, and its threshold is in the plan.
    plan["training"] = {**plan["training"], "threshold_init": 0.1}  # type: ignore[dict-item]
    return plan


def scaled_away(state: RunState) -> RunState:
    """Return the state with a scaling under which every feature vanishes."""
    assert state.scaling is not None
    false = FeatureScaling(state.scaling.mean, np.full_like(state.scaling.scale, FEATURELESS))
    return replace(state, scaling=false)


LIES: dict[str, Callable[[RunState], RunState]] = {
    "scaling": scaled_away,
    "model": lambda state: replace(state, model=GlobalModel(state.model.vector + 1e3, state.model.threshold)),
    "threshold": lambda state: replace(state, model=GlobalModel(state.model.vector, 1e9)),
}


def two_states(monkeypatch: pytest.MonkeyPatch, lie: Callable[[RunState], RunState]) -> None:
    """Show the target the true state of the run, and everybody else a false one with digests that fit it."""
    send, start_round = RunDriver._send, SecaggSession.start_round
    false: list[bytes] = []

    async def shown(self: RunDriver, effect: Effect) -> None:
        if (
            isinstance(effect, SendSum)
            and effect.request.purpose is Purpose.TRAINING
            and effect.participant != TARGET
        ):
            state = lie(self._training_run.state)
            false.append(state.digest(self._federation.steps._plan_digest))
            raw = b"".join(pack_state(state))
            self.streams.connections[effect.participant].publish(Broadcast(BroadcastKind.STATE, raw))
            effect = replace(effect, state=false[-1])
        await send(self, effect)  # type: ignore[arg-type]  # an effect that sends

    def fitting(
        self: SecaggSession, request: SumRequest, subject: RoundSubject, clip: float, cohort: Iterable[int]
    ) -> list[ServerEffect]:
        effects = start_round(self, request, subject, clip, cohort)
        if request.purpose is not Purpose.TRAINING or not false:
            return effects
        found: list[ServerEffect] = []
        for effect in effects:
            assert isinstance(effect, SendTo)
            about = subject if self.name(effect.member) == TARGET else round_subject(false[-1], request)
            start = replace(RoundStart.decode(effect.message), subject=about)
            found.append(SendTo(effect.member, start.encode()))
        return found

    monkeypatch.setattr(RunDriver, "_send", shown)
    monkeypatch.setattr(SecaggSession, "start_round", fitting)


@pytest.mark.parametrize("lie", LIES)
def test_a_state_shown_to_everybody_but_one_site_opens_no_sum_and_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    workspace, spy, notes = prepare(tmp_path, lying_plan()), Spy(monkeypatch), list[str]()
    two_states(monkeypatch, LIES[lie])
    ending = stubborn(workspace, notes)
    assert not spy.opened, f"the target's own update came out to a relative error of {spy.error():.2g}"
    assert set(spy.own) <= {TARGET}, "another site has computed about a state that it does not hold"
    assert ending.state.value == "aborted"
    assert any("refuses the request: state" in note for note in notes)


def test_two_approved_plans_of_one_roster_open_no_sum_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody but the target has approved a variant of the plan in which training changes nothing."""
    workspace, spy = prepare(tmp_path, lying_plan()), Spy(monkeypatch)
    variant = workspace.plan.with_name("variant.yaml")
    stated = yaml.safe_load(workspace.plan.read_text())
    stated["training"]["learning_rate"] = 1e-12
    variant.write_text(yaml.safe_dump(stated, sort_keys=False))
    digest = plan_binding(load_plan(variant), workspace.folder).digest
    # The aggregator is content with either plan.
    monkeypatch.setattr(Admission, "_check_plan", lambda *_: None)
    monkeypatch.setattr(Admission, "_check_approval", lambda *_: None)
    notes: list[str] = []

    async def everybody(federation: Federation) -> None:
        for name in NAMES:
            if name != TARGET:
                key = load_signing_key(workspace.folder / "cert", name)
                who, when = parse_participant_id(name), datetime.now(UTC).isoformat(timespec="seconds")
                approval = workspace.folder / f"{name}.variant.json"
                approval.write_bytes(approve(digest, FederationName("heart"), who, key, approved_at=when))
                config = workspace.folder / f"{name}.yaml"
                federation.sites[name] = make_ready(read_site(name, config, variant, approval))
        await until_served(federation, NAMES)
        notes.extend(federation.watching.notes)

    ending = play(workspace, everybody)
    assert not spy.opened, f"the target's own update came out to a relative error of {spy.error():.2g}"
    assert ending.state.value == "aborted"
    assert any("refuses the request: plan" in note for note in notes)


def one_attempt_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open round 1, tell nobody, say that it was lost, and ask for the same attempt without the target."""
    apply_aggregate, take, retry = TrainingRun.apply_aggregate, CohortSelection.take, TrainingRun.retry
    announcement_for = SecaggSession.announcement_for
    lied: list[Totals] = []

    def lose(self: TrainingRun, totals: Totals, members: Collection[str] = ()) -> Progress:
        request = self.next_sum()
        assert request is not None
        if request.purpose is Purpose.TRAINING and not lied:
            lied.append(totals)
            raise RemoteProtocolError("a lie")
        return apply_aggregate(self, totals, members)

    def tell_nobody(self: SecaggSession, participant: ParticipantId) -> OutgoingMessage | None:
        record = self.server.round_record
        training = record is not None and record.start.purpose == Purpose.TRAINING.value
        return None if training else announcement_for(self, participant)

    def leave_out(self: CohortSelection, resting: Collection[ParticipantId] = ()) -> tuple[ParticipantId, ...]:
        return tuple(who for who in take(self, resting) if not lied or who != TARGET)

    def attempt_again(self: TrainingRun) -> None:
        retry(self)
        if lied:
            self._attempt = 1

    monkeypatch.setattr(TrainingRun, "apply_aggregate", lose)
    monkeypatch.setattr(SecaggSession, "announcement_for", tell_nobody)
    monkeypatch.setattr(TrainingRun, "retry", attempt_again)
    monkeypatch.setattr(CohortSelection, "take", leave_out)


def until_answered(workspace: Workspace, spy: Spy) -> list[str]:
    """Play until two training sums are open or a site refuses the second cohort; return the refusals."""
    refusals: list[str] = []

    async def everybody(federation: Federation) -> None:
        watching, sites = federation.watching, [asyncio.create_task(federation.take_part(name)) for name in NAMES]
        await watching.until(
            lambda: len(spy.opened) == 2 or any("request: cohort" in note for note in watching.notes)
        )
        refusals.extend(note for note in watching.notes if "request: cohort" in note)
        federation.serving.cancel()
        for site in sites:
            site.cancel()
        await asyncio.gather(*sites, federation.serving, return_exceptions=True)

    with pytest.raises(asyncio.CancelledError):
        play(workspace, everybody)
    return refusals


def difference_error(spy: Spy) -> float:
    """Return how far the difference of the two opened sums is from the target's own update, relatively."""
    difference, own = spy.opened[0] - spy.opened[1], spy.own[TARGET]
    return float(np.abs(difference - own).max() / np.abs(own).max())


def test_two_attempts_at_one_round_that_differ_by_one_site_are_not_both_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, spy = prepare(tmp_path, lying_plan(quorum=2, attempts=2)), Spy(monkeypatch)
    one_attempt_twice(monkeypatch)
    refusals = until_answered(workspace, spy)
    assert len(spy.opened) == 1, (
        f"the target's own update came out to a relative error of {difference_error(spy):.2g}"
    )
    assert refusals


def test_where_sites_allow_two_attempts_their_own_counts_draw_other_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, spy = prepare(tmp_path, lying_plan(quorum=2, attempts=2)), Spy(monkeypatch)
    for name in NAMES:
        file = workspace.folder / f"{name}.yaml"
        stated = yaml.safe_load(file.read_text())
        stated["policy"] |= {"training_cohort": "any"}
        file.write_text(yaml.safe_dump(stated))
    one_attempt_twice(monkeypatch)
    assert until_answered(workspace, spy) == []
    # The others have 80 % of the records and batches of 16: what they added differs by far more than rounding.
    assert difference_error(spy) > 0.1
