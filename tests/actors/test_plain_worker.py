from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from collaborator.plain_worker import PlainWorker
from collaborator.worker import Rule
from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import RemoteProtocolError, TrainingError
from fedfair.policy.refusal import Refusal
from fedfair.run.opened_totals import OpenedTotals
from fedfair.run.replica import OutOfStepError
from fedfair.statistics.table import Purpose
from fedfair.wire.receiving import ReceivedRequest, ReceivedSum, ReceivedTotals
from tests.actors.followed_run import FollowedRun
from tests.patience import PATIENCE

T = TypeVar("T")
Answered = bytearray | Refusal | None


class CountingTask:
    """Adds its call count; may wait for a gate, or fail."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.calls = 0
        self.gate = threading.Event()
        self.gate.set()
        self.fault = fault
        self.threads = set()

    def contribution(self, request: SumRequest, model: GlobalModel) -> Contribution:
        del model
        self.gate.wait(PATIENCE)
        self.threads.add(threading.current_thread())
        self.calls += 1
        if self.fault:
            raise self.fault
        return Contribution(np.array([1.0, float(request.round)]), np.full(2, float(self.calls)))

    scaling: FeatureScaling | None = None

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        del scaling


class Site:
    """A worker in the clear, with a copy of a run that stands before round 1."""

    def __init__(self, folder: Path, task: CountingTask | None = None, rule: Rule = lambda _: 1) -> None:
        self.task = task or CountingTask()
        self.run = FollowedRun(folder, self.task)
        self.answers = PlainWorker(self.task, self.run.specs, rule, self.run.follower)

    async def asked(self, one: ReceivedRequest) -> Answered:
        self.answers.sums.expect(one)
        return await self.answers.answer(one)


def played(scenario: Callable[[Site], Coroutine[object, object, T]], site: Site) -> T:
    async def play() -> T:
        try:
            return await scenario(site)
        finally:
            site.answers.close()

    return asyncio.run(asyncio.wait_for(play(), PATIENCE))


def test_the_same_question_gets_the_same_bytes_without_a_second_computation(tmp_path: Path) -> None:
    async def scenario(site: Site) -> tuple[Answered, Answered]:
        return await site.asked(site.run.question(1)), await site.asked(site.run.question(1))

    site = Site(tmp_path)
    first, again = played(scenario, site)
    assert first == again
    assert site.task.calls == 1


def test_the_same_question_in_another_run_is_put_to_the_policy_and_answered_anew(tmp_path: Path) -> None:
    async def scenario(site: Site) -> tuple[Answered, Answered]:
        first = await site.asked(site.run.question(1))
        return first, await site.asked(replace(site.run.question(1), run_id="another run"))

    first, again = played(scenario, Site(tmp_path))
    assert first != again


def test_a_computation_outlives_the_stream_that_asked_for_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.task.gate.clear()

    async def scenario(site: Site) -> Answered:
        question = site.run.question(1)
        site.answers.sums.expect(question)
        stream = asyncio.create_task(site.answers.answer(question))
        await asyncio.sleep(0)
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        site.task.gate.set()
        return await site.asked(question)

    assert isinstance(played(scenario, site), bytearray)
    assert site.task.calls == 1


def test_a_newer_question_makes_the_older_answer_worthless(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.task.gate.clear()

    async def scenario(site: Site) -> tuple[Answered, Answered]:
        questions = [site.run.question(number) for number in (1, 2)]
        site.answers.sums.expect(questions[0])
        older = asyncio.create_task(site.answers.answer(questions[0]))
        await asyncio.sleep(0)
        site.answers.sums.expect(questions[1])
        newer = asyncio.create_task(site.answers.answer(questions[1]))
        site.task.gate.set()
        return await older, await newer

    older, newer = played(scenario, site)
    assert older is None
    assert isinstance(newer, bytearray)
    assert len(site.task.threads) == 1


def test_a_fault_of_training_becomes_a_reason_and_nothing_is_sent(tmp_path: Path) -> None:
    task = CountingTask(TrainingError("the body holds 3 values that are NaN"))
    assert played(lambda site: site.asked(site.run.question(1)), Site(tmp_path, task)) == Refusal(
        "the body holds 3 values that are NaN", "values"
    )


def test_any_other_fault_stays_at_the_site(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        played(lambda site: site.asked(site.run.question(1)), Site(tmp_path, CountingTask(ZeroDivisionError())))


def test_the_policy_is_asked_before_anything_is_computed(tmp_path: Path) -> None:
    site = Site(tmp_path, rule=lambda one: Refusal(f"not round {one.round}"))
    assert played(lambda site: site.asked(site.run.question(1)), site) == Refusal("not round 1")
    assert site.task.calls == 0


# ------------------------------------------------------------------ the site's own copy of the run


@pytest.mark.parametrize("lie", [{"state": bytes(32)}, {"round": 2}, {"purpose": Purpose.EVALUATION}], ids=str)
def test_a_request_that_the_sites_own_state_does_not_make_is_refused_before_anything_else(
    tmp_path: Path, lie: dict[str, object]
) -> None:
    asked: list[object] = []
    site = Site(tmp_path, rule=lambda one: asked.append(one) or 1)  # type: ignore[func-returns-value]
    start = replace(site.run.start(1), **lie)  # type: ignore[arg-type]
    answer = played(lambda site: site.asked(ReceivedRequest(start)), site)
    assert isinstance(answer, Refusal)
    assert answer.term == "protocol"
    assert (asked, site.task.calls) == ([], 0)


def test_an_opened_sum_moves_the_copy_of_the_run_and_one_about_another_state_does_not(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        totals = Totals(np.array([3.0, 0.0]), np.full(2, 6.0), 2)
        opened = OpenedTotals(site.answers.held.digest, ("clinic-a", "clinic-b"), totals)
        told = ReceivedTotals(memoryview(opened.encode()))
        assert await site.answers.frames(told) == ()
        assert site.run.replica.state.model.vector.tolist() == [2.0, 2.0]
        assert site.answers.held.rounds_done == 1
        with pytest.raises(OutOfStepError, match="an opened sum about state"):
            await site.answers.frames(told)
        assert site.answers.held.rounds_done == 1

    played(scenario, Site(tmp_path))


def test_a_message_of_secure_aggregation_ends_the_part_of_a_site_whose_sums_are_plain(tmp_path: Path) -> None:
    with pytest.raises(RemoteProtocolError, match="the plan's sums are plain"):
        played(lambda site: site.answers.frames(ReceivedSum(b"\x01")), Site(tmp_path))


class BufferingTask(CountingTask):
    """Makes every contribution in the same memory, as a model does whose change is copied from a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(2)

    def contribution(self, request: SumRequest, model: GlobalModel) -> Contribution:
        made = super().contribution(request, model)
        self.buffer[:] = made.body
        return Contribution(made.header, self.buffer)


def test_an_answer_that_is_kept_is_not_in_the_memory_that_the_next_one_is_made_in(tmp_path: Path) -> None:
    task = BufferingTask()

    async def scenario(site: Site) -> tuple[Answered, Answered]:
        kept = await site.asked(site.run.question(1))
        assert isinstance(kept, bytearray)
        before = bytes(kept)
        newer = await site.asked(site.run.question(2))
        assert bytes(kept) == before
        return kept, newer

    kept, newer = played(scenario, Site(tmp_path, task))
    assert kept != newer
    assert not np.shares_memory(np.frombuffer(kept, np.uint8), task.buffer)
