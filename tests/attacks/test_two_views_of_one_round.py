"""An aggregator that has sites compute about different things, in the hope that their masks cancel all the same.

Real collaborators over real sockets; the aggregator is the real one with one lie in it. What it wants is a sum in
which all but the target adds zeros, for that sum is the target's own update. No site believes it: what each
computes follows from its own copy of the run.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from aggregator.admission import Admission
from aggregator.broadcast import Broadcast
from aggregator.driver import RunDriver
from aggregator.outcome import Ending
from collaborator.preparation import make_ready
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.round_subject import round_subject
from fedfair.aggregation.running_sum import RunningSum, Totals
from fedfair.aggregation.spec import SumSpec
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import FedfairError, RemoteProtocolError
from fedfair.identity.store import load_signing_key
from fedfair.ids import FederationName, ParticipantId, parse_participant_id
from fedfair.plan.approval import approve
from fedfair.plan.loading import load_plan
from fedfair.policy.plan_check import PolicyError
from fedfair.rounds import summing
from fedfair.rounds.cohort_selection import CohortSelection
from fedfair.rounds.events import Effect, SendSum
from fedfair.rounds.run_under_way import RunUnderWay
from fedfair.rounds.secagg_session import SecaggSession
from fedfair.rounds.sum_round import OutgoingMessage, SumRound
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
    """Let every site take part for as long as the aggregator continues; what ends a site is part of the play."""

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
        "max_attempts": attempts, "round_deadline_seconds": 5, "reconnect_grace_seconds": 1,
        "min_collaborators": quorum, "join_deadline_seconds": 2,
    }  # fmt: skip
    protection = {"mode": "malicious", "most_records": 512}
    plan = small_plan(federation=federation, protection=protection, **{"rounds": 1, **training})
    # No evaluation of the model before round 1 is needed for this, and its threshold is in the plan.
    plan["training"] = {**plan["training"], "threshold_init": 0.1}  # type: ignore[dict-item]
    return plan


def scaled_away(state: RunState) -> RunState:
    """Return the state with a scaling under which every feature vanishes."""
    false = FeatureScaling(state.scaling.mean, np.full_like(state.scaling.scale, FEATURELESS))
    return replace(state, scaling=false)


LIES: dict[str, Callable[[RunState], RunState]] = {
    "scaling": scaled_away,
    "model": lambda state: replace(state, model=GlobalModel(state.model.vector + 1e3, state.model.threshold)),
    "threshold": lambda state: replace(state, model=GlobalModel(state.model.vector, 1e9)),
}


def two_states(monkeypatch: pytest.MonkeyPatch, lie: Callable[[RunState], RunState]) -> None:
    """Show the target the true state of the run, and all other sites a false one with digests that fit it."""
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
            about = subject if self.name(effect.member) == TARGET else round_subject(false[-1], request)
            start = replace(RoundStart.decode(effect.message), subject=about)
            found.append(SendTo(effect.member, start.encode()))
        return found

    monkeypatch.setattr(RunDriver, "_send", shown)
    monkeypatch.setattr(SecaggSession, "start_round", fitting)


@pytest.mark.parametrize("lie", LIES)
def test_a_state_shown_to_all_sites_but_one_opens_no_sum_and_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    workspace, spy, notes = prepare(tmp_path, lying_plan()), Spy(monkeypatch), list[str]()
    two_states(monkeypatch, LIES[lie])
    ending = stubborn(workspace, notes)
    assert not spy.opened, f"the target's own update came out to a relative error of {spy.error():.2g}"
    assert set(spy.own) <= {TARGET}, "another site has computed about a state that it does not hold"
    assert ending.state.value == "aborted"
    assert any("refuses the request: state" in note for note in notes)


def test_two_approved_plans_of_one_roster_open_no_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the target have approved a variant of the plan in which training changes nothing."""
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
    return until_open_or_refused(workspace, spy, lambda note: "request: cohort" in note, wanted=2)


def until_open_or_refused(
    workspace: Workspace, spy: Spy, is_refusal: Callable[[str], bool], *, wanted: int, fresh: bool = False
) -> list[str]:
    """Play until so many training sums are open or a site refuses; return the refusals."""
    refusals: list[str] = []

    async def everybody(federation: Federation) -> None:
        watching, sites = federation.watching, [asyncio.create_task(federation.take_part(name)) for name in NAMES]
        await watching.until(lambda: len(spy.opened) == wanted or any(map(is_refusal, watching.notes)))
        refusals.extend(filter(is_refusal, watching.notes))
        federation.serving.cancel()
        for site in sites:
            site.cancel()
        await asyncio.gather(*sites, federation.serving, return_exceptions=True)

    with pytest.raises(asyncio.CancelledError):
        play(workspace, everybody, fresh=fresh)
    return refusals


def allow_any_cohort(workspace: Workspace) -> None:
    for name in NAMES:
        file = workspace.folder / f"{name}.yaml"
        stated = yaml.safe_load(file.read_text())
        stated["policy"] |= {"training_cohort": "any"}
        file.write_text(yaml.safe_dump(stated))


def requests_of(monkeypatch: pytest.MonkeyPatch) -> list[SumRequest]:
    """Return a list that grows with every sum that the aggregator asks for."""
    sum_round, asked = summing._begun, list[SumRequest]()

    def noted(
        run: RunUnderWay, quorum: int, make_sum: Callable[[SumSpec], RunningSum], request: SumRequest
    ) -> SumRound:
        asked.append(request)
        return sum_round(run, quorum, make_sum, request)

    monkeypatch.setattr(summing, "_begun", noted)
    return asked


def difference_error(spy: Spy) -> float:
    """Return how far the difference of the two opened sums is from the target's own update, relatively."""
    difference, own = spy.opened[0] - spy.opened[1], spy.own[TARGET]
    return float(np.abs(difference - own).max() / np.abs(own).max())


def test_two_attempts_that_differ_by_one_site_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, spy = prepare(tmp_path, lying_plan(quorum=2, attempts=2)), Spy(monkeypatch)
    one_attempt_twice(monkeypatch)
    refusals = until_answered(workspace, spy)
    assert len(spy.opened) == 1, (
        f"the target's own update came out to a relative error of {difference_error(spy):.2g}"
    )
    assert refusals


def test_where_two_attempts_are_allowed_other_batches_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, spy = prepare(tmp_path, lying_plan(quorum=2, attempts=2)), Spy(monkeypatch)
    allow_any_cohort(workspace)
    one_attempt_twice(monkeypatch)
    assert until_answered(workspace, spy) == []
    # The others have 80 % of the records and batches of 16: what they added differs by far more than rounding.
    assert difference_error(spy) > 0.1


# ---- an aggregator that has one round computed in two runs, the second without the target, and subtracts
# It names runs as it likes. What sites remember of a round under the name of one run must not be forgotten under
# the name of another: the same batches about the same model, for two sets of sites, are the target's own update.
# Every run begins in the same state, which the plan gives, so the second sum is about one that was summed before.


def two_runs(
    workspace: Workspace, spy: Spy, monkeypatch: pytest.MonkeyPatch, *, evaluated: bool = True
) -> list[str]:
    """Open round 1 for all sites; then, in another run, without the target. Return who refused the second.

    Args:
        workspace: of the federation.
        spy: what is opened.
        monkeypatch: for the lies.
        evaluated: whether the model before round 1 is evaluated for all sites in the second run too; otherwise
            nobody evaluates it, and the state before round 1 has another digest than in the first run.
    """
    take, asked = CohortSelection.take, requests_of(monkeypatch)

    def leave_out(self: CohortSelection, resting: Collection[ParticipantId] = ()) -> tuple[ParticipantId, ...]:
        if not spy.opened or (evaluated and asked[-1].purpose is not Purpose.TRAINING):
            return take(self, resting)
        return tuple(who for who in take(self, resting) if who != TARGET)

    def is_refusal(note: str) -> bool:
        return "training sum" in note and "request: cohort" in note

    monkeypatch.setattr(CohortSelection, "take", leave_out)
    assert until_open_or_refused(workspace, spy, is_refusal, wanted=1) == []
    return until_open_or_refused(workspace, spy, is_refusal, wanted=len(spy.opened) + 1, fresh=True)


def prepared(folder: Path) -> Workspace:
    plan = lying_plan(quorum=2, attempts=2, learning_rate=1e-5)
    task = plan["task"]
    return prepare(folder, {**plan, "task": {**task, "standardize": "none"}})


def test_one_round_in_two_runs_is_summed_for_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, spy = prepared(tmp_path), Spy(monkeypatch)
    refusals = two_runs(workspace, spy, monkeypatch)
    assert len(spy.opened) == 1, (
        f"the target's own update came out to a relative error of {difference_error(spy):.2g}"
    )
    assert refusals


def test_one_round_in_two_runs_has_other_batches_if_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, spy = prepared(tmp_path), Spy(monkeypatch)
    allow_any_cohort(workspace)
    assert two_runs(workspace, spy, monkeypatch) == []
    assert_other_batches(spy)


def test_one_model_in_two_states_is_summed_for_no_other_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, spy = prepared(tmp_path), Spy(monkeypatch)
    assert two_runs(workspace, spy, monkeypatch, evaluated=False)
    assert len(spy.opened) == 1


def assert_other_batches(spy: Spy) -> None:
    error = difference_error(spy)
    # The others have 80 % of the records and batches of 16: what they added differs by far more than rounding.
    assert error > 0.1, f"the target's own update came out to a relative error of {error:.2g}"


# ---- an honest-looking aggregator that leaves one site out of the second of two rounds, and subtracts
# Where batches are full and the rate is small, what the others add hardly changes from one round to the next.
# No lie is needed: the plan lets a sum continue without a site. So the sites have to agree to that, each for
# itself.


def prepared_neighbours(folder: Path) -> Workspace:
    slow = {"name": "sgd", "learning_rate": 1e-9}
    plan = lying_plan(quorum=len(NAMES) - 1, batch_size="full", rounds=2, server_optimizer=slow)
    return prepare(folder, plan)


def leave_out_in_round_two(monkeypatch: pytest.MonkeyPatch) -> None:
    take, asked = CohortSelection.take, requests_of(monkeypatch)

    def chosen(self: CohortSelection, resting: Collection[ParticipantId] = ()) -> tuple[ParticipantId, ...]:
        everybody, last = take(self, resting), asked[-1]
        leaves = last.purpose is Purpose.TRAINING and last.round == 2
        return tuple(who for who in everybody if who != TARGET) if leaves else everybody

    monkeypatch.setattr(CohortSelection, "take", chosen)


def run_through(workspace: Workspace) -> Ending:
    async def everybody(federation: Federation) -> None:
        await asyncio.gather(*(federation.take_part(name) for name in NAMES), return_exceptions=True)

    return play(workspace, everybody)


def test_two_neighbouring_rounds_give_the_update_of_the_site_that_one_leaves_out_where_all_agree_to_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is what `policy.min_collaborators` below all allows; masks cannot prevent it."""
    workspace, spy = prepared_neighbours(tmp_path), Spy(monkeypatch)
    leave_out_in_round_two(monkeypatch)
    run_through(workspace)
    assert len(spy.opened) == 2
    assert difference_error(spy) < 1e-5


def test_a_site_that_says_nothing_takes_part_in_no_plan_that_can_leave_a_site_out(tmp_path: Path) -> None:
    workspace = prepared_neighbours(tmp_path)
    file = workspace.folder / f"{TARGET}.yaml"
    stated = yaml.safe_load(file.read_text())
    assert stated["policy"].pop("min_collaborators") == 2
    file.write_text(yaml.safe_dump(stated))
    with pytest.raises(
        PolicyError, match="two neighbouring sums that differ by one site show its update"
    ) as refused:
        read_site(TARGET, file, workspace.plan, None)
    assert [term.key for term in refused.value.broken] == ["min_collaborators"]
