"""A federation whose sums are masked, played in memory: real participants, one `Federation`, no socket."""

import contextlib
import hashlib
import secrets
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collaborator.masking_policy import masking_policy
from fedfair.aggregation.masked_encoding import MaskedTotals, sum_shapes
from fedfair.aggregation.masking_terms import roster_of, session_plan
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.round_subject import round_subject, same_answer, same_sum
from fedfair.aggregation.running_sum import PlainSum
from fedfair.errors import RemoteProtocolError
from fedfair.ids import ParticipantId
from fedfair.plan.derived import quorum
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.public_keys import format_public_key
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SitePolicy as SiteFile
from fedfair.rounds import events
from fedfair.rounds.federation import Federation
from fedfair.rounds.secagg_session import SecaggSession
from fedfair.run.packed_state import pack_state
from fedfair.run.replica import OutOfStepError, RunReplica
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Contribute, Send, SiteEffect, StateVouched, SumAccepted
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.participant import Participant
from fedfair.secagg.session import SessionSite
from fedfair.secagg.transcript import RoundSubject
from fedfair.statistics.table import Purpose
from tests import plans
from tests.secagg.federation_in_memory import draws_of

LAYOUT = Layout([LayoutEntry("weight", (5,), True)], np.dtype(np.float64))
SCHEMA = FeatureSchema((2,), 2, (0, 1), ("a", "b"))
RUN, PLAN_DIGEST = "0" * 32, bytes(32)


def keys(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def make_plan(
    count: int,
    *,
    quorum: int | None = None,
    colluders: int = 0,
    rounds: int = 4,
    every: int = 100,
    standardize: str = "none",
    **protection: object,
) -> Plan:
    names = [f"clinic-{letter}" for letter in "abcdefghij"[:count]]
    roster = {name: format_public_key(keys(name).public_key().public_bytes_raw()) for name in names}
    return plans.parsed(
        names,
        federation={"roster": roster, "min_collaborators": quorum},
        task={"standardize": standardize},
        training={"rounds": rounds, "precision": "fp64"},
        secure_aggregation={"colluders": colluders, "most_records": 16, **protection},
        evaluation={"every": every, "bins": 8, "loss_range": 1.0},
    )


class Kept:
    """What a site has on its disk of a run: its state, and the states about which it has answered.

    It outlives the process of the site, which a `RunReplica` does not.
    """

    def __init__(self) -> None:
        self.run_id = ""
        self.state: RunState | None = None
        self.answered: set[bytes] = set()

    def keep(self, run_id: str, state: RunState) -> None:
        self.run_id, self.state = run_id, state

    def settle(self) -> None:
        """Do nothing: this memory needs no disk."""

    def has_held(self, digest: bytes) -> bool:
        return digest in self.answered


class Play:
    """Carries every message until nobody has anything to say.

    Every site has a copy of the run of its own, which nothing but opened sums and vouched states move.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.training_run = TrainingRun(plan, LAYOUT, SCHEMA, np.zeros(5))
        self.hours = 0.0
        protection = SecaggSession(
            plan, PLAN_DIGEST, LAYOUT, SCHEMA, secrets.token_bytes, lambda: 3600 * self.hours
        )
        self.seconds = 0.0
        self.federation = Federation(
            plan, self.training_run, PlainSum, PLAN_DIGEST, protection=protection, clock=lambda: self.seconds
        )
        self.names = [ParticipantId(name) for name in plan.federation.collaborators]
        self.sites = {name: self.site(name) for name in self.names}
        self.totals = MaskedTotals(plan, LAYOUT, SCHEMA)
        self.disks = {name: Kept() for name in self.names}
        self.copies = {name: self.copy(name) for name in self.names}
        self.said: list[tuple[ParticipantId, Kind]] = []
        self.effects: list[events.Effect] = []
        self.questions: dict[ParticipantId, events.SendSum] = {}
        self.vectors: dict[bytes, bytes] = {}
        self.deadlines: dict[events.DeadlineToken, int] = {}
        self.silent: Callable[[ParticipantId, Kind], bool] = lambda _name, _kind: False
        self.size: Callable[[int], float] = lambda _rounds_done: 0.5
        self.threshold: Callable[[], float] = lambda: 0.0

    def site(self, name: ParticipantId) -> Participant:
        member, shapes = self.names.index(name) + 1, sum_shapes(self.plan, LAYOUT, SCHEMA)
        policy = masking_policy(self.plan, SiteFile(min_collaborators=quorum(self.plan)))
        agreed = session_plan(self.plan, PLAN_DIGEST)
        site = SessionSite(member, roster_of(self.plan), keys(name), agreed, policy, shapes)
        return Participant(site, secrets.token_bytes)

    def copy(self, name: ParticipantId) -> RunReplica:
        """Return the copy of the run with which a process of a site begins."""
        kept = self.disks[name]
        replica = RunReplica(TrainingRun(self.plan, LAYOUT, SCHEMA, np.zeros(5)), PLAN_DIGEST, kept)
        if kept.state is not None:
            replica.restore(kept.run_id, kept.state)
        replica.join(RUN)
        return replica

    def tell(self, event: events.Event) -> None:
        pending = self.received(event)
        while pending:
            effect, state = pending.pop(0)
            self.effects.append(effect)
            match effect:
                case events.SendSum(participant):
                    self.questions[participant] = effect
                case events.SendState(participant):
                    self.copies[participant].offer(b"".join(pack_state(state)))
                case events.SendMessage(participant, message, vector) if participant in self.federation.connected:
                    self.vectors[message] = vector
                    for answer in self.answers(participant, message):
                        pending += self.received(answer)
                case events.SetDeadline(token, seconds):
                    self.deadlines[token] = seconds
                case events.CancelDeadline(token):
                    self.deadlines.pop(token, None)

    def received(self, event: events.Event) -> list[tuple[events.Effect, RunState]]:
        """Return the effects of an event, each with the state in which the aggregator asked for it."""
        return [(effect, self.training_run.state) for effect in self.federation.receive(event)]

    def answers(self, name: ParticipantId, message: bytes) -> list[events.Event]:
        sends = self.carry_out(name, self.heard(name, message))
        self.said += [(name, kind_of(send.message)) for send in sends]
        return [
            events.MessageArrived(name, send.message, send.vector)
            for send in sends
            if not self.silent(name, kind_of(send.message))
        ]

    def heard(self, name: ParticipantId, message: bytes) -> list[SiteEffect]:
        """Return what a site does with a message and with the vector beside it."""
        site, vector, kind = self.sites[name], self.vectors.get(message, b""), kind_of(message)
        if kind is Kind.OPENED:
            return self.heard_sum(site, message, vector)
        if kind is Kind.ROUND_START:
            return site.receive(message, *self.subject(name))
        return site.receive(message, RoundSubject(self.copies[name].digest, b""))

    def heard_sum(self, site: Participant, message: bytes, vector: bytes) -> list[SiteEffect]:
        """Return what a site does with an opened sum; nothing where it has not entered the round."""
        try:
            return site.receive(message, RoundSubject(b"", b""), vector=vector)
        except SecaggError as fault:
            if fault.check in {Check.OUT_OF_ORDER, Check.TRANSCRIPT}:
                return []
            raise

    def subject(self, name: ParticipantId) -> tuple[RoundSubject, bytes]:
        """Return what a round is about, and what is computed for it, from the copy of a site."""
        copy = self.copies[name]
        try:
            request = copy.request(self.questions[name].state)
        except OutOfStepError as fault:
            raise SecaggError(Check.STATE, fault.message, fault.remedy) from fault
        self.disks[name].answered.add(copy.digest)
        subject = round_subject(copy.digest, request)
        is_round = request.purpose is Purpose.TRAINING
        if is_round:
            return subject, same_sum(copy.state.model, copy.state.scaling, request)
        return subject, same_answer(request, on_demand=False)

    def carry_out(self, name: ParticipantId, effects: list[SiteEffect]) -> list[Send]:
        sends = []
        for effect in effects:
            match effect:
                case Contribute(number, purpose, _):
                    update = self.update(name, number, purpose)
                    sends += self.carry_out(name, self.sites[name].contribute(update, draws_of(update)))
                case StateVouched(digest):
                    self.come_to(name, digest)
                case SumAccepted(opened, digest) if digest == self.copies[name].digest:
                    self.apply(name, opened)
                case Send():
                    sends.append(effect)
        return sends

    def come_to(self, name: ParticipantId, digest: bytes) -> None:
        try:
            self.copies[name].take_vouched(digest)
        except OutOfStepError as fault:
            self.sites[name].decline_session()
            raise SecaggError(Check.STATE, fault.message, fault.remedy) from fault

    def apply(self, name: ParticipantId, opened: OpenedSum) -> None:
        """Let the copy of a site move by an opened sum; what cannot be right leaves it as it was."""
        members = tuple(self.names[index - 1] for index in opened.survivors)
        with contextlib.suppress(RemoteProtocolError):
            self.copies[name].apply(self.totals.of(opened), members)

    def update(self, name: ParticipantId, number: int, purpose: str) -> Update:
        """Return the unit vector of a site in training; one record with loss 0.5 in an evaluation."""
        if purpose == Purpose.TRAINING.value:
            body = np.zeros(5)
            body[self.names.index(name) % 5] = self.size(self.training_run.rounds_done)
            return Update(np.array([self.threshold(), 1e-9 * number]), body, 1)
        if purpose == Purpose.STANDARDISATION.value:
            # One record (1, 2): three counts, the whole parts of two sums and two sums of squares, their rests.
            return Update(np.array([1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 4.0, 0.0, 0.0, 0.0, 0.0]), np.zeros(0), 1)
        counts = np.zeros(2 + 9)
        counts[[0, 1, 2 + 4]] = 1.0  # one record, correct, in bin 4 of 8
        reals = np.zeros(1 + 9)
        reals[[0, 1 + 4]] = 0.5
        matrices = np.zeros((3, 2, 2))
        matrices[0, 1, 1] = 1.0
        empty = np.concatenate([np.zeros(2 * (2 + 9)), matrices.ravel()])
        rests = np.concatenate([reals, np.zeros(20)])
        return Update(np.concatenate([counts, empty, np.zeros(30), rests]), np.zeros(0), 1)

    def begin(self) -> None:
        self.tell(events.Started())
        for name in self.names:
            self.connect(name)

    def connect(self, name: ParticipantId) -> None:
        """Let a site say hello, with what it holds."""
        session = self.sites[name].session
        held = b"" if session is None else session.session_id
        self.tell(events.Connected(name, held, state=self.copies[name].digest))

    def pass_deadline(self, kind: events.DeadlineKind) -> None:
        token = next(token for token in self.deadlines if token.kind is kind)
        del self.deadlines[token]
        self.tell(events.DeadlinePassed(token))

    def set_ups(self) -> int:
        return sum(kind is Kind.KEY_ADVERTISEMENT and name == self.names[0] for name, kind in self.said)

    def is_in_step(self) -> bool:
        """Return whether the copy of every site is at the state of the aggregator, bit for bit."""
        return {copy.digest for copy in self.copies.values()} == {self.training_run.state.digest(PLAN_DIGEST)}
