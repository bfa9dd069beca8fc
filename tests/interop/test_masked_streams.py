"""Whole federations over real sockets whose sums are masked: the same model, whoever drops out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from federation_kit import Federation, metrics, model_files_agree, play, small_plan

from fedfair.cli.loopback import prepare
from fedfair.learning.masked_sums import session_terms
from fedfair.plan.source import load_plan

FIVE = ("clinic-a", "clinic-b", "clinic-c", "clinic-d", "clinic-e")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def fixed_point_bound(plan_file: Path) -> float:
    """Return how far the masked model may be from the simulated one after all rounds.

    One mean is off by less than e = n C W 2^-f / (sum of w) in every coordinate, f = floor(log2((2^31 - 1) / n)),
    with 569 training records as weights. Each local step of a convex, smooth objective with a step below 2 / L
    moves two models no further apart than they were, and a mean of such maps neither, so the errors of T rounds at
    most add up, in the Euclidean norm: T sqrt(d + 1) e, which bounds every coordinate too.
    """
    plan = load_plan(plan_file)
    terms, count = session_terms(plan), len(plan.federation.collaborators)
    bits = ((2**31 - 1) // count).bit_length() - 1
    error = count * 1.0 * terms.greatest_weight * 2.0**-bits / 569
    parameters = 2 * 30 + 2
    return plan.training.rounds * (parameters + 1) ** 0.5 * error


@pytest.mark.parametrize("names", [FIVE[:3], FIVE])
@pytest.mark.parametrize("mode", ["malicious", "semi-honest"])
def test_a_masked_run_gives_the_model_of_the_simulation(tmp_path: Path, names: tuple[str, ...], mode: str) -> None:
    plan = small_plan(rounds=20, protection={"mode": mode, "most_records": 512}, names=names)
    workspace = prepare(tmp_path, plan)

    async def everybody(federation: Federation) -> None:
        endings = await asyncio.gather(*(federation.take_part(name) for name in workspace.collaborators))
        assert {ending.rounds for ending in endings} == {20}

    assert play(workspace, everybody).state.value == "finished"
    bound = fixed_point_bound(workspace.plan)
    assert bound < 2e-3
    model_files_agree(workspace, bound)
    lines = metrics(workspace)
    assert [line["purpose"] for line in lines[:3]] == ["standardisation", "evaluation", "training"]
    assert {line["contributors"] for line in lines} == {len(names)}
