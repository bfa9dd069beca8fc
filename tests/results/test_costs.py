"""What a run cost: summaries by hand, and the bytes of a simulation."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.plan.schema import Plan
from fedfair.results.costs import MAX_POINTS, Basis, SumCost, rounds_summary, traffic_summary
from fedfair.results.document import to_json
from fedfair.results.parts import RoundBytes, RoundSeconds, Traffic
from fedfair.simulation.simulate import simulate
from fedfair.statistics.table import Purpose
from tests import plans


def training(number: int, seconds: float, contributors: int = 2, up: int = 8, down: int = 4) -> SumCost:
    return SumCost(Purpose.TRAINING, number, seconds, contributors, up, down)


def evaluation(seconds: float = 100.0) -> SumCost:
    return SumCost(Purpose.EVALUATION, 0, seconds, contributors=2, bytes_up=20, bytes_down=0)


def test_seconds_and_bytes_are_those_of_training_and_of_those_who_took_part() -> None:
    costs = [evaluation(), *(training(number, float(number)) for number in range(1, 11)), evaluation()]
    # Nine in ten of 1..10 take at most 9 seconds.
    assert rounds_summary(costs) == RoundSeconds(
        count=10, median=5.5, p90=9.0, longest=10.0,
        curve=tuple((number, float(number)) for number in range(1, 11)),
    )  # fmt: skip
    assert rounds_summary([evaluation()]) is None
    costs = [evaluation(), training(1, 1.0), training(2, 1.0, contributors=1)]
    assert traffic_summary(costs, Basis.MEASURED) == Traffic(
        basis="measured", bytes_up=36, bytes_down=8,
        per_round=RoundBytes(bytes_up=(10 + 4 + 8) / 2, bytes_down=(2 + 4) / 2),
    )  # fmt: skip
    assert traffic_summary([evaluation()], Basis.MEASURED) is None
    assert traffic_summary([training(1, 1.0, up=0, down=0)], Basis.COMPUTED) is None


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=5 * MAX_POINTS))
def test_a_curve_is_short_ends_at_the_last_round_and_stays_between_the_extremes(seconds: list[float]) -> None:
    summary = rounds_summary([training(number, value) for number, value in enumerate(seconds, start=1)])
    assert summary is not None
    curve = summary.curve
    assert len(curve) <= MAX_POINTS
    assert curve[-1][0] == len(seconds)
    assert all(min(seconds) <= value <= max(seconds) for _, value in curve)
    assert sorted(seconds)[math.ceil(0.9 * len(seconds)) - 1] == summary.p90


def plan(mode: str) -> Plan:
    return plans.parsed(
        ["a", "b"], task={"partition": {"scheme": "random"}, "standardize": "secure"},
        training={"rounds": 3, "precision": "fp64"}, secure_aggregation={"mode": mode},
        evaluation={"every": 2, "bins": 16},
    )  # fmt: skip


def test_the_bytes_of_a_plain_plan_are_those_of_its_sums(tmp_path: Path) -> None:
    traffic = to_json(simulate(plan("off"), tmp_path).result)["traffic"]
    assert isinstance(traffic, dict)
    # 30 columns and 2 classes: a model of 62 float64. A training sum is [w, w dc, w dtheta], an evaluation three
    # blocks of [n, correct, smoothed], 17 counts, 17 sums and a 2 x 2 confusion matrix, a standardisation [n] and
    # for each column how many values it has, their sum and the sum of their squares.
    training_up, evaluation_up, scaling_up = 8 * (2 + 62), 8 * 3 * (3 + 2 * 17 + 4), 8 * (1 + 3 * 30)
    # Evaluations after rounds 0, 2 and 3. Each opened sum travels back with a length of 4 bytes and the words
    # ["STATE", ["a", "b"], 2], in which STATE is 64 hex digits.
    up = 3 * training_up + 3 * evaluation_up + scaling_up
    words = 4 + len('["", ["a", "b"], 2]') + 64
    down = up + (3 + 3 + 1) * words
    assert (traffic["basis"], traffic["bytes_up"], traffic["bytes_down"]) == ("computed", 2 * up, 2 * down)
    assert traffic["per_round"] == {"bytes_up": pytest.approx(up / 3), "bytes_down": pytest.approx(down / 3)}


def test_masks_make_every_header_longer(tmp_path: Path) -> None:
    plain, masked = (to_json(simulate(plan(mode), tmp_path).result)["traffic"] for mode in ("off", "malicious"))
    assert isinstance(plain, dict)
    assert isinstance(masked, dict)
    assert masked["bytes_up"] > plain["bytes_up"]
    # The opened sum has the same numbers as an upload: the words of the body, and those of the header.
    assert masked["bytes_down"] == masked["bytes_up"]
