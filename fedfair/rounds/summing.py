"""One sum after the other: who is asked, what is heard, and what an opened or a lost sum leads to.

The cohort is all sites connected when the sum begins. `plain_sum` or `masked_sum` says who is waited for
and when the sum closes, `lost_sums` what follows a sum that is lost. Decides nothing while no sum is open; that is
`gathering`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from fedfair.aggregation.round_subject import round_subject
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.ids import ParticipantId, SumNumber
from fedfair.rounds.events import (
    Accept,
    Checkpoint,
    CheckpointKind,
    DeadlineKind,
    Departed,
    Effect,
    PassedOver,
    Refuse,
    Report,
    SendMessage,
    SendSum,
    Skipped,
    SumLost,
    Unawaited,
)
from fedfair.rounds.exit_reasons import TRY_AGAIN, ExitReason
from fedfair.rounds.masked_sum import MaskedSumRound, abstention, accuse_late
from fedfair.rounds.phases import Phase
from fedfair.rounds.plain_sum import PlainSumRound
from fedfair.rounds.state_steps import OUT_OF_STEP, LastOpened
from fedfair.rounds.sum_round import OutgoingMessage, Step, SumRound, SumState

if TYPE_CHECKING:
    from fedfair.aggregation.requests import SumRequest
    from fedfair.aggregation.running_sum import RunningSum
    from fedfair.aggregation.spec import SumSpec
    from fedfair.rounds.lost_sums import End
    from fedfair.rounds.run_under_way import RunUnderWay
    from fedfair.secagg.masking import MaskedVector


class Between(Protocol):
    """The time between two sums (`gathering`)."""

    def proceed(self) -> Iterator[Effect]:
        """Continue after a sum."""

    def after_lost_sum(self, outcome: Skipped | End | None) -> Iterator[Effect]:
        """Do what follows a lost sum."""

    def start_if_enough(self) -> Iterator[Effect]:
        """Begin the next sum, or say whom it waits for."""


class Summing:
    """The sums of one run.

    Args:
        run: the run.
        quorum: fewest contributors of a sum.
        make_sum: makes the empty running sum of a shape, in the clear.
        between: the time between two sums.
    """

    def __init__(
        self,
        run: RunUnderWay,
        quorum: int,
        make_sum: Callable[[SumSpec], RunningSum],
        between: Callable[[], Between],
    ) -> None:
        self._run = run
        self._quorum = quorum
        self._make_sum = make_sum
        self._between = between
        self._last_counted: dict[ParticipantId, SumNumber] = {}

    def open(self) -> Iterator[Effect]:
        """Ask every connected site that takes part for the sum that is due."""
        request = self._run.training_run.next_sum()
        if request is None:
            raise LocalProtocolError("there is nothing left to sum")
        yield from self._run.deadlines.cancel_all()
        sum_round = _begun(self._run, self._quorum, self._make_sum, request)
        self._run.sum_number, self._run.sum, self._run.phase = sum_round.number, sum_round, Phase.SUMMING
        yield self._run.deadlines.set(DeadlineKind.SUM, self._run.patience.round_deadline_seconds)
        absent = set(sum_round.cohort) - set(self._run.members.connected)
        for participant in sum_round.cohort:
            if participant not in absent:
                yield from self.ask(participant, sum_round)
        for participant in absent:  # An interrupted sum has waited for them long enough.
            sum_round.step(participant, Step.LAPSE)
        yield from self.close_if_settled(sum_round)

    def expel(self, participant: ParticipantId, message: str, remedy: str) -> Iterator[Effect]:
        """Send a connected participant away."""
        return self.part_with(Refuse(participant, message, remedy, TRY_AGAIN[ExitReason.MISBEHAVED]))

    def part_with(self, words: Refuse | Departed) -> Iterator[Effect]:
        """Continue without a connected participant; what it did before stays as it is."""
        self._run.members.refuse(words.participant)
        yield words
        if self._run.sum is None:
            yield from self._between().start_if_enough()
        elif words.participant in self._run.sum.cohort:
            self._run.sum.step(words.participant, Step.EXPEL)
            yield from self.close_if_settled(self._run.sum)

    def close_if_settled(self, sum_round: SumRound) -> Iterator[Effect]:
        """Say what a sum has to say; where it is over, continue."""
        yield from self.pass_on(sum_round)
        if sum_round.state is SumState.OPEN:
            yield from self._run.late.watch(sum_round)
            return
        self._run.late.times.close()
        yield from self._run.deadlines.cancel_all()
        self._run.sum = None
        if sum_round.state is SumState.LOST:
            yield from self._lose(sum_round, sum_round.reason)
            return
        for participant in sum_round.aftermath.accepted:
            yield Accept(participant, sum_round.number)
        yield from self._absorb(sum_round)

    def upload(
        self, participant: ParticipantId, number: SumNumber, payload: bytes | bytearray | memoryview
    ) -> Iterator[Effect]:
        """Take a contribution in the clear."""
        if not self._run.members.is_heard(participant):
            return
        if self._is_over(number):
            yield from self._run.late.hear(participant)
            if self._last_counted.get(participant) == number:
                yield Accept(participant, number)
            return
        try:
            sum_round = self._open_sum(number)
            sum_round.upload(participant, payload)
        except RemoteProtocolError as fault:
            yield from self.expel(participant, fault.message, fault.remedy)
            return
        yield from self._run.late.hear(participant)
        self._last_counted[participant] = number
        self._run.late.times.answered(participant)
        yield Accept(participant, number)
        yield from self.close_if_settled(sum_round)

    def message(self, participant: ParticipantId, message: bytes, vector: MaskedVector) -> Iterator[Effect]:
        """Take a message of secure aggregation."""
        if not self._run.members.is_heard(participant):
            return
        sum_round, caught_up = self._run.sum, tuple(self._run.late.hear(participant))
        yield from caught_up
        if sum_round is None or (caught_up and participant not in sum_round.cohort):
            return
        awaited = participant in sum_round.waiting_for
        try:
            reason = sum_round.receive(participant, message, vector)
        except RemoteProtocolError as fault:
            yield from self.expel(participant, fault.message, fault.remedy)
            return
        if reason:
            yield PassedOver(participant, reason)
        elif awaited:
            self._run.late.times.answered(participant)
        yield from self.close_if_settled(sum_round)

    def abstain(
        self, participant: ParticipantId, number: SumNumber, reason: str, accused: int
    ) -> Iterator[Effect]:
        """Take the word of a participant that it adds nothing, and perhaps whom it accuses."""
        if not self._run.members.is_heard(participant):
            return
        if reason in OUT_OF_STEP:
            # Whatever it was sent has not brought it into step: the next sum begins with the whole state.
            self._run.members.hold(participant, b"")
        yield from self._run.late.hear(participant)
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
            yield from self.expel(participant, fault.message, fault.remedy)
            return
        if passed_over:
            yield PassedOver(participant, passed_over)
        if awaited:
            yield Unawaited(participant, number, sum_round.request, abstention(sum_round, reason), reason)
        yield from self.close_if_settled(sum_round)

    def pass_deadline(
        self, kind: DeadlineKind, participant: ParticipantId | None, sum_round: SumRound
    ) -> Iterator[Effect]:
        """Stop waiting for whom a deadline of the open sum was set."""
        match kind, participant:
            case DeadlineKind.SUM | DeadlineKind.MASKS, _:
                late, seconds = sum_round.waiting_for, self._run.patience.round_deadline_seconds
                sum_round.pass_deadline()
                for member in late:
                    yield Unawaited(member, sum_round.number, sum_round.request, f"no answer within {seconds} s")
                if sum_round.state is SumState.OPEN:
                    yield self._run.deadlines.set(DeadlineKind.MASKS, seconds)
                yield from self.close_if_settled(sum_round)
            case DeadlineKind.STRAGGLERS, _:
                if self._run.late.may_be_left(sum_round):
                    yield from self._run.late.leave_behind(sum_round)
                    yield from self.close_if_settled(sum_round)
            case DeadlineKind.GRACE, str():
                member, grace = ParticipantId(participant), self._run.patience.reconnect_grace_seconds
                sum_round.step(member, Step.LAPSE)
                yield Unawaited(member, sum_round.number, sum_round.request, f"it did not return within {grace} s")
                yield from self.close_if_settled(sum_round)

    def _accuse_late(self, participant: ParticipantId, accused: int) -> Iterator[Effect]:
        """Hear who could not open an envelope of the sum before, whose answer others were quicker than."""
        if self._run.protection is None:
            return
        try:
            suspicions = accuse_late(self._run.protection, participant, accused)
        except RemoteProtocolError as fault:
            yield from self.expel(participant, fault.message, fault.remedy)
            return
        yield from self._run.liars.blame(suspicions, self._run.sum)
        if self._run.sum is not None:
            yield from self.close_if_settled(self._run.sum)
        elif any(suspicion.proven for suspicion in suspicions):
            yield from self._between().start_if_enough()

    @property
    def _newest_over(self) -> int:
        return self._run.sum_number - 1 if self._run.sum else self._run.sum_number

    def _is_over(self, number: SumNumber) -> bool:
        return 1 <= number <= self._newest_over

    def _open_sum(self, number: SumNumber) -> SumRound:
        """Return the open sum, or refuse an answer to a sum that never was."""
        if self._run.sum is None or number != self._run.sum.number:
            newest = self._run.sum_number
            raise RemoteProtocolError(f"an answer to sum {number} arrived, the newest sum is {newest}")
        return self._run.sum

    def pass_on(self, sum_round: SumRound) -> Iterator[Effect]:
        """Say what the sum has to say, after what a later process needs to say the same is kept."""
        messages: list[OutgoingMessage] = []
        while outgoing := sum_round.take_outgoing():
            messages += outgoing.messages
            yield from self._run.liars.blame(outgoing.suspicions, sum_round)
        if messages:
            yield from self._run.lost.unsaved(sum_round)
        for said in messages:
            yield SendMessage(said.member, said.message, said.vector)

    def ask(self, participant: ParticipantId, sum_round: SumRound) -> Iterator[Effect]:
        """Send a participant the request, after whatever brings it into step."""
        yield from self._run.steps.bring_up(participant, self._run.members)
        # The request itself tells of an evaluation that was left out; the next sum is about the state without it.
        self._run.members.hold(participant, self._run.steps.present)
        about, seconds = (sum_round.number, sum_round.request), self._run.patience.round_deadline_seconds
        yield SendSum(participant, *about, self._run.steps.present, seconds)

    def _absorb(self, sum_round: SumRound) -> Iterator[Effect]:
        before, totals = self._run.steps.present, sum_round.totals()
        try:
            progress = self._run.training_run.apply_aggregate(totals, sum_round.counted)
        except RemoteProtocolError as fault:
            # A total that cannot be right names no site: the attempt is lost, and the model is what it was. Every
            # site has the same rules, and refuses the same total.
            yield from self._lose(sum_round, fault.message)
            return
        aftermath = sum_round.aftermath
        said = None if self._run.protection is None else self._run.protection.server.announcement
        if said is None:
            self._run.steps.moved(LastOpened.in_the_clear(before, totals, sum_round.counted))
            for participant in self._run.members.connected:
                if not self._run.late.times.owes(participant) or participant in sum_round.cohort:
                    yield from self._run.steps.send_last_sum(participant, self._run.members)
        else:
            # The round itself has notified every site that was in it to its end.
            self._run.steps.moved(LastOpened.under_masks(before, said, aftermath.receivers))
            for participant in set(aftermath.receivers) & set(self._run.members.connected):
                self._run.members.hold(participant, self._run.steps.present)
        yield Report(progress, aftermath.clipping)
        if progress.is_best:
            yield Checkpoint(CheckpointKind.BEST)
        if progress.evaluation is not None:
            yield Checkpoint(CheckpointKind.LAST)
        self._run.lost.follow(sum_round)
        yield from self._between().proceed()

    def _lose(self, sum_round: SumRound, reason: str) -> Iterator[Effect]:
        yield SumLost(sum_round.number, sum_round.request, reason)
        yield from self._between().after_lost_sum(self._run.lost.after(sum_round, reason))


def _begun(
    run: RunUnderWay, quorum: int, make_sum: Callable[[SumSpec], RunningSum], request: SumRequest
) -> SumRound:
    """Return the sum that begins now, over those who take part."""
    run.late.begin_sum(only_these=run.next.is_fixed)
    number = SumNumber(run.sum_number + 1)
    cohort = run.next.take(run.late.resting(request))
    if run.protection is None:
        return PlainSumRound(number, request, cohort, quorum, make_sum(request.spec))
    for participant in run.members.connected:
        if not run.steps.reaches(participant, run.members.held(participant)):
            # Only the adverts of a new session can vouch for the state that it must be sent.
            run.protection.note_keys(participant, b"")
    record, clip = run.lost.take_record(), run.training_run.state.clip
    about = (round_subject(run.steps.present, request), 0.0 if clip is None else clip)
    return MaskedSumRound(number, request, cohort, quorum, run.protection, *about, record)
