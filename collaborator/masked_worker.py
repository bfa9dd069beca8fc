"""Answers masked sums: owns this site's side of secure aggregation, and the write-ahead log before it.

Everything happens in one worker thread, message by message: checking, training, masking, writing the log. The
order of effects is the protocol's: a record is on the disk before what it speaks of is sent. When a stream breaks,
the aggregator asks again on the next one and gets the same bytes. A message that this site must refuse is answered
with an abstention that says which check fired, and so is a sum that it may not add to. It never leaves a sum
because of a value, so that leaving tells nothing of its records: numbers that cannot be summed are replaced, and
counted under the masks. A site that has no records takes part with nothing, so that nobody can tell.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from collaborator.plain_worker import PlainTask
from collaborator.worker import Granted, Rule, WorkerStanding, hold_nothing, in_thread
from collaborator.write_ahead import WriteAheadLog
from fedfair.aggregation.masked_encoding import HeaderParts
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.round_subject import SumKey, round_subject
from fedfair.aggregation.spec import SumSpec
from fedfair.aggregation.sum_kinds import sum_kind
from fedfair.errors import PrivacyError, RemoteProtocolError, TrainingError
from fedfair.ids import RoundNumber
from fedfair.plan.purpose import Purpose
from fedfair.policy.refusal import Refusal
from fedfair.policy.refusal_reasons import reason_for
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.client import Contributing
from fedfair.secagg.effects import (
    Contribute,
    Log,
    Remember,
    ReplaceLog,
    Send,
    SiteEffect,
    StateVouched,
    SumAccepted,
)
from fedfair.secagg.log import whole_length
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.participant import Participant
from fedfair.secagg.session import SessionSite
from fedfair.secagg.transcript import RoundSubject
from fedfair.training.client import LocalChange
from fedfair.training.masked_update import header_update, noised_update, training_update
from fedfair.wire.chunking import masked_frames
from fedfair.wire.frames import NO_SUM, Abstain, CollaboratorFrame, SecaggMessage, SumStart
from fedfair.wire.receiving import ReceivedRequest, ReceivedSum

_ABOUT_A_STATE = frozenset({Kind.PROPOSAL, Kind.ROUND_START})
"""Messages of which the answer depends on the state of the run that this site holds."""

_NO_SUBJECT = RoundSubject(b"", b"")
"""What every other message is about: none of them names anything that this site could compare."""

_NOT_ENTERED = frozenset({Check.OUT_OF_ORDER, Check.TRANSCRIPT})
"""Checks that an opened sum of a round fails that this site has not entered, or was asked past."""


def take_nothing(opened: OpenedSum) -> None:
    """Do nothing with a sum that was checked."""


class MaskedTask(PlainTask, Protocol):
    """The task that computes: `training.client.TrainingClient`."""

    def summable_change(self, model: GlobalModel, round_number: RoundNumber, attempt: int) -> LocalChange | None:
        """Return what this round's local steps change, whatever the values are; None without training records."""

    @property
    def last_fault(self) -> str:
        """Return what was wrong with the last contribution; empty where nothing was."""

    def draws(self, purpose: Purpose, round_number: RoundNumber, attempt: int) -> bytes:
        """Return 32 bytes that stand for what is drawn for a contribution, and for no value of it."""

    def noised_numbers(self, model: GlobalModel, round_number: RoundNumber, attempt: int) -> NDArray[np.int64]:
        """Return what this site adds to a training sum that protects it as a whole."""


class MaskedWorker:
    """A worker whose sums are masked.

    Args:
        task: what computes.
        specs: the shape of every sum in the clear.
        parts: of the plain header of every sum.
        rule: the site's policy.
        site: who this site is in secure aggregation.
        log: its write-ahead log, open.
        release: lets go of what the rule holds; called at the end, from whichever thread closes.
        taken: is called in the worker thread with every opened sum that this site has checked, once for each.

    Attributes:
        standing: what was asked so far.
    """

    def __init__(
        self,
        task: MaskedTask,
        specs: Mapping[Purpose, SumSpec],
        parts: Mapping[Purpose, HeaderParts],
        rule: Rule,
        site: SessionSite,
        log: WriteAheadLog,
        release: Callable[[], None] = hold_nothing,
        taken: Callable[[OpenedSum], None] = take_nothing,
    ) -> None:
        self._taken = taken
        self._task = task
        self._specs = specs
        self._parts = parts
        self._rule = rule
        self._log = log
        self._release = release
        self._noised = any(shape.unit is not None for shape in site.shapes.values())
        found = log.read()
        self._participant = Participant(site, secrets.token_bytes, found, log.history)
        log.keep(whole_length(found))
        self._worker = ThreadPoolExecutor(1, "training")
        self._question: ReceivedRequest | None = None
        self.standing = WorkerStanding()

    @property
    def session(self) -> bytes:
        """Return the name of the session that this process has keys of; empty for none."""
        session = self._participant.session
        return b"" if session is None else session.session_id

    async def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features before anything else is computed."""
        await in_thread(self._worker, self._task.apply_scaling, scaling)

    async def frames(self, said: ReceivedRequest | SecaggMessage | ReceivedSum) -> Iterable[CollaboratorFrame]:
        """Return what to send.

        Raises:
            FedfairError: this site cannot go on; the reason is not for the aggregator.
        """
        loop = asyncio.get_running_loop()
        if isinstance(said, ReceivedSum):
            return await loop.run_in_executor(self._worker, self._hear_sum, said)
        if isinstance(said, ReceivedRequest):
            self._question = said
            return ()
        if self._question is None:
            raise RemoteProtocolError("a message of secure aggregation came before the request for its sum")
        return await loop.run_in_executor(self._worker, self._hear, self._question, said.message)

    def close(self) -> None:
        """Let the worker end after what it is doing now, and then the log."""
        self._release()
        self._worker.submit(self._log.close)
        self._worker.shutdown(wait=False)

    # -------------------------------------------------------------- in the worker thread

    def _hear(self, question: ReceivedRequest, message: bytes) -> list[CollaboratorFrame]:
        start = question.start
        self.standing.busy = True
        try:
            kind = kind_of(message)
            subject = self._subject(question) if kind in _ABOUT_A_STATE else _NO_SUBJECT
            computed = self._computed(question) if kind is Kind.ROUND_START else b""
            return list(self._carry_out(self._participant.receive(message, subject, computed), question))
        except SecaggError as fault:
            return [self._abstain(start, _refusal(fault, f"{fault.check.value}: {fault.message}"))]
        finally:
            self.standing.busy = False

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
            self.standing.exit_reason = fault
            self.standing.refused = replace(_refusal(fault, f"{fault.check.value}: {fault.message}"), leaving=True)
            return [Abstain(NO_SUM, reason_for(self.standing.refused.term), leaving=True)]
        for effect in effects:
            if isinstance(effect, SumAccepted):
                self._taken(effect.opened)
        return []

    def _subject(self, question: ReceivedRequest) -> RoundSubject:
        """Return what a round that starts now is about: the numbers that this site computes with at this moment.

        The same thread scales the features and makes the contribution, so nothing comes in between.
        """
        start = question.start
        key = SumKey(question.run_id, start.purpose, start.round, start.query)
        return round_subject(key, question.model, self._task.scaling)

    def _computed(self, question: ReceivedRequest) -> bytes:
        """Return 32 bytes that are equal for sums of which this site opens no two for different sites.

        Where each attempt at a round draws other batches or noise, that is one round of one run. What is always
        the same is the same in every run, and in every round that an aggregator names for a saved model: it could
        change the model by next to nothing, and subtract.
        """
        start = question.start
        number = RoundNumber(start.round)
        once, again = (self._task.draws(start.purpose, number, attempt) for attempt in (1, 2))
        if once != again:
            return SumKey(question.run_id, start.purpose, start.round, start.query).digest()
        return SumKey("", start.purpose, 0 if question.on_demand else start.round, start.query).digest()

    def _carry_out(self, effects: list[SiteEffect], question: ReceivedRequest) -> Iterator[CollaboratorFrame]:
        for effect in effects:
            match effect:
                case Log(parts):
                    self._log.append(parts)
                case ReplaceLog(parts):
                    self._log.replace(parts)
                case Remember(rows):
                    self._log.history.write(rows)
                case Send(message, vector):
                    yield from masked_frames(message, vector)
                case Contribute(_, purpose, _):
                    yield from self._contribute(purpose, question)
                case StateVouched(state_digest):
                    # There is no snapshot to take yet, so a site that is not in step takes no part.
                    self._participant.decline_session()
                    raise SecaggError(
                        Check.STATE,
                        f"the others vouch for state {state_digest.hex()[:16]}; this site holds another",
                    )

    def _contribute(self, purpose: str, question: ReceivedRequest) -> Iterator[CollaboratorFrame]:
        start = question.start
        if purpose != start.purpose.value:
            self._participant.drop_out()
            yield self._abstain(
                start,
                Refusal(f"asked for {start.purpose.value}, the masked round is for {purpose}", "protocol"),
            )
        elif start.sum_number == self.standing.last_sum:
            yield from self._take_part(question)
        else:
            self._participant.drop_out()

    def _take_part(self, question: ReceivedRequest) -> Iterator[CollaboratorFrame]:
        """Upload, or leave the sum for everybody to see.

        Adding nothing in silence would let an aggregator choose whom it hears: it could ask something that all
        sites but one must refuse, and open a sum that holds that one alone.
        """
        try:
            said = self._rule(replace(question, openers=self._openers(), scaling=self._task.scaling))
            effects = self._contribution(question, said.attempt) if isinstance(said, Granted) else []
        except (TrainingError, SecaggError) as fault:
            said = _refusal(fault, fault.message)
        except PrivacyError as fault:
            said = self.standing.may_not_release(fault)
        if isinstance(said, Granted):
            yield from self._carry_out(effects, question)
            return
        self._participant.drop_out()
        yield self._abstain(question.start, said)

    def _openers(self) -> tuple[int, ...]:
        phase = self._participant.phase
        unanimous = isinstance(phase, Contributing) and phase.context.unanimous
        return phase.context.cohort if unanimous and phase is not None else ()

    def _abstain(self, start: SumStart, refusal: Refusal) -> Abstain:
        self.standing.refused = refusal
        return Abstain(start.sum_number, reason_for(refusal.term), refusal.leaving, refusal.accused)

    def _contribution(self, question: ReceivedRequest, attempt: int) -> list[SiteEffect]:
        """Return the upload of this site's update, or of nothing where it has no records.

        Raises:
            TrainingError: its weight is beyond the plan's; no other number makes a site leave.
            SecaggError: it must not leave this site.
        """
        start = question.start
        draws = self._task.draws(start.purpose, RoundNumber(start.round), attempt)
        update = self._update(question, attempt)
        if update is None:
            return self._participant.abstain(draws)
        return self._participant.contribute(update, draws)

    def _update(self, question: ReceivedRequest, attempt: int) -> Update | None:
        start, model = question.start, question.model
        kind = sum_kind(start.purpose)
        if kind.is_round and self._noised:
            numbers = self._task.noised_numbers(model, RoundNumber(start.round), attempt)
            self.standing.fault = self._task.last_fault
            return noised_update(numbers)
        if kind.is_round:
            change = self._task.summable_change(model, RoundNumber(start.round), attempt)
            self.standing.fault = self._task.last_fault
            return None if change is None else training_update(change)
        spec = self._specs[start.purpose]
        request = SumRequest(start.purpose, RoundNumber(start.round), attempt, spec, start.query)
        contribution = self._task.contribution(request, model)
        self.standing.fault = self._task.last_fault
        return header_update(contribution, self._parts[start.purpose])


def _refusal(fault: TrainingError | SecaggError, reason: str) -> Refusal:
    if isinstance(fault, TrainingError):
        return Refusal(reason, "values")
    term = f"secure aggregation: {fault.check.value}"
    return Refusal(reason, term, fault.asked, fault.allowed, accused=fault.accused)
