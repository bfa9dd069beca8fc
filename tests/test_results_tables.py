"""The tables over several data sets say what the files of each say, and leave out those of earlier versions."""

import json
from pathlib import Path

import pytest

from docs.results_tables import verdicts, worst_tenths
from fedfair.studies.reproduction.claims import CLAIMS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    heart, old = tmp_path / "heart", tmp_path / "old"
    heart.mkdir()
    old.mkdir()
    mark = {
        "study": "heart-hospitals",
        "figure": "baselines",
        "method": "dro",
        "worst_group_size": 0.1,
        "uniform_floor": 0.6931,
        "settings": [],
        "test": {"worst_0.1": [0.7125, 0.01], "mean": [0.5, None]},
    }
    larger = mark | {"worst_group_size": 0.3, "test": {"worst_0.3": [9.0, 0.1]}}
    (heart / "marks.json").write_text(json.dumps([larger, mark]))
    claim = {"study": "heart-hospitals", "claim": "C6", "verdict": "does not hold", "comparisons": []}
    (heart / "claims.json").write_text(json.dumps([claim]))
    (old / "marks.json").write_text("[{}]")
    return tmp_path


def test_the_smallest_group_of_every_study_has_a_row(folder: Path) -> None:
    lines = worst_tenths(folder).splitlines()
    assert len(lines) == 3
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells == ["[heart-hospitals](heart/index.html), worst 10%", *[""] * 8, "0.713, 0.500", "", "0.693"]


def test_every_claim_has_a_row_and_every_study_a_column(folder: Path) -> None:
    lines = verdicts(folder).splitlines()
    assert len(lines) == 2 + len(CLAIMS)
    assert lines[0] == "| claim | [heart-hospitals](heart/index.html) |"
    assert next(line for line in lines if line.startswith("| C6:")).endswith("| **no** |")
    assert next(line for line in lines if line.startswith("| C1:")).endswith("|  |")
