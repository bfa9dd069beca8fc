"""The page about other tasks: its commands run on its plan, and each of its sections is a valid one."""

import csv
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedfair.plan.schema import Plan
from tests.conftest import REPOSITORY
from tests.fork_server import played

PAGE = (REPOSITORY / "docs" / "how-to" / "other-tasks.md").read_text(encoding="utf-8")
PLAN, *SECTIONS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
RECORDS = 200


def write_table(path: Path) -> None:
    source = np.random.default_rng(11)
    age, dose = source.uniform(20, 90, RECORDS), source.uniform(0, 5, RECORDS)
    days = np.clip(0.2 * age + 2 * dose + source.normal(0, 3, RECORDS), 0, 60)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["age", "dose", "days", "clinic"])
        for place, row in enumerate(zip(age.tolist(), dose.tolist(), days.tolist(), strict=True)):
            table.writerow([*row, ("north", "south")[place % 2]])


@pytest.mark.slow
def test_the_commands_of_the_page_run_in_their_order(tmp_path: Path) -> None:
    write_table(tmp_path / "table.csv")
    (tmp_path / "plan.yaml").write_text(PLAN)
    told = {}
    for line in COMMANDS.strip().splitlines():
        words = shlex.split(line)
        assert words[0] == "fedfair"
        done = played(["-m", "fedfair.cli", *words[1:]], tmp_path, {"COLUMNS": "200"})
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        told[words[1]] = done.stdout
    assert "loss: Huber loss with delta 2 in squared units of the target" in " ".join(told["plan"].split())
    assert "r squared" in told["report"]
    with (tmp_path / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == RECORDS
    assert list(rows[0]) == ["predicted"]
    assert all(np.isfinite(float(row["predicted"])) for row in rows)
    page = (tmp_path / "certificate.html").read_text()
    assert "has a mean Huber loss with delta 2 above" in page


@pytest.mark.parametrize("text", SECTIONS, ids=[str(place) for place in range(len(SECTIONS))])
def test_each_section_of_the_page_is_a_valid_one(text: str) -> None:
    plan: dict[str, Any] = yaml.safe_load(PLAN)
    stated = yaml.safe_load(text)
    Plan.model_validate(plan | stated | {"task": {"model": {"name": "linear"}, **stated["task"]}})
