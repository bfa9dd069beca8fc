"""What is for simulation only is refused where processes would start."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import PlanError
from fedfair.plan.deployment import MAX_CONNECTED, check_deployment
from fedfair.plan.schema import Plan
from tests import plans


def plan_of(count: int) -> Plan:
    return plans.parsed(
        [f"site-{k}" for k in range(count)],
        task={"data": "digits", "partition": {"scheme": "random"}},
        secure_aggregation={"mode": "off"},
    )


def test_as_many_as_an_aggregator_serves_may_be_deployed_and_no_more() -> None:
    check_deployment(plan_of(MAX_CONNECTED))
    with pytest.raises(PlanError, match=f"{MAX_CONNECTED + 1} sites cannot connect") as refused:
        check_deployment(plan_of(MAX_CONNECTED + 1))
    assert "fedfair simulate" in refused.value.diagnostics()


def test_a_collaborator_of_too_large_a_federation_does_not_start(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    names = ", ".join(f"site-{k}" for k in range(MAX_CONNECTED + 1))
    plan.write_text(
        f"federation: {{name: large, collaborators: [{names}]}}\n"
        "task: {data: digits, partition: {scheme: random}, model: {name: linear}}\n"
        "training: {rounds: 1}\n"
        'secure_aggregation: {mode: "off"}\n'
    )
    words = ["collaborator", "start", "-n", "site-0", "-c", str(tmp_path / "collaborator.yaml"), "-p", str(plan)]
    outcome = CliRunner().invoke(app, words)
    assert isinstance(outcome.exception, PlanError)
    assert "cannot connect to one aggregator" in str(outcome.exception)
