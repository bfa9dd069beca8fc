"""From a ready site to the end of its run: dialling, signals, the driver."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from collaborator.allowance import Allowance
from collaborator.answers import Answers
from collaborator.backoff import Backoff
from collaborator.driver import Driver, Patience
from collaborator.egress import EgressRecord
from collaborator.inbox import Question
from collaborator.link import Address, Egress, Link, open_link
from collaborator.masked_answers import MaskedAnswers
from collaborator.observer import Lines, Observer, Several
from collaborator.permission import Permission
from collaborator.preparation import Readiness, check_run, introduction, masking_site
from collaborator.queries import AnsweredQueries
from collaborator.records import Records
from collaborator.reluctance import Reluctance
from collaborator.write_ahead import WriteAheadLog
from fedfair.errors import AbortedError
from fedfair.identity.preflight import preflight
from fedfair.identity.tls import channel_credentials
from fedfair.learning.masked_sums import header_counts, is_masked
from fedfair.plan.schema import PrivacySection
from fedfair.report.stopping import stopping
from fedfair.wire.frames import Finished, Hello


@dataclass(frozen=True, slots=True)
class Terms:
    """How to take part.

    Attributes:
        address: where the aggregator is.
        logs: the folder of this site's metrics.
        give_up_after_seconds: how long to go on without the aggregator; None for ever.
    """

    address: Address
    logs: Path
    give_up_after_seconds: float | None = None


def answers_of(ready: Readiness) -> Answers | MaskedAnswers:
    """Return the worker of this site.

    Raises:
        FedfairError: its write-ahead log cannot be used.
    """
    site = ready.site
    record = f"{site.participant}-{ready.binding.digest.hex()[:16]}"
    queries = AnsweredQueries(site.state / f"{record}.queries")
    permission = Permission(site.plan, ready.binding.schema, site.config.policy, site.participant)
    allowance = Allowance(site.state / f"{record}.answered", site.plan, site.config.policy, site.participant)

    def against(question: Question) -> Reluctance | None:
        start = question.start
        reluctance = permission.objection(start) or allowance.objection(question) or queries.objection(start)
        if reluctance is None and ready.account is not None and site.plan.privacy == PrivacySection():
            ready.account.record_unprotected(start)
        return reluctance

    if not is_masked(site.plan):
        return Answers(ready.task, ready.specs, against)
    log = WriteAheadLog(site.state / f"{record}.secagg")
    counts = header_counts(site.plan, ready.binding.schema)
    return MaskedAnswers(ready.task, ready.specs, counts, against, masking_site(ready), log)


async def participate(
    ready: Readiness, answers: Answers | MaskedAnswers, terms: Terms, observer: Observer
) -> Finished:
    """Take part in the run until it ends.

    Raises:
        FedfairError: the run ended in another way than finished, for this site at least.
    """
    records = Records(terms.logs, ready.site.participant)
    told = Several(observer, Lines(records.append_note))
    try:
        with closing(EgressRecord(ready.site, ready.binding.digest)) as egress:
            return await _until_stopped(driver_of(ready, answers, terms, records, egress, told), told)
    finally:
        answers.close()
        records.close()


def driver_of(
    ready: Readiness,
    answers: Answers | MaskedAnswers,
    terms: Terms,
    records: Records,
    egress: Egress,
    observer: Observer,
) -> Driver:
    """Return the driver that takes part on these terms."""
    patience = Patience(Backoff(secrets.SystemRandom().random), terms.give_up_after_seconds)
    call = partial(dial, ready, terms.address, egress, lambda: answers.session)
    return Driver(call, ready.shapes, answers, records, observer, patience, partial(check_run, ready.site))


@asynccontextmanager
async def dial(
    ready: Readiness, address: Address, egress: Egress, session: Callable[[], bytes] = bytes
) -> AsyncIterator[tuple[Link, Hello]]:
    """Open one stream, after looking at who is at the other end.

    Raises:
        UnreachableError: nobody answers there now.
        IdentityError: whoever answers is not this federation's aggregator, or does not accept this site.
    """
    site = ready.site
    identity = site.identity()
    # A connection of its own first: it finds out, in words, what gRPC would only call "unavailable". Nothing is
    # sent on it, so there is nothing to record.
    now = datetime.now(UTC)
    server = await asyncio.to_thread(preflight, address.host, address.port, identity, now)
    async with open_link(address, channel_credentials(identity, server), egress) as link:
        hello = introduction(site, identity, ready.binding.digest, ready.approval)
        yield link, replace(hello, session=session())


async def _until_stopped(driver: Driver, observer: Observer) -> Finished:
    """Run the driver; the first SIGINT or SIGTERM closes the stream in order, a later one ends the process."""
    running = asyncio.create_task(driver.run())

    def stop(name: str) -> None:
        observer.note(f"{name}: leaving the federation; once more to stop at once")
        running.cancel()

    try:
        with stopping(stop):
            return await running
    except asyncio.CancelledError as cancelled:
        raise AbortedError(
            "this site was stopped by its operator; the others may go on without it",
            "start it again to take part in the remaining rounds",
        ) from cancelled
