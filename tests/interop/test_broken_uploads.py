"""A long masked upload that breaks off on its way: the sum is that of whole uploads, and its sender comes back."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest
import torch

from aggregator.streams import Streams
from collaborator.worker import Worker
from fedfair.cli.loopback import prepare
from fedfair.errors import FedfairError
from fedfair.secagg.arriving import ArrivingVector
from fedfair.wire.frames import Chunk, CollaboratorFrame
from fedfair.wire.receiving import ForWorker
from tests.interop.federation_kit import FIVE, Federation, model_files_agree, play
from tests.plans import small_plan

HIDDEN, PIECES = 12_000, 2
"""A vector of two pieces, the second one shorter."""


class Around:
    """A worker that another one answers for."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> object:
        return getattr(self._worker, name)


class Waits(Around):
    """A worker that uploads once another one has broken off, so that nothing else is arriving then."""

    def __init__(self, worker: Worker, broken: asyncio.Event) -> None:
        super().__init__(worker)
        self._broken = broken

    async def frames(self, said: ForWorker) -> Iterable[CollaboratorFrame]:
        frames = list(await self._worker.frames(said))
        if sum(isinstance(frame, Chunk) for frame in frames) == PIECES:
            await self._broken.wait()
        return frames


class BreaksOff(Around):
    """A worker whose first long upload ends after its first piece, and with it the site."""

    async def frames(self, said: ForWorker) -> Iterable[CollaboratorFrame]:
        return self._cut(await self._worker.frames(said))

    def _cut(self, frames: Iterable[CollaboratorFrame]) -> Iterator[CollaboratorFrame]:
        sent = 0
        for frame in frames:
            if isinstance(frame, Chunk):
                if sent == PIECES - 1:
                    raise FedfairError("this site breaks off")
                sent += 1
            yield frame


def test_an_upload_that_breaks_off_on_its_way_is_in_no_sum_until_it_comes_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    plan = small_plan(rounds=1, protection={"most_records": 512, "clip": 1.0}, names=FIVE[:3])
    plan["task"] = {**plan["task"], "model": {"name": "mlp", "hidden": [HIDDEN]}}  # type: ignore[dict-item]
    workspace = prepare(tmp_path, plan)
    begun: list[ArrivingVector] = []
    arriving = Streams.arriving

    async def seen(self: Streams, *about: object) -> ArrivingVector | None:
        found = await arriving(self, *about)  # type: ignore[arg-type]
        begun.extend(() if found is None else (found,))
        return found

    monkeypatch.setattr(Streams, "arriving", seen)
    first, *others = workspace.collaborators

    async def one_breaks_off(federation: Federation) -> None:
        broken = asyncio.Event()

        def waits(worker: Worker) -> Worker:
            return cast("Worker", Waits(worker, broken))

        tasks = [asyncio.create_task(federation.take_part(name, around=waits)) for name in others]
        with pytest.raises(FedfairError, match="breaks off"):
            await federation.take_part(first, around=lambda worker: cast("Worker", BreaksOff(worker)))
        broken.set()
        await federation.take_part(first)
        await asyncio.gather(*tasks)

    assert play(workspace, one_breaks_off).state.value == "finished"
    assert begun[0].missing, "the first upload came in part"
    assert not begun[-1].missing
    model_files_agree(workspace, 1e-3)
