"""Per-site means over real sockets: where the plan asks and every site agrees, and not otherwise."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import PlanError
from fedfair.plan.loading import load_plan
from fedfair.results.document import JsonObject, to_json
from fedfair.simulation.simulate import simulate
from tests.interop.federation_kit import FIVE, NAMES, Federation, play
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512, "clip": 1.0}


def asking(
    protection: Mapping[str, object] | None, names: tuple[str, ...] = NAMES, **federation: object
) -> dict[str, object]:
    plan = small_plan(rounds=1, federation=federation, protection=protection, names=names)
    task = plan["task"]
    assert isinstance(task, dict)
    return plan | {
        "task": task | {"test_fraction": 0.2},
        "evaluation": {"every": 5, "bins": 8, "site_means": True},
    }


def results(workspace: Workspace) -> tuple[JsonObject, JsonObject]:
    simulated = to_json(simulate(load_plan(workspace.plan), workspace.folder).result)
    return json.loads(json.dumps(simulated)), json.loads(workspace.result.read_text())


@pytest.mark.parametrize(
    ("protection", "tolerance"),
    # As in test_exact_evaluation.py: a masked model differs by so little that a loss differs by less than 1e-3.
    [(None, 1e-12), (MASKED, 1e-3)],
    ids=["plain", "masked"],
)
def test_a_deployment_tells_of_each_site_what_its_simulation_does(
    tmp_path: Path, protection: dict[str, object] | None, tolerance: float
) -> None:
    workspace = prepare(tmp_path, asking(protection))
    assert play(workspace, Federation.everybody).state.value == "finished"
    simulated, deployed = results(workspace)
    told = deployed["collaborators"]
    assert list(told) == list(simulated["collaborators"]) == list(NAMES)
    for name, site in simulated["collaborators"].items():
        assert told[name].keys() == site.keys() == {"n", "mean", "accuracy", "test"}
        for mine, other in ((told[name], site), (told[name]["test"], site["test"])):
            assert mine["n"] == other["n"]
            assert mine["mean"] == pytest.approx(other["mean"], abs=tolerance)
            # A loss that moves by the tolerance can turn a prediction over, but not many of them.
            assert mine["accuracy"] == pytest.approx(other["accuracy"], abs=0.0 if protection is None else 0.02)
    train = deployed["train"]
    assert sum(site["n"] for site in told.values()) == train["n"]
    total = sum(site["n"] * site["mean"] for site in told.values())
    assert total == pytest.approx(train["n"] * train["mean"], rel=1e-12)
    assert "tells the aggregator every site's own" in deployed["secure_aggregation"]["guarantee"] or not protection


def test_a_site_that_is_missing_is_null_and_the_others_are_told_of(tmp_path: Path) -> None:
    plan = asking(MASKED, FIVE[:4], min_collaborators=3)
    workspace = prepare(tmp_path, plan)

    async def three(federation: Federation) -> None:
        sites = [federation.take_part(name) for name in FIVE[:3]]
        await asyncio.gather(*sites, federation.begin_with(*FIVE[:3]))

    assert play(workspace, three).state.value == "finished"
    _, deployed = results(workspace)
    told = deployed["collaborators"]
    assert told["clinic-d"] is None
    assert sum(told[name]["n"] for name in FIVE[:3]) == deployed["train"]["n"]


def test_a_site_whose_policy_keeps_its_means_to_itself_refuses_before_anything_is_sent(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, asking(None, min_collaborators=2))
    file = workspace.folder / "clinic-c.yaml"
    site = yaml.safe_load(file.read_text())
    assert site["policy"].pop("publish_site_means") is True
    file.write_text(yaml.safe_dump(site))

    async def one_refuses(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in NAMES[:2]]
        with pytest.raises(PlanError, match="this site's policy keeps its own means to itself"):
            await federation.take_part("clinic-c")
        await federation.begin_with(*NAMES[:2])
        await asyncio.gather(*others)
        assert not any("clinic-c connected" in note for note in federation.watching.notes)

    assert play(workspace, one_refuses).state.value == "finished"
    _, deployed = results(workspace)
    assert deployed["collaborators"]["clinic-c"] is None


def test_a_plan_that_does_not_ask_gets_no_means_even_where_every_site_would_give_them(tmp_path: Path) -> None:
    plan = asking(None)
    workspace = prepare(tmp_path, plan | {"evaluation": {"every": 5, "bins": 8}})
    for name in NAMES:
        file = workspace.folder / f"{name}.yaml"
        site = yaml.safe_load(file.read_text())
        site["policy"]["publish_site_means"] = True
        file.write_text(yaml.safe_dump(site))
    play(workspace, Federation.everybody)
    simulated, deployed = results(workspace)
    assert "collaborators" not in deployed
    assert simulated["collaborators"].keys() == set(NAMES)
