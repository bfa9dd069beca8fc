"""From a ready site to the end of its run: dialling, signals, the driver."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from collaborator.calls import Backoff, LineWatch, Patience
from collaborator.continued_run import VariateStore, earlier_variate, model_begun_with
from collaborator.driver import SiteDriver
from collaborator.egress import EgressRecord
from collaborator.known_models import ModelPlaces, find_model
from collaborator.link import Egress, Link, open_link
from collaborator.masked_worker import MaskedWorker
from collaborator.plain_worker import PlainWorker
from collaborator.plan_change import state_stem
from collaborator.preparation import Readiness, check_run, history_of, introduction, masking_site
from collaborator.records import SiteLogs
from collaborator.run_follower import Opened, RunFollower
from collaborator.run_recording import RunRecording, SiteFiguresLog, SurveyCheck
from collaborator.run_store import RunStore
from collaborator.site_certificates import SiteCertificates
from collaborator.site_history import RequestRecord
from collaborator.withdrawn.run_lineage import CountedStart, RunLineage
from collaborator.witnessing import Signatory, SiteWitness
from collaborator.worker import Rule, Worker
from collaborator.write_ahead import WriteAheadLog
from fedfair.aggregation.masked_encoding import MaskedTotals, header_parts
from fedfair.aggregation.survey import survey_layout
from fedfair.errors import ApprovalError, FedfairError, LocalProtocolError, StateError, StoppedError
from fedfair.identity.preflight import preflight
from fedfair.identity.tls import channel_credentials
from fedfair.news.event import News
from fedfair.news.processors import Processor, ignore, in_turn, text_lines
from fedfair.news.site import LeavingBegun
from fedfair.plan.derived import evaluates_exactly, is_masked, is_noised, keeps_parameters
from fedfair.plan.digest import format_digest
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.decision import SiteRules
from fedfair.policy.refusal import Refusal
from fedfair.process.stopping import stopping
from fedfair.results.outcome import RunSubject
from fedfair.run.kept_file import KeptFile
from fedfair.run.output_sums import audited
from fedfair.run.replica import RunReplica, Unkept
from fedfair.run.saved_model import evaluation_run
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from fedfair.store.disk import writing
from fedfair.store.spilled import SpilledVectors
from fedfair.terms.at_sites import SiteMemory, site_memory
from fedfair.tracking.site_tracking import SiteTracking
from fedfair.tracking.targets import TrackTarget
from fedfair.tracking.tracker import TrackedRun, tracked_facts
from fedfair.transcript.release_verdict import release_verdict
from fedfair.transcript.statement import ReleaseVerdict
from fedfair.wire.calling import Address
from fedfair.wire.frames import Finished, Hello
from fedfair.wire.service import KEEPALIVE, KeepAlive


@dataclass(frozen=True, slots=True)
class ParticipationTerms:
    """The terms of taking part.

    Attributes:
        address: where the aggregator is.
        logs: the folder of this site's metrics.
        give_up_after_seconds: how long to continue without the aggregator; None for ever.
        targets: where the run is tracked.
    """

    address: Address
    logs: Path
    give_up_after_seconds: float | None = None
    targets: tuple[TrackTarget, ...] = ()


def recording_of(
    ready: Readiness, logs: Path, kept: Callable[[RunReplica], KeptFile | None] = lambda _: None
) -> RunRecording:
    """Return what records a run at this site, with its own figures in the folder of its logs.

    Args:
        ready: the site.
        logs: the folder.
        kept: returns the part of the model that the site has in the present state of a run.
    """
    site, binding = ready.site, ready.binding
    digest = format_digest(binding.digest)
    subject = RunSubject(site.plan, digest, binding.layout, binding.schema, binding.initial_weights)
    survey = None
    if ready.survey is not None:
        layout = survey_layout(site.plan, binding.schema)
        survey = SurveyCheck(site.participant, ready.survey, layout, site.config.policy.survey, ready.profile)
    logs.mkdir(parents=True, exist_ok=True)
    figures, further = SiteFiguresLog(logs, site.participant), ready.computation.take_notices
    return RunRecording(ready.task, subject, site.runs, figures, survey, kept, further)


def follower_of(ready: Readiness, store: RunStore, recording: RunRecording, opened: Opened) -> RunFollower:
    """Return this site's copy of the run, where an earlier process has left it.

    Raises:
        StateError: the file of the copy cannot be read.
    """
    plan, binding = ready.site.plan, ready.binding
    room = SpilledVectors(ready.site.state, writing=writing)
    training_run = TrainingRun(
        plan, binding.layout, binding.schema, binding.vector, room=room, carried=binding.carried
    )
    replica = RunReplica(training_run, binding.digest, store)
    kept = store.load(replica.training_run.initial)
    if kept is not None:
        replica.restore(*kept)
    places = ModelPlaces.of_site(ready.site, binding)

    def on_demand(digest: bytes) -> RunReplica:
        saved = find_model(places, digest)
        if saved is None:
            raise ApprovalError(
                f"the aggregator asks for an evaluation of the saved model {format_digest(digest)}, which this "
                "site neither has from a run of its own nor has approved",
                f"approve it with `fedfair plan approve -n {ready.site.participant} --model FILE`, if you agree",
            )
        exact = evaluates_exactly(plan)
        run = evaluation_run(plan, binding.layout, binding.schema, saved, exact=exact)
        return RunReplica(run, binding.digest, Unkept())

    key = ready.site.identity().signing_key
    signatory = Signatory(ready.site.federation, ready.site.participant, binding.digest, ready.approval, key)

    def verdict(state: RunState) -> ReleaseVerdict:
        return release_verdict(plan, ready.site.config.policy.release, audited(plan, binding.schema, state))

    witness = SiteWitness(signatory, plan, ready.site.runs, verdict)
    return RunFollower(ready.task, replica, on_demand, recording, opened, witness)


def worker_of(ready: Readiness, logs: Path, publish: Callable[[News], None] = ignore) -> Worker:
    """Return the worker of this site.

    Args:
        ready: what it computes with.
        logs: the folder of its own figures.
        publish: takes the news of a kept copy of the run that cannot be used.

    Raises:
        StateError: its write-ahead log, its history or its record of requests is damaged or lost.
        FedfairError: another process uses them.
    """
    site = ready.site
    stem = state_stem(site.participant, ready.binding.digest)
    # First of all, for it names the process that has this site's files.
    with ExitStack() as files:
        files.callback(ready.computation.close)
        log = WriteAheadLog(site.state / f"{stem}.secagg") if is_masked(site.plan) else None
        if log is not None:
            files.callback(log.close)
        held = ready.task.held_records
        rules = SiteRules(site.plan, ready.binding.schema, site.config.policy, site.participant, held)
        record = RequestRecord(site.state / f"{stem}.answered", rules)
        files.callback(record.close)

        history = history_of(site, ready.binding.digest, ready.binding.schema)
        begun = model_begun_with(site.runs, site.participant, site.plan)
        lineage = RunLineage(site.config)
        counted = CountedStart(
            lineage, site.plan, ready.binding.digest, begun, ready.owners, lambda: datetime.now(UTC)
        )

        def rule(request: AggregationRequest) -> Refusal | int:
            said = history.admit(request) or record.admit(request)
            if isinstance(said, int):
                counted.answering(request)
            releases = isinstance(said, int) and any(ready.profile.splits.values())
            if releases and ready.account is not None and not is_noised(site.plan):
                ready.account.record_unprotected(request.purpose)
            return said

        store = RunStore(site.state / f"{stem}.run", record.has_answered)
        variates = site.state / f"{stem}.variates"
        recording = recording_of(ready, logs, partial(kept_at, ready, variates))
        follower = follower_of(ready, store, recording, history.opened)
        if store.unread is not None:
            publish(store.unread)
        memory = memory_of(ready, variates, lambda: follower.replica)

        def release() -> None:
            record.close()
            ready.computation.close()

        worker = _worker(ready, rule, log, follower, release, memory)
        # From here on they are the worker's to close.
        files.pop_all()
    return worker


def memory_of(ready: Readiness, folder: Path, replica: Callable[[], RunReplica]) -> SiteMemory | None:
    """Return what this site keeps of its rounds, in a folder; None where the plan needs nothing of the kind."""
    site = ready.site

    def opened(dimension: int | None) -> VariateStore:
        begun = replica().training_run.initial
        earlier = partial(earlier_variate, site.state, site.participant, site.plan, dimension, begun)
        return VariateStore(folder, dimension, lambda: replica().run_id, earlier)

    return site_memory(site.plan, ready.binding.layout, site.participant, opened)


def kept_at(ready: Readiness, folder: Path, replica: RunReplica) -> KeptFile | None:
    """Return the part of the model that this site has in the present state of a run; None where it keeps none."""
    if not keeps_parameters(ready.site.plan):
        return None
    memory = memory_of(ready, folder, lambda: replica)
    values = None if memory is None else ready.task.own_values(memory.own_part(replica.state.terms))
    return None if values is None else KeptFile(ready.site.participant, values)


def _worker(
    ready: Readiness,
    rule: Rule,
    log: WriteAheadLog | None,
    follower: RunFollower,
    release: Callable[[], None],
    memory: SiteMemory | None,
) -> Worker:
    if log is None:
        return PlainWorker(ready.task, ready.specs, rule, follower, release, memory)
    plan, binding = ready.site.plan, ready.binding
    parts = header_parts(plan, binding.schema)
    totals = MaskedTotals(plan, binding.layout, binding.schema)
    try:
        return MaskedWorker(ready.task, parts, totals, rule, masking_site(ready), log, follower, release, memory)
    except LocalProtocolError as fault:
        raise StateError(f"{log.path}: {fault.message}", fault.remedy) from fault


async def participate(ready: Readiness, worker: Worker, terms: ParticipationTerms, publish: Processor) -> Finished:
    """Take part in the run until it ends.

    Args:
        ready: the site.
        worker: computes.
        terms: of taking part.
        publish: takes what happens.

    Raises:
        FedfairError: the run ended in another way than finished, for this site at least.
    """
    records = SiteLogs(terms.logs, ready.site.participant, publish=publish)
    noting = in_turn(publish, text_lines(records.append_note))
    tracking = SiteTracking(terms.targets, _tracked(ready), noting) if terms.targets else None
    everything = noting if tracking is None else in_turn(noting, tracking)

    async def taking_part() -> Finished:
        try:
            with closing(EgressRecord(ready.site, ready.binding.digest)) as egress:
                return await driver_of(ready, worker, terms, records, egress, everything).run()
        finally:
            worker.close()

    try:
        finished = await _until_stopped(taking_part(), everything)
        if tracking is not None:
            tracking.finish("finished", finished.outcome, int(finished.rounds))
    except FedfairError as fault:
        if tracking is not None:
            tracking.finish("stopped" if isinstance(fault, StoppedError) else "aborted", fault.message)
        raise
    finally:
        records.close()
    return finished


def _tracked(ready: Readiness) -> TrackedRun:
    """Return what a tracker receives of the run, which the aggregator has yet to name."""
    plan = ready.site.plan
    facts = tracked_facts(plan, format_digest(ready.binding.digest))
    return TrackedRun("", plan.federation.name, ready.site.participant, facts)


def driver_of(
    ready: Readiness,
    worker: Worker,
    terms: ParticipationTerms,
    records: SiteLogs,
    egress: Egress,
    publish: Processor,
) -> SiteDriver:
    """Return the driver that takes part on these terms."""
    patience = Patience(Backoff(secrets.SystemRandom().random), terms.give_up_after_seconds)
    certificates = SiteCertificates(ready.site, publish)
    watch = LineWatch(time.monotonic)

    def call() -> AbstractAsyncContextManager[tuple[Link, Hello]]:
        keepalive = watch.next(patience.backoff.fruitless)
        return dial(ready, terms.address, egress, partial(introduced, worker), certificates, keepalive)

    greeting = partial(check_run, ready)
    return SiteDriver(call, ready.shapes, worker, records, publish, patience, greeting, certificates)


def introduced(worker: Worker, hello: Hello) -> Hello:
    """Return an introduction that says what this process has keys for, and what it was asked last."""
    held, asked = worker.held, worker.sums.last_asked
    hello = replace(hello, session=worker.session, state=held.digest)
    if held.run_id:
        hello = replace(hello, run_id=held.run_id, rounds_done=int(held.rounds_done))
    return hello if asked is None else replace(hello, last_sum_number=asked[1].sum_number)


@asynccontextmanager
async def dial(
    ready: Readiness,
    address: Address,
    egress: Egress,
    complete: Callable[[Hello], Hello] = lambda hello: hello,
    certificates: SiteCertificates | None = None,
    keepalive: KeepAlive = KEEPALIVE,
) -> AsyncIterator[tuple[Link, Hello]]:
    """Open one stream, after looking at who is at the other end.

    `complete` adds to the introduction what this process remembers of earlier streams; `certificates` learns whose
    certificates the stream rests on; `keepalive` says when its line counts as dead.

    Raises:
        UnreachableError: nothing answers there now.
        RenewableIdentityError: a certificate of either side has expired.
        IdentityError: the peer is not this federation's aggregator, or does not accept this site.
    """
    site = ready.site
    identity = await asyncio.to_thread(site.identity)
    # A connection of its own first: it finds out, in words, what gRPC would only call "unavailable". Nothing is
    # sent on it, so there is nothing to record.
    now = datetime.now(UTC)
    server = await asyncio.to_thread(preflight, address.host, address.port, identity, now, route=address.route)
    if certificates is not None:
        certificates.met(identity, server)
    credentials = channel_credentials(identity, server)
    async with open_link(address, credentials, egress, ready.binding.digest, keepalive) as link:
        hello = introduction(site, identity, ready.binding.digest, ready.approval)
        yield link, complete(hello)


async def _until_stopped(taking_part: Coroutine[None, None, Finished], publish: Processor) -> Finished:
    """Take part; the first SIGINT or SIGTERM closes stream and files cleanly, a later one ends the process."""
    running, stopped_by = asyncio.create_task(taking_part), [""]

    def stop(name: str) -> None:
        stopped_by[0] = name
        running.cancel()

    def tell(name: str) -> None:
        publish(LeavingBegun(name))

    try:
        with stopping(stop, tell):
            return await running
    except asyncio.CancelledError as cancelled:
        raise StoppedError(
            "this site was stopped by its operator; the others may continue without it",
            "start it again to take part in the remaining rounds",
            stopped_by[0],
        ) from cancelled
