"""One run as a service and a driver, on whatever port and event loop: alone, or beside other runs of a hub."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial

from aggregator.connection_certificates import ConnectionCertificates
from aggregator.deadlines import StartTimer, clock_timer
from aggregator.driver import RunDriver
from aggregator.farewell import Farewell
from aggregator.outcome import Ending
from aggregator.preparation import Run
from aggregator.received_log import ReceivedLog
from aggregator.service import Service
from aggregator.token_bucket import PEER_LIMITS, PeerLimits
from aggregator.transcript import RunTranscript
from aggregator.upload_budget import UploadBudget
from fedfair.aggregation.running_sum import PlainSum
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.identity.tls import RenewableCertificate
from fedfair.ids import ParticipantId
from fedfair.news.processors import Processor
from fedfair.plan.derived import is_masked
from fedfair.rounds.federation import Federation
from fedfair.rounds.secagg_session import SecaggSession
from fedfair.run.saved_model import model_identity
from fedfair.store.spilled import spilled

CALL_SECONDS = 45.0
"""A site that waits for its aggregator calls at least every 30 seconds (`collaborator.backoff`)."""


@dataclass(frozen=True, slots=True)
class EndTerms:
    """The terms on which this side stays after the end of a run, for sites that have not acknowledged it.

    Attributes:
        seconds: how long; None for what the plan says, or for `CALL_SECONDS` where the run was over before.
        finished: called with the ending before the wait, so that the result does not wait for anybody.
    """

    seconds: float | None = None
    finished: Callable[[Ending], None] = lambda _: None


AS_PLANNED = EndTerms()
"""The terms of the plan itself."""


@dataclass(frozen=True, slots=True)
class DrivenRun:
    """A run that only has to be driven, with limits of its own.

    Attributes:
        service: answers its collaborators.
        driver: drives it.
    """

    service: Service
    driver: RunDriver


@contextmanager
def assembled(
    run: Run,
    shown: RenewableCertificate,
    publish: Processor,
    limits: PeerLimits = PEER_LIMITS,
    start_timer: StartTimer = clock_timer,
    farewell: EndTerms = AS_PLANNED,
) -> Iterator[DrivenRun]:
    """Put a run together while the block runs.

    Args:
        run: what to drive.
        shown: the certificate that new connections are shown.
        publish: takes what happens.
        limits: on what one certificate may begin.
        start_timer: starts the timer of a deadline.
        farewell: how the run ends.
    """
    protection, transcript = _protection(run), _transcript(run, publish)
    driver = RunDriver(
        _federation(run, protection),
        run.training_run,
        run.records,
        publish,
        _farewell(run, farewell.seconds),
        worst_group_size=run.plan.objective.worst_group_size,
        masked=protection is not None,
        certificates=ConnectionCertificates(run.admission, run.identity, shown, publish, run.passphrase),
        model=_model_of(run),
        start_timer=start_timer,
        finished=farewell.finished,
        transcript=transcript,
    )
    vectors = frozenset[int]() if protection is None else protection.vector_lengths
    with closing(ReceivedLog(run, driver.stop)) as mirror, ExitStack() as closed:
        if transcript is not None:
            closed.callback(transcript.close)
        budget = _upload_budget(run, vectors)
        yield DrivenRun(Service(run.admission, driver.streams, mirror, budget, vectors, limits), driver)


def _transcript(run: Run, publish: Processor) -> RunTranscript | None:
    """Return what keeps the evidence of a run; a saved model that is evaluated gives out nothing to witness."""
    if run.training_run.evaluation_only:
        return None
    records, facts = run.records, (run.plan, run.training_run, run.admission, publish)
    return RunTranscript(records.spill_folder, records.run_id, *facts)


def _federation(run: Run, protection: SecaggSession | None) -> Federation:
    """Return the round rules of a run, as an earlier start has left it."""
    return Federation(
        run.plan,
        run.training_run,
        PlainSum,
        run.plan_digest,
        protection=protection,
        last_sum_number=run.last_sum_number,
        continued=run.continued,
        unfinished=run.unfinished,
        opened=run.opened,
        clock=time.monotonic,
    )


def _upload_budget(run: Run, vectors: frozenset[int]) -> UploadBudget:
    """Return the budget of bytes in the making; the longest upload of the plan fits in it."""
    specs = sum_specs(run.plan, run.layout, run.schema)
    return UploadBudget(max(*(spec.upload_bytes for spec in specs.values()), *vectors))


def _farewell(run: Run, seconds: float | None) -> Farewell:
    """Return who is to be notified that the run is over.

    A run that is under way waits for those who took part and have lost their connection, as long as the plan lets
    a lost connection return. A run that was over before was started again for those who do not know it yet.
    """
    if run.training_run.next_sum() is not None:
        return Farewell(run.plan.federation.reconnect_grace_seconds if seconds is None else seconds)
    return Farewell(CALL_SECONDS if seconds is None else seconds, unnotified(run))


def unnotified(run: Run) -> frozenset[ParticipantId]:
    """Return which collaborators of a finished run do not know yet that it is over."""
    return frozenset(run.admission.roster) - run.records.informed()


def _model_of(run: Run) -> bytes:
    """Return the identity of the saved model that is evaluated; empty where a whole run is."""
    initial = run.training_run.initial
    if not run.training_run.evaluation_only:
        return b""
    return model_identity(run.layout, initial.model, initial.scaling)


def _protection(run: Run) -> SecaggSession | None:
    if not is_masked(run.plan):
        return None
    subject = (run.plan, run.plan_digest, run.layout, run.schema)
    keep = partial(spilled, folder=run.records.spill_folder)
    return SecaggSession(*subject, secrets.token_bytes, time.monotonic, keep)
