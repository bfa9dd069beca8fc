"""What needs more than a sum is refused by every process that could start a deployment, before it starts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aggregator.preparation import Start, prepare
from fedfair.cli.plan import app
from fedfair.errors import PlanError
from tests.site_reading import read_site

PLAN = """
federation: {name: demo, collaborators: [clinic-a, clinic-b]}
task: {data: breast-cancer, partition: {scheme: random}, model: {name: linear}}
training: {algorithm: afl, rounds: 3}
"""
WORDS = "afl is for simulation only: each round it must reveal the loss of every collaborator"


def command(*words: str) -> None:
    outcome = CliRunner().invoke(app, list(words))
    assert outcome.exception is not None
    raise outcome.exception


STARTS: dict[str, Callable[[Path], object]] = {
    "aggregator": lambda plan: prepare(Start(plan, plan.parent, plan.parent), print),
    "collaborator": lambda plan: read_site(None, plan.parent / "collaborator.yaml", plan, None),
    "check": lambda plan: command("check", "-p", str(plan), "-c", str(plan.parent / "collaborator.yaml")),
    "approve": lambda plan: command("approve", "-n", "clinic-a", "-p", str(plan), "--yes"),
}


@pytest.mark.parametrize("who", STARTS)
def test_nobody_starts_a_deployment_of_an_algorithm_that_no_sum_carries(tmp_path: Path, who: str) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    with pytest.raises(PlanError, match=WORDS) as caught:
        STARTS[who](plan)
    assert "docs/explain/algorithms.md" in caught.value.remedy
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]
