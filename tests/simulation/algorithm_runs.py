"""Running one algorithm over bc10, round by round, for the tests beside it."""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.requests import GlobalModel
from fedfair.ids import RoundNumber
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.schema import Plan
from fedfair.run.rules import RunRules
from fedfair.simulation.baselines.cohort_queries import Algorithm
from fedfair.simulation.baselines.registry import algorithm_of
from fedfair.simulation.centralised.pooled import POOLED, PooledClients, pool
from fedfair.simulation.clients import Clients, LoopClients
from fedfair.simulation.cohort import simulated_memories
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Splits
from fedfair.training.client import TrainingClient
from tests import bc10

Vector = NDArray[np.float64]

OPTIMA = json.loads((Path(__file__).parents[1] / "vectors" / "algorithms_bc10.json").read_text())["optima"]


def cohort_of(plan: Plan, parts: bc10.Parts) -> Clients:
    """Return every site, each with its part of bc10; for a centralised reference, with all of it in one place."""
    members = bc10.sites(parts)
    federation = bc10.Federation(plan, members)
    memories = simulated_memories(plan, federation.flat.layout, members)
    cohort = LoopClients({task.participant: task for task in federation.tasks}, memories=memories)
    if not ALGORITHMS[plan.training.algorithm].centralised:
        return cohort
    everything = Splits(pool(splits.train for splits in members.values()))
    return PooledClients(cohort, LoopClients({POOLED: TrainingClient(plan, POOLED, everything, federation.flat)}))


def play_on(cohort: Clients, algorithm: Algorithm, rounds: int) -> Iterator[tuple[GlobalModel, GlobalModel]]:
    """Yield the models before and after each round, from zero and a threshold of 1."""
    model = GlobalModel(np.zeros(22), 1.0)
    for number in range(1, rounds + 1):
        after = algorithm.round(cohort, model, RoundNumber(number))
        yield model, after
        model = after


class SummedRounds:
    """The rounds of an algorithm whose round is one sum: by the rules of every run of a plan.

    Args:
        plan: the plan, at rates that do not depend on how many rounds it has.
    """

    def __init__(self, plan: Plan) -> None:
        assert plan.training.schedule == "constant"
        layout = bc10.Federation(plan, bc10.sites(bc10.random_thirds())).flat.layout
        plan = plan.model_copy(update={"training": plan.training.model_copy(update={"rounds": 10_000})})
        self._rules = RunRules(plan, layout, bc10.dataset().schema)
        self._state = self._rules.initial(np.zeros(layout.dimension))

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Return the model after the sum over all sites that the state asks for."""
        rounds_done = RoundNumber(number - 1)
        due = replace(self._state, stage=Purpose.TRAINING, rounds_done=rounds_done, model=model)
        request = self._rules.next_request(due)
        assert request is not None
        self._state = self._rules.step(due, cohort.totals(request, model), cohort.names).state
        return self._state.model


def chosen(plan: Plan, parts: bc10.Parts) -> Algorithm:
    """Return the algorithm that a plan names."""
    found = algorithm_of(plan, bc10.sites(parts))
    if found is None:
        return SummedRounds(plan)
    return found


def rounds_of(plan: Plan, parts: bc10.Parts, rounds: int) -> list[GlobalModel]:
    """Return the models and thresholds after each of some rounds."""
    return [after for _, after in play_on(cohort_of(plan, parts), chosen(plan, parts), rounds)]


def models_after(plan: Plan, parts: bc10.Parts, rounds: int) -> list[Vector]:
    """Return the models after each of some rounds."""
    return [after.vector for after in rounds_of(plan, parts, rounds)]


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
        value + (float(radius) ** 2 + steps) / (2.0 * learning_rate * rounds) + rest
        for radius, value in OPTIMA[name]["within"].items()
    )


def site_means(cohort: Clients, model: GlobalModel) -> list[float]:
    """Return the mean training loss of each collaborator."""
    return [float(site["train"].values.mean()) for site in cohort.losses(model)]
