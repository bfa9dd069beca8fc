"""A whole run as a state machine: events in, effects out, no socket, no clock, no file.

Theory of operation. The training run (`run.training_run`) knows which sum comes next. This state machine knows the
people: it waits for enough of them (`gathering`), opens a sum over those who are connected, hands its total to the
training run (`summing`), and continues until the training run is finished. `phases.PHASES` is the whole rule of
which event may come when and where it may lead; the driver carries out the effects in order and has no rule of its
own.

Waiting. The first sum begins when every collaborator of the plan is connected, or when the join deadline passes
with at least `min_collaborators`. After an interruption, such as a restart of the aggregator, it is enough that
a quorum is back: the others get `reconnect_grace_seconds` to return with it. A join deadline that passes without a
quorum aborts the run. `events.Waiting` has what is reported of it. Before the first sum after a restart, what the
sites know is compared with the journal (`continued`).

Summing. The cohort is all sites connected when the sum begins. `plain_sum` or `masked_sum` says who is
waited for and when the sum closes, `lost_sums` what follows a sum that is lost; it changes nothing. Who comes back
is asked again under the same number. An answer to a sum that is over is passed over: the sender was slow, not
wrong. An answer to a sum that never was, and an upload that cannot be added, get their sender refused; and so
does a proven lie (`liars`).
Verify, then commit: an event that is out of order raises `LocalProtocolError` before anything has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fedfair.errors import LocalProtocolError
from fedfair.ids import ParticipantId, SumNumber
from fedfair.plan.derived import quorum, trains
from fedfair.rounds.cohort_selection import CohortSelection
from fedfair.rounds.continued import Continued, Seen
from fedfair.rounds.deadlines import Deadlines
from fedfair.rounds.events import (
    Abstained,
    Connected,
    DeadlineKind,
    DeadlinePassed,
    Departed,
    Disconnected,
    Effect,
    Event,
    Excused,
    MessageArrived,
    Misbehaved,
    Started,
    StopRequested,
    UnfinishedSum,
    UploadArrived,
)
from fedfair.rounds.exit_reasons import ExitReason
from fedfair.rounds.gathering import Gathering
from fedfair.rounds.liars import Liars
from fedfair.rounds.lost_sums import LostSums
from fedfair.rounds.membership import Membership, Presence
from fedfair.rounds.phases import PHASES, Phase
from fedfair.rounds.run_under_way import RunUnderWay
from fedfair.rounds.slowness.late_members import LateMembers
from fedfair.rounds.slowness.stragglers import SumPace
from fedfair.rounds.state_steps import LastOpened, StateSteps
from fedfair.rounds.sum_round import MemberStanding, Step
from fedfair.rounds.summing import Summing

if TYPE_CHECKING:
    from fedfair.aggregation.requests import SumRequest
    from fedfair.aggregation.running_sum import RunningSum
    from fedfair.aggregation.spec import SumSpec
    from fedfair.plan.schema import Plan
    from fedfair.rounds.secagg_session import SecaggSession
    from fedfair.run.training_run import TrainingRun
    from fedfair.secagg.arriving import ArrivingVector


class Federation:
    """One run of one plan.

    Args:
        plan: who takes part, and every patience and quorum.
        training_run: what is summed, and what a total does; nobody else changes it meanwhile.
        make_sum: makes the empty running sum of a shape, in the clear.
        plan_digest: of the plan, 32 bytes.
        protection: masks every sum; None where the plan's sums are plain.
        last_sum_number: sums are numbered from the one after it.
        continued: what an earlier process that ran this training run has left; None for a new run.
        unfinished: the sum that an earlier process had begun and the training run asks for next; None for none.
        opened: the sum that an earlier process has opened last; None for none.
        clock: seconds since any fixed moment; where there is none, time stands still.

    """

    def __init__(
        self,
        plan: Plan,
        training_run: TrainingRun,
        make_sum: Callable[[SumSpec], RunningSum],
        plan_digest: bytes,
        *,
        protection: SecaggSession | None = None,
        last_sum_number: int = 0,
        continued: Continued | None = None,
        unfinished: UnfinishedSum | None = None,
        opened: LastOpened | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        federation = plan.federation
        members = Membership([ParticipantId(name) for name in federation.collaborators])
        deadlines, least = Deadlines(), quorum(plan)
        liars = Liars(members)
        following = CohortSelection(members, least, len(federation.collaborators), liars)
        self._run = run = RunUnderWay(
            federation,
            plan.training.rounds,
            training_run,
            StateSteps(training_run, plan_digest, opened, masked=protection is not None),
            members,
            deadlines,
            LateMembers(plan, members, deadlines, clock),
            liars,
            following,
            LostSums(training_run, following, protection, federation.max_attempts, unfinished),
            protection,
            SumNumber(last_sum_number),
            trains=trains(plan),
        )
        self._summing = Summing(run, least, make_sum, lambda: self._gathering)
        self._gathering = Gathering(run, continued, self._summing.open)

    # -------------------------------------------------------------- what anybody may look at

    @property
    def phase(self) -> Phase:
        """Return where the run stands."""
        return self._run.phase

    @property
    def steps(self) -> StateSteps:
        """Return the states that sites must be brought to."""
        return self._run.steps

    @property
    def rounds_total(self) -> int:
        """Return how many training rounds the plan has."""
        return self._run.rounds_total

    @property
    def sum_number(self) -> SumNumber:
        """Return the number of the sum that is open, or of the last one."""
        return self._run.sum_number

    @property
    def rounds_done(self) -> int:
        """Return how many training rounds are behind us."""
        return self._run.training_run.rounds_done

    @property
    def request(self) -> SumRequest | None:
        """Return what is being summed; None while no sum is open."""
        return self._run.sum.request if self._run.sum else None

    @property
    def awaits(self) -> str:
        """Return in one word what the open sum waits for; empty while no sum is open."""
        return self._run.sum.awaits if self._run.sum else ""

    @property
    def connected(self) -> tuple[ParticipantId, ...]:
        """Return the connected sites, in the plan's order."""
        return self._run.members.connected

    @property
    def waiting_for(self) -> tuple[ParticipantId, ...]:
        """Return whose answer is awaited; while no sum is open, who is not connected."""
        return self._run.sum.waiting_for if self._run.sum else self._run.members.missing

    @property
    def pace(self) -> SumPace:
        """Return how fast the sum was answered that closed last."""
        return self._run.late.times.pace

    # -------------------------------------------------------------- the one way in

    def arriving(self, participant: ParticipantId, message: bytes, length: int) -> ArrivingVector | None:
        """Return what adds a masked vector to the sum under way while it arrives.

        It stands for the vector in the `MessageArrived` that says that all of it is here. Where none does, nothing
        of it is in the sum.

        Args:
            participant: who sends it.
            message: beside the vector.
            length: of the vector, in bytes.

        Returns:
            None where the vector must be held until it is whole.
        """
        sum_round = self._run.sum
        if sum_round is None or participant not in self.connected or not self._run.members.is_heard(participant):
            return None
        return sum_round.arriving(participant, message, length)

    def receive(self, event: Event) -> list[Effect]:
        """Take one event; return what is to be done about it, in order. At the end of a run: nothing, ever.

        Raises:
            LocalProtocolError: the event cannot happen now; nothing has changed.
        """
        if self.phase in {Phase.FINISHED, Phase.ABORTED}:
            return []
        if type(event) not in PHASES[self.phase]:
            raise LocalProtocolError(f"{type(event).__name__} cannot happen while a run is {self.phase.value}")
        return list(self._handle(event))

    def _handle(self, event: Event) -> Iterator[Effect]:  # noqa: C901 - one case per event
        summing = self._summing
        match event:
            case Started():
                yield from self._gathering.begin()
            case Connected(participant, session, seen, state):
                yield from self._connect(participant, session, seen, state)
            case Disconnected(participant, steady):
                yield from self._disconnect(participant, steady=steady)
            case UploadArrived(participant, number, payload):
                yield from summing.upload(participant, number, payload)
            case MessageArrived(participant, message, vector):
                yield from summing.message(participant, message, vector)
            case Abstained(participant, _, reason, leaving=True) if self._run.members.is_heard(participant):
                yield from summing.part_with(Departed(participant, self.rounds_done, reason))
            case Abstained(participant, number, reason, accused=accused):
                yield from summing.abstain(participant, number, reason, accused)
            case Misbehaved(participant, message, remedy):
                if self._run.members.is_heard(participant):
                    yield from summing.expel(participant, message, remedy)
            case Excused(participant, reason):
                yield from self._excuse(participant, reason)
            case DeadlinePassed(token):
                self._run.deadlines.check_issued(token)
                yield from self._pass_deadline(self._run.deadlines.take(token))
            case StopRequested(reason):
                yield from self._run.abort(reason, "", ExitReason.STOPPED)

    def _pass_deadline(self, passed: tuple[DeadlineKind, ParticipantId | None] | None) -> Iterator[Effect]:
        match passed:
            case (DeadlineKind.JOIN, _) if not self._run.next.may_begin_late:
                yield from self._gathering.give_up()
            case (DeadlineKind.JOIN | DeadlineKind.SETTLE, _):
                yield from self._gathering.start()
            case (kind, participant) if self._run.sum is not None:
                yield from self._summing.pass_deadline(kind, participant, self._run.sum)

    # -------------------------------------------------------------- coming and going

    def _excuse(self, participant: ParticipantId, reason: str) -> Iterator[Effect]:
        presence = self._run.members.presence(participant)  # This refuses a name not of the plan.
        self._run.members.excuse(participant)
        if presence is Presence.CONNECTED:
            yield from self._summing.part_with(Departed(participant, self.rounds_done, reason))
        elif self.phase is Phase.WAITING:
            yield from self._gathering.start_if_enough()

    def _connect(self, participant: ParticipantId, session: bytes, seen: Seen, state: bytes) -> Iterator[Effect]:
        if self._run.members.presence(participant) is not Presence.ABSENT:  # This refuses a name not of the plan.
            self._run.late.times.gone(participant)
        self._run.members.connect(participant, state or self.steps.initial)
        self._gathering.note(participant, seen)
        if self._run.protection is not None:
            self._run.protection.note_keys(participant, session)
        if participant in self._run.liars:
            yield from self._run.liars.send_away(participant)
        elif self._run.sum is None:
            yield from self.steps.send_last_sum(participant, self._run.members)
            yield from self._gathering.start_if_enough()
        elif participant in self._run.sum.cohort:
            yield from self._run.deadlines.cancel(DeadlineKind.GRACE, participant)
            if self._run.sum.step(participant, Step.RETURN) is MemberStanding.ASKED:
                yield from self._summing.ask(participant, self._run.sum)
                yield from self._summing.pass_on(self._run.sum)
                yield from self._run.late.watch(self._run.sum)

    def _disconnect(self, participant: ParticipantId, *, steady: bool) -> Iterator[Effect]:
        presence = self._run.members.presence(participant)
        if presence is Presence.ABSENT:
            raise LocalProtocolError(f"{participant} is reported as disconnected, but was not connected")
        self._run.members.disconnect(participant)
        self._run.late.times.gone(participant)
        if presence is Presence.REFUSED:
            return
        sum_round = self._run.sum
        if sum_round is None:
            yield from self._gathering.start_if_enough()
        elif participant in sum_round.cohort and sum_round.step(participant, Step.LEAVE) is MemberStanding.AWAY:
            grace = self._run.patience.reconnect_grace_seconds if steady else 0
            yield self._run.deadlines.set(DeadlineKind.GRACE, grace, participant)
            yield from self._run.late.watch(sum_round)
