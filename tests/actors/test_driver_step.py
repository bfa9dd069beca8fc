"""One step of the driver: whoever waits for its event goes on, whatever becomes of the step."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from aggregator.driver import RunDriver
from aggregator.records import RunRecords
from fedfair.news.processors import ignore
from fedfair.rounds.events import Started
from fedfair.rounds.federation import Federation
from fedfair.run.training_run import TrainingRun


def receive(_event: object) -> None:
    raise OSError("No space left on device")


def test_a_stream_whose_event_could_not_be_written_is_released() -> None:
    async def stepping() -> bool:
        driver = RunDriver(
            cast("Federation", SimpleNamespace(receive=receive)),
            cast("TrainingRun", SimpleNamespace(evaluation_only=False)),
            cast("RunRecords", SimpleNamespace(is_small=True)),
            ignore,
            worst_group_size=0.1,
        )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(OSError, match="No space left"):
            await driver._step(Started(), done)
        return done.done()

    assert asyncio.run(stepping())
