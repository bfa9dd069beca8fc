"""A lying aggregator that floods a real site over a real socket: the site holds, writes and connects little."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from threading import Event

import grpc
import pytest

from aggregator.server_call import Context
from aggregator.service import SERVER_OPTIONS
from collaborator import driver as driver_module
from collaborator.calls import MAX_IN_A_SUM, Patience
from collaborator.driver import SiteDriver
from collaborator.egress import EgressRecord
from collaborator.mailbox import MAX_WAITING, Mailbox
from collaborator.participation import dial, worker_of
from collaborator.preparation import make_ready
from collaborator.records import SiteLogs
from fedfair.cli.loopback import Workspace, prepare
from fedfair.identity.tls import RenewableCertificate
from fedfair.ids import SumNumber
from fedfair.news.event import StatusUpdate
from fedfair.news.site import RunJoined
from fedfair.secagg.messages import VERSION, Kind
from fedfair.statistics.table import Purpose
from fedfair.wire.calling import Address
from fedfair.wire.codec import encode_aggregator_frame
from fedfair.wire.frames import AggregatorFrame, Finished, SecaggMessage, SumStart, Welcome
from fedfair.wire.receiving import ForWorker
from fedfair.wire.service import PARTICIPATE_METHOD, SERVICE
from tests.actors.counted_backoff import CountedBackoff
from tests.actors.followed_run import NoCertificates
from tests.interop.federation_kit import prepared
from tests.patience import PATIENCE
from tests.plans import small_plan
from tests.site_reading import read_site

FLOOD = 400
MESSAGE_BYTES = 256 << 10
QUESTION = SumStart(SumNumber(1), Purpose.STANDARDISATION, 0, 1, bytes(32), 60)
GARBAGE = SecaggMessage(b"\xff" * MESSAGE_BYTES)
OLD_ANSWER = SecaggMessage(bytes([VERSION, Kind.CONFIRMS]) + bytes(MESSAGE_BYTES))

Say = Callable[[AggregatorFrame], Awaitable[None]]


@asynccontextmanager
async def lying(workspace: Workspace, script: Callable[[int, Say], Awaitable[None]]) -> AsyncIterator[int]:
    """Listen with the aggregator's own certificate; `script` says what the n-th stream is told."""
    run, streams = prepared(workspace), 0

    async def participate(_requests: object, context: Context) -> None:
        nonlocal streams
        streams += 1
        await context.read()

        async def say(frame: AggregatorFrame) -> None:
            await context.write(encode_aggregator_frame(frame))

        await say(Welcome("0" * 32, 0, run.plan.training.rounds))
        await script(streams, say)

    server = grpc.aio.server(options=SERVER_OPTIONS)
    handler = grpc.stream_stream_rpc_method_handler(participate)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {PARTICIPATE_METHOD: handler}),)
    )
    port = server.add_secure_port("localhost:0", RenewableCertificate(run.identity).credentials())
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace=None)
        run.records.close()


class WatchedMailbox(Mailbox):
    """Says when a reader waits for room."""

    full: asyncio.Event

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        made.append(self)

    async def put(self, said: ForWorker) -> None:
        if len(self) >= MAX_WAITING:
            WatchedMailbox.full.set()
        await super().put(said)
        self.most = max(self.most, len(self))


made: list[WatchedMailbox] = []


def flooded(folder: Path, frame: SecaggMessage, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, list[float]]:
    """Flood a site on two streams; return what its reader took while its worker stood still, and what it waited.

    Returns:
        bytes that were read until the reader waited, the most entries that waited, the waits between streams.
    """
    plan = small_plan(rounds=2, protection={"mode": "malicious", "most_records": 512})
    workspace = prepare(folder, plan)
    made.clear()
    WatchedMailbox.full = asyncio.Event()
    monkeypatch.setattr(driver_module, "Mailbox", WatchedMailbox)
    links = []

    async def script(stream: int, say: Say) -> None:
        if stream == 3:
            await say(Finished(2, "done"))
            return
        await say(QUESTION)
        for _ in range(FLOOD):
            await say(frame)
        # The site ends the stream; an aggregator that lies does not.
        await asyncio.Event().wait()

    async def scenario() -> tuple[int, int, list[float]]:
        ready = make_ready(read_site("clinic-a", folder / "clinic-a.yaml", workspace.plan, None))
        logs = folder / "logs"
        answers, records, backoff = worker_of(ready, logs), SiteLogs(logs, "clinic-a"), CountedBackoff()
        stand_still = Event()

        def stands_still(update: StatusUpdate) -> None:
            # From then on nothing that the worker hears is worked on.
            if isinstance(update, RunJoined):
                answers._worker.submit(stand_still.wait)

        async with lying(workspace, script) as port:
            with closing(EgressRecord(ready.site, ready.binding.digest)) as egress:

                @asynccontextmanager
                async def watched() -> AsyncIterator[object]:
                    async with dial(ready, Address("localhost", port), egress) as (link, hello):
                        links.append(link)
                        yield link, hello

                driver = SiteDriver(
                    watched,  # type: ignore[arg-type]  # what it yields is the pair
                    ready.shapes, answers, records, stands_still, Patience(backoff), lambda _: None,
                    NoCertificates(),
                )  # fmt: skip
                running = asyncio.create_task(driver.run())
                try:
                    await WatchedMailbox.full.wait()
                    read = links[0].bytes_received
                    stand_still.set()
                    await running
                finally:
                    stand_still.set()
                    answers.close()
                    records.close()
        return read, made[0].most, backoff.waits

    return asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


@pytest.mark.parametrize("frame", [GARBAGE, OLD_ANSWER], ids=["garbage", "out of order"])
def test_a_flooded_site_reads_a_few_messages_while_it_works_and_ends_the_stream_after_a_few_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frame: SecaggMessage
) -> None:
    read, most, waits = flooded(tmp_path, frame, monkeypatch)
    assert most == MAX_WAITING
    # One message with the worker, the few that wait, and the one with which the reader waits; 400 were sent.
    assert read <= (MAX_WAITING + 3) * (MESSAGE_BYTES + 1024)
    # Two streams were ended, and the second wait is longer than the first.
    assert waits == [0.125, 0.25]
    refusals = (tmp_path / "logs" / "clinic-a_refusals.jsonl").read_text().splitlines()
    assert len(refusals) == 2 * MAX_IN_A_SUM
    egress = (tmp_path / "egress" / "clinic-a.jsonl").read_text().splitlines()
    assert sum('"abstention"' in line for line in egress) == 2 * MAX_IN_A_SUM
