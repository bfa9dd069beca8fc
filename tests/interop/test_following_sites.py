"""Every site comes to the aggregator's state, whatever it missed: real sockets, and sites that come and go."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from aggregator.address import Listen
from aggregator.server import serve
from fedfair.aggregation.model_file import load
from fedfair.cli.loopback import Workspace, prepare
from fedfair.secagg.messages import Kind, kind_of
from fedfair.statistics.table import Purpose
from fedfair.wire.frames import SecaggMessage
from fedfair.wire.receiving import ForWorker, ReceivedSum, ReceivedTotals
from tests.interop.federation_kit import (
    NAMES,
    Federation,
    HeldDeadlines,
    WatchedWorker,
    Watching,
    metrics,
    play,
    prepared,
    states_agree,
)
from tests.patience import PATIENCE
from tests.plans import small_plan

FOUR = ("clinic-a", "clinic-b", "clinic-c", "clinic-d")
MASKED = {"mode": "malicious", "most_records": 512, "colluders": 0}
SECTIONS = {"min_collaborators": 3, "reconnect_grace_seconds": 0}
KEPT = (5, Purpose.EVALUATION)
"""The last sum that the journal of a large model keeps before the next evaluation."""

both = pytest.mark.parametrize("protection", [None, MASKED], ids=["plain", "masked"])


class Killed(Exception):  # noqa: N818 - no error: what happens to a process
    """The process of a site is gone."""


def killed_by(is_fatal: Callable[[ForWorker], bool]) -> Callable[[ForWorker], Awaitable[None]]:
    """Return what ends a site's process as soon as it would hear something fatal."""

    async def before(said: ForWorker) -> None:
        if is_fatal(said):
            raise Killed

    return before


def models_agree(workspace: Workspace) -> None:
    """Assert that every site that saw the end has the aggregator's model, bit for bit."""
    _, expected, words = load(workspace.folder / "save" / "last.safetensors")
    for name in workspace.collaborators:
        (run,) = (workspace.folder / "runs" / name).iterdir()
        _, vector, own = load(run / "save" / "last.safetensors")
        assert vector.tobytes() == expected.tobytes(), name
        assert own["threshold"] == words["threshold"]


def contributors(workspace: Workspace) -> dict[int, int]:
    lines = [line for line in metrics(workspace) if line["purpose"] == "training"]
    found = {int(str(line["round"])): int(str(line["contributors"])) for line in lines}
    assert len(found) == len(lines), "a round was summed twice"
    return found


@pytest.mark.slow
@both
def test_a_late_start_a_return_after_missed_rounds_and_a_kill_before_the_opened_sum_end_in_one_state(
    tmp_path: Path, protection: Mapping[str, object] | None
) -> None:
    plan = small_plan(rounds=60, federation=SECTIONS, protection=protection, names=FOUR)
    workspace = prepare(tmp_path, plan)

    async def scenario(federation: Federation) -> None:
        watching = federation.watching
        everybody = {name: asyncio.create_task(federation.take_part(name)) for name in FOUR[:2]}

        def is_fatal(said: ForWorker) -> bool:
            is_opened = isinstance(said, ReceivedSum | ReceivedTotals)
            return is_opened and bool(watching.progress) and watching.progress[-1].round == 7

        mortal = partial(WatchedWorker, before=killed_by(is_fatal))
        killed = asyncio.create_task(federation.take_part("clinic-c", around=mortal))
        await federation.begin_with(*FOUR[:3])
        # The fourth has never seen this run: it has the plan's own beginning, and the others' word for the rest.
        await watching.until_round(3)
        everybody["clinic-d"] = asyncio.create_task(federation.take_part("clinic-d"))
        with pytest.raises(Killed):
            await killed
        everybody["clinic-c"] = asyncio.create_task(federation.take_part("clinic-c"))
        await watching.until_round(20)
        everybody["clinic-a"].cancel()
        await asyncio.gather(everybody["clinic-a"], return_exceptions=True)
        await watching.until_round(30)
        everybody["clinic-a"] = asyncio.create_task(federation.take_part("clinic-a"))
        await asyncio.gather(*everybody.values())

    assert play(workspace, scenario).state.value == "finished"
    counted = contributors(workspace)
    assert list(counted) == list(range(1, 61))
    assert counted[1] == 3
    assert counted[25] == 3
    assert counted[60] == 4
    states_agree(workspace)
    models_agree(workspace)


@asynccontextmanager
async def aggregator(workspace: Workspace, port: int = 0) -> AsyncIterator[Federation]:
    """Run an aggregator until it ends; where the block is left before, it is gone as if killed."""
    run, watching, deadlines = prepared(workspace), Watching(), HeldDeadlines()
    listens: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    served = serve(run, Listen("localhost", port), watching, listens.set_result, start_timer=deadlines.start)
    serving = asyncio.create_task(served)
    try:
        await asyncio.wait({serving, listens}, return_when=asyncio.FIRST_COMPLETED)
        yield Federation(workspace, listens.result(), watching, serving, deadlines)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        run.records.close()


@both
def test_sites_that_outlive_their_aggregator_and_are_ahead_of_its_journal_end_in_its_state(
    tmp_path: Path, protection: Mapping[str, object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As of a large model: the journal is not written after every sum.
    monkeypatch.setattr("aggregator.records.SMALL_MODEL_BYTES", 0)
    workspace = prepare(tmp_path, small_plan(rounds=8, protection=protection))

    async def scenario() -> None:
        async with aggregator(workspace) as first:
            sites = [asyncio.create_task(first.take_part(name)) for name in NAMES]
            await first.watching.until_round(7)
        async with aggregator(workspace, first.port) as second:
            await asyncio.gather(*sites)
            assert (await second.serving).state.value == "finished"
            assert second.watching.progress[0].round == 6

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    states_agree(workspace)
    models_agree(workspace)


def test_sites_that_have_taken_a_sum_take_it_again_from_an_aggregator_that_has_forgotten_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.records.SMALL_MODEL_BYTES", 0)
    workspace = prepare(tmp_path, small_plan(rounds=7, protection=MASKED))

    async def scenario() -> None:
        async with aggregator(workspace) as first:
            progress = first.watching.progress

            def is_fatal(said: ForWorker) -> bool:
                is_asked = isinstance(said, SecaggMessage) and kind_of(said.message) is Kind.UNMASK_REQUEST
                return is_asked and bool(progress) and (progress[-1].round, progress[-1].purpose) == KEPT

            # The last is killed before it answers; the others open the sum, and wait for it with their new state.
            others = [asyncio.create_task(first.take_part(name)) for name in NAMES[:2]]
            with pytest.raises(Killed):
                await first.take_part("clinic-c", around=partial(WatchedWorker, before=killed_by(is_fatal)))
            await first.watching.until_round(KEPT[0] + 1)
        async with aggregator(workspace, first.port) as second:
            back = asyncio.create_task(second.take_part("clinic-c"))
            await asyncio.gather(*others, back)
            assert (await second.serving).state.value == "finished"

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    states_agree(workspace)
    models_agree(workspace)
