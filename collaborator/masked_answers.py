"""What this site answers in masked sums: it owns its side of secure aggregation, and the log that goes before it.

Everything happens in one worker thread, message by message: checking, training, masking, writing the log. The
order of effects is the protocol's: a record is on the disk before what it speaks of is sent. When a stream breaks,
the aggregator asks again on the next one and gets the same bytes. A message that this site must refuse is answered
with an abstention that says which check fired, and so is a sum that it may not or cannot add to. Only a site that
has no records takes part with nothing, so that nobody can tell.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from collaborator.answers import MAY_RELEASE_NOTHING, Rule
from collaborator.answers import Task as PlainTask
from collaborator.inbox import Question
from collaborator.reluctance import Reluctance
from collaborator.write_ahead import WriteAheadLog
from fedfair.errors import PrivacyError, RemoteProtocolError, TrainingError
from fedfair.ids import RoundNumber, SumNumber
from fedfair.learning.exchange import FeatureScaling, GlobalModel, SumRequest
from fedfair.learning.masked_sums import model_digest
from fedfair.learning.masked_update import header_update, noised_update, training_update
from fedfair.learning.task import LocalChange
from fedfair.secagg.checks import SecaggError
from fedfair.secagg.client import Contributing
from fedfair.secagg.effects import Contribute, Log, ReplaceLog, Send, SiteEffect
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.participant import Participant
from fedfair.secagg.session import Site
from fedfair.sums.spec import Purpose, SumSpec
from fedfair.wire.chunking import masked_frames
from fedfair.wire.frames import Abstain, CollaboratorFrame, SecaggMessage, SumStart


class Task(PlainTask, Protocol):
    """What computes: `learning.task.TrainingTask`."""

    def training_change(self, model: GlobalModel, round_number: RoundNumber, attempt: int) -> LocalChange | None:
        """Return what this round's local steps change; None without training records."""

    @property
    def last_fault(self) -> str:
        """Return why the last noised numbers are nothing but noise; empty where they are more."""

    def noised_numbers(self, model: GlobalModel, round_number: RoundNumber, attempt: int) -> NDArray[np.int64]:
        """Return what this site adds to a training sum that protects it as a whole."""


class MaskedAnswers:
    """The worker of one site; belongs to one event loop.

    Args:
        task: what computes.
        specs: the shape of every sum in the clear.
        counts: which values of every plain header are counts.
        objection: the site's policy.
        site: who this site is in secure aggregation.
        log: its write-ahead log, open.

    Attributes:
        last_sum: the newest sum that this site was asked for; 0 before the first.
        refused: why the last abstention was made; None before the first.
        busy: whether the worker computes at this moment.
        parting: why this site must leave, for its own operator; None where it may stay.
        fault: why it added nothing but noise to its last sum, for its own operator alone; empty where it did not.
    """

    def __init__(
        self,
        task: Task,
        specs: Mapping[Purpose, SumSpec],
        counts: Mapping[Purpose, NDArray[np.bool_]],
        objection: Rule,
        site: Site,
        log: WriteAheadLog,
    ) -> None:
        self._task = task
        self._specs = specs
        self._counts = counts
        self._objection = objection
        self._log = log
        training = site.shapes.get(Purpose.TRAINING.value)
        self._noised = training is not None and training.unit is not None
        self._participant = Participant(site, secrets.token_bytes, log.read())
        self._worker = ThreadPoolExecutor(1, "training")
        self._question: Question | None = None
        self.last_sum = SumNumber(0)
        self.refused: Reluctance | None = None
        self.busy = False
        self.parting: PrivacyError | None = None
        self.fault = ""

    @property
    def session(self) -> bytes:
        """Return the name of the session that this process has keys of; empty for none."""
        session = self._participant.session
        return b"" if session is None else session.session_id

    async def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features before anything else is computed."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._worker, self._task.apply_scaling, scaling)

    def expect(self, question: Question) -> None:
        """Note that this question has arrived; every older one is worthless from now on."""
        self.last_sum = question.start.sum_number

    async def frames(self, said: Question | SecaggMessage) -> Iterable[CollaboratorFrame]:
        """Return what to send.

        Raises:
            FedfairError: this site cannot go on; the reason is not for the aggregator.
        """
        if isinstance(said, Question):
            self._question = said
            return ()
        if self._question is None:
            raise RemoteProtocolError("a message of secure aggregation came before the question of its sum")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, self._hear, self._question, said.message)

    def forget(self, number: SumNumber) -> None:
        """Nothing: what was sent is kept until the next round begins."""

    def close(self) -> None:
        """Let the worker end after what it is doing now, and then the log."""
        self._worker.submit(self._log.close)
        self._worker.shutdown(wait=False)

    # -------------------------------------------------------------- in the worker thread

    def _hear(self, question: Question, message: bytes) -> list[CollaboratorFrame]:
        start = question.start
        self.busy = True
        try:
            is_start = kind_of(message) is Kind.ROUND_START
            digest = model_digest(start.purpose, question.model, start.query) if is_start else b""
            return list(self._carry_out(self._participant.receive(message, digest), question))
        except SecaggError as fault:
            return [self._abstain(start, _reluctance(fault, f"{fault.check.value}: {fault.message}"))]
        finally:
            self.busy = False

    def _carry_out(self, effects: list[SiteEffect], question: Question) -> Iterator[CollaboratorFrame]:
        for effect in effects:
            match effect:
                case Log(parts):
                    self._log.append(parts)
                case ReplaceLog(parts):
                    self._log.replace(parts)
                case Send(message, vector):
                    yield from masked_frames(message, vector)
                case Contribute(_, purpose, _):
                    yield from self._contribute(purpose, question)

    def _contribute(self, purpose: str, question: Question) -> Iterator[CollaboratorFrame]:
        start = question.start
        if purpose != start.purpose.value:
            self._participant.drop_out()
            yield self._abstain(
                start, Reluctance(f"asked for {start.purpose.value}, the masked round is for {purpose}")
            )
        elif start.sum_number == self.last_sum:
            yield from self._take_part(question)
        else:
            self._participant.drop_out()

    def _take_part(self, question: Question) -> Iterator[CollaboratorFrame]:
        """Upload, or leave the sum for everybody to see.

        Adding nothing in silence would let an aggregator choose whom it hears: it could ask something that all
        sites but one must refuse, and open a sum that holds that one alone.
        """
        try:
            reluctance = self._objection(replace(question, openers=self._openers()))
            effects = [] if reluctance else self._contribution(question)
        except (TrainingError, SecaggError) as fault:
            reluctance = _reluctance(fault, fault.message)
        except PrivacyError as fault:
            self.parting = fault
            reluctance = Reluctance(MAY_RELEASE_NOTHING, "budget", leaving=True)
        if reluctance is None:
            yield from self._carry_out(effects, question)
            return
        self._participant.drop_out()
        yield self._abstain(question.start, reluctance)

    def _openers(self) -> tuple[int, ...]:
        phase = self._participant.phase
        unanimous = isinstance(phase, Contributing) and phase.context.unanimous
        return phase.context.cohort if unanimous and phase is not None else ()

    def _abstain(self, start: SumStart, reluctance: Reluctance) -> Abstain:
        self.refused = reluctance
        return Abstain(start.sum_number, reluctance.reason, reluctance.leaving)

    def _contribution(self, question: Question) -> list[SiteEffect]:
        """Return the upload of this site's update, or of nothing where it has no records.

        Raises:
            TrainingError: it cannot have one.
            SecaggError: it must not leave this site.
        """
        update = self._update(question)
        return self._participant.abstain() if update is None else self._participant.contribute(update)

    def _update(self, question: Question) -> Update | None:
        start, model = question.start, question.model
        if start.purpose is Purpose.TRAINING and self._noised:
            numbers = self._task.noised_numbers(model, RoundNumber(start.round), start.attempt)
            self.fault = self._task.last_fault
            return noised_update(numbers)
        if start.purpose is Purpose.TRAINING:
            change = self._task.training_change(model, RoundNumber(start.round), start.attempt)
            return None if change is None else training_update(change)
        spec = self._specs[start.purpose]
        request = SumRequest(start.purpose, RoundNumber(start.round), start.attempt, spec, start.query)
        return header_update(self._task.contribution(request, model), self._counts[start.purpose])


def _reluctance(fault: TrainingError | SecaggError, reason: str) -> Reluctance:
    if isinstance(fault, TrainingError):
        return Reluctance(reason)
    return Reluctance(reason, f"secure aggregation: {fault.check.value}", fault.asked, fault.allowed)
