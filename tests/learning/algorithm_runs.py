"""Running one algorithm over bc10, round by round, for the tests beside it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import bc10
import numpy as np
from numpy.typing import NDArray

from fedfair.ids import RoundNumber
from fedfair.learning.algorithms.algorithm import Algorithm
from fedfair.learning.algorithms.choice import algorithm_of
from fedfair.learning.cohort import Cohort, LoopCohort
from fedfair.learning.exchange import GlobalModel
from fedfair.plan.schema import Plan

Vector = NDArray[np.float64]

OPTIMA = json.loads((Path(__file__).parents[1] / "vectors" / "algorithms_bc10.json").read_text())["optima"]


def cohort_of(plan: Plan, parts: bc10.Parts) -> LoopCohort:
    """Return everybody, each with its part of bc10."""
    return LoopCohort({task.participant: task for task in bc10.Federation(plan, bc10.sites(parts)).tasks})


def play_on(
    plan: Plan, cohort: Cohort, algorithm: Algorithm, rounds: int
) -> Iterator[tuple[GlobalModel, GlobalModel]]:
    """Yield the models before and after each round, from zero."""
    model = GlobalModel(np.zeros(22), 1.0 if isinstance(plan.training.threshold_init, str) else 0.5)
    for number in range(1, rounds + 1):
        after = algorithm.round(cohort, model, RoundNumber(number))
        yield model, after
        model = after


def chosen(plan: Plan) -> Algorithm:
    """Return the algorithm that a plan names."""
    found = algorithm_of(plan)
    assert found is not None
    return found


def models_after(plan: Plan, parts: bc10.Parts, rounds: int) -> list[Vector]:
    """Return the models after each of some rounds."""
    played = play_on(plan, cohort_of(plan, parts), chosen(plan), rounds)
    return [after.vector.copy() for _, after in played]


def reached_by(name: str, learning_rate: float, path: Sequence[Vector], rest: float = 0.0) -> float:
    """Return the most that the mean of a path's models may come to, on the objective `name`.

    Subgradient descent from theta^1 with steps eta g_t satisfies, for every u and convex f (Zinkevich 2003),

        f(mean of theta^t) - f(u) <= |theta^1 - u|^2 / (2 eta T) + eta / (2 T) sum |g_t|^2,

    and u is the best model of a ball of radius R around theta^1 = 0, which the oracle knows for some R.

    Args:
        name: of the objective in the oracle.
        learning_rate: eta.
        path: theta^1 to theta^(T+1).
        rest: what an adversary's own regret adds.
    """
    rounds = len(path) - 1
    steps = sum(float(((after - before) ** 2).sum()) for before, after in itertools.pairwise(path))
    return min(
        value + float(radius) ** 2 / (2.0 * learning_rate * rounds) + steps / (2.0 * learning_rate * rounds) + rest
        for radius, value in OPTIMA[name]["within"].items()
    )


def site_means(cohort: Cohort, model: GlobalModel) -> list[float]:
    """Return the mean training loss of each collaborator."""
    return [float(site["train"].values.mean()) for site in cohort.losses(model)]
