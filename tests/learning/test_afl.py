"""AFL against its paper, written slowly, and against the convex optimum of the worst collaborator."""

from __future__ import annotations

import bc10
import numpy as np
import pytest
import torch

from fedfair.learning.algorithms.afl import AgnosticFederatedLearning
from fedfair.learning.centralised.erm import descend_mean
from tests.learning import algorithm_runs as runs
from tests.learning import slow_algorithms as slow

torch.set_num_threads(1)


def test_the_trajectory_is_that_of_the_slow_version() -> None:
    plan = bc10.plan(3, algorithm="afl", learning_rate=0.5, options={"adversary_learning_rate": 0.3})
    found = runs.models_after(plan, slow.thirds(), 8)
    # Sums of a few hundred terms of order one, in double precision, over eight rounds.
    np.testing.assert_allclose(found, slow.afl(slow.thirds(), 8, 0.5, 0.3), rtol=0, atol=1e-12)


def test_the_first_weights_are_the_shares_of_the_records_and_all_weights_stay_on_the_simplex() -> None:
    plan = bc10.plan(3, algorithm="afl")
    algorithm = AgnosticFederatedLearning(learning_rate=3.0)
    cohort = runs.cohort_of(plan, bc10.random_thirds())
    for before, after in runs.play_on(plan, cohort, algorithm, 10):
        if not before.vector.any():
            mean = bc10.final_model(bc10.plan(3, algorithm="fedavg", rounds=1), bc10.random_thirds())
            np.testing.assert_allclose(after.vector, mean.vector, rtol=0, atol=1e-15)
        assert algorithm.weights is not None
        assert (algorithm.weights >= 0).all()
        assert algorithm.weights.sum() == pytest.approx(1.0, abs=1e-15)


def test_with_one_collaborator_it_is_gradient_descent() -> None:
    found = runs.models_after(bc10.plan(1, algorithm="afl", learning_rate=0.5), bc10.everybody(), 20)
    model = bc10.Federation(bc10.plan(1), bc10.sites(bc10.everybody())).flat
    descend_mean(model, *bc10.pooled(), steps=20, learning_rate=0.5)
    np.testing.assert_allclose(found[-1], model.vector(), rtol=0, atol=1e-13)


def test_a_collaborator_without_training_records_plays_no_part() -> None:
    with_nothing = [*bc10.random_thirds(), np.arange(0)]
    found = runs.models_after(bc10.plan(4, algorithm="afl"), with_nothing, 3)
    np.testing.assert_array_equal(found, runs.models_after(bc10.plan(3, algorithm="afl"), bc10.random_thirds(), 3))


def test_the_mean_model_comes_as_near_the_best_worst_collaborator_as_the_theory_says() -> None:
    rounds, rate, adversary_rate, parts = 600, 0.5, 0.3, slow.thirds()
    plan = bc10.plan(3, algorithm="afl", learning_rate=rate, options={"adversary_learning_rate": adversary_rate})
    cohort = runs.cohort_of(plan, parts)
    path, gains = [np.zeros(22)], 0.0
    for before, after in runs.play_on(plan, cohort, runs.chosen(plan), rounds):
        path.append(after.vector)
        gains += sum(float(slow_mean) ** 2 for slow_mean in runs.site_means(cohort, before))
    mean = np.mean(path[:-1], axis=0)
    worst = max(slow.losses(mean, part).mean() for part in parts)
    # The adversary's regret against any lambda, at most sqrt(2) away: |lambda - lambda^1|^2 / (2 eta T) and so on.
    regret = 1.0 / (adversary_rate * rounds) + adversary_rate * gains / (2.0 * rounds)
    optimum = runs.OPTIMA["afl"]["objective"]
    bound = runs.reached_by("afl", rate, path, regret)
    assert optimum - 1e-7 <= worst <= bound
    # The best mean leaves one collaborator worse off.
    assert worst < max(runs.OPTIMA["mean"]["site_means"])
