from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest

from collaborator.plain_worker import PlainWorker
from collaborator.worker import Granted, Rule
from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import TrainingError
from fedfair.ids import SumNumber
from fedfair.plan.purpose import Purpose
from fedfair.policy.refusal import Refusal
from fedfair.wire.frames import SumStart
from fedfair.wire.receiving import ReceivedRequest

T = TypeVar("T")
Answered = bytearray | Refusal | None
SPECS = {Purpose.TRAINING: SumSpec(Purpose.TRAINING, 1, 2, np.dtype("<f4"))}


def question(number: int, round_number: int = 1) -> ReceivedRequest:
    start = SumStart(SumNumber(number), Purpose.TRAINING, round_number, 1, bytes(32), 60)
    return ReceivedRequest(start, GlobalModel(np.zeros(2, np.float32), 0.0))


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
        self.gate.wait(10)
        self.threads.add(threading.current_thread())
        self.calls += 1
        if self.fault:
            raise self.fault
        return Contribution(np.array([float(request.round)]), np.full(2, self.calls, np.float32))

    scaling: FeatureScaling | None = None

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        del scaling


def played(
    scenario: Callable[[PlainWorker], Coroutine[object, object, T]],
    task: CountingTask | None = None,
    rule: Rule = lambda _: Granted(1),
) -> T:
    async def play() -> T:
        answers = PlainWorker(task or CountingTask(), SPECS, rule)
        try:
            return await scenario(answers)
        finally:
            answers.close()

    return asyncio.run(asyncio.wait_for(play(), 120))


async def asked(answers: PlainWorker, one: ReceivedRequest) -> Answered:
    answers.standing.expect(one)
    return await answers.answer(one)


def test_the_same_question_gets_the_same_bytes_without_a_second_computation() -> None:
    task = CountingTask()

    async def scenario(answers: PlainWorker) -> tuple[Answered, Answered]:
        return await asked(answers, question(1)), await asked(answers, question(1))

    first, again = played(scenario, task)
    assert first == again
    assert task.calls == 1


def test_the_same_question_in_another_run_is_put_to_the_policy_and_answered_anew() -> None:
    async def scenario(answers: PlainWorker) -> tuple[Answered, Answered]:
        first = await asked(answers, question(1))
        return first, await asked(answers, replace(question(1), run_id="another run"))

    first, again = played(scenario)
    assert first != again


def test_a_computation_outlives_the_stream_that_asked_for_it() -> None:
    task = CountingTask()
    task.gate.clear()

    async def scenario(answers: PlainWorker) -> Answered:
        answers.standing.expect(question(1))
        stream = asyncio.create_task(answers.answer(question(1)))
        await asyncio.sleep(0)
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        task.gate.set()
        return await asked(answers, question(1))

    assert isinstance(played(scenario, task), bytearray)
    assert task.calls == 1


def test_a_newer_question_makes_the_older_answer_worthless() -> None:
    task = CountingTask()
    task.gate.clear()

    async def scenario(answers: PlainWorker) -> tuple[Answered, Answered]:
        answers.standing.expect(question(1))
        older = asyncio.create_task(answers.answer(question(1)))
        await asyncio.sleep(0)
        answers.standing.expect(question(2))
        newer = asyncio.create_task(answers.answer(question(2)))
        task.gate.set()
        return await older, await newer

    older, newer = played(scenario, task)
    assert older is None
    assert isinstance(newer, bytearray)
    assert len(task.threads) == 1


def test_a_fault_of_training_becomes_a_reason_and_nothing_is_sent() -> None:
    task = CountingTask(TrainingError("the body holds 3 values that are NaN"))
    assert played(lambda answers: asked(answers, question(1)), task) == Refusal(
        "the body holds 3 values that are NaN", "values"
    )


def test_any_other_fault_stays_at_the_site() -> None:
    with pytest.raises(ZeroDivisionError):
        played(lambda answers: asked(answers, question(1)), CountingTask(ZeroDivisionError()))


def test_the_policy_is_asked_before_anything_is_computed() -> None:
    task = CountingTask()
    answer = played(
        lambda answers: asked(answers, question(1)), task, lambda one: Refusal(f"not round {one.start.round}")
    )
    assert answer == Refusal("not round 1")
    assert task.calls == 0


class BufferingTask(CountingTask):
    """Makes every contribution in the same memory, as a model does whose change is copied from a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(2, np.float32)

    def contribution(self, request: SumRequest, model: GlobalModel) -> Contribution:
        made = super().contribution(request, model)
        self.buffer[:] = made.body
        return Contribution(made.header, self.buffer)


def test_an_answer_that_is_kept_is_not_in_the_memory_that_the_next_one_is_made_in() -> None:
    task = BufferingTask()

    async def scenario(answers: PlainWorker) -> tuple[Answered, Answered]:
        kept = await asked(answers, question(1))
        assert isinstance(kept, bytearray)
        before = bytes(kept)
        newer = await asked(answers, question(2, 2))
        assert bytes(kept) == before
        return kept, newer

    kept, newer = played(scenario, task)
    assert kept != newer
    assert not np.shares_memory(np.frombuffer(kept, np.uint8), task.buffer)
