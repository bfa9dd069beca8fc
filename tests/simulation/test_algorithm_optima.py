"""Every convex method against the optimum of its own objective, which a convex solver has found.

What a method provably comes down to is derived, not measured: see `algorithm_runs.reached_by`.
"""

import numpy as np
import pytest

from fedfair.aggregation.requests import GlobalModel
from fedfair.fairness.cvar import cvar, rcvar
from fedfair.fairness.theory import bpf_of_rcvar
from fedfair.ids import RoundNumber
from fedfair.plan.schema import Plan
from fedfair.simulation.baselines.fedminmax import MinimaxOverGroups
from fedfair.simulation.centralised.dro import chi_square_weights
from fedfair.simulation.clients import AskedSteps, Clients
from tests import bc10
from tests.simulation import algorithm_runs as runs
from tests.simulation import slow_algorithms as slow

ROUNDS, RATE, ADVERSARY_RATE = 100, 0.5, 0.3
THIRDS = slow.thirds()
SOLVED = 1e-6
"""The solver's values are that near the optima, by its own duality gap and by another solution of two of them."""


def plan_for(name: str, objective: dict[str, object] | None = None, **options: object) -> Plan:
    return bc10.plan(3, objective=objective, algorithm=name, learning_rate=RATE, options=options)


def losses_at(vector: runs.Vector, cohort: Clients) -> list[runs.Vector]:
    return [site["train"].values for site in cohort.losses(GlobalModel(vector, 1.0))]


def ascent(gains: list[float], distance: float, rate: float) -> float:
    """Return the regret of an adversary who ascends by `rate` and starts `distance` from its best answer.

    As for the learner: distance^2 / (2 eta T) + eta / (2 T) sum |gradient|^2.
    """
    return distance**2 / (2.0 * rate * len(gains)) + rate * float(np.mean(gains)) / 2.0


def test_afl_comes_down_to_the_best_worst_collaborator() -> None:
    plan = plan_for("afl", adversary_learning_rate=ADVERSARY_RATE)
    cohort, path, gains = runs.cohort_of(plan, THIRDS), [np.zeros(22)], []
    for before, after in runs.play_on(cohort, runs.chosen(plan, THIRDS), ROUNDS):
        path.append(after.vector)
        gains.append(sum(mean**2 for mean in runs.site_means(cohort, before)))
    worst = max(values.mean() for values in losses_at(np.mean(path[:-1], axis=0), cohort))
    # Two points of the simplex are at most sqrt(2) apart.
    bound = runs.reached_by("afl", RATE, path, ascent(gains, np.sqrt(2), ADVERSARY_RATE))
    assert runs.OPTIMA["afl"]["objective"] - SOLVED <= worst <= bound
    # The best mean leaves one collaborator worse off.
    assert worst < max(runs.OPTIMA["mean"]["site_means"])


def test_fedminmax_comes_down_to_the_best_worst_group() -> None:
    outer = bc10.dataset().features[:, 0] <= 0
    algorithm = MinimaxOverGroups([outer[part].astype(np.int64) for part in THIRDS], ADVERSARY_RATE)
    plan = plan_for("fedminmax")
    cohort, path, gains = runs.cohort_of(plan, THIRDS), [np.zeros(22)], []
    for before, after in runs.play_on(cohort, algorithm, ROUNDS):
        path.append(after.vector)
        values = np.concatenate(losses_at(before.vector, cohort))
        gains.append(values[outer].mean() ** 2 + values[~outer].mean() ** 2)
    values = np.concatenate(losses_at(np.mean(path[:-1], axis=0), cohort))
    bound = runs.reached_by("fedminmax", RATE, path, ascent(gains, np.sqrt(2), ADVERSARY_RATE))
    worst = max(values[outer].mean(), values[~outer].mean())
    assert runs.OPTIMA["fedminmax"]["objective"] - SOLVED <= worst <= bound


def test_qffl_comes_down_to_the_least_mean_square_of_the_collaborators_losses() -> None:
    plan = plan_for("qffl", loss_power=1.0)
    cohort, share, lengths = runs.cohort_of(plan, THIRDS), slow.masses(THIRDS), 0.0
    for number, (before, after) in enumerate(runs.play_on(cohort, runs.chosen(plan, THIRDS), ROUNDS), start=1):
        risks = np.array(runs.site_means(cohort, before))
        gradients = -cohort.changes(before, AskedSteps(RoundNumber(number))) / RATE
        slope = (share * risks) @ gradients
        step = float(np.linalg.norm(after.vector - before.vector) / np.linalg.norm(slope))
        value, lower = (float(share @ np.square(runs.site_means(cohort, m))) / 2 for m in (before, after))
        # The step is short enough for the descent lemma, f(theta+) <= f(theta) - step / 2 |gradient|^2.
        assert lower <= value - step / 2.0 * float(slope @ slope) + 1e-15
        lengths += step
    # Summed up, with f falling: f(theta) - f(u) <= |theta^1 - u|^2 / (2 sum of steps), for every u.
    optimum = runs.OPTIMA["qffl_1"]
    bound = min(best + float(radius) ** 2 / (2.0 * lengths) for radius, best in optimum["within"].items())
    assert optimum["objective"] - SOLVED <= lower <= bound


@pytest.mark.parametrize("form", ["cvar", "chi2"])
def test_dro_comes_down_to_the_robust_risk(form: str) -> None:
    rho = {"cvar": 0.3, "chi2": 0.8}[form]
    plan = plan_for("dro", {"worst_group_size": rho}, divergence=form)
    path = [np.zeros(22), *runs.models_after(plan, THIRDS, ROUNDS)]
    values = np.concatenate(losses_at(np.mean(path[:-1], axis=0), runs.cohort_of(plan, THIRDS)))
    value = cvar(values, rho) if form == "cvar" else float((chi_square_weights(values, rho) * values).mean())
    name = f"dro_{form}_{rho}"
    assert runs.OPTIMA[name]["objective"] - SOLVED <= value <= runs.reached_by(name, RATE, path)


def test_bpf_by_its_projected_adversary_comes_down_to_the_rcvar_that_it_equals() -> None:
    rho, eps, rate = 0.3, 0.1, 0.05
    plan = plan_for("bpf", adversary_learning_rate=rate)
    group_size, floor = bpf_of_rcvar(rho, eps)
    cohort, path, gains = runs.cohort_of(plan, THIRDS), [np.zeros(22)], []
    for before, after in runs.play_on(cohort, runs.chosen(plan, THIRDS), ROUNDS):
        path.append(after.vector)
        gains.append(float((np.concatenate(losses_at(before.vector, cohort)) ** 2).sum()))
    values = np.concatenate(losses_at(np.mean(path[:-1], axis=0), cohort))
    # The payoff is w @ l / (n rho), so the adversary's step in it is eta n rho long and its gradient l / (n
    # rho). The worst answer has a share q of ones, q + (1 - q) floor = rho, and the rest at the floor, which
    # gives its distance.
    scale, picked = len(values) * group_size, (group_size - floor) / (1.0 - floor)
    distance = np.sqrt(
        len(values) * (picked * (1.0 - group_size) ** 2 + (1.0 - picked) * (group_size - floor) ** 2)
    )
    regret = ascent([gain / scale**2 for gain in gains], distance, rate * scale)
    value = rcvar(values, rho, eps)
    bound = runs.reached_by("rcvar_0.3_0.1", RATE, path, regret)
    assert runs.OPTIMA["rcvar_0.3_0.1"]["objective"] - SOLVED <= value <= bound
    # An independent solver has met this optimum before.
    met = next(found for found in bc10.ORACLE["optima"] if (found["rho"], found["eps"]) == (rho, eps))
    assert runs.OPTIMA["rcvar_0.3_0.1"]["objective"] == pytest.approx(met["objective"], abs=SOLVED)


def test_deltafl_and_erm_come_down_to_the_superquantile_and_to_the_mean() -> None:
    plan = plan_for("deltafl", worst_share=0.5)
    cohort = runs.cohort_of(plan, THIRDS)
    path = [np.zeros(22), *runs.models_after(plan, THIRDS, ROUNDS)]
    means = np.array([values.mean() for values in losses_at(np.mean(path[:-1], axis=0), cohort)])
    value = float(slow.tail(means, slow.masses(THIRDS), 0.5) @ means)
    optimum = runs.OPTIMA["deltafl_0.5"]["objective"]
    assert optimum - SOLVED <= value <= runs.reached_by("deltafl_0.5", RATE, path)
    plan = bc10.plan(1, algorithm="erm", learning_rate=RATE, rounds=ROUNDS)
    federation = bc10.Federation(plan, bc10.sites(bc10.everybody()))
    federation.run()
    optimum = runs.OPTIMA["mean"]
    # Gradient descent on a convex function whose values fall (Nesterov 2004, Corollary 2.1.2).
    bound = min(best + float(radius) ** 2 / (2 * RATE * ROUNDS) for radius, best in optimum["within"].items())
    assert optimum["objective"] - SOLVED <= federation.losses().mean() <= bound
