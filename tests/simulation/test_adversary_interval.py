"""An adversary that looks every few rounds makes as much longer a step; between its looks nobody is evaluated."""

import numpy as np
import pytest

from fedfair.aggregation.requests import GlobalModel
from fedfair.fairness.record_losses import SiteLosses
from fedfair.fairness.simplex import project_on_simplex
from fedfair.ids import RoundNumber
from fedfair.simulation.baselines.afl import AgnosticFederatedLearning
from fedfair.simulation.baselines.cohort_queries import Algorithm
from fedfair.simulation.baselines.fedminmax import MinimaxOverGroups
from fedfair.simulation.centralised.bpf import BlindParetoFairness
from fedfair.simulation.centralised.dro import WorstReweighting, cvar_weights
from fedfair.simulation.clients import LoopClients
from tests import bc10

RATE = 0.7


class CountingCohort(LoopClients):
    """A cohort that counts how often somebody asks for losses."""

    asked = 0

    def losses(self, model: GlobalModel, splits: object = ("train",)) -> list[SiteLosses]:
        self.asked += 1
        return super().losses(model, splits)  # type: ignore[arg-type]  # the caller's words are passed on


def cohort(parts: bc10.Parts) -> CountingCohort:
    federation = bc10.Federation(bc10.plan(len(parts), algorithm="fedavg"), bc10.sites(parts))
    return CountingCohort({task.participant: task for task in federation.tasks})


def start() -> GlobalModel:
    return GlobalModel(np.linspace(-0.1, 0.1, 22), 1.0)


def played(algorithm: Algorithm, everybody: CountingCohort, rounds: int) -> GlobalModel:
    model = start()
    for number in range(1, rounds + 1):
        model = algorithm.round(everybody, model, RoundNumber(number))
    return model


def test_an_interval_of_three_makes_one_triple_step_in_three_rounds() -> None:
    thirds = cohort(bc10.random_thirds())
    algorithm = AgnosticFederatedLearning(RATE, interval=3)
    played(algorithm, thirds, 3)
    first = np.array([site["train"].values.mean() for site in thirds.losses(start())])
    expected = project_on_simplex(thirds.counts / thirds.counts.sum() + 3 * RATE * first)
    np.testing.assert_allclose(algorithm.weights, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("interval", "looks"), [(1, 6), (2, 3), (4, 2), (6, 1)])
@pytest.mark.parametrize("name", ["afl", "fedminmax", "dro", "bpf"])
def test_nobody_is_evaluated_between_two_looks(name: str, interval: int, looks: int) -> None:
    everybody = cohort(bc10.everybody())
    makers = {
        "afl": lambda: AgnosticFederatedLearning(RATE, interval),
        "fedminmax": lambda: MinimaxOverGroups([bc10.dataset().labels], RATE, interval),
        "dro": lambda: WorstReweighting(cvar_weights, 0.3, interval),
        "bpf": lambda: BlindParetoFairness(0.3, 0.05, RATE, interval),
    }
    played(makers[name](), everybody, 6)
    assert everybody.asked == looks
