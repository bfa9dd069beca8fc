"""A whole run as a state machine: events in, effects out, no socket, no clock, no file.

Theory of operation. The training run (`run.training_run`) knows which sum comes next. This state machine knows the
people: it waits for enough of them, opens a `PlainSumRound` over those who are connected, hands its total to the
training run, and continues until the training run is finished. `phases.PHASES` is the whole rule of which event
may come when and where it may lead; the driver carries out the effects in order and has no rule of its own.

Waiting. The first sum begins when every collaborator of the plan is connected, or when the join deadline passes
with at least `min_collaborators`. After an interruption, such as a restart of the aggregator, it is enough that
a quorum is back: the others get `reconnect_grace_seconds` to return with it. A join deadline that passes without a
quorum aborts the run. `events.Waiting` has what is told of it. Before the first sum after a restart, what the
sites know is compared with the journal (`continued`).

Summing. The cohort is everybody who is connected when the sum begins. `plain_sum` or `masked_sum` says who is
waited for and when the sum closes, `lost_sums` what follows a sum that is lost; it changes nothing. Who comes back
is asked again under the same number. An answer to a sum that is over is passed over: the sender was slow, not
wrong. An answer to a sum that never was, and an upload that cannot be added, get their sender refused; and so
does a proven lie (`liars`).
Verify, then commit: an event that is out of order raises `LocalProtocolError` before anything has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fedfair.aggregation.round_subject import round_subject
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.ids import ParticipantId, SumNumber
from fedfair.plan.derived import quorum
from fedfair.rounds.cohort_selection import CohortSelection
from fedfair.rounds.continued import Continued, Seen
from fedfair.rounds.deadlines import Deadlines
from fedfair.rounds.events import (
    Abort,
    Abstained,
    Accept,
    Checkpoint,
    CheckpointKind,
    Connected,
    DeadlineKind,
    DeadlinePassed,
    Departed,
    Disconnected,
    Effect,
    Event,
    Finish,
    MessageArrived,
    Misbehaved,
    PassedOver,
    Refuse,
    Report,
    SendMessage,
    SendSum,
    SitesAhead,
    Skipped,
    Started,
    StopRequested,
    SumLost,
    Unawaited,
    UnfinishedSum,
    UploadArrived,
    Waiting,
)
from fedfair.rounds.exit_reasons import TRY_AGAIN, ExitReason
from fedfair.rounds.late_members import LateMembers
from fedfair.rounds.liars import Liars
from fedfair.rounds.lost_sums import End, LostSums
from fedfair.rounds.masked_sum import MaskedSumRound, abstention, accuse_late
from fedfair.rounds.membership import Membership, Presence
from fedfair.rounds.phases import PHASES, Phase
from fedfair.rounds.plain_sum import PlainSumRound
from fedfair.rounds.state_steps import OUT_OF_STEP, LastOpened, StateSteps
from fedfair.rounds.stragglers import SumPace
from fedfair.rounds.sum_round import MemberStanding, OutgoingMessage, Step, SumRound, SumState

if TYPE_CHECKING:
    from fedfair.aggregation.requests import SumRequest
    from fedfair.aggregation.running_sum import RunningSum
    from fedfair.aggregation.spec import SumSpec
    from fedfair.plan.schema import Plan
    from fedfair.rounds.secagg_session import SecaggSession
    from fedfair.run.training_run import TrainingRun
    from fedfair.secagg.arriving import ArrivingVector
    from fedfair.secagg.masking import MaskedVector


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

    Attributes:
        steps: the states that sites must be brought to.
        phase: where the run stands.
        rounds_total: how many training rounds the plan has.
        sum_number: the number of the sum that is open, or of the last one.
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
        self.steps = StateSteps(training_run, plan_digest, opened, masked=protection is not None)
        self._federation = plan.federation
        self.rounds_total = plan.training.rounds
        self._training_run = training_run
        self._make_sum = make_sum
        self._protection = protection
        self._members = Membership([ParticipantId(name) for name in plan.federation.collaborators])
        self._quorum = quorum(plan)
        self._deadlines = Deadlines()
        self._late = LateMembers(plan, self._members, self._deadlines, clock)
        self.phase = Phase.NEW
        self._sum: SumRound | None = None
        self.sum_number = SumNumber(last_sum_number)
        self._continued = continued
        self._seen: dict[ParticipantId, Seen] = {}
        self._interrupted = continued is not None
        self._liars = Liars(self._members)
        self._next = CohortSelection(self._members, self._quorum, len(plan.federation.collaborators), self._liars)
        self._last_counted: dict[ParticipantId, SumNumber] = {}
        self._told_waiting: Waiting | None = None
        self._lost = LostSums(training_run, self._next, protection, plan.federation.max_attempts, unfinished)

    # -------------------------------------------------------------- what anybody may look at

    @property
    def rounds_done(self) -> int:
        """Return how many training rounds are behind us."""
        return self._training_run.rounds_done

    @property
    def request(self) -> SumRequest | None:
        """Return what is being summed; None while no sum is open."""
        return self._sum.request if self._sum else None

    @property
    def awaits(self) -> str:
        """Return in one word what the open sum waits for; empty while no sum is open."""
        return self._sum.awaits if self._sum else ""

    @property
    def connected(self) -> tuple[ParticipantId, ...]:
        """Return everybody who is connected, in the plan's order."""
        return self._members.connected

    @property
    def waiting_for(self) -> tuple[ParticipantId, ...]:
        """Return whose answer is awaited; while no sum is open, who is not connected."""
        return self._sum.waiting_for if self._sum else self._members.missing

    @property
    def pace(self) -> SumPace:
        """Return how fast the sum was answered that closed last."""
        return self._late.times.pace

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
        if self._sum is None or participant not in self.connected or not self._members.is_heard(participant):
            return None
        return self._sum.arriving(participant, message, length)

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
        match event:
            case Started():
                yield from self._begin()
            case Connected(participant, session, seen, state):
                yield from self._connect(participant, session, seen, state)
            case Disconnected(participant, steady):
                yield from self._disconnect(participant, steady=steady)
            case UploadArrived(participant, number, payload):
                yield from self._upload(participant, number, payload)
            case MessageArrived(participant, message, vector):
                yield from self._message(participant, message, vector)
            case Abstained(participant, _, reason, leaving=True) if self._members.is_heard(participant):
                yield from self._part_with(Departed(participant, self._training_run.rounds_done, reason))
            case Abstained(participant, number, reason, accused=accused):
                yield from self._abstain(participant, number, reason, accused)
            case Misbehaved(participant, message, remedy):
                if self._members.is_heard(participant):
                    yield from self._expel(participant, message, remedy)
            case DeadlinePassed(token):
                self._deadlines.check_issued(token)
                yield from self._pass_deadline(self._deadlines.take(token))
            case StopRequested(reason):
                yield from self._abort(reason, "", ExitReason.STOPPED)

    # -------------------------------------------------------------- coming and going

    def _begin(self) -> Iterator[Effect]:
        if self._training_run.next_sum() is None:
            yield from self._finish()
            return
        if self._continued is None:
            yield Checkpoint(CheckpointKind.INITIAL)
        self._lost.take_up()
        yield from self._wait()

    def _connect(self, participant: ParticipantId, session: bytes, seen: Seen, state: bytes) -> Iterator[Effect]:
        if self._members.presence(participant) is not Presence.ABSENT:  # This refuses a name not of the plan.
            self._late.times.gone(participant)
        self._members.connect(participant, state or self.steps.initial)
        self._seen[participant] = seen
        if self._protection is not None:
            self._protection.note_keys(participant, session)
        if participant in self._liars:
            yield from self._liars.send_away(participant)
        elif self._sum is None:
            yield from self.steps.tell_of_last(participant, self._members)
            yield from self._start_if_enough()
        elif participant in self._sum.cohort:
            yield from self._deadlines.cancel(DeadlineKind.GRACE, participant)
            if self._sum.step(participant, Step.RETURN) is MemberStanding.ASKED:
                yield from self._ask(participant, self._sum)
                yield from self._pass_on(self._sum)
                yield from self._late.watch(self._sum)

    def _disconnect(self, participant: ParticipantId, *, steady: bool) -> Iterator[Effect]:
        presence = self._members.presence(participant)
        if presence is Presence.ABSENT:
            raise LocalProtocolError(f"{participant} is reported as disconnected, but was not connected")
        self._members.disconnect(participant)
        self._late.times.gone(participant)
        if presence is Presence.REFUSED:
            return
        if self._sum is None:
            yield from self._start_if_enough()
        elif participant in self._sum.cohort and self._sum.step(participant, Step.LEAVE) is MemberStanding.AWAY:
            grace = self._federation.reconnect_grace_seconds if steady else 0
            yield self._deadlines.set(DeadlineKind.GRACE, grace, participant)
            yield from self._late.watch(self._sum)

    def _expel(self, participant: ParticipantId, message: str, remedy: str) -> Iterator[Effect]:
        """Send a connected participant away."""
        return self._part_with(Refuse(participant, message, remedy, TRY_AGAIN[ExitReason.MISBEHAVED]))

    def _part_with(self, words: Refuse | Departed) -> Iterator[Effect]:
        """Go on without a connected participant; what it did before stays as it is."""
        self._members.refuse(words.participant)
        yield words
        if self._sum is None:
            yield from self._start_if_enough()
        elif words.participant in self._sum.cohort:
            self._sum.step(words.participant, Step.EXPEL)
            yield from self._close_if_settled(self._sum)

    # -------------------------------------------------------------- waiting for people

    def _wait(self) -> Iterator[Effect]:
        self.phase = Phase.WAITING
        yield self._deadlines.set(DeadlineKind.JOIN, self._federation.join_deadline_seconds)
        yield from self._start_if_enough()

    def _start_if_enough(self) -> Iterator[Effect]:
        """While waiting: begin the next sum, or say whom we wait for."""
        missing = self._next.absent
        if not missing:
            yield from self._start()
            return
        if self._interrupted and not self._next.is_fixed and self._next.has_quorum:
            if not self._deadlines.is_running(DeadlineKind.SETTLE):
                yield self._deadlines.set(DeadlineKind.SETTLE, self._federation.reconnect_grace_seconds)
        else:
            yield from self._deadlines.cancel(DeadlineKind.SETTLE)
        until = self._deadlines.running(DeadlineKind.JOIN, DeadlineKind.SETTLE)
        waiting = self._next.waiting(self._training_run.next_sum(), until, self._lost)
        if waiting != self._told_waiting:
            self._told_waiting = waiting
            yield waiting

    # -------------------------------------------------------------- one sum

    def _start(self) -> Iterator[Effect]:
        yield from self._compare()
        if self.phase is Phase.ABORTED:
            return
        request = self._training_run.next_sum()
        if request is None:
            raise LocalProtocolError("there is nothing left to sum")
        yield from self._deadlines.cancel_all()
        number = SumNumber(self.sum_number + 1)
        sum_round = self._sum_round(number, request)
        self.sum_number, self._sum, self.phase = number, sum_round, Phase.SUMMING
        yield self._deadlines.set(DeadlineKind.SUM, self._federation.round_deadline_seconds)
        absent = set(sum_round.cohort) - set(self._members.connected)
        for participant in sum_round.cohort:
            if participant not in absent:
                yield from self._ask(participant, sum_round)
        for participant in absent:  # An interrupted sum has waited for them long enough.
            sum_round.step(participant, Step.LAPSE)
        yield from self._close_if_settled(sum_round)

    def _compare(self) -> Iterator[Effect]:
        """Before anything is decided in this process: hold the journal against what the connected sites know."""
        continued, self._continued = self._continued, None
        if continued is None:
            return
        seen = {who: self._seen[who] for who in self._members.connected}
        leads, rounds = continued.leads(seen), continued.vouched_lead(seen)
        self.sum_number = max(self.sum_number, continued.vouched_number(seen))
        if leads:
            yield SitesAhead(leads, rounds)
        if continued.stops(rounds):
            yield from self._abort(*continued.words(rounds), ExitReason.RESTORED)
        elif rounds:
            self._lost.forget()

    def _give_up(self) -> Iterator[Effect]:
        """Decide without those who did not come, but never before the journal is known to be the newest."""
        if self._continued is not None and not self._next.others_suffice:
            yield from self._abort(*self._next.lack(self._lost.due), ExitReason.QUORUM_MISSING)
            return
        yield from self._compare()
        if self.phase is Phase.ABORTED:
            return
        if self._next.may_begin_late:
            return (yield from self._start())
        lost, outcome = self._lost.give_up(self.sum_number)
        yield from lost
        yield from self._go_on(outcome)

    def _sum_round(self, number: SumNumber, request: SumRequest) -> SumRound:
        self._late.begin_sum(only_these=self._next.is_fixed)
        cohort, quorum = self._next.take(self._late.resting(request)), self._quorum
        if self._protection is None:
            return PlainSumRound(number, request, cohort, quorum, self._make_sum(request.spec))
        for participant in self._members.connected:
            if not self.steps.reaches(participant, self._members.held(participant)):
                # Only the adverts of a new session can vouch for the state that it must be sent.
                self._protection.note_keys(participant, b"")
        record, clip = self._lost.take_record(), self._training_run.state.clip
        about = (round_subject(self.steps.present, request), 0.0 if clip is None else clip)
        return MaskedSumRound(number, request, cohort, quorum, self._protection, *about, record)

    def _pass_on(self, sum_round: SumRound) -> Iterator[Effect]:
        """Say what the sum has to say, after what a later process needs to say the same is kept."""
        messages: list[OutgoingMessage] = []
        while outgoing := sum_round.take_outgoing():
            messages += outgoing.messages
            yield from self._liars.blame(outgoing.suspicions, sum_round)
        if messages:
            yield from self._lost.unsaved(sum_round)
        for said in messages:
            yield SendMessage(said.member, said.message, said.vector)

    def _ask(self, participant: ParticipantId, sum_round: SumRound) -> Iterator[Effect]:
        yield from self.steps.bring_up(participant, self._members)
        # The request itself tells of an evaluation that was left out; the next sum is about the state without it.
        self._members.hold(participant, self.steps.present)
        about, seconds = (sum_round.number, sum_round.request), self._federation.round_deadline_seconds
        yield SendSum(participant, *about, self.steps.present, seconds)

    def _upload(
        self, participant: ParticipantId, number: SumNumber, payload: bytes | bytearray | memoryview
    ) -> Iterator[Effect]:
        if not self._members.is_heard(participant):
            return
        yield from self._late.hear(participant)
        if self._is_over(number):
            if self._last_counted.get(participant) == number:
                yield Accept(participant, number)
            return
        try:
            sum_round = self._open_sum(number)
            sum_round.upload(participant, payload)
        except RemoteProtocolError as fault:
            yield from self._expel(participant, fault.message, fault.remedy)
            return
        self._last_counted[participant] = number
        self._late.times.answered(participant)
        yield Accept(participant, number)
        yield from self._close_if_settled(sum_round)

    def _message(self, participant: ParticipantId, message: bytes, vector: MaskedVector) -> Iterator[Effect]:
        if not self._members.is_heard(participant):
            return
        sum_round, caught_up = self._sum, tuple(self._late.hear(participant))
        yield from caught_up
        if sum_round is None or (caught_up and participant not in sum_round.cohort):
            return
        awaited = participant in sum_round.waiting_for
        try:
            reason = sum_round.receive(participant, message, vector)
        except RemoteProtocolError as fault:
            yield from self._expel(participant, fault.message, fault.remedy)
            return
        if reason:
            yield PassedOver(participant, reason)
        elif awaited:
            self._late.times.answered(participant)
        yield from self._close_if_settled(sum_round)

    def _abstain(
        self, participant: ParticipantId, number: SumNumber, reason: str, accused: int
    ) -> Iterator[Effect]:
        if not self._members.is_heard(participant):
            return
        if reason in OUT_OF_STEP:
            # Whatever it was sent has not brought it into step: the next sum begins with the whole state.
            self._members.hold(participant, b"")
        yield from self._late.hear(participant)
        if self._is_over(number):
            if accused and number == self._newest_over:
                yield from self._accuse_late(participant, accused)
            return
        try:
            sum_round = self._open_sum(number)
            awaited = participant in sum_round.waiting_for
            passed_over = sum_round.accuse(participant, accused) if accused else ""
            sum_round.step(participant, Step.ABSTAIN)
        except RemoteProtocolError as fault:
            yield from self._expel(participant, fault.message, fault.remedy)
            return
        if passed_over:
            yield PassedOver(participant, passed_over)
        if awaited:
            yield Unawaited(participant, number, sum_round.request, abstention(sum_round, reason), reason)
        yield from self._close_if_settled(sum_round)

    def _accuse_late(self, participant: ParticipantId, accused: int) -> Iterator[Effect]:
        """Hear who could not open an envelope of the sum before, whose answer others were quicker than."""
        if self._protection is None:
            return
        try:
            suspicions = accuse_late(self._protection, participant, accused)
        except RemoteProtocolError as fault:
            yield from self._expel(participant, fault.message, fault.remedy)
            return
        yield from self._liars.blame(suspicions, self._sum)
        if self._sum is not None:
            yield from self._close_if_settled(self._sum)
        elif any(suspicion.proven for suspicion in suspicions):
            yield from self._start_if_enough()

    @property
    def _newest_over(self) -> int:
        return self.sum_number - 1 if self._sum else self.sum_number

    def _is_over(self, number: SumNumber) -> bool:
        return 1 <= number <= self._newest_over

    def _open_sum(self, number: SumNumber) -> SumRound:
        """Return the open sum, or refuse an answer to a sum that never was."""
        if self._sum is None or number != self._sum.number:
            raise RemoteProtocolError(f"an answer to sum {number} arrived, the newest sum is {self.sum_number}")
        return self._sum

    def _pass_deadline(self, passed: tuple[DeadlineKind, ParticipantId | None] | None) -> Iterator[Effect]:
        match passed, self._sum:
            case (DeadlineKind.JOIN, _), _ if not self._next.may_begin_late:
                yield from self._give_up()
            case (DeadlineKind.JOIN | DeadlineKind.SETTLE, _), _:
                yield from self._start()
            case (DeadlineKind.SUM | DeadlineKind.MASKS, _), sum_round if sum_round is not None:
                late, seconds = sum_round.waiting_for, self._federation.round_deadline_seconds
                sum_round.pass_deadline()
                for member in late:
                    yield Unawaited(member, sum_round.number, sum_round.request, f"no answer within {seconds} s")
                if sum_round.state is SumState.OPEN:
                    yield self._deadlines.set(DeadlineKind.MASKS, seconds)
                yield from self._close_if_settled(sum_round)
            case (DeadlineKind.STRAGGLERS, _), sum_round if sum_round is not None:
                if self._late.may_be_left(sum_round):
                    yield from self._late.leave_behind(sum_round)
                    yield from self._close_if_settled(sum_round)
            case (DeadlineKind.GRACE, str() as participant), sum_round if sum_round is not None:
                member, grace = ParticipantId(participant), self._federation.reconnect_grace_seconds
                sum_round.step(member, Step.LAPSE)
                yield Unawaited(member, sum_round.number, sum_round.request, f"it did not return within {grace} s")
                yield from self._close_if_settled(sum_round)

    # -------------------------------------------------------------- between two sums

    def _close_if_settled(self, sum_round: SumRound) -> Iterator[Effect]:
        yield from self._pass_on(sum_round)
        if sum_round.state is SumState.OPEN:
            yield from self._late.watch(sum_round)
            return
        self._late.times.close()
        yield from self._deadlines.cancel_all()
        self._sum = None
        if sum_round.state is SumState.LOST:
            yield from self._lose(sum_round, sum_round.reason)
            return
        for participant in sum_round.aftermath.accepted:
            yield Accept(participant, sum_round.number)
        yield from self._absorb(sum_round)

    def _absorb(self, sum_round: SumRound) -> Iterator[Effect]:
        before, totals = self.steps.present, sum_round.totals()
        try:
            progress = self._training_run.apply_aggregate(totals, sum_round.counted)
        except RemoteProtocolError as fault:
            # A total that cannot be right names nobody: the attempt is lost, and the model is what it was. Every
            # site has the same rules, and refuses the same total.
            yield from self._lose(sum_round, fault.message)
            return
        aftermath = sum_round.aftermath
        said = None if self._protection is None else self._protection.server.announcement
        if said is None:
            self.steps.moved(LastOpened.in_the_clear(before, totals, sum_round.counted))
            for participant in self._members.connected:
                if not self._late.times.owes(participant) or participant in sum_round.cohort:
                    yield from self.steps.tell_of_last(participant, self._members)
        else:
            # The round itself has told whoever was in it to its end.
            self.steps.moved(LastOpened.under_masks(before, said, aftermath.told))
            for participant in set(aftermath.told) & set(self._members.connected):
                self._members.hold(participant, self.steps.present)
        yield Report(progress, aftermath.clipping)
        if progress.is_best:
            yield Checkpoint(CheckpointKind.BEST)
        if progress.evaluation is not None:
            yield Checkpoint(CheckpointKind.LAST)
        self._lost.follow(sum_round)
        yield from self._proceed()

    def _lose(self, sum_round: SumRound, reason: str) -> Iterator[Effect]:
        yield SumLost(sum_round.number, sum_round.request, reason)
        yield from self._go_on(self._lost.after(sum_round, reason))

    def _go_on(self, outcome: Skipped | End | None) -> Iterator[Effect]:
        if isinstance(outcome, tuple):
            yield from self._abort(*outcome)
            return
        if outcome is not None:
            yield outcome
        yield from self._proceed()

    def _proceed(self) -> Iterator[Effect]:
        if self._training_run.next_sum() is None:
            yield from self._finish()
        elif self._next.is_enough:
            yield from self._start()
        else:
            self._interrupted = True
            yield from self._wait()

    def _finish(self) -> Iterator[Effect]:
        self.phase = Phase.FINISHED
        yield Checkpoint(CheckpointKind.LAST)
        if not self._training_run.evaluation_only:
            yield Checkpoint(CheckpointKind.TRAINED)
        for participant in self._members.connected:
            yield from self.steps.to_the_end(participant, self._members.held(participant))
        yield Finish(self._training_run.rounds_done, f"all {self.rounds_total} rounds are done")

    def _abort(self, reason: str, remedy: str, why: ExitReason) -> Iterator[Effect]:
        # An open sum is dropped with whatever is in it: the model only ever changes by a whole total.
        self._sum, self.phase = None, Phase.ABORTED
        yield from self._deadlines.cancel_all()
        yield Checkpoint(CheckpointKind.LAST)
        yield Abort(reason, remedy, why)
