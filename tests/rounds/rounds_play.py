"""A federation played in memory: a driver without sockets or clocks, and sites that contribute unit vectors.

Every site has a copy of the run of its own. Whenever it is asked, it must be at the state that it is asked about.
Collaborator i adds the i-th unit vector to every training sum, and one record in the i-th loss bin to every
evaluation sum. So the total itself shows who was lost (0) and who was counted twice (2). All numbers are dyadic,
so that sums are exact in whatever order they are made.
"""

import enum
from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from fedfair.aggregation.loss_histogram import loss_block
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.requests import SumRequest, histogram_spec
from fedfair.aggregation.running_sum import PlainSum
from fedfair.aggregation.spec import SumSpec
from fedfair.ids import ParticipantId, SumNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.rounds import events
from fedfair.rounds.continued import Continued
from fedfair.rounds.federation import Federation
from fedfair.rounds.phases import PHASES, Phase
from fedfair.run.opened_totals import decode_totals
from fedfair.run.packed_state import pack_state
from fedfair.run.replica import RunReplica, Unkept
from fedfair.run.training_run import TrainingRun
from fedfair.statistics.table import Purpose
from tests import plans

NAMES = tuple(ParticipantId(f"clinic-{letter}") for letter in "abcd")
A, B, C, D = NAMES

SCHEMA = FeatureSchema(input_shape=(2,), classes=2, numeric=(0, 1), names=("age", "dose"))
PLAN_DIGEST = bytes(range(32))
ENDED = frozenset({Phase.FINISHED, Phase.ABORTED})


@cache
def plan_of(
    collaborators: int = 3,
    minimum: int | None = None,
    rounds: int = 2,
    every: int = 10,
    output: str = "last",
    standardize: str = "none",
    attempts: int = 3,
) -> Plan:
    """Return a plan of the first few of `NAMES`."""
    return plans.parsed(
        NAMES[:collaborators],
        federation={
            "min_collaborators": minimum, "round_deadline_seconds": 60, "join_deadline_seconds": 300,
            "reconnect_grace_seconds": 5, "max_attempts": attempts,
        },
        task={"standardize": standardize},
        objective={"worst_group_size": 0.5, "tradeoff": 0.5},
        training={"rounds": rounds, "output": output, "precision": "fp64", "threshold_init": 0.5},
        evaluation={"every": every, "group_sizes": [0.5], "bins": 8, "loss_range": 8.0},
    )  # fmt: skip


def training_run_of(plan: Plan) -> TrainingRun:
    layout = Layout((LayoutEntry("weight", (len(NAMES),), trainable=True),), np.dtype("<f8"))
    return TrainingRun(plan, layout, SCHEMA, np.zeros(len(NAMES)))


def contribution_of(plan: Plan, participant: ParticipantId, request: SumRequest) -> bytes:
    """Return what this participant adds: a unit vector, a record in a bin of its own, or three plain moments."""
    who = NAMES.index(participant)
    body = np.zeros(request.spec.body_length, request.spec.body_dtype)
    if request.purpose is Purpose.TRAINING:
        header = np.array([1.0, 2.0 ** -(who + 4)])
        body[who] = 1.0
    elif request.purpose is Purpose.EVALUATION:
        spec = histogram_spec(plan, SCHEMA)
        # The bins are [0, 1), [1, 2), ... [7, 8): the loss who + 1/2 lies in the middle of bin `who`.
        mine = loss_block(np.array([who + 0.5]), np.array([1]), who + 0.5, spec)
        matrices = np.zeros((3, 2, 2))
        matrices[0, 1, 1] = 1.0
        header = np.concatenate([mine, np.zeros(2 * len(mine)), matrices.ravel()])
    else:
        header = np.array([1.0, 1.0, 1.0, who, 1.0, who * who, 1.0])
    return header.astype("<f8").tobytes() + body.tobytes()


class Play:
    """The driver of a run, which checks what every driver relies on while it carries out effects."""

    def __init__(
        self,
        plan: Plan,
        training_run: TrainingRun | None = None,
        last_sum_number: int = 0,
        continued: Continued | None = None,
    ) -> None:
        self.plan = plan
        self.training_run = training_run or training_run_of(plan)
        self.quorum = plan.federation.min_collaborators or len(plan.federation.collaborators)
        self.members = tuple(ParticipantId(name) for name in plan.federation.collaborators)
        self.seconds = 0.0
        self.federation = Federation(
            plan,
            self.training_run,
            self._make_sum,
            PLAN_DIGEST,
            clock=lambda: self.seconds,
            last_sum_number=last_sum_number,
            continued=continued,
        )
        self.copies = {who: self._new_copy() for who in self.members}
        self.deadlines: dict[events.DeadlineToken, int] = {}
        self.cancelled: list[events.DeadlineToken] = []
        self.asked: dict[ParticipantId, events.SendSum] = {}
        self.accepted: dict[SumNumber, set[ParticipantId]] = {}
        self.requests: dict[SumNumber, SumRequest] = {}
        self.running: dict[SumNumber, PlainSum] = {}
        self.story: list[tuple[str, SumNumber]] = []
        self.effects: list[events.Effect] = []
        self._newest_sum: PlainSum | None = None

    def _new_copy(self) -> RunReplica:
        """Return the copy of a process that has nothing on its disk."""
        return RunReplica(training_run_of(self.plan), PLAN_DIGEST, Unkept())

    def _make_sum(self, spec: SumSpec) -> PlainSum:
        self._newest_sum = PlainSum(spec)
        return self._newest_sum

    # ---------------------------------------------------------- driving

    def tell(self, event: events.Event) -> list[events.Effect]:
        before, model = self.federation.phase, self.model_bytes()
        effects = self.federation.receive(event)
        if before in ENDED:
            assert effects == []
            return effects
        assert self.federation.phase in PHASES[before][type(event)]
        reported = any(
            isinstance(effect, events.Report) or (isinstance(effect, events.Skipped) and effect.model_changed)
            for effect in effects
        )
        assert reported or self.model_bytes() == model, "the model changed without a total"
        if isinstance(event, events.Connected) and event.state != self.copies[event.participant].digest:
            assert event.state == b"", "a process that connects holds its own copy, or a new one"
            self.copies[event.participant] = self._new_copy()
        if isinstance(event, events.Connected | events.Disconnected):
            self.asked.pop(event.participant, None)
        if isinstance(event, events.DeadlinePassed):
            self.deadlines.pop(event.token, None)
        for effect in effects:
            self._carry_out(effect)
        return effects

    def _carry_out(self, effect: events.Effect) -> None:
        assert not (self.effects and isinstance(self.effects[-1], events.Finish | events.Abort))
        self.effects.append(effect)
        match effect:
            case events.SetDeadline(token, seconds):
                assert token not in self.deadlines
                assert token not in self.cancelled
                self.deadlines[token] = seconds
            case events.CancelDeadline(token):
                del self.deadlines[token]
                self.cancelled.append(token)
            case events.SendState(participant):
                copy = self.copies[participant]
                assert copy.digest != self.present(), "a state was sent to a site that has it"
                copy.offer(b"".join(pack_state(self.training_run.state)))
                copy.trust()
            case events.SendTotals(participant, totals):
                self._apply(self.copies[participant], totals)
            case events.SendSum():
                self._ask(effect)
            case events.Accept(participant, number):
                self.accepted.setdefault(number, set()).add(participant)
            case events.Refuse(participant) | events.Departed(participant):
                self.asked.pop(participant, None)
            case events.Report():
                self.story.append(("absorbed", self.newest_number()))
            case events.SumLost() | events.Skipped():
                what = "lost" if isinstance(effect, events.SumLost) else "skipped"
                self.story.append((what, self.newest_number()))

    def _ask(self, question: events.SendSum) -> None:
        who, number = question.participant, question.sum_number
        assert who in self.federation.connected
        due = self.copies[who].request(question.state)
        assert (due.purpose, due.round, due.query) == (
            question.request.purpose,
            question.request.round,
            question.request.query,
        )
        if number not in self.running:
            assert number > self.newest_number(), "sum numbers must grow"
            assert self._newest_sum is not None
            self.running[number], self.requests[number] = self._newest_sum, question.request
        self.asked[who] = question

    def _apply(self, copy: RunReplica, told: bytes) -> None:
        opened = decode_totals(told, copy.rules.next_request(copy.state).spec)
        assert opened.state == copy.digest, "told of a sum about another state than the site's"
        copy.apply(opened.totals, opened.members)

    def present(self) -> bytes:
        """Return the digest of the aggregator's state."""
        return self.training_run.state.digest(PLAN_DIGEST)

    # ---------------------------------------------------------- what sites and clocks do

    def start(self, *participants: ParticipantId) -> list[events.Effect]:
        effects = self.tell(events.Started())
        return effects + self.connect(*participants)

    def connect(self, *participants: ParticipantId) -> list[events.Effect]:
        """Let each participant say hello, in the process that it was before."""
        return [effect for who in participants for effect in self.tell(self._hello(who))]

    def _hello(self, who: ParticipantId) -> events.Connected:
        return events.Connected(who, state=self.copies[who].digest)

    def connect_anew(self, participant: ParticipantId) -> list[events.Effect]:
        """Let a participant say hello in a new process that has nothing on its disk."""
        return self.tell(events.Connected(participant))

    def disconnect(self, *participants: ParticipantId) -> list[events.Effect]:
        return [effect for who in participants for effect in self.tell(events.Disconnected(who))]

    def upload(self, *participants: ParticipantId) -> list[events.Effect]:
        """Let each participant answer the question that it was asked last."""
        return [effect for who in participants for effect in self.answer(who, self.asked[who].sum_number)]

    def answer(self, participant: ParticipantId, number: SumNumber) -> list[events.Effect]:
        payload = contribution_of(self.plan, participant, self.requests[number])
        return self.tell(events.UploadArrived(participant, number, payload))

    def abstain(self, participant: ParticipantId, *, leaving: bool = False) -> list[events.Effect]:
        number = self.asked[participant].sum_number
        return self.tell(events.Abstained(participant, number, "no data", leaving))

    def pass_deadline(self, kind: events.DeadlineKind) -> list[events.Effect]:
        """Let the oldest running deadline of this kind pass."""
        token = next(token for token in self.deadlines if token.kind is kind)
        return self.tell(events.DeadlinePassed(token))

    def run_to_the_end(self) -> None:
        """Let all sites that are asked answer until none is asked any more."""
        while self.federation.phase is Phase.SUMMING:
            self.upload(self.federation.waiting_for[0])

    # ---------------------------------------------------------- what is seen

    def newest_number(self) -> SumNumber:
        return max(self.running, default=SumNumber(0))

    def model_bytes(self) -> bytes:
        return self.training_run.model.vector.tobytes() + np.float64(self.training_run.model.threshold).tobytes()

    def counted_in(self, number: SumNumber) -> NDArray[np.float64]:
        """Return how often each of `NAMES` is in the total of a sum, read from the total itself."""
        running, request = self.running[number], self.requests[number]
        totals = running.totals()
        if request.purpose is Purpose.TRAINING:
            return np.asarray(totals.body)
        return totals.header[3 : 3 + len(NAMES)]  # the first bins of the first block: [n, correct, sum, counts...]

    def replayed(self) -> TrainingRun:
        """Return a second training run, driven by a plain loop over the same survivors."""
        training_run = training_run_of(self.plan)
        for outcome, number in self.story:
            if outcome == "skipped":
                training_run.skip("nobody came")
                continue
            request = training_run.next_sum()
            assert request == self.requests[number]
            if outcome == "lost":
                training_run.retry()
                continue
            plain = PlainSum(request.spec)
            for who in sorted(self.accepted[number]):
                plain.add(contribution_of(self.plan, who, request))
            training_run.apply_aggregate(plain.totals())
        return training_run


def kinds(effects: Iterable[events.Effect]) -> list[str]:
    """Return the names of effects, in order."""
    return [type(effect).__name__ for effect in effects]


def of_kind(effects: Iterable[events.Effect], kind: type[events.Effect]) -> list[events.Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


def state_of(*things: object) -> object:
    """Return everything that these things hold, in a form that compares by value, what is shared once."""
    seen: dict[int, tuple[int, object]] = {}  # with the things themselves: an id is another's after a thing's end
    return [_held(thing, seen) for thing in things]


def _held(thing: object, seen: dict[int, tuple[int, object]]) -> object:
    if isinstance(thing, str | bytes | int | float | enum.Enum | BaseModel | None):
        return thing  # frozen, and compared by value
    if (before := seen.get(id(thing))) is not None:
        return "seen", before[0]
    seen[id(thing)] = len(seen), thing
    match thing:
        case np.ndarray():
            return thing.dtype.str, thing.shape, thing.tobytes()
        case list() | tuple():
            held: object = [_held(item, seen) for item in thing]
        case set() | frozenset():
            held = frozenset(thing)
        case Mapping():
            held = [(_held(key, seen), _held(value, seen)) for key, value in thing.items()]
        case _:
            slots = {name: getattr(thing, name) for name in getattr(thing, "__slots__", ())}
            parts: dict[str, object] = getattr(thing, "__dict__", slots)
            held = [(name, _held(part, seen)) for name, part in parts.items()] or thing
    return type(thing).__name__, held
