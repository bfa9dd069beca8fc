"""An old copy of `save/` under running sites, over real sockets in one process."""

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from aggregator.address import Listen
from aggregator.outcome import Ending, EndState, write_result
from aggregator.server import serve
from fedfair.cli.loopback import Workspace, prepare
from fedfair.plan.loading import load_plan
from fedfair.rounds.exit_reasons import ExitReason
from tests.interop.federation_kit import Federation, Watching, prepared
from tests.patience import PATIENCE
from tests.plans import small_plan
from tests.transcript.signed_end import proven_end


async def aggregate(workspace: Workspace, port: int, until: int | None, *, repeats_rounds: bool = False) -> Ending:
    """Run an aggregator at a port that the sites know, until a round is done, and write its result."""
    run, watching = prepared(workspace), Watching()
    if repeats_rounds and run.continued is not None:
        run = replace(run, continued=replace(run.continued, repeats_rounds=True))
    serving = asyncio.create_task(serve(run, Listen("localhost", port), watching, lambda _: None))
    try:
        if until is not None:
            await watching.until_round(until)
            os.kill(os.getpid(), signal.SIGTERM)
        ending = await serving
        write_result(run, ending)
        return ending
    finally:
        run.records.close()


@pytest.mark.parametrize(
    "protection",
    [None, pytest.param({"mode": "malicious", "most_records": 512}, marks=pytest.mark.slow)],
    ids=["plain", "masked"],
)
def test_an_old_copy_of_the_journal_kills_no_site_and_is_continued_at_the_operator_s_word(
    tmp_path: Path, protection: Mapping[str, object] | None
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=8, protection=protection))

    async def scenario() -> list[Ending]:
        async with asyncio.timeout(PATIENCE):
            port = load_plan(workspace.plan).federation.aggregator.port
            federation = Federation(workspace, port, Watching(), asyncio.create_task(asyncio.sleep(0)))  # type: ignore[arg-type]  # no aggregator of its own
            sites = [asyncio.create_task(federation.take_part(name)) for name in workspace.collaborators]
            endings = [await aggregate(workspace, port, 2)]
            shutil.copytree(tmp_path / "save", tmp_path / "backup")
            endings.append(await aggregate(workspace, port, 5))
            shutil.rmtree(tmp_path / "save")
            shutil.copytree(tmp_path / "backup", tmp_path / "save")
            endings.append(await aggregate(workspace, port, None))
            assert not any(site.done() for site in sites), "the sites wait for the next start"
            endings.append(await aggregate(workspace, port, None, repeats_rounds=True))
            assert [(await site).rounds for site in sites] == [8, 8, 8]
            return endings

    endings = asyncio.run(scenario())
    assert [ending.state for ending in endings] == [
        EndState.STOPPED,
        EndState.STOPPED,
        EndState.ABORTED,
        EndState.FINISHED,
    ]
    assert endings[2].why is ExitReason.RESTORED
    assert "the sites are ahead by" in endings[2].words
    # The evidence was put back and stopped too, and ends whole: eight rounds and what lies between, signed by all.
    proven = proven_end(tmp_path / "save", workspace.plan)
    assert (proven.rounds, list(proven.signed)) == (8, list(workspace.collaborators))
