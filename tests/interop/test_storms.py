"""One authenticated site that asks, connects or says far too much, over real sockets: the others continue."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from aggregator.token_bucket import PeerLimits
from fedfair.cli.loopback import prepare
from fedfair.errors import UnreachableError
from fedfair.identity.preflight import preflight
from fedfair.identity.tls import channel_credentials
from fedfair.news.repetition import MAX_REASONS
from fedfair.rounds.slowness.steadiness import SHORT_STREAMS
from fedfair.wire.calling import CHANNEL_OPTIONS
from fedfair.wire.frames import Refused, Welcome
from fedfair.wire.limits import MAX_CHECK_BYTES
from fedfair.wire.service import CHECK, PARTICIPATE
from tests.interop.federation_kit import NAMES, Federation, metrics, play
from tests.interop.own_folders import renew, with_own_folders
from tests.interop.test_streams import answered
from tests.plans import small_plan


async def refused_questions(
    federation: Federation, name: str, question: bytes, times: int
) -> list[grpc.StatusCode]:
    """Ask a preflight question so often over one connection; return how each was refused."""
    identity = federation.ready(name).site.identity()
    server = await asyncio.to_thread(preflight, "localhost", federation.port, identity, datetime.now(UTC))
    target, credentials = f"localhost:{federation.port}", channel_credentials(identity, server)
    found = []
    async with grpc.aio.secure_channel(target, credentials, options=CHANNEL_OPTIONS) as channel:
        for _ in range(times):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(CHECK, bytes, bytes)(question)
            found.append(refused.value.code())
    return found


def everybody_but_the_guilty(federation: Federation) -> list[asyncio.Task[object]]:
    return [asyncio.create_task(federation.take_part(name)) for name in NAMES[:2]]


NO_MORE = PeerLimits(seconds_per_token=1e6, refusal_seconds=0.0)
"""A bucket that is empty stays so."""

BURST = NO_MORE.burst

TWO_OF_THREE = {"min_collaborators": 2}


@pytest.mark.slow
def test_questions_that_are_too_long_or_too_many_are_refused_and_not_recorded(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=3, federation=TWO_OF_THREE))
    record = tmp_path / "received" / "clinic-c.jsonl"

    async def floods(federation: Federation) -> None:
        before = record.read_bytes()
        codes = await refused_questions(federation, "clinic-c", b"\xff" * (MAX_CHECK_BYTES + 1), BURST + 5)
        assert codes == [grpc.StatusCode.PERMISSION_DENIED] * BURST + [grpc.StatusCode.RESOURCE_EXHAUSTED] * 5
        assert record.read_bytes() == before  # Nothing of it was looked at, so nothing was written down.
        await federation.watching.until_said("too many preflight questions from clinic-c")
        others = everybody_but_the_guilty(federation)
        await federation.begin_with(*NAMES[:2])
        await asyncio.gather(*others)

    assert play(workspace, floods, limits=NO_MORE).state.value == "finished"


@pytest.mark.slow
def test_a_site_that_only_connects_is_soon_heard_of_no_more_and_the_others_train(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=60, federation=TWO_OF_THREE))

    async def flaps(federation: Federation) -> None:
        others = everybody_but_the_guilty(federation)
        await federation.begin_with(*NAMES[:2])
        await federation.watching.until_round(2)
        welcomed, refusals = 0, list[str]()
        for _ in range(BURST + 5):
            async with federation.dial("clinic-c") as (link, hello):
                try:
                    await link.send(hello)
                    await answered(link, Welcome)
                    welcomed += 1
                except UnreachableError as refused:
                    refusals.append(refused.message)
        assert welcomed == BURST
        assert all("too many sessions from clinic-c" in words for words in refusals)
        await asyncio.gather(*others)

    assert play(workspace, flaps, limits=NO_MORE).state.value == "finished"
    left = [line["contributors"] for line in metrics(workspace) if line["purpose"] == "training"]
    assert left == [2] * 60
    assert BURST > SHORT_STREAMS


def test_whoever_has_an_older_certificate_of_a_site_takes_nothing_from_the_site_with_the_new_one(
    tmp_path: Path,
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1))
    folders = with_own_folders(workspace)
    few = PeerLimits(burst=3, seconds_per_token=1e6, refusal_seconds=0.0)

    async def storms(federation: Federation) -> None:
        stolen = federation.ready("clinic-c").site.identity()
        renew(workspace.folder / "cert", folders["clinic-c"], "clinic-c")
        server = await asyncio.to_thread(preflight, "localhost", federation.port, stolen, datetime.now(UTC))
        target, credentials = f"localhost:{federation.port}", channel_credentials(stolen, server)
        codes = []
        async with grpc.aio.secure_channel(target, credentials, options=CHANNEL_OPTIONS) as channel:
            for _ in range(2 * few.burst):
                call = channel.stream_stream(PARTICIPATE, bytes, bytes)(None)
                await call.done_writing()
                with contextlib.suppress(grpc.aio.AioRpcError):
                    async for _ in call:
                        pass
                codes.append(await call.code())
        assert codes[-1] is grpc.StatusCode.RESOURCE_EXHAUSTED
        await federation.everybody()

    assert play(workspace, storms, limits=few).state.value == "finished"


def test_one_name_is_told_a_few_different_reasons_a_day_however_it_alternates(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1))

    async def alternates(federation: Federation) -> None:
        for number in range(2 * MAX_REASONS):
            async with federation.dial("clinic-c") as (link, hello):
                await link.send(replace(hello, plan_digest=bytes([number]) * 32))
                await answered(link, Refused)
        await federation.everybody()
        told = [note for note in federation.watching.notes if note.startswith("clinic-c was refused: ")]
        assert len(told) == MAX_REASONS

    assert play(workspace, alternates).state.value == "finished"
