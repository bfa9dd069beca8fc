"""The table of docs/results is that of the committed marks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parent.parent / "docs" / "results"
METHODS = ("fedsrcvar", "fedavg", "afl", "dro", "bpf")
LINES = (RESULTS / "README.md").read_text().splitlines()
ROWS = [line.strip("| ").split(" | ") for line in LINES if line.startswith("| [")]
STUDIES = (
    "acs-employment-race", "acs-employment-states", "eicu-regions", "heart-hospitals", "adult-race",
    "mnist-digits",
)  # fmt: skip


def worst_tenth(study: str, method: str) -> float:
    folder = next(folder for folder in RESULTS.iterdir() if study.startswith(folder.name))
    for mark in json.loads((folder / "marks.json").read_text()):
        place = (mark["study"], mark["figure"], mark["method"], mark["worst_group_size"])
        if place == (study, "baselines", method, 0.1):
            return float(mark["test"]["worst_0.1"][0])
    raise AssertionError((study, method))


def test_every_study_has_a_row() -> None:
    assert len(ROWS) == len(STUDIES)


@pytest.mark.parametrize("number", range(len(STUDIES)))
def test_the_figures_of_a_row_are_those_of_the_marks(number: int) -> None:
    stated = ROWS[number][1:6]
    assert stated == [f"{worst_tenth(STUDIES[number], method):.3f}" for method in METHODS]
