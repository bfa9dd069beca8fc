"""A lying aggregator can make a site hold a few entries and no more; an honest one never waits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from collaborator.calls import MAX_IN_A_ROW, MAX_IN_A_SUM, RefusalLimit, TooManyRefusalsError
from collaborator.mailbox import MAX_SUMS, MAX_WAITING, Mailbox
from fedfair.ids import SumNumber
from fedfair.secagg.messages import VERSION, Kind
from fedfair.statistics.table import Purpose
from fedfair.wire.frames import SecaggMessage, SumStart
from fedfair.wire.receiving import MovesState, ReceivedRequest, ReceivedState, ReceivedSum, ReceivedTotals
from tests.patience import PATIENCE

T = TypeVar("T")


def run(coroutine: Coroutine[object, object, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


def question(number: int) -> ReceivedRequest:
    return ReceivedRequest(SumStart(SumNumber(number), Purpose.STANDARDISATION, 0, 1, bytes(32), 60))


def message(kind: int, content: bytes = b"") -> SecaggMessage:
    return SecaggMessage(bytes([VERSION, kind]) + content)


def test_entries_come_out_in_order_and_a_taker_waits_for_the_next() -> None:
    async def scenario() -> list[object]:
        mailbox, taken = Mailbox(), []
        taker = asyncio.create_task(mailbox.take())
        said = [message(Kind.CONFIRMS), message(Kind.ROUND_START), message(Kind.UNMASK_REQUEST)]
        for one in said:
            await mailbox.put(one)
        taken.append(await taker)
        taken += [await mailbox.take() for _ in range(2)]
        assert taken == said
        return taken

    assert len(run(scenario())) == 3


def test_a_reader_waits_when_a_few_entries_are_there_until_one_is_taken() -> None:
    async def scenario() -> None:
        mailbox = Mailbox()
        for _ in range(MAX_WAITING):
            await mailbox.put(message(Kind.UNMASK_REQUEST))
        blocked = asyncio.create_task(mailbox.put(message(Kind.CONSISTENCY_CHECK)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not blocked.done()
        assert len(mailbox) == MAX_WAITING
        await mailbox.take()
        await blocked
        assert len(mailbox) == MAX_WAITING

    run(scenario())


def test_a_newer_question_takes_the_place_of_older_ones_and_of_the_messages_of_their_rounds() -> None:
    async def scenario() -> list[object]:
        mailbox, junk = Mailbox(), SecaggMessage(b"\xff" * 9)
        kept = [message(Kind.CONFIRMS), junk]
        for one in (
            question(1),
            kept[0],
            message(Kind.ROUND_START),
            message(Kind.UNMASK_REQUEST),
            kept[1],
            question(2),
        ):
            await mailbox.put(one)
        taken = [await mailbox.take() for _ in range(len(mailbox))]
        assert isinstance(taken[0], ReceivedRequest)
        assert taken[0].start.sum_number == 2
        assert taken[1:] == kept
        return taken

    assert run(scenario())


MOVES: list[MovesState] = [
    ReceivedState(memoryview(b"state")),
    ReceivedTotals(memoryview(b"totals")),
    ReceivedSum(bytes([VERSION, Kind.OPENED])),
]


@pytest.mark.parametrize("moves", MOVES, ids=lambda said: type(said).__name__)
def test_what_moves_the_state_is_never_worthless_and_comes_before_the_request_that_came_after_it(
    moves: MovesState,
) -> None:
    async def scenario() -> list[object]:
        mailbox, proposal = Mailbox(), message(Kind.PROPOSAL)
        for one in (question(1), message(Kind.UNMASK_REQUEST), moves, proposal, question(2)):
            await mailbox.put(one)
        return [await mailbox.take() for _ in range(len(mailbox))] + [proposal]

    first, second, third, proposal = run(scenario())
    assert first is moves
    assert isinstance(second, ReceivedRequest)
    assert second.start.sum_number == 2
    assert third is proposal


def test_a_reader_holds_two_models_at_most_beside_the_one_that_is_taken() -> None:
    async def scenario() -> None:
        mailbox = Mailbox()
        for said in MOVES[:MAX_SUMS]:
            await mailbox.put(said)
        blocked = asyncio.create_task(mailbox.put(MOVES[-1]))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not blocked.done()
        await mailbox.take()
        await blocked
        assert len(mailbox) == MAX_SUMS

    run(scenario())


def test_the_end_of_a_run_is_heard_only_after_everything_before_it_was_worked_on() -> None:
    async def scenario() -> None:
        mailbox, done = Mailbox(), list[object]()
        await mailbox.put(MOVES[-1])
        ended = asyncio.create_task(mailbox.drained())

        async def work() -> None:
            while True:
                taken = await mailbox.take()
                for _ in range(10):
                    assert not ended.done()
                    await asyncio.sleep(0)
                done.append(taken)

        worker = asyncio.create_task(work())
        await ended
        assert done == [MOVES[-1]]
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    run(scenario())


def test_whatever_an_honest_aggregator_says_to_a_site_that_takes_nothing_fits() -> None:
    # Each sum may begin with a set-up, and may be given up at any step; the site has taken nothing of it.
    steps = [
        Kind.PROPOSAL,
        Kind.KEY_ADVERTISEMENTS,
        Kind.CONFIRMS,
        Kind.ROUND_START,
        Kind.PAIR_MASKS_REQUEST,
        Kind.SURVIVORS,
        Kind.UNMASK_REQUEST,
    ]
    parts = [steps[first:last] for first in (0, 3) for last in range(first, len(steps) + 1)]

    async def scenario() -> int:
        most = 0
        for sums in itertools.product(parts, repeat=3):
            mailbox = Mailbox()
            for number, kinds in enumerate(sums, start=1):
                await mailbox.put(question(number))
                for kind in kinds:
                    await mailbox.put(message(kind))
                    most = max(most, len(mailbox))
        return most

    assert run(scenario()) <= MAX_WAITING


def test_a_handful_of_refusals_about_one_sum_ends_the_stream() -> None:
    limit = RefusalLimit()
    for _ in range(MAX_IN_A_SUM - 1):
        limit.refused("nonsense")
    limit.asked()
    for _ in range(MAX_IN_A_SUM - 1):
        limit.refused("nonsense")
    with pytest.raises(TooManyRefusalsError, match="refused 4 requests about one sum and ends"):
        limit.refused("nonsense")


def test_sums_that_a_policy_refuses_one_after_the_other_are_borne_while_others_are_accepted() -> None:
    limit = RefusalLimit()
    for _ in range(10 * MAX_IN_A_ROW):
        limit.asked()
        limit.refused("no evaluation")
        limit.contributed()
    for _ in range(MAX_IN_A_ROW - 1):
        limit.asked()
        limit.refused("no evaluation")
    limit.asked()
    with pytest.raises(TooManyRefusalsError, match=f"refused {MAX_IN_A_ROW} requests in a row"):
        limit.refused("no evaluation")
