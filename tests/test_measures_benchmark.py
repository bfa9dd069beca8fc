"""The script `benchmarks/measures.py`: its slice and its rule by hand."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.conftest import REPOSITORY


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # Scripts import their neighbours by their bare names.
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module("measures")


def test_a_slice_that_features_define_is_found_and_luck_is_none(measures: ModuleType) -> None:
    source = np.random.default_rng(1)
    features, noise = source.integers(0, 2, (4000, 3)).astype(float), source.random(4000)
    served = 0.2 + 0.1 * noise + 0.5 * (features[:, 0] * features[:, 1] == 1.0)
    # A quarter of the records, by two features; their mean is .75, and that of any other slice .25.
    assert measures.worst_slice(features, served, 0) == pytest.approx(0.75, abs=0.01)
    # By luck alone a tenth is far off, and no slice that is grown on one half is so on the other.
    assert measures.worst_slice(features, noise, 0) < 0.55
    assert np.sort(noise)[-400:].mean() > 0.94


def test_the_rule_needs_a_lower_slice_at_no_more_than_a_hundredth_of_the_mean(measures: ModuleType) -> None:
    def told(mean: float, worst: float, refused: float = 0.0) -> dict[str, float]:
        return {"mean": mean, "slice": worst, "refused": refused}

    found = {
        name: {
            "plain": told(1.0, 2.0),
            "excess 0.1": told(1.009, 1.9),
            "excess 0.2": told(1.02, 1.5),
            "excess 0.3": told(1.0, 1.99),
            "loss 0.1": told(1.0, 1.9, refused=float(name == "b")),
        }
        for name in "abc"
    }
    decided = measures.decided(found)
    assert {name: one["wins"] for name, one in decided.items()} == {
        "excess 0.1": True, "excess 0.2": False, "excess 0.3": False, "loss 0.1": False,
    }  # fmt: skip
    # Half a hundredth lower is no lower slice.
    assert (decided["excess 0.3"]["slice_lower"], decided["excess 0.3"]["slice_higher"]) == (0, 0)


def test_runs_of_one_seed_with_a_fault_count_for_no_mean(measures: ModuleType, tmp_path: Path) -> None:
    good = {"mean": 1.0, "auc": 0.5, "tenth": 2.0, "slice": 1.5, "refused": False}
    lines = [
        {"data": "wine", "measure": "plain", "model": "linear", "seed": 0, **good},
        {"data": "wine", "measure": "plain", "model": "linear", "seed": 1, **good, "mean": 3.0},
        {"data": "wine", "measure": "loss 0.1", "model": "linear", "seed": 0, **good},
        {"data": "wine", "measure": "loss 0.1", "model": "linear", "seed": 1, "fault": "it ended"},
    ]
    runs = tmp_path / "runs.jsonl"
    runs.write_text("".join(json.dumps(line) + "\n" for line in [*lines, lines[0]]))
    assert measures.means(measures.records(runs), "linear") == {
        "wine": {"plain": {"mean": 2.0, "auc": 0.5, "tenth": 2.0, "slice": 1.5, "refused": 0.0}}
    }
