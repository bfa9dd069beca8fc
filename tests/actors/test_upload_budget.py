import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

import grpc
import numpy as np
import pytest
from grpc._cython import cygrpc
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.journal import Journal
from aggregator.records import SMALL_MODEL_BYTES, RunPaths, RunRecords, SumFigures
from aggregator.server_call import lost_statuses_unlogged
from aggregator.upload_budget import MIN_BUDGET_BYTES, UploadBudget
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.errors import LocalProtocolError
from fedfair.ids import ParticipantId, RoundNumber, SumNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.results.costs import SumCost
from fedfair.results.document import to_json
from fedfair.results.outcome import AggregatorFacts, EndState, RunSubject, run_outcome
from fedfair.results.parts import Departure, LateSite
from fedfair.rounds.events import CaughtUp, Departed, LeftBehind
from fedfair.run.saved_model import ModelOrigin
from fedfair.run.training_run import Progress, TrainingRun
from fedfair.statistics.table import Purpose
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
    assert (UploadBudget(CAPACITY + 1).capacity, UploadBudget(1).capacity) == (CAPACITY + 1, CAPACITY)


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
        budget, entered = UploadBudget(CAPACITY), asyncio.Event()

        async def upload(length: int) -> None:
            async with budget.place(length):
                entered.set()

        async with budget.place(1):
            gone, stays = asyncio.create_task(upload(CAPACITY)), asyncio.create_task(upload(1))
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
def test_whatever_is_cancelled_all_that_was_taken_is_given_back(uploads: list[tuple[int, bool]]) -> None:
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


# ---- what the sums of a run cost and who left it, also after its process ended and its logs are gone

PLAN = Plan.model_validate(
    {
        "federation": {"name": "heart", "collaborators": ["clinic-a", "clinic-b"]},
        "task": {"data": "breast-cancer", "model": {"name": "linear"}, "standardize": "none"},
        "training": {"rounds": 9},
    }
)
LAYOUT = Layout((LayoutEntry("weight", (1, 2)),), np.dtype(np.float32))
SCHEMA = FeatureSchema((2,), 2, (0, 1), ("radius", "texture"))
SPEC = sum_specs(PLAN, LAYOUT, SCHEMA)[Purpose.TRAINING]
COURSE = TrainingRun(PLAN, LAYOUT, SCHEMA, np.zeros(2, np.float32))
ORIGIN = ModelOrigin.of_plan(PLAN, "sha256:" + "0" * 64, SCHEMA)


def records(folder: Path, columns: int = 2, *, every_sum: bool = False) -> RunRecords:
    paths = RunPaths(folder)
    for parent in (paths.save, paths.metrics.parent):
        parent.mkdir(exist_ok=True)
    layout = Layout((LayoutEntry("weight", (1, columns)),), np.dtype(np.float32))
    return RunRecords(
        paths,
        layout,
        Journal.open(paths.journal, bytes(32), "run", 1_800_000_000.0),
        ORIGIN,
        0.1,
        every_sum=every_sum,
    )


@pytest.mark.parametrize(
    ("columns", "every_sum", "due"),
    [(2, False, True), (SMALL_MODEL_BYTES, False, False), (SMALL_MODEL_BYTES, True, True)],
)
def test_a_large_model_waits_for_the_journal_unless_a_repeated_sum_would_cost_privacy(
    tmp_path: Path, columns: int, every_sum: bool, due: bool
) -> None:
    progress = Progress(Purpose.TRAINING, RoundNumber(1), 0.5, 3, None, is_best=False, model_changed=True)
    kept = records(tmp_path, columns, every_sum=every_sum)
    assert kept.is_entry_due(progress) is due
    kept.close()


def closed(kept: RunRecords, number: int) -> SumCost:
    """Let a training sum close; return what it cost."""
    progress = Progress(Purpose.TRAINING, RoundNumber(number), 0.5, 3, None, is_best=False, model_changed=True)
    figures = SumFigures(started=10.0, bytes_in=300 * number, bytes_out=600)
    kept.count_sum(progress, figures, 10.25)
    kept.append_line(progress, figures, 10.25)
    return SumCost(Purpose.TRAINING, number, 0.25, contributors=3, bytes_up=300 * number, bytes_down=600)


def enter(kept: RunRecords) -> None:
    kept.write(COURSE, (), journal=True)


def test_the_cost_of_a_sum_outlives_the_process_with_its_total_and_the_logs(tmp_path: Path) -> None:
    kept = records(tmp_path)
    first, second = closed(kept, 1), closed(kept, 2)
    enter(kept)
    forgotten = closed(kept, 3)
    assert kept.costs() == [first, second, forgotten]
    kept.close()
    for log in RunPaths(tmp_path).metrics.parent.iterdir():
        log.unlink()
    again = records(tmp_path)
    # The third sum is forgotten with its total; it is repeated, and counts once.
    assert again.costs() == [first, second]
    third = closed(again, 3)
    enter(again)
    enter(again)
    assert again.costs() == [first, second, third]
    again.close()


def test_who_left_outlives_the_process_at_once_and_without_the_logs(tmp_path: Path) -> None:
    kept = records(tmp_path)
    for name in ("clinic-a", "clinic-b"):
        kept.append_departure(Departed(ParticipantId(name), 3, "budget"))
    told = kept.departures()
    assert told[0] == Departure(collaborator="clinic-a", round=3, reason="budget")
    kept.close()
    for log in RunPaths(tmp_path).metrics.parent.iterdir():
        log.unlink()
    again = records(tmp_path)
    assert (again.departures(), again.informed()) == (told, {"clinic-a", "clinic-b"})
    again.close()


def test_who_was_late_is_in_the_result_with_how_often_and_the_longest_time_over_all_starts(tmp_path: Path) -> None:
    slow, kept = ParticipantId("clinic-b"), records(tmp_path)
    kept.note_late(LeftBehind(slow, SumNumber(4), SumRequest(Purpose.TRAINING, RoundNumber(2), 1, SPEC), 2.0, 0.5))
    kept.close()
    again = records(tmp_path)
    again.note_late(CaughtUp(slow, 7.25, 0.5))
    late = again.late_sites()
    assert late == (LateSite(collaborator="clinic-b", times=1, longest_seconds=7.25),)
    again.close()
    subject = RunSubject(PLAN, "sha256:" + "0" * 64, LAYOUT, SCHEMA)
    told = [
        to_json(run_outcome(subject, COURSE.result(), EndState.STOPPED, "it was stopped", known))
        for known in (AggregatorFacts(2.0, (), (), late), AggregatorFacts(2.0, (), ()))
    ]
    assert told[0]["late"] == [{"collaborator": "clinic-b", "times": 1, "longest_seconds": 7.25}]
    assert "late" not in told[1]


# ---- what gRPC's server logs by itself, and what of it an operator reads

METHOD = "/fedfair.test/Fail"


def fail_by(error: Exception) -> None:
    """Serve one call whose handler raises an error, as gRPC does where its core takes no status any more."""

    async def handler(_request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        raise error

    async def calling() -> None:
        server = grpc.aio.server()
        service, name = METHOD[1:].split("/")
        method = grpc.unary_unary_rpc_method_handler(handler)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(METHOD)(b"", timeout=2.0)
        await server.stop(0)

    asyncio.run(calling())


def lost_status() -> Exception:
    error: Exception = cygrpc.ExecuteBatchError('Failed "execute_batch": (SendStatusFromServerOperation,)')
    return error


def test_a_peer_that_has_gone_before_its_status_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), lost_statuses_unlogged():
        fail_by(lost_status())
    assert [record.message for record in caplog.records if record.exc_info] == []


def test_a_call_that_a_stop_cancels_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), lost_statuses_unlogged():
        logging.getLogger("grpc._cython.cygrpc").error("a call", exc_info=asyncio.CancelledError())
    assert [record.message for record in caplog.records if record.exc_info] == []


def test_an_error_of_a_handler_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), lost_statuses_unlogged():
        fail_by(ZeroDivisionError("ours"))
    [logged] = [record for record in caplog.records if record.exc_info]
    assert isinstance(logged.exc_info[1], ZeroDivisionError)


def test_afterwards_the_log_is_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    with lost_statuses_unlogged():
        pass
    with caplog.at_level(logging.DEBUG):
        fail_by(lost_status())
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [cygrpc.ExecuteBatchError]
