"""The README's commands, run as they are written, on as many "hosts" as they name."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from by_the_readme import run
from fedfair.cli.commands import app
from fedfair.plan.source import load_plan
from tests.conftest import REPOSITORY

README = REPOSITORY / "README.md"


def test_the_deployment_of_the_readme_works_as_written(tmp_path: Path) -> None:
    lead = run(README, tmp_path)["lead"]
    result = json.loads((lead / "result.json").read_text())
    assert result["format"] == "fedfair/result/1"
    assert result["train"]["by_group_size"]["0.1"]["worst"] < result["uniform_floor"]
    # The clinic's record fits the mirror, or the command would have failed; and the lead has nobody's own record.
    assert (lead.parent.parent / "clinic-a" / "heart" / "egress" / "clinic-a.jsonl").is_file()
    assert not (lead / "egress").exists()
    certificate = json.loads((lead / "certificate.json").read_text())
    assert (certificate["split"], certificate["n"]) == ("test", result["test"]["n"])
    stated = {statement["group_size"]: statement["sample"] for statement in certificate["statements"]}
    told = {size: risk for size, risk in result["test"]["by_group_size"].items() if risk["worst"] is not None}
    assert {*map(float, told)} | {1.0} == {*stated}
    for size, risk in told.items():
        low, high = stated[float(size)]
        assert low <= risk["bound"][1]
        assert risk["bound"][0] <= high  # Both intervals hold the truth, so they meet.


def test_the_plan_of_the_readme_is_a_plan(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "plan.yaml").write_text(next(block for block in blocks if "a whole one" in block))
    assert load_plan(tmp_path / "plan.yaml").training.rounds == 300


def test_every_command_of_the_readme_exists() -> None:
    # Only what stands in code, as a command or in backticks.
    groups = set(re.findall(r"(?:\$ |`)fedfair ([a-z]+(?: [a-z]+)?)", README.read_text()))
    assert len(groups) > 10
    for group in sorted(groups):
        outcome = CliRunner().invoke(app, [*group.split(), "--help"])
        assert outcome.exit_code == 0, f"fedfair {group}: {outcome.output}"
