"""The step with the mean change: by hand, against torch's optimizers, and what it must never do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.server_optimizer import MeanChange, Moments, ServerOptimizer
from fedfair.aggregation.training_sum import moved_by_mean
from fedfair.errors import RemoteProtocolError
from fedfair.ids import RoundNumber
from fedfair.plan.schema import Plan
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
    vector, threshold, moments = np.zeros(size), 1.0, optimizer.first_moments
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
        vector, 0.3, optimizer.first_moments, MeanChange(total, 0.7, 7.0), RoundNumber(1)
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


def test_a_memory_is_never_written_into() -> None:
    optimizer = ServerOptimizer(plan({"name": "adam"}), layout(2))
    before = optimizer.first_moments
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
        optimizer.stepped(np.zeros(1, single), 1.0, optimizer.first_moments, change, RoundNumber(1))


def test_only_a_memory_of_the_plans_kind_may_be() -> None:
    adam, plain = (ServerOptimizer(plan(stated), layout(2)) for stated in ({"name": "adam"}, None))
    momentum = ServerOptimizer(plan({"name": "momentum"}), layout(2))
    assert adam.may_have(adam.first_moments)
    assert plain.may_have(None)
    assert momentum.may_have(momentum.first_moments)
    assert not adam.may_have(None)
    assert not adam.may_have(momentum.first_moments)
    assert not plain.may_have(adam.first_moments)
