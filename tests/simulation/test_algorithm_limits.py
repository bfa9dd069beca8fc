"""Where one algorithm is another: one collaborator, the ends of an option, and what every adversary keeps to."""

import numpy as np
import pytest

from fedfair.aggregation.requests import GlobalModel
from fedfair.errors import PlanError
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.simulation.baselines.fedminmax import group_names, groups_of
from fedfair.simulation.centralised.bpf import BlindParetoFairness
from fedfair.tables.dataset import Dataset
from tests import bc10
from tests.simulation import algorithm_runs as runs
from tests.simulation import slow_algorithms as slow


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


def test_groups_are_labels_or_a_column_and_the_same_everywhere() -> None:
    groups = groups_of([with_column(["f", "m", "f"]), with_column(["m"]), with_column(["x", "f"])], "sex")
    assert [group.tolist() for group in groups] == [[0, 1, 0], [1], [2, 0]]
    groups = groups_of([bc10.dataset().take(part) for part in bc10.by_class()], None)
    assert [np.unique(group).tolist() for group in groups] == [[0], [1]]
    with pytest.raises(PlanError, match="no column 'race'") as caught:
        groups_of([with_column(["f"])], "race")
    assert caught.value.remedy == "name one of sex"
    with pytest.raises(PlanError, match="no column 'sex'") as caught:
        groups_of([bc10.dataset()], "sex")
    assert "leave it null" in caught.value.remedy
    written = np.array(["1", "1.0", "0", "0.00", "female", "", "1e0", "10"])
    assert group_names(written).tolist() == ["1", "1", "0", "0", "female", "", "1", "10"]
