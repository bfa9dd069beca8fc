"""Answers masked sums: owns this site's side of secure aggregation, and the write-ahead log before it.

Everything happens in one worker thread, message by message: checking, training, masking, writing the log. The
order of effects is the protocol's: a record is on the disk before what it speaks of is sent. When a stream breaks,
the aggregator asks again on the next one and gets the same bytes. A message that this site must refuse is answered
with an abstention that says which check fired, and so is a sum that it may not add to. It never leaves a sum
because of a value, so that leaving tells nothing of its records: numbers that cannot be summed are replaced, and
counted under the masks. A site that has no records takes part with nothing, so that nobody can tell.

What a sum is about is decided by this site's own copy of the run (`run_follower`), and the copy moves only by sums
that this site has checked.

What a site adds is made by `MaskedUpdates`, which decides nothing about whether it may: the site's policy was
asked before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from collaborator.run_follower import RunFollower
from collaborator.worker import Rule, Worker, WorkerSums
from collaborator.write_ahead import WriteAheadLog
from fedfair import errors
from fedfair.aggregation.masked_encoding import HeaderParts, MaskedTotals
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.aggregation.round_subject import round_subject, same_answer, same_sum
from fedfair.policy.refusal import Refusal
from fedfair.policy.refusal_reasons import reason_for
from fedfair.process.kept_memory import nothing_kept
from fedfair.run.replica import OutOfStepError
from fedfair.secagg import effects as secagg
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.client import Contributing
from fedfair.secagg.fixedpoint import decode_body
from fedfair.secagg.log import whole_length
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.participant import Participant
from fedfair.secagg.round_messages import RoundStart
from fedfair.secagg.session import SessionSite
from fedfair.secagg.transcript import RoundSubject
from fedfair.statistics.table import Purpose
from fedfair.terms.at_sites import NOTHING, AddedChange, Remembered, SiteMemory
from fedfair.training.masked_update import header_update, noised_update, training_update
from fedfair.training.site_task import SiteTask
from fedfair.wire.chunking import masked_frames
from fedfair.wire.frames import NO_SUM, Abstain, CollaboratorFrame, SumStart
from fedfair.wire.receiving import ForWorker, ReceivedRequest, ReceivedState, ReceivedSum, ReceivedTotals


class MaskedUpdates:
    """The updates of one site in masked sums.

    Args:
        task: what computes.
        parts: of the plain header of every sum.
        participant: this site in secure aggregation.
        follower: this site's copy of the run.
        sums: records what was wrong with an update.
        memory: what it keeps of the rounds that counted it; None where the plan needs nothing of the kind.
        is_noised: whether training sums carry noise for whole collaborators.
    """

    def __init__(
        self,
        task: SiteTask,
        parts: Mapping[Purpose, HeaderParts],
        participant: Participant,
        follower: RunFollower,
        sums: WorkerSums,
        memory: SiteMemory | None,
        *,
        is_noised: bool,
    ) -> None:
        self._task, self._parts, self._participant = task, parts, participant
        self._follower, self._sums, self._memory = follower, sums, memory
        self._is_noised = is_noised

    def effects(self, request: SumRequest, attempt: int) -> list[secagg.SiteEffect]:
        """Return the upload of this site's update, or of nothing where it has no records.

        Raises:
            TrainingError: its weight is beyond the plan's; no other number makes a site leave.
            SecaggError: it must not leave this site.
        """
        draws = self._task.draws(request.purpose, request.drawn_in, attempt)
        request = replace(request, attempt=attempt)
        if self._memory is not None and request.purpose.statistic.is_round:
            return self._remembering(request, self._memory, draws)
        update = self._update(request)
        if update is None:
            return self._participant.abstain(draws)
        return self._participant.contribute(update, draws)

    def _remembering(self, request: SumRequest, memory: SiteMemory, draws: bytes) -> list[secagg.SiteEffect]:
        """Return the upload of a change whose steps needed what this site remembers.

        What its memory becomes by it is on the disk before the upload is in the log, and so before it is sent. It
        follows from what is really added: the elements of the ring before they are masked.
        """
        model = self._follower.replica.state.model
        remembered = memory.correction(request, model, self._task.training_weight)
        change = self._task.summable_change(model, request.round, request.attempt, remembered)
        self._sums.fault = self._task.last_fault
        if change is None:
            effects = self._participant.abstain(draws)
            memory.adding(request, model, AddedChange.nothing())
            return effects
        phase, encoded = self._participant.phase, np.empty(change.model.size, np.uint32)
        if not isinstance(phase, Contributing):
            raise errors.LocalProtocolError("no update is due; wait for Contribute")
        effects = self._participant.contribute(training_update(change), draws, encoded)
        added = decode_body(encoded, phase.code, np.dtype(np.float64))
        added /= change.weight
        own = AddedChange(change.weight, added, change.threshold, self._task.kept)
        memory.adding(request, model, own)
        return effects

    def _update(self, request: SumRequest) -> Update | None:
        model, number, attempt = self._follower.replica.state.model, request.round, request.attempt
        kind = request.purpose.statistic
        if kind.is_round and self._is_noised:
            numbers = self._task.noised_numbers(model, number, attempt)
            self._sums.fault = self._task.last_fault
            return noised_update(numbers)
        if kind.is_round:
            change = self._task.summable_change(model, number, attempt)
            self._sums.fault = self._task.last_fault
            return None if change is None else training_update(change)
        # An evaluation takes more than a round, and other lengths.
        with nothing_kept(model.vector.nbytes):
            contribution = self._task.contribution(request, model, self._remembered(request, model))
        self._sums.fault = self._task.last_fault
        return header_update(contribution, self._parts[request.purpose])

    def _remembered(self, request: SumRequest, model: GlobalModel) -> Remembered:
        """Return what a sum that is no round needs of earlier rounds."""
        if self._memory is None or not request.terms:
            return NOTHING
        return self._memory.correction(request, model, self._task.training_weight)


_NO_SUBJECT = RoundSubject(b"", b"")
"""The subject of every other message: none of them names anything that this site could compare."""

_NOT_ENTERED = frozenset({Check.OUT_OF_ORDER, Check.TRANSCRIPT})
"""Checks that an opened sum of a round fails that this site has not entered, or was asked past."""


class MaskedWorker(Worker):
    """A worker whose sums are masked.

    Args:
        task: what computes.
        parts: of the plain header of every sum.
        totals: how opened sums are read.
        rule: the site's policy.
        site: who this site is in secure aggregation.
        log: its write-ahead log, open.
        follower: this site's copy of the run.
        release: lets go of what the rule holds; called at the end, from whichever thread closes.
        memory: what it keeps of the rounds that counted it; None where the plan needs nothing of the kind.
    """

    def __init__(
        self,
        task: SiteTask,
        parts: Mapping[Purpose, HeaderParts],
        totals: MaskedTotals,
        rule: Rule,
        site: SessionSite,
        log: WriteAheadLog,
        follower: RunFollower,
        release: Callable[[], None] = lambda: None,
        memory: SiteMemory | None = None,
    ) -> None:
        super().__init__(follower)
        self._task, self._log = task, log
        self._names, self._totals, self._rule = site.roster.name, totals, rule
        self._release = release
        found = log.read()
        self._participant = Participant(site, secrets.token_bytes, found, log.history)
        log.keep(whole_length(found))
        self._question: ReceivedRequest | None = None
        noised = any(shape.unit is not None for shape in site.shapes.values())
        self._updates = MaskedUpdates(
            task, parts, self._participant, follower, self.sums, memory, is_noised=noised
        )

    @property
    def session(self) -> bytes:
        """Return the name of the session that this process has keys of; empty for none."""
        session = self._participant.session
        return b"" if session is None else session.session_id

    async def frames(self, said: ForWorker) -> Iterable[CollaboratorFrame]:
        """Return what to send.

        Raises:
            FedfairError: this site cannot continue; the reason is not for the aggregator.
        """
        if isinstance(said, ReceivedTotals):
            raise errors.RemoteProtocolError("an opened sum arrived in the clear, but the plan's sums are masked")
        if isinstance(said, ReceivedState):
            await self._after_work(self._follower.replica.offer, said.packed)
            return ()
        if isinstance(said, ReceivedSum):
            return await self._after_work(self._hear_sum, said)
        if isinstance(said, ReceivedRequest):
            self._question = said
            return ()
        if self._question is None:
            raise errors.RemoteProtocolError("a message of secure aggregation came before the request for its sum")
        return await self._after_work(partial(self._hear, self._question), said.message)

    def close(self) -> None:
        """Let the worker end after what it is doing now, and then the log."""
        self._release()
        self._worker.submit(self._log.close)
        self._worker.submit(self._follower.recording.close)
        self._worker.shutdown(wait=False)

    # -------------------------------------------------------------- in the worker thread

    def _hear(self, question: ReceivedRequest, message: bytes) -> list[CollaboratorFrame]:
        start = question.start
        self.sums.busy = True
        try:
            kind = kind_of(message)
            subject, computed = _NO_SUBJECT, b""
            if kind is Kind.PROPOSAL:
                subject = RoundSubject(self._follower.replica.digest, b"")
            elif kind is Kind.ROUND_START:
                subject, computed = self._begun(question)
                _check_clips(RoundStart.decode(message), self._follower.replica.state.clip)
            return list(self._carry_out(self._participant.receive(message, subject, computed), question))
        except SecaggError as fault:
            return [self._abstain(start, _refusal(fault, f"{fault.check.value}: {fault.message}"))]
        finally:
            self.sums.busy = False

    def _hear_sum(self, said: ReceivedSum) -> list[CollaboratorFrame]:
        """Take an opened sum, or end this site's part in the run.

        A sum of a round that this site has not entered, because it was away or was asked for something newer, is
        no lie. Nothing is believed of it, and nothing follows from it here.
        """
        try:
            effects = self._participant.receive(said.message, _NO_SUBJECT, vector=said.vector)
        except SecaggError as fault:
            if fault.check in _NOT_ENTERED:
                return []
            self.sums.exit_reason = fault
            self.sums.refused = replace(_refusal(fault, f"{fault.check.value}: {fault.message}"), leaving=True)
            return [Abstain(NO_SUM, reason_for(self.sums.refused.term), leaving=True)]
        for effect in effects:
            # A sum that came again is about a state that this site has left behind, unless it was brought back.
            if isinstance(effect, secagg.SumAccepted) and effect.state_digest == self._follower.replica.digest:
                self._take_sum(effect.opened)
        return self._after_survey()

    def _after_survey(self) -> list[CollaboratorFrame]:
        """Compare an opened survey at once; where this site's policy stops it, that is its last word."""
        stop = self._follower.survey_stop()
        if stop is None:
            return []
        self.sums.refused = self.sums.leaves(stop)
        return [Abstain(NO_SUM, reason_for(self.sums.refused.term), leaving=True)]

    def _take_sum(self, opened: OpenedSum) -> None:
        """Apply an opened sum to this site's copy of the run; where it is refused, the copy stays as it is.

        The aggregator refuses it by the same rules, and asks for another attempt.
        """
        members = tuple(str(self._names(index)) for index in opened.survivors)
        try:
            self._follower.apply(self._totals.of(opened), members)
        except errors.RemoteProtocolError as fault:
            self.sums.fault = f"the opened sum is refused, and asked for again: {fault.message}"

    def _begun(self, question: ReceivedRequest) -> tuple[RoundSubject, bytes]:
        """Return what a round that starts now is about, and what this site computes for it.

        The second is a 32-byte tag: this site helps to open at most one survivor set per tag. Where each attempt
        at a round draws other batches or noise, a tag stands for one request about one state. Deterministic
        answers get the same tag in every run and state.

        Raises:
            SecaggError: STATE: the request is not the one that this site's own state asks for.
        """
        try:
            request = self._follower.due(question.start)
        except OutOfStepError as fault:
            raise SecaggError(Check.STATE, fault.message, fault.remedy) from fault
        subject = round_subject(self._follower.replica.digest, request)
        once, again = (self._task.draws(request.purpose, request.drawn_in, attempt) for attempt in (1, 2))
        if once != again:
            state = self._follower.replica.state
            references = b"" if state.references is None else state.references.digest
            return subject, same_sum(state.model, state.scaling, request, references)
        return subject, same_answer(request, on_demand=question.on_demand)

    def _carry_out(
        self, effects: list[secagg.SiteEffect], question: ReceivedRequest
    ) -> Iterator[CollaboratorFrame]:
        for effect in effects:
            match effect:
                case secagg.Log(parts):
                    self._log.append(parts)
                case secagg.ReplaceLog(parts):
                    self._log.replace(parts)
                case secagg.Remember(rows):
                    self._log.history.write(rows)
                case secagg.Send(message, vector, hashed):
                    yield from masked_frames(message, vector, hashed)
                case secagg.Contribute(_, purpose, _):
                    yield from self._contribute(purpose, question)
                case secagg.StateVouched(state_digest):
                    try:
                        self._follower.replica.take_vouched(state_digest)
                    except OutOfStepError as fault:
                        self._participant.decline_session()
                        raise SecaggError(Check.STATE, fault.message, fault.remedy) from fault

    def _contribute(self, purpose: str, question: ReceivedRequest) -> Iterator[CollaboratorFrame]:
        start = question.start
        if purpose != start.purpose.value:
            self._participant.drop_out()
            yield self._abstain(
                start,
                Refusal(f"asked for {start.purpose.value}, the masked round is for {purpose}", "protocol"),
            )
        elif start.sum_number == self.sums.last_sum:
            yield from self._take_part(question)
        else:
            self._participant.drop_out()

    def _take_part(self, question: ReceivedRequest) -> Iterator[CollaboratorFrame]:
        """Upload, or leave the sum visibly.

        Adding nothing in silence would let an aggregator choose whom it hears: it could ask something that all
        sites but one must refuse, and open a sum that holds that one alone.
        """
        try:
            request = self._follower.due(question.start)
            said = self._rule(self._follower.asked(question, request, *self._cohort()))
            effects = self._updates.effects(request, said) if isinstance(said, int) else []
        except (errors.TrainingError, SecaggError) as fault:
            said = _refusal(fault, fault.message)
        except (errors.PrivacyError, errors.StateError, errors.SurveyError) as fault:
            said = self.sums.leaves(fault)
        if isinstance(said, int):
            yield from self._carry_out(effects, question)
            return
        self._participant.drop_out()
        yield self._abstain(question.start, said)

    def _cohort(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return who opens this masked round where all must, and the names of those who are asked in it."""
        phase = self._participant.phase
        if not isinstance(phase, Contributing):
            return (), ()
        members = phase.context.cohort
        return members if phase.context.unanimous else (), tuple(self._names(member) for member in members)

    def _abstain(self, start: SumStart, refusal: Refusal) -> Abstain:
        self.sums.refused = refusal
        return Abstain(start.sum_number, reason_for(refusal.term), refusal.leaving, refusal.accused)


def _refusal(fault: errors.TrainingError | SecaggError, reason: str) -> Refusal:
    if isinstance(fault, errors.TrainingError):
        return Refusal(reason, "values")
    term = f"secure aggregation: {fault.check.value}"
    return Refusal(reason, term, fault.asked, fault.allowed, accused=fault.accused)


def _check_clips(start: RoundStart, own: float | None) -> None:
    """Refuse another clip than that of this site's own state, `own`; raises SecaggError with `STATE`."""
    for clip in start.clips:
        require(
            clip == own,
            Check.STATE,
            f"a round with a clip of {clip!r}, this site's state of the run has {own!r}",
            "let the aggregator send the sums that this site has missed",
            asked=f"clip {clip!r}",
            allowed=f"clip {own!r}",
        )
