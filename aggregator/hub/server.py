"""From the folder of a hub to its end: the lock, the record, the port, the studies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from aggregator.address import Listen
from aggregator.deadlines import StartTimer, clock_timer
from aggregator.hub.act_log import ActLog
from aggregator.hub.archives import ArchiveStore
from aggregator.hub.dispatch import StudyDispatch
from aggregator.hub.folder import HubFolder
from aggregator.hub.runs import RunTerms, StudyRuns
from aggregator.hub.service import HubService
from aggregator.listening import listening
from aggregator.token_bucket import PEER_LIMITS, PeerLimits
from fedfair.consortium.record_file import RecordFile
from fedfair.errors import IdentityError, StateError
from fedfair.identity.identity_watch import IdentityWatch
from fedfair.identity.store import SiteIdentity, load_site_identity
from fedfair.identity.tls import RenewableCertificate
from fedfair.ids import AGGREGATOR
from fedfair.process.stopping import stopping
from fedfair.store.lock import HeldError, ProcessLock, runs_already

LOOK_SECONDS = 1.0
"""How often the hub looks whether its certificate was renewed."""


async def serve_hub(
    folder: HubFolder,
    listen: Listen | None,
    announce: Callable[[int], None],
    say: Callable[[str], None],
    passphrase: bytes | None = None,
    limits: PeerLimits = PEER_LIMITS,
    retry_seconds: tuple[float, float] = (5.0, 600.0),
    start_timer: StartTimer = clock_timer,
) -> str:
    """Serve all studies until the operator stops the hub; return the name of the signal.

    Args:
        folder: of the hub.
        listen: where; None for what the list of members says.
        announce: called with the port when connections are accepted.
        say: takes lines for the operator.
        passphrase: of encrypted keys; None where they are not encrypted.
        limits: on what one certificate may begin.
        retry_seconds: the first and the longest wait before a study is tried again.
        start_timer: starts the timer of a deadline of a study.

    Raises:
        FedfairError: the folder is no hub's, another process has it, or the address cannot be listened on.
    """
    settings = folder.settings()
    with _alone(folder.record):
        identity = load_site_identity(folder.certificates, AGGREGATOR, datetime.now(UTC), passphrase)
        log = ActLog(RecordFile(folder.record), identity.signing_key)
        shown = RenewableCertificate(identity)
        terms = RunTerms(folder, log, shown, say, passphrase, limits, start_timer, retry_seconds)
        runs = StudyRuns(terms, settings.at_once)
        service = HubService(folder, log, ArchiveStore(folder, settings.archive_bytes), limits)
        handlers = (service.handlers(), StudyDispatch(log, runs, limits).handlers())
        consortium = log.record.consortium
        place = listen or Listen.from_plan(consortium.host, consortium.port)
        stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        with stopping(stopped.set_result, lambda name: say(f"{name}: the hub ends its studies in order")):
            async with listening(handlers, shown, place) as port:
                announce(port)
                say(f"the hub of {consortium.federation} listens on port {port}, {log.record.number} acts")
                keeping = asyncio.create_task(runs.keep())
                renewing = asyncio.create_task(_renewing(identity, shown, say, passphrase))
                try:
                    waiting: tuple[asyncio.Future[str] | asyncio.Future[None], ...] = (stopped, keeping, renewing)
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    await runs.close("the hub is stopped by its operator; it resumes when it is started again")
                    keeping.cancel()
                    renewing.cancel()
                    ended = await asyncio.gather(keeping, renewing, return_exceptions=True)
                    log.close()
        for each in ended:
            if isinstance(each, Exception):
                raise each
    return stopped.result()


@contextmanager
def _alone(record: Path) -> Iterator[None]:
    try:
        lock = ProcessLock(record.with_name(f"{record.name}.lock"))
    except HeldError as error:
        raise StateError(*runs_already("a hub", error.process, record)) from error
    except OSError as error:
        raise StateError(
            f"{record.parent} is no folder of a hub: {error.strerror}", "`fedfair hub create`"
        ) from error
    try:
        yield
    finally:
        lock.close()


async def _renewing(
    identity: SiteIdentity, shown: RenewableCertificate, say: Callable[[str], None], passphrase: bytes | None
) -> None:
    watch = IdentityWatch(identity, passphrase)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            renewed = watch.renewed(datetime.now(UTC))
        except IdentityError as fault:
            say(f"a certificate on the disk cannot be used: {fault.message}")
            continue
        if renewed is not None:
            shown.replace(renewed)
            say(f"a renewed certificate is shown, good until {renewed.certificate.not_valid_after_utc:%Y-%m-%d}")
