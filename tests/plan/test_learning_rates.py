"""Rates over the rounds: what the plan states, by hand, and that every factor is above 0."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.plan.learning_rates import LearningRates, local_rates, rate_factor, server_optimizer_of, server_rate
from fedfair.plan.schema import Plan
from tests.plans import parsed, untuned

SCHEDULES = ("constant", "linear", "cosine")


@pytest.mark.parametrize(
    ("schedule", "warm_up", "expected"),
    [
        ("constant", 0.4, [1.0, 1.0, 1.0, 1.0]), ("linear", 0.0, [1.0, 0.75, 0.5, 0.25]),
        ("cosine", 0.0, [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125)]),
        ("linear", 0.4, [1 / 3, 2 / 3, 1.0, 0.5]), ("cosine", 0.5, [1 / 3, 2 / 3, 1.0, 0.5]),
        ("cosine", 0.1, [0.5, 1.0, 0.75, 0.25]),
    ],
)  # fmt: skip
def test_four_factors_are_those_worked_by_hand(schedule: str, warm_up: float, expected: list[float]) -> None:
    plan = parsed(training={"rounds": 4, "schedule": schedule, "warm_up": warm_up})
    found = [rate_factor(plan, number) for number in (1, 2, 3, 4)]
    assert found == pytest.approx(expected, abs=2.0**-32)


@given(st.sampled_from(SCHEDULES), st.floats(0.0, 0.5), st.integers(1, 10**9), st.data())
def test_every_factor_is_above_zero_and_rises_only_in_the_warm_up(
    schedule: str, warm_up: float, rounds: int, data: st.DataObject
) -> None:
    plan = parsed(training={"rounds": rounds, "schedule": schedule, "warm_up": warm_up})
    number = data.draw(st.integers(1, rounds))
    assert 0.0 < rate_factor(plan, number) <= 1.0
    rises = rate_factor(plan, min(number + 1, rounds)) > rate_factor(plan, number)
    assert not rises or (schedule != "constant" and number <= math.ceil(warm_up * rounds))


NOISED = {"sample_level": {"noise_multiplier": 1.0}}


@pytest.mark.parametrize(
    ("optimizer", "training", "sections", "expected"),
    [
        ({"name": "adam"}, {}, {}, 0.4), ({"name": "sgd", "learning_rate": 0.1}, {}, {}, 0.4),
        ({"name": "sgd"}, {}, {}, 0.2), ({"name": "adam"}, {"local_steps": 2}, {}, 0.2),
        ({"name": "adam"}, {"local_epochs": 1}, {}, 0.2),
        ({"name": "adam"}, {}, {"task": {"standardize": "ranges"}, "privacy": NOISED}, 0.2),
    ],
)  # fmt: skip
def test_a_site_s_rate_stays_where_the_server_divides_the_change_of_one_step_by_it(
    optimizer: dict[str, object],
    training: dict[str, object],
    sections: dict[str, dict[str, object]],
    expected: float,
) -> None:
    falling = {"rounds": 2, "schedule": "linear", "warm_up": 0.0, "learning_rate": 0.4}
    plan = parsed(training={**falling, "server_optimizer": optimizer, **training}, **sections)
    assert local_rates(plan, 1) == LearningRates(0.4, 0.4)
    assert local_rates(plan, 2) == LearningRates(expected, expected)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (None, 0.3), ({"name": "sgd"}, 0.4), ({"name": "momentum"}, 0.4), ({"name": "adam"}, 0.3),
        ({"name": "yogi", "learning_rate": 0.2}, 0.2),
    ],
)  # fmt: skip
def test_the_rate_of_the_server_is_stated_or_its_kinds(stated: dict[str, object] | None, expected: float) -> None:
    plan = parsed(training={"rounds": 2, "learning_rate": 0.4, "server_optimizer": stated})
    assert server_rate(plan) == expected


def test_thresholds_fall_with_the_model_and_deep_models_step_carefully() -> None:
    rates = {"learning_rate": 0.4, "threshold_learning_rate": 0.1}
    falling = {"rounds": 2, "schedule": "linear", "warm_up": 0.0, **rates}
    assert local_rates(parsed(training=falling), 2) == LearningRates(0.2, 0.05)
    plain = parsed(training={**falling, "algorithm": "fedavg"})
    assert local_rates(plain, 2) == LearningRates(0.2, None)
    rates = [
        server_rate(Plan.model_validate(untuned(task={"data": "breast-cancer", "model": model})))
        for model in ({"name": "linear"}, {"name": "mlp", "hidden": [8]}, "model:build")
    ]
    assert rates == [0.3, 0.03, 0.01]


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, "adam"), ({"training": {"algorithm": "fedavg"}}, "adam"), ({"training": {"algorithm": "afl"}}, "sgd"),
        ({"task": {"standardize": "ranges"}, "privacy": {"sample_level": {"noise_multiplier": 1.0}}}, "sgd"),
        ({"training": {"server_optimizer": {"name": "yogi"}}}, "yogi"),
    ],
)  # fmt: skip
def test_no_optimizer_means_adam_without_noise(sections: dict[str, dict[str, object]], expected: str) -> None:
    training = {"rounds": 2, **sections.get("training", {})}
    plan = Plan.model_validate(untuned(**{**sections, "training": training}))
    assert server_optimizer_of(plan).name == expected
