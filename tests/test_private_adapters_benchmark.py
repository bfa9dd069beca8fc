"""The script `benchmarks/private_adapters.py` in its smallest form."""

import importlib
import math
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture
def adapters(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # Scripts import their neighbours by their bare names.
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module("private_adapters")


def test_each_part_is_trained_at_one_epsilon_and_told_in_a_row_with_its_own_noise(adapters: ModuleType) -> None:
    # Finding the noise of an epsilon takes the accountant half a minute.
    rows = adapters.measured({8.0: 1.5}, rounds=1, seeds=1, wide=8, rates=(0.5,))
    body, head = 64 * 8 + 8 + 8 * 8 + 8, 8 * 5 + 5
    factors = 4 * (64 + 8) + 4 * (8 + 8)
    numbers = {"full": body + head, "lora": factors + head, "head": head}
    assert {row["part"]: row["numbers"] for row in rows} == numbers
    for row in rows:
        assert row["noise_norm"] == pytest.approx(1.5 * math.sqrt(row["numbers"]) / 128)
        assert 0.0 < row["mean"] < row["worst_tenth"]
        assert 0.0 <= row["accuracy"] <= 1.0
    lines = adapters.table(rows).splitlines()
    assert len(lines) == 2 + len(rows)
    assert lines[-1].startswith("| 8 | head | 45 |")
