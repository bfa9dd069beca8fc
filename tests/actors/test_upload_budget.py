from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.upload_budget import MIN_BUDGET_BYTES, UploadBudget
from fedfair.errors import LocalProtocolError
from tests.patience import PATIENCE

T = TypeVar("T")
CAPACITY = MIN_BUDGET_BYTES


def run(coroutine: Coroutine[object, object, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


def test_small_uploads_never_wait_for_each_other() -> None:
    async def scenario() -> bool:
        budget = UploadBudget(1000)
        async with budget.place(1000), budget.place(1000), budget.place(1000):
            return budget.contended

    assert run(scenario()) is False


def test_an_upload_above_the_smallest_budget_sets_the_capacity() -> None:
    assert UploadBudget(CAPACITY + 1).capacity == CAPACITY + 1
    assert UploadBudget(1).capacity == CAPACITY


def test_a_second_large_upload_waits_until_the_first_has_gone() -> None:
    async def scenario() -> list[str]:
        budget, order = UploadBudget(CAPACITY), []

        async def upload(name: str) -> None:
            async with budget.place(CAPACITY):
                order.append(f"{name} in")
                await asyncio.sleep(0)
                order.append(f"{name} out")

        await asyncio.gather(upload("a"), upload("b"))
        return order

    assert run(scenario()) == ["a in", "a out", "b in", "b out"]


def test_small_ones_do_not_overtake_a_large_one_that_waits() -> None:
    async def scenario() -> list[str]:
        budget, order = UploadBudget(CAPACITY), []

        async def upload(name: str, length: int) -> None:
            async with budget.place(length):
                order.append(name)

        async with budget.place(1):
            tasks = [asyncio.create_task(upload("large", CAPACITY)), asyncio.create_task(upload("small", 1))]
            await asyncio.sleep(0)
            assert order == []
            assert budget.contended
        await asyncio.gather(*tasks)
        return order

    assert run(scenario()) == ["large", "small"]


def test_a_waiting_upload_whose_stream_ends_leaves_the_queue_and_lets_the_next_one_in() -> None:
    async def scenario() -> bool:
        budget = UploadBudget(CAPACITY)
        entered = asyncio.Event()

        async def upload(length: int) -> None:
            async with budget.place(length):
                entered.set()

        async with budget.place(1):
            gone = asyncio.create_task(upload(CAPACITY))
            stays = asyncio.create_task(upload(1))
            await asyncio.sleep(0)
            gone.cancel()
            await stays
        await asyncio.gather(gone, return_exceptions=True)
        return entered.is_set() and not budget.contended

    assert run(scenario())


def test_a_length_above_the_capacity_is_our_own_mistake() -> None:
    async def scenario() -> None:
        async with UploadBudget(1).place(CAPACITY + 1):
            pass

    with pytest.raises(LocalProtocolError):
        run(scenario())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, CAPACITY), st.booleans()), max_size=12))
def test_whatever_is_cancelled_everything_taken_is_given_back_and_never_exceeds_the_capacity(
    uploads: list[tuple[int, bool]],
) -> None:
    async def scenario() -> bool:
        budget, held = UploadBudget(1), []

        async def upload(length: int) -> None:
            async with budget.place(length):
                held.append(length)
                try:
                    assert sum(held) <= CAPACITY
                    await asyncio.sleep(0)
                finally:
                    held.remove(length)

        tasks = [asyncio.create_task(upload(length)) for length, _ in uploads]
        await asyncio.sleep(0)
        for task, (_, doomed) in zip(tasks, uploads, strict=True):
            if doomed and not task.done():
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [outcome for outcome in outcomes if isinstance(outcome, AssertionError)]
        async with budget.place(CAPACITY):
            return True

    assert run(scenario())
