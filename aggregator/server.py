"""From a prepared run to its end: the listening socket, the signals, the driver."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aggregator.address import Listen
from aggregator.assembly import AS_PLANNED, EndTerms, assembled
from aggregator.deadlines import StartTimer, clock_timer
from aggregator.listening import listening
from aggregator.outcome import Ending, EndState
from aggregator.preparation import Run
from aggregator.token_bucket import PEER_LIMITS, PeerLimits
from fedfair.identity.tls import RenewableCertificate
from fedfair.news.processors import Processor
from fedfair.news.run import PortOpened, StopBegun
from fedfair.process.stopping import stopping
from fedfair.store.atomic_file import write_whole


async def serve(
    run: Run,
    listen: Listen,
    publish: Processor,
    announce: Callable[[int], None],
    limits: PeerLimits = PEER_LIMITS,
    start_timer: StartTimer = clock_timer,
    farewell: EndTerms = AS_PLANNED,
) -> Ending:
    """Listen, drive the run to its end, notify all sites, and return how it ended.

    Args:
        run: what to drive.
        listen: where.
        publish: takes what happens.
        announce: called with the port when connections are accepted.
        limits: on what one certificate may begin.
        start_timer: starts the timer of a deadline.
        farewell: how the run ends.

    Raises:
        FedfairError: the address cannot be listened on.
    """
    shown = RenewableCertificate(run.identity)
    stopped_by: list[str] = []
    with assembled(run, shown, publish, limits, start_timer, farewell) as driven:

        def stop(name: str) -> None:
            stopped_by.append(name)
            driven.driver.stop(f"its operator stopped it ({name})")

        def tell(name: str) -> None:
            publish(StopBegun(name))

        # The socket is closed while signals are still taken: the second one of a request must not kill.
        with stopping(stop, tell):
            async with listening((driven.service.handlers(),), shown, listen) as port:
                announce(port)
                publish(PortOpened(port, run.plan.federation.collaborators))
                ending = await driven.driver.run()
    if ending.state is EndState.STOPPED and stopped_by:
        return replace(ending, signal_name=stopped_by[0])
    return ending


def write_ready_file(path: Path, port: int) -> None:
    """Write one JSON line with the port and this process's number; the file appears whole."""
    write_whole(path, json.dumps({"port": port, "pid": os.getpid()}) + "\n")
