"""Where one algorithm is another: one collaborator, the ends of an option, and what every adversary keeps to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedfair.aggregation.requests import GlobalModel
from fedfair.errors import PlanError
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.simulation.baselines.afl import AgnosticFederatedLearning
from fedfair.simulation.baselines.drfa import RobustFederatedAveraging
from fedfair.simulation.baselines.fedmgda import CommonDescent
from fedfair.simulation.baselines.fedminmax import MinimaxOverGroups, group_names, groups_of
from fedfair.simulation.centralised.bpf import BlindParetoFairness
from fedfair.simulation.clients import AskedSteps
from fedfair.tables.dataset import Dataset
from tests import bc10
from tests.oracles.erm import descend_mean
from tests.simulation import algorithm_runs as runs
from tests.simulation import slow_algorithms as slow

torch.set_num_threads(1)

ROUNDING = 1e-12
"""Of twenty rounds, each of which rounds parameters of order one a few times."""


def averaged(rounds: int, **training: object) -> list[runs.Vector]:
    """Return FedAvg's models, by the training run's own sums, after each round."""
    plans = [bc10.plan(3, algorithm="fedavg", rounds=number + 1, **training) for number in range(rounds)]
    return [bc10.final_model(plan, bc10.random_thirds()).vector for plan in plans]


@pytest.mark.parametrize(
    ("name", "options"),
    [("qffl", {"loss_power": 0.0}), ("deltafl", {"worst_share": 1.0})],
    ids=["qffl", "deltafl"],
)
def test_at_the_end_of_its_option_it_is_fedavg(name: str, options: dict[str, float]) -> None:
    work = {"local_steps": 3, "batch_size": 16}
    found = runs.models_after(bc10.plan(3, algorithm=name, options=options, **work), bc10.random_thirds(), 5)
    np.testing.assert_allclose(found, averaged(5, **work), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("name", ["afl", "drfa", "deltafl", "fedminmax", "dro", "bpf"])
def test_with_one_collaborator_and_nobody_to_prefer_it_is_gradient_descent(name: str) -> None:
    objective = {"worst_group_size": 1.0} if name in {"dro", "bpf"} else {}
    plan = bc10.plan(1, objective=objective, algorithm=name, learning_rate=0.5)
    algorithm = runs.chosen(plan, bc10.everybody())
    if name == "fedminmax":
        algorithm = MinimaxOverGroups([np.zeros(len(bc10.dataset()), np.int64)], 0.3)
    *_, (_, last) = runs.play_on(runs.cohort_of(plan, bc10.everybody()), algorithm, 20)
    model = bc10.Federation(bc10.plan(1), bc10.sites(bc10.everybody())).flat
    descend_mean(model, *bc10.pooled(), steps=20, learning_rate=0.5)
    np.testing.assert_allclose(last.vector, model.vector(), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("local_steps", [1, 4])
def test_local_bpf_with_one_collaborator_is_fedsrcvar(local_steps: int) -> None:
    work = {"local_steps": local_steps, "batch_size": 64, "rounds": 20}
    local = runs.rounds_of(bc10.plan(1, algorithm="localbpf", **work), bc10.everybody(), 20)[-1]
    fair = bc10.final_model(bc10.plan(1, **work), bc10.everybody())
    np.testing.assert_allclose(local.vector, fair.vector, rtol=0, atol=ROUNDING)
    assert local.threshold == pytest.approx(fair.threshold, abs=ROUNDING)


def test_fedmgda_without_a_range_keeps_the_shares_of_the_records() -> None:
    plan = bc10.plan(3, algorithm="fedmgda", options={"weight_range": 0.0})
    start = GlobalModel(np.zeros(22), 1.0)
    cohort = runs.cohort_of(plan, slow.thirds())
    after = CommonDescent(0.0, lambda _: 0.1).round(cohort, start, runs.RoundNumber(1))
    changes = cohort.changes(start, AskedSteps(runs.RoundNumber(1)))
    expected = slow.masses(slow.thirds()) @ (changes / np.linalg.norm(changes, axis=1, keepdims=True))
    np.testing.assert_allclose(after.vector, 0.1 * expected, rtol=0, atol=1e-15)


def test_a_small_step_of_fedmgda_harms_no_collaborator() -> None:
    plan = bc10.plan(3, algorithm="fedmgda", options={"server_learning_rate": 0.01})
    cohort = runs.cohort_of(plan, slow.thirds())
    for before, after in runs.play_on(cohort, runs.chosen(plan, slow.thirds()), 15):
        pairs = zip(runs.site_means(cohort, before), runs.site_means(cohort, after), strict=True)
        assert all(later < earlier for earlier, later in pairs)


def test_the_first_weights_are_the_shares_and_all_weights_stay_on_the_simplex() -> None:
    first = bc10.dataset().features[:, 0]
    groups = [(first[part] > 0).astype(np.int64) for part in bc10.random_thirds()]
    for name, algorithm in {
        "afl": AgnosticFederatedLearning(3.0),
        "drfa": RobustFederatedAveraging(3.0, 1, 2, seed=4),
        "fedminmax": MinimaxOverGroups(groups, 3.0),
    }.items():
        plan = bc10.plan(3, algorithm=name)
        cohort = runs.cohort_of(plan, bc10.random_thirds())
        for before, after in runs.play_on(cohort, algorithm, 10):
            if name != "drfa" and not before.vector.any():
                np.testing.assert_allclose(after.vector, averaged(1)[0], rtol=0, atol=1e-15)
            assert algorithm.weights is not None
            assert (algorithm.weights >= 0).all()
            assert algorithm.weights.sum() == pytest.approx(1.0, abs=1e-14)


def test_the_weights_of_bpf_stay_within_their_limits_and_keep_their_mean() -> None:
    plan = bc10.plan(3, algorithm="bpf")
    algorithm = BlindParetoFairness(group_size=0.3, floor=0.05, learning_rate=2.0)
    for _ in runs.play_on(runs.cohort_of(plan, slow.thirds()), algorithm, 10):
        assert algorithm.weights is not None
        assert algorithm.weights.min() >= 0.05
        assert algorithm.weights.max() <= 1.0
        assert algorithm.weights.mean() == pytest.approx(0.3, abs=1e-14)


@pytest.mark.parametrize("name", [n for n, facts in ALGORITHMS.items() if not facts.deployed and n != "erm"])
def test_a_round_keeps_the_width_of_the_model_and_leaves_the_broadcast_alone(name: str) -> None:
    plan = bc10.plan(3, algorithm=name, precision="fp32", batch_size=32)
    model = GlobalModel(np.full(22, 0.01, np.float32), 0.5)
    cohort = runs.cohort_of(plan, bc10.random_thirds())
    after = runs.chosen(plan, bc10.random_thirds()).round(cohort, model, runs.RoundNumber(1))
    assert after.vector.dtype == np.float32
    assert np.isfinite(after.vector).all()
    assert not np.array_equal(after.vector, model.vector)
    assert (model.vector == np.float32(0.01)).all()
    assert model.threshold == 0.5


@pytest.mark.parametrize("name", ["afl", "drfa", "fedminmax", "qffl", "deltafl", "fedmgda", "localbpf"])
def test_a_collaborator_without_training_records_plays_no_part(name: str) -> None:
    with_nothing = [*bc10.random_thirds(), np.arange(0)]
    found = runs.models_after(bc10.plan(4, algorithm=name), with_nothing, 3)
    np.testing.assert_array_equal(found, runs.models_after(bc10.plan(3, algorithm=name), bc10.random_thirds(), 3))


def with_column(values: list[str]) -> Dataset:
    data = bc10.dataset().take(np.arange(len(values)))
    return Dataset(data.features, data.labels, data.schema, {"sex": np.array(values)})


def test_groups_have_the_same_number_at_every_collaborator() -> None:
    groups = groups_of([with_column(["f", "m", "f"]), with_column(["m"]), with_column(["x", "f"])], "sex")
    assert [group.tolist() for group in groups] == [[0, 1, 0], [1], [2, 0]]


def test_without_a_column_the_labels_are_the_groups() -> None:
    groups = groups_of([bc10.dataset().take(part) for part in bc10.by_class()], None)
    assert [np.unique(group).tolist() for group in groups] == [[0], [1]]


def test_a_column_that_nobody_keeps_is_named_with_those_that_are_kept() -> None:
    with pytest.raises(PlanError, match="no column 'race'") as caught:
        groups_of([with_column(["f"])], "race")
    assert caught.value.remedy == "name one of sex"
    with pytest.raises(PlanError, match="no column 'sex'") as caught:
        groups_of([bc10.dataset()], "sex")
    assert "leave it null" in caught.value.remedy


def test_a_group_is_one_however_sites_write_its_number() -> None:
    written = np.array(["1", "1.0", "0", "0.00", "female", "", "1e0", "10"])
    assert group_names(written).tolist() == ["1", "1", "0", "0", "female", "", "1", "10"]
