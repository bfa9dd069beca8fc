"""From a prepared run to its end: the listening socket, the signals, the driver, the result."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import grpc

from aggregator.address import Listen
from aggregator.driver import Driver
from aggregator.intake import UploadBudget
from aggregator.mirror import Mirror
from aggregator.observer import Observer
from aggregator.outcome import Ending
from aggregator.preparation import Run
from aggregator.service import SERVER_OPTIONS, Service
from fedfair.identity.tls import server_credentials
from fedfair.learning.exchange import sum_specs
from fedfair.learning.masked_sums import is_masked
from fedfair.report.stopping import stopping
from fedfair.rounds.federation import Federation
from fedfair.rounds.protection import Protection
from fedfair.sums.running import PlainSum
from fedfair.whole_file import write_whole

CLOSING_SECONDS = 2.0
"""How long streams may take to end by themselves when the server stops."""


async def serve(run: Run, listen: Listen, observer: Observer, announce: Callable[[int], None]) -> Ending:
    """Listen, drive the run to its end, tell everybody, and return how it ended.

    Args:
        run: what to drive.
        listen: where.
        observer: who is told what happens.
        announce: called with the port when connections are accepted.

    Raises:
        FedfairError: the address cannot be listened on.
    """
    protection = _protection(run)
    federation = Federation(
        run.plan, run.course, PlainSum, protection=protection, last_sum_number=run.last_sum_number
    )
    driver = Driver(federation, run.course, run.records, observer, masked=protection is not None)
    specs = sum_specs(run.plan, run.layout, run.schema)
    vectors = frozenset[int]() if protection is None else protection.vector_lengths
    budget = UploadBudget(max(*(spec.upload_bytes for spec in specs.values()), *vectors))

    def stop(name: str) -> None:
        observer.note(f"{name}: telling the collaborators and recording the run; once more to stop at once")
        driver.stop(f"its operator stopped it ({name})")

    with closing(Mirror(run, driver.stop)) as mirror:
        service = Service(run.admission, driver, mirror, budget, vectors)
        async with _listening(service, run, listen) as port:
            with stopping(stop):
                announce(port)
                observer.note(f"listening on port {port} for {', '.join(run.plan.federation.collaborators)}")
                return await driver.run()


def _protection(run: Run) -> Protection | None:
    if not is_masked(run.plan):
        return None
    return Protection(run.plan, run.layout, run.schema, secrets.token_bytes, time.monotonic, run.clip)


@asynccontextmanager
async def _listening(service: Service, run: Run, listen: Listen) -> AsyncIterator[int]:
    listen.check_free()
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((service.handlers(),))
    try:
        port = server.add_secure_port(str(listen), server_credentials(run.identity))
    except RuntimeError as error:
        raise listen.fault(error) from error
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace=CLOSING_SECONDS)


def write_ready_file(path: Path, port: int) -> None:
    """Write one JSON line with the port and this process's number; the file appears whole."""
    write_whole(path, json.dumps({"port": port, "pid": os.getpid()}) + "\n")
