"""The simulations of `fedfair demo`: every method over all draws of held-out patients, in one process.

One of them is that of the deployed run, plan for plan: its model must be the same but for what masks round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedfair.aggregation.model_file import load
from fedfair.cli.demo_plans import FOLDS, HOSPITALS, SEEDS, DemoMethod, plan_of
from fedfair.cli.demo_table import Draw
from fedfair.fairness.record_losses import Losses
from fedfair.ids import ParticipantId
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.results.reading import read_result
from fedfair.simulation.simulate import SimulationOutcome, simulate


@dataclass(frozen=True, slots=True)
class Apart:
    """By how much a deployed run differs from its simulation.

    Attributes:
        parameters: how many numbers a model has.
        parameter: the largest difference of one of them.
        mean: that of the mean loss of held-out patients.
    """

    parameters: int
    parameter: float
    mean: float


def simulations(folder: Path, method: DemoMethod, tick: Callable[[], None]) -> tuple[list[Draw], Apart]:
    """Return how the models of a method serve the patients of every draw, and how the deployed one differs.

    Args:
        folder: the workspace of its deployed run, which is over.
        method: how it trains.
        tick: called after every simulation.
    """
    deployed, outcomes = load_plan(folder / "plan" / "plan.yaml"), []
    others = [Plan.model_validate(plan_of(method, seed, fold)) for seed in SEEDS for fold in range(1, FOLDS + 1)]
    for plan in (deployed, *others[1:]):
        outcomes.append(simulate(plan, folder))
        tick()
    draws = [_draw(outcomes[first : first + FOLDS]) for first in range(0, len(outcomes), FOLDS)]
    return draws, _apart(folder, outcomes[0])


def _draw(parts: Sequence[SimulationOutcome]) -> Draw:
    """Return the losses of every hospital's patients, each from the part in which they are held out."""
    return {
        shown: Losses.joined([part.losses[ParticipantId(name)]["test"] for part in parts])
        for name, shown in HOSPITALS.items()
    }


def _apart(folder: Path, same: SimulationOutcome) -> Apart:
    _, vector, _ = load(folder / "save" / "last.safetensors")
    deployed = read_result(folder / "result.json")
    return Apart(
        vector.size,
        float(np.abs(vector - same.model.vector).max()),
        abs(deployed.shown[1].mean - same.result.shown[1].mean),
    )
