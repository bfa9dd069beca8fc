"""The kit's own promise: a scenario never waits for an aggregator that is not there any more."""

import asyncio

import pytest

from aggregator.outcome import Ending, EndState
from fedfair.errors import StateError
from tests.interop.federation_kit import unless_it_ends

ENDING = Ending(EndState.ABORTED, None, "nobody came", "")


async def served(fault: Exception | None = None) -> Ending:
    if fault is not None:
        raise fault
    return ENDING


def waiting_for(serving: Exception | None) -> None:
    async def play() -> None:
        await unless_it_ends(asyncio.create_task(served(serving)), asyncio.Event().wait(), seconds=0.0)

    asyncio.run(play())


def test_a_scenario_that_waits_for_ever_fails_with_the_fault_of_the_aggregator() -> None:
    with pytest.raises(StateError, match="the journal is damaged"):
        waiting_for(StateError("the journal is damaged"))


def test_a_scenario_that_waits_for_ever_fails_with_the_end_of_the_run() -> None:
    with pytest.raises(AssertionError, match="nobody came"):
        waiting_for(None)
