"""Every site comes to the aggregator's state, whatever it missed: real sockets, and sites that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
import torch

from collaborator.notices import Notice
from collaborator.run_follower import HeldRun
from collaborator.worker import Worker, WorkerStanding
from fedfair.aggregation.model_file import load
from fedfair.cli.loopback import Workspace, prepare
from fedfair.wire.frames import CollaboratorFrame, Welcome
from fedfair.wire.receiving import ForWorker, ReceivedSum, ReceivedTotals
from tests.interop.federation_kit import Federation, metrics, play, states_agree
from tests.plans import small_plan

FOUR = ("clinic-a", "clinic-b", "clinic-c", "clinic-d")
MASKED = {"mode": "malicious", "most_records": 512, "colluders": 0}
SECTIONS = {"min_collaborators": 3, "join_deadline_seconds": 1, "reconnect_grace_seconds": 0}
both = pytest.mark.parametrize("protection", [None, MASKED], ids=["plain", "masked"])


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Killed(Exception):  # noqa: N818 - no error: what happens to a process
    """The process of a site is gone."""


class DeafWorker:
    """A worker whose process is killed when a sum to which it has added was opened, before it hears of it."""

    def __init__(self, worker: Worker, is_time: Callable[[], bool]) -> None:
        self._worker, self._is_time = worker, is_time

    @property
    def standing(self) -> WorkerStanding:
        return self._worker.standing

    @property
    def session(self) -> bytes:
        return self._worker.session

    @property
    def held(self) -> HeldRun:
        return self._worker.held

    async def join(self, welcome: Welcome) -> None:
        await self._worker.join(welcome)

    async def finish(self, words: str) -> None:
        await self._worker.finish(words)

    async def frames(self, said: ForWorker) -> Iterable[CollaboratorFrame]:
        if isinstance(said, ReceivedSum | ReceivedTotals) and self._is_time():
            raise Killed
        return await self._worker.frames(said)

    def take_notices(self) -> list[Notice]:
        return self._worker.take_notices()

    def close(self) -> None:
        self._worker.close()


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


@both
def test_a_late_start_a_return_after_missed_rounds_and_a_kill_before_the_opened_sum_end_in_one_state(
    tmp_path: Path, protection: Mapping[str, object] | None
) -> None:
    plan = small_plan(rounds=60, federation=SECTIONS, protection=protection, names=FOUR)
    workspace = prepare(tmp_path, plan)

    async def scenario(federation: Federation) -> None:
        watching = federation.watching
        everybody = {name: asyncio.create_task(federation.take_part(name)) for name in FOUR[:2]}

        def is_time() -> bool:
            return bool(watching.progress) and watching.progress[-1].round == 7

        def deaf(worker: Worker) -> Worker:
            return DeafWorker(worker, is_time)

        killed = asyncio.create_task(federation.take_part("clinic-c", around=deaf))
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


@both
def test_an_aggregator_that_is_killed_and_sites_that_are_ahead_of_its_journal_end_in_one_state(
    tmp_path: Path, protection: Mapping[str, object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As of a large model: the journal is not written after every sum.
    monkeypatch.setattr("aggregator.records.SMALL_MODEL_BYTES", 0)
    workspace = prepare(tmp_path, small_plan(rounds=14, protection=protection, names=FOUR))

    async def until_killed(federation: Federation) -> None:
        everybody = [asyncio.create_task(federation.take_part(name)) for name in FOUR]
        await federation.watching.until_round(8)
        federation.serving.cancel()
        for one in everybody:
            one.cancel()
        await asyncio.gather(*everybody, return_exceptions=True)

    with pytest.raises(asyncio.CancelledError):
        play(workspace, until_killed)

    async def to_the_end(federation: Federation) -> None:
        await asyncio.gather(*(federation.take_part(name) for name in FOUR))

    assert play(workspace, to_the_end).state.value == "finished"
    states_agree(workspace)
    models_agree(workspace)
