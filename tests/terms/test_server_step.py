"""The step with the mean change: by hand, against torch's optimizers, and what it must never do."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.requests import vector_sha256
from fedfair.aggregation.training_sum import moved_by_mean
from fedfair.errors import RemoteProtocolError
from fedfair.ids import RoundNumber
from fedfair.plan.learning_rates import server_optimizer_of
from fedfair.plan.schema import Plan
from fedfair.store.long_vectors import IN_MEMORY
from fedfair.store.spilled import SpilledVectors
from fedfair.terms.server_step.state import STEP_BLOCK, MeanChange, Moments, ServerOptimizer
from tests.oracles.server_step import step
from tests.plans import parsed

DOUBLE = np.dtype(np.float64)
RATE = 0.5
"""Of the local steps of these plans."""


def layout(size: int, *, statistics: int = 0, dtype: np.dtype[np.floating] = DOUBLE) -> Layout:
    entries = (LayoutEntry("a", (size - statistics,)), LayoutEntry("b", (statistics,), trainable=False))
    return Layout(entries, dtype)


def plan(optimizer: dict[str, object] | None, schedule: str = "constant", rounds: int = 20) -> Plan:
    stated = optimizer or {"name": "sgd"}
    rates = {"learning_rate": RATE, "schedule": schedule, "warm_up": 0.0}
    training = {"rounds": rounds, "server_optimizer": stated, **rates}
    return parsed(training=training)


def walk(
    stated: Plan, gradients: Sequence[Sequence[float]], *, statistics: int = 0, weight: float = 3.0
) -> tuple[np.ndarray, float, Moments | None]:
    """Step with pseudo-gradients; the last of each is the threshold's."""
    size = len(gradients[0]) - 1
    optimizer = ServerOptimizer(stated, layout(size, statistics=statistics))
    vector, threshold, moments = np.zeros(size), 1.0, optimizer.first
    for number, row in enumerate(gradients, start=1):
        changes = -RATE * weight * np.array(row)
        change = MeanChange(changes[:-1], float(changes[-1]), weight)
        vector, threshold, moments = optimizer.stepped(vector, threshold, moments, change, RoundNumber(number))
    return vector, threshold, moments


def test_plain_averaging_adds_the_mean_bit_for_bit() -> None:
    source = np.random.default_rng(1)
    vector, total = source.normal(size=100).astype(np.float32), source.normal(size=100).astype(np.float32)
    optimizer = ServerOptimizer(plan(None), layout(100, dtype=np.dtype(np.float32)))
    moved, threshold, moments = optimizer.stepped(
        vector, 0.3, optimizer.first, MeanChange(total, 0.7, 7.0), RoundNumber(1)
    )
    assert moved.tobytes() == moved_by_mean(vector, total, 7.0).tobytes()
    assert (threshold, moments) == (0.3 + 0.7 / 7.0, None)


def test_one_step_of_each_is_the_one_worked_by_hand() -> None:
    gradients = [[4.0, -2.0, 1.0]]
    tiny = {"learning_rate": 0.1, "floor": 1e-12}
    plain, threshold, _ = walk(plan({"name": "sgd", "learning_rate": 0.1}), gradients)
    assert [*plain, threshold] == pytest.approx([-0.4, 0.2, 0.9])
    momentum, threshold, _ = walk(plan({"name": "momentum", "learning_rate": 0.1}), gradients)
    assert [*momentum, threshold] == pytest.approx([-0.4, 0.2, 0.9])
    # A first step of Adam and Yogi has the length of the rate in every coordinate.
    for name in ("adam", "yogi"):
        vector, threshold, _ = walk(plan({"name": name, **tiny}), gradients)
        assert [*vector, threshold] == pytest.approx([-0.1, 0.1, 0.9])


def test_a_second_step_of_yogi_is_the_one_worked_by_hand() -> None:
    stated = {"name": "yogi", "learning_rate": 1.0, "momentum": 0.5, "second_momentum": 0.75, "floor": 1e-9}
    vector, _, moments = walk(plan(stated), [[2.0, 0.0], [4.0, 0.0]])
    # m: 1, then 0.5 * 1 + 0.5 * 4 = 2.5; v: 0.25 * 4 = 1, then 1 + 0.25 * 16 = 5.
    second = (2.5 / 0.75) / np.sqrt(5.0 / (1.0 - 0.75**2))
    assert vector == pytest.approx([-1.0 - second])
    assert moments is not None
    assert (moments.first[0], moments.second[0]) == pytest.approx((2.5, 5.0))


rows = st.lists(st.lists(st.floats(-10.0, 10.0), min_size=4, max_size=4), min_size=1, max_size=15)


@given(rows)
def test_adam_is_torchs_adam_on_model_and_threshold(gradients: list[list[float]]) -> None:
    stated = {"name": "adam", "learning_rate": 0.1, "second_momentum": 0.95, "floor": 0.01}
    vector, threshold, _ = walk(plan(stated), gradients)
    parameters = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64, requires_grad=True)
    reference = torch.optim.Adam([parameters], lr=0.1, betas=(0.9, 0.95), eps=0.01)
    for row in gradients:
        parameters.grad = torch.tensor(row, dtype=torch.float64)
        reference.step()
    expected = parameters.detach().numpy()
    # Fifteen steps of at most 0.1 * 10 and some forty roundings each.
    assert np.abs(np.append(vector, threshold) - expected).max() <= 15 * 40 * 2.0**-52 * 20


@given(rows)
def test_momentum_is_torchs_momentum(gradients: list[list[float]]) -> None:
    vector, threshold, _ = walk(plan({"name": "momentum", "learning_rate": 0.1}), gradients)
    parameters = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64, requires_grad=True)
    reference = torch.optim.SGD([parameters], lr=0.1, momentum=0.9)
    for row in gradients:
        parameters.grad = torch.tensor(row, dtype=torch.float64)
        reference.step()
    assert np.append(vector, threshold) == pytest.approx(parameters.detach().numpy(), abs=1e-11)


def test_a_schedule_shortens_the_steps_and_not_what_is_remembered() -> None:
    gradients = [[1.0, 1.0], [1.0, 1.0]]
    stated = {"name": "adam", "learning_rate": 0.1, "floor": 1e-12}
    constant, _, first = walk(plan(stated, rounds=2), gradients)
    linear, _, second = walk(plan(stated, "linear", rounds=2), gradients)
    assert constant == pytest.approx([-0.2])
    assert linear == pytest.approx([-0.15])
    assert first is not None
    assert second is not None
    assert first.first == pytest.approx(second.first)
    assert first.second == pytest.approx(second.second)


def test_running_statistics_are_averaged_and_not_stepped() -> None:
    vector, _, _ = walk(plan({"name": "adam", "learning_rate": 0.1}), [[1.0, 1.0, 7.0, 0.0]], statistics=1)
    assert vector[2] == pytest.approx(-RATE * 7.0)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "yogi"])
@pytest.mark.parametrize("width", [np.float32, np.float64])
@pytest.mark.parametrize("is_spilled", [False, True])
def test_steps_in_blocks_are_those_of_whole_vectors_to_the_bit(
    name: str, width: type, is_spilled: bool, tmp_path: Path
) -> None:
    size, dtype, source = 2 * STEP_BLOCK + 5, np.dtype(width), np.random.default_rng(3)
    room = SpilledVectors(tmp_path, small_bytes=0) if is_spilled else IN_MEMORY
    stated = plan({"name": name, "learning_rate": 0.01})
    section = server_optimizer_of(stated)
    optimizer = ServerOptimizer(stated, layout(size, dtype=dtype), room)
    vector, moments = source.normal(size=size).astype(dtype), optimizer.first
    lengths = [0 if moments is None else moment for moment in (size, 0 if name == "momentum" else size)]
    expected = vector, np.zeros(lengths[0], dtype), np.zeros(lengths[1], dtype)
    powers = 1.0, 1.0
    for number in (1, 2, 3):
        total = (source.normal(size=size) * 10.0 ** source.integers(-6, 3, size)).astype(dtype)
        gradient = total.astype(np.float64) / -(3.0 * RATE)
        powers = powers[0] * section.momentum, powers[1] * section.second_momentum
        expected = step(section, expected[0], expected[1:], powers, gradient, 0.01)
        change = MeanChange(total, 0.5, 3.0, used_up=number > 1)
        vector, _, moments = optimizer.stepped(vector, 1.0, moments, change, RoundNumber(number))
        found = (vector,) if moments is None else (vector, moments.first, moments.second)
        for one, other in zip(found, expected, strict=False):
            assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())
        if moments is not None:
            assert moments.vectors_sha256 == (vector_sha256(expected[1]), vector_sha256(expected[2]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_a_step_that_fails_leaves_the_spilled_memory_as_it_was(name: str, tmp_path: Path) -> None:
    size, single = STEP_BLOCK + 1, np.dtype(np.float32)
    optimizer = ServerOptimizer(plan({"name": name}), layout(size, dtype=single), SpilledVectors(tmp_path, 0))
    vector, moments = np.zeros(size, single), optimizer.first
    change = MeanChange(np.ones(size, single), 0.0, 1.0)
    vector, _, moments = optimizer.stepped(vector, 1.0, moments, change, RoundNumber(1))
    assert moments is not None
    before = vector.tobytes(), moments.first.tobytes(), moments.second.tobytes()
    last_is_wild = np.append(np.ones(size - 1), 3e38).astype(single)
    with pytest.raises(RemoteProtocolError, match="is not finite"):
        optimizer.stepped(vector, 1.0, moments, MeanChange(last_is_wild, 0.0, 1e-3), RoundNumber(2))
    assert (vector.tobytes(), moments.first.tobytes(), moments.second.tobytes()) == before
    # Another attempt at the round begins from there.
    optimizer.stepped(vector, 1.0, moments, change, RoundNumber(2))


def test_a_memory_moves_into_the_room_once_and_keeps_its_digests(tmp_path: Path) -> None:
    size = STEP_BLOCK + 1
    optimizer = ServerOptimizer(plan({"name": "adam"}), layout(size), SpilledVectors(tmp_path, small_bytes=0))
    assert optimizer.first is not None
    assert optimizer.housed(optimizer.first).first.strides == (0,)
    moments = Moments(np.arange(float(size)), np.ones(size), 0.5, 0.25, 0.9, 0.95)
    found = optimizer.housed(moments)
    assert found is not moments
    assert optimizer.housed(found) is found
    assert found.first.tobytes() == moments.first.tobytes()
    assert found.vectors_sha256 == moments.vectors_sha256
    numbers = (found.threshold_first, found.threshold_second, found.first_power, found.second_power)
    assert numbers == (0.5, 0.25, 0.9, 0.95)


def test_a_statistic_whose_step_would_not_be_finite_is_averaged_all_the_same() -> None:
    single = np.dtype(np.float32)
    stated = plan({"name": "sgd", "learning_rate": 1e30})
    optimizer = ServerOptimizer(stated, layout(2, statistics=1, dtype=single))
    change = MeanChange(np.array([0.0, 1e20], single), 0.0, 1.0)
    vector, _, _ = optimizer.stepped(np.zeros(2, single), 1.0, None, change, RoundNumber(1))
    assert vector.tolist() == [0.0, np.float32(1e20)]


def test_a_memory_is_never_written_into() -> None:
    optimizer = ServerOptimizer(plan({"name": "adam"}), layout(2))
    before = optimizer.first
    change = MeanChange(np.ones(2), 1.0, 1.0)
    optimizer.stepped(np.zeros(2), 1.0, before, change, RoundNumber(1))
    assert before is not None
    assert not before.first.any()
    assert not before.second.any()
    assert before.first_power == 1.0


def test_a_step_that_is_not_finite_is_refused_with_the_remedy() -> None:
    single = np.dtype(np.float32)
    optimizer = ServerOptimizer(plan({"name": "adam"}), layout(1, dtype=single))
    change = MeanChange(np.array([1e30], single), 0.0, 1.0)
    with pytest.raises(RemoteProtocolError, match=r"of round 1 by training\.server_optimizer is not finite"):
        optimizer.stepped(np.zeros(1, single), 1.0, optimizer.first, change, RoundNumber(1))


def test_only_a_memory_of_the_plans_kind_may_be() -> None:
    adam, plain = (ServerOptimizer(plan(stated), layout(2)) for stated in ({"name": "adam"}, None))
    momentum = ServerOptimizer(plan({"name": "momentum"}), layout(2))
    assert adam.first is not None
    assert momentum.first is not None
    assert adam.may_be(adam.first, 0)
    assert momentum.may_be(momentum.first, 0)
    assert not adam.may_be(momentum.first, 0)
    assert not plain.may_be(adam.first, 0)
