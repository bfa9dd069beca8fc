"""A whole federation over real sockets in which each site shares masks with some of the others only."""

import asyncio
from pathlib import Path

import pytest

from fedfair.aggregation.masking_terms import graph_of
from fedfair.cli.loopback import Workspace, prepare
from fedfair.plan.loading import load_plan
from fedfair.rounds.events import DeadlineKind
from tests.interop.federation_kit import Federation, metrics, model_files_agree, play
from tests.interop.test_masked_streams import fixed_point_bound
from tests.plans import small_plan

TWELVE = tuple(f"clinic-{letter}" for letter in "abcdefghijkl")
NEIGHBOURS = 6


def workspace_at(folder: Path, rounds: int, needed: int, **terms: object) -> Workspace:
    protection = {"mode": "malicious", "most_records": 512, "neighbours": NEIGHBOURS, **terms}
    plan = small_plan(rounds=rounds, federation={"min_collaborators": needed}, protection=protection, names=TWELVE)
    workspace = prepare(folder, plan)
    graph = graph_of(load_plan(workspace.plan))
    assert graph is not None
    assert graph.neighbours == NEIGHBOURS
    return workspace


def test_a_run_with_a_sparse_graph_gives_the_model_of_the_simulation(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, 1, 12, clip=1.0, key_agreement="x25519-mlkem768")
    assert play(workspace, Federation.everybody).state.value == "finished"
    bound = fixed_point_bound(workspace)
    assert bound < 5e-3
    model_files_agree(workspace, bound)
    assert {line["contributors"] for line in metrics(workspace)} == {12}


@pytest.mark.slow
def test_the_others_go_on_when_a_site_vanishes_from_a_sparse_graph_and_it_returns(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, 12, 11)

    async def one_returns(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in TWELVE[:-1]]
        leaving = asyncio.create_task(federation.take_part(TWELVE[-1]))
        await federation.watching.until_round(3)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await federation.watching.until_said(f"{TWELVE[-1]} disconnected")
        with federation.deadlines.passing(DeadlineKind.GRACE):
            await federation.watching.until_round(6)
        await asyncio.gather(*others, federation.take_part(TWELVE[-1]))

    assert play(workspace, one_returns).state.value == "finished"
    lines = [line for line in metrics(workspace) if line["purpose"] == "training"]
    assert [line["round"] for line in lines] == list(range(1, 13))
    assert {11, 12} >= {line["contributors"] for line in lines} >= {11}
