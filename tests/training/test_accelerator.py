"""Training on a device that is not the CPU: the same numbers, one copy each way, and no waiting between steps.

There is no GPU where these tests run. `standin` takes its place: it computes on the CPU, and refuses and counts
what a GPU would refuse and wait for.
"""

import functools
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedfair.aggregation.contribution import Contribution, encode
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.learning_rates import LearningRates
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import ReleaseLog
from fedfair.simulation.vectorised.clients import VectorisedClients
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.device import SplitRecords
from fedfair.training.dp_sgd import simulated_protection
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_sgd import Batch, LocalSteps, loss_function
from fedfair.training.loss_weightings.fedavg import equal_coefficients
from fedfair.training.models import linear
from tests import plans, standin

NAME = ParticipantId("site-0")
FIRST = RoundNumber(1)
CPU = torch.device("cpu")
RECORDS, BATCH, COLUMNS, CLASSES = 40, 10, 5, 3

KINDS: dict[str, dict[str, object] | None] = {
    "plain": None, "auto": {"noise_multiplier": 1.0}, "hooks": {"noise_multiplier": 1.0, "gradients": "hooks"},
    "ghost": {"noise_multiplier": 1.0, "gradients": "ghost"},
}  # fmt: skip


def plan_of(kind: str = "plain", **training: object) -> Plan:
    return plans.parsed(
        [NAME], task={"model": {"name": "mlp", "hidden": [7]}, "standardize": "none"},
        training={"rounds": 2, "local_steps": 3, "batch_size": BATCH, "device": "cpu", **training},
        evaluation={"bins": 16}, privacy={"sample_level": KINDS[kind]},
    )  # fmt: skip


@functools.cache
def records() -> Dataset:
    source = np.random.default_rng(4)
    return Dataset(
        source.normal(size=(RECORDS, COLUMNS)),
        source.integers(0, CLASSES, RECORDS),
        FeatureSchema((COLUMNS,), CLASSES),
    )


def task_on(device: torch.device, plan: Plan) -> tuple[TrainingClient, GlobalModel, FlatModel]:
    model = flat_model(plan, records().schema, device, Path())
    protected = plan.privacy.sample_level is not None
    protection = simulated_protection(plan, NAME, ReleaseLog()) if protected else None
    task = TrainingClient(plan, NAME, Splits(records()), model, protection=protection)
    return task, GlobalModel(model.vector(), 0.7), model


def requests(task: TrainingClient, plan: Plan) -> Iterator[SumRequest]:
    specs = sum_specs(plan, task.layout, records().schema)
    for purpose in (Purpose.TRAINING, Purpose.EVALUATION):
        yield SumRequest(purpose, FIRST, 1, specs[purpose])


def uploads(device: torch.device, plan: Plan) -> list[bytes]:
    """Return what a site sends in a round and in the evaluation before it."""
    task, model, _ = task_on(device, plan)
    return [bytes(encode(task.contribution(ask, model), ask.spec)) for ask in requests(task, plan)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_on_another_device_sends_the_same_bytes(kind: str) -> None:
    plan = plan_of(kind)
    expected = uploads(CPU, plan)
    with standin.standin():
        assert uploads(standin.DEVICE, plan) == expected


def test_epochs_and_full_batches_on_another_device_are_the_same() -> None:
    for training in (
        {"local_epochs": 2, "local_steps": 1},
        {"batch_size": "full"},
        {"resample": "round"},
        {"algorithm": "fedavg"},
    ):
        plan = plan_of(**training)
        expected = uploads(CPU, plan)
        with standin.standin():
            assert uploads(standin.DEVICE, plan) == expected


def test_records_that_stay_on_the_device_are_the_records_that_travel() -> None:
    data, indices = records(), torch.tensor([7, 0, 7, 39])
    on_cpu = SplitRecords.place(data.features, data.labels, torch.float32, CPU)
    with standin.standin():
        travelling = SplitRecords.place(data.features, data.labels, torch.float32, standin.DEVICE)
        resident = SplitRecords(*travelling.everything(), standin.DEVICE)
        assert resident.resident
        assert not travelling.resident
        for held in (travelling, resident):
            pieces = [*held.take(indices), *next(held.in_order())]
            expected = [*on_cpu.take(indices), *next(on_cpu.in_order())]
            for found, true in zip(pieces, expected, strict=True):
                assert found.device == standin.DEVICE
                assert torch.equal(found.cpu(), true)


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_travels_once_each_way_in_a_round_however_many_steps_it_has(kind: str) -> None:
    for steps in (1, 6):
        plan = plan_of(kind, local_steps=steps)
        with standin.standin() as traffic:
            task, model, flat = task_on(standin.DEVICE, plan)
            traffic.clear()
            task.rounds.contribution(model, FIRST, 1)
            whole = flat.layout.dimension
            # Noise is drawn on the device only where that is a GPU; here it is one vector for each step.
            assert traffic.to_device.count(whole) == 1 + (0 if kind == "plain" else steps)
            assert traffic.to_host.count(whole) == 1
            assert max(size for size in traffic.to_device if size != whole) <= BATCH * COLUMNS * 3


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_waits_for_the_device(kind: str) -> None:
    waits = []
    for steps in (1, 6):
        with standin.standin() as traffic:
            task, model, _ = task_on(standin.DEVICE, plan_of(kind, local_steps=steps))
            traffic.clear()
            task.rounds.contribution(model, FIRST, 1)
            waits.append(list(traffic.waits))
    # Both ends of the threshold, and the change of the model; with ghost clipping, whether all went well.
    assert waits[0] == waits[1]
    assert len(waits[0]) == (4 if kind == "ghost" else 3)


def steps_with(rule: Callable[[Tensor, Tensor], Tensor], device: torch.device) -> None:
    model = FlatModel(linear(COLUMNS, CLASSES, "random"), torch.float32, device)
    steps = LocalSteps(model, loss_function(model, "fp32", compiled=False), rule, LearningRates(0.1, 0.1))
    batch = Batch(torch.ones(4, COLUMNS, device=device), torch.zeros(4, dtype=torch.int64, device=device))
    steps.descend([batch, batch], torch.tensor(0.5, device=device))


def test_rules_that_read_values_are_seen_waiting_and_cpu_rules_refused() -> None:
    def curious(losses: Tensor, threshold: Tensor) -> Tensor:
        return equal_coefficients(losses, threshold) * (2.0 if float(losses.sum()) > 1e9 else 1.0)

    with standin.standin() as traffic:
        steps_with(equal_coefficients, standin.DEVICE)
        assert not traffic.waits
        steps_with(curious, standin.DEVICE)
        assert len(traffic.waits) == 2
    with standin.standin(), pytest.raises(RuntimeError, match="on standin:0 and on the CPU"):
        steps_with(lambda losses, _: torch.ones(4) / losses.numel() * losses.detach(), standin.DEVICE)


def test_every_site_at_once_on_another_device_is_the_same() -> None:
    plan = plan_of(precision="fp64")
    sites = {
        ParticipantId(f"site-{place}"): Splits(records().take(np.arange(8 * place + 8))) for place in range(4)
    }
    layout = flat_model(plan, records().schema, CPU, Path()).layout
    request = SumRequest(Purpose.TRAINING, FIRST, 1, sum_specs(plan, layout, records().schema)[Purpose.TRAINING])
    found = []
    for device in (CPU, standin.DEVICE):
        with standin.standin():
            model = flat_model(plan, records().schema, device, Path())
            cohort = VectorisedClients(plan, sites, model)
            found.append(cohort.totals(request, GlobalModel(model.vector(), 0.7)))
    assert found[0].body.tobytes() == found[1].body.tobytes()
    assert found[0].header.tobytes() == found[1].header.tobytes()


def test_a_change_lies_in_memory_that_is_used_again_and_an_upload_does_not() -> None:
    plan = plan_of()
    task, model, _ = task_on(CPU, plan)
    ask = next(requests(task, plan))
    one = task.rounds.contribution(model, FIRST, 1)
    sent = encode(one, ask.spec)
    before = bytes(sent)
    other = task.rounds.contribution(model, RoundNumber(2), 1)
    assert np.shares_memory(one.body, other.body)
    assert not np.shares_memory(np.frombuffer(sent, np.uint8), other.body)
    assert bytes(sent) == before != bytes(encode(other, ask.spec))


def test_an_update_is_copied_once_on_its_way_into_an_upload() -> None:
    wide = FeatureSchema((1 << 19,), 2)
    model = FlatModel(nn.Linear(1 << 19, 2), torch.float32)
    spec = sum_specs(plan_of(), model.layout, wide)[Purpose.TRAINING]
    model.load(model.vector())
    tracemalloc.start()
    try:
        change = model.take_change()
        upload = encode(Contribution(np.zeros(2), change), spec)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Beside the upload of 4 MiB there are blocks of 2^18 truth values, two of them at a time.
    assert len(upload) == spec.upload_bytes
    assert peak < len(upload) + (1 << 20)
