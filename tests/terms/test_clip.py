"""The clip of masked sums: one rule and one meaning for a deployment and for both engines of a simulation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.requests import GlobalModel
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import TrainingError
from fedfair.ids import ParticipantId
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.plan.simulated_clip import clips_in_simulation
from fedfair.privacy.releases import ReleaseLog
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.fixedpoint import clipped_values, size_histogram
from fedfair.simulation.cohort import cohort_of
from fedfair.simulation.simulate import simulate_sites
from fedfair.simulation.vectorised import clipping as clipping_module
from fedfair.simulation.vectorised.clipping import ChangeClipping
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset, Splits
from fedfair.terms.clip.state import ClipRule, clip_rule
from fedfair.training.assembly import flat_model

torch.set_num_threads(1)

COUNTS = {"clinic-a": 12, "clinic-b": 0, "clinic-c": 7, "clinic-d": 30}
SIZES = st.lists(st.integers(0, 5), min_size=32, max_size=32)


def plan_of(changes: dict[str, object] | None = None, **training: object) -> Plan:
    return Plan.model_validate(
        {
            "federation": {"name": "test", "collaborators": list(COUNTS)},
            "task": {"data": "breast-cancer", "model": {"name": "linear"}, "standardize": "none"},
            "objective": {"measure": "loss", "worst_group_size": 0.3, "tradeoff": 0.1},
            "training": {
                "rounds": 4,
                "threshold_init": "bound",
                "batch_size": 8,
                "learning_rate": 2.0,
                "schedule": "constant",
                "server_optimizer": {"name": "sgd"},
                "output": "last",
                "precision": "fp64",
                **training,
            },
            "evaluation": {"every": 2, "group_sizes": [0.3], "bins": 16},
        }
        | (changes or {})
    )


def sites_of(scale: float = 1.0) -> dict[ParticipantId, Splits]:
    source, found = np.random.default_rng(0), {}
    for name, count in COUNTS.items():
        labels = source.integers(0, 2, count)
        features = scale * (source.normal(size=(count, 3)) + labels[:, None])
        found[ParticipantId(name)] = Splits(Dataset(features, labels, FeatureSchema((3,), 2, (0, 1, 2))))
    return found


def training_totals(plan: Plan, clip: float | None, *, vectorised: bool, scale: float = 1.0) -> Totals:
    """Return the total of round 1 from a model of zeros."""
    sites = sites_of(scale)
    schema = next(iter(sites.values())).train.schema
    model = flat_model(plan, schema, torch.device("cpu"), Path())
    logs = {name: ReleaseLog() for name in sites}
    cohort = cohort_of(plan, sites, model, logs, vectorised=vectorised)
    training_run = TrainingRun(plan, model.layout, schema, np.zeros(model.layout.dimension))
    while (request := training_run.next_sum()) is not None and request.purpose is not Purpose.TRAINING:
        training_run.apply_aggregate(cohort.totals(request, training_run.model))
    assert request is not None
    return cohort.totals(request, GlobalModel(training_run.model.vector, 0.1), clip)


@given(st.floats(2.0**-20, 2.0**10), st.floats(2.0**-20, 2.0**10), SIZES)
def test_a_clip_that_follows_is_four_times_the_largest_size_and_never_beyond_the_plans(
    first: float, greatest: float, sizes: list[int]
) -> None:
    rule = ClipRule(min(first, greatest), greatest, follows=True)
    found = rule.after(rule.first, sizes)
    assert 0 < found <= greatest
    reached = [position for position, count in enumerate(sizes) if count]
    assert found == (min(4 * 2.0 ** (reached[-1] - 20), greatest) if reached else rule.first)
    assert rule.after(found, ()) == found
    assert ClipRule(first, first, follows=False).after(first, sizes) == first


@pytest.mark.parametrize(
    ("stated", "rule"),
    [
        ({}, ClipRule(1.0, 1024.0, follows=True)),
        ({"max_clip": 0.5}, ClipRule(0.5, 0.5, follows=True)),
        ({"clip": 3.0}, ClipRule(3.0, 3.0, follows=False)),
    ],
)
def test_the_rule_of_a_plan_is_that_of_its_simulation(stated: dict[str, object], rule: ClipRule) -> None:
    plan = plan_of({"secure_aggregation": stated})
    assert clip_rule(plan) == rule
    assert clips_in_simulation(plan)


def test_nothing_is_clipped_in_a_simulation_of_what_no_masked_sum_carries() -> None:
    assert not clips_in_simulation(plan_of({"secure_aggregation": {"mode": "off"}}))
    noised = {"collaborator_level": {"noise_multiplier": 1.0, "clip": 1.0}}
    weights = {"weights": "uniform"}
    protected = plan_of({"privacy": noised, "secure_aggregation": {"ring_bits": 32}}, **weights)
    assert not clips_in_simulation(protected)
    for name, facts in ALGORITHMS.items():
        plan = plan_of()
        plan = plan.model_copy(update={"training": plan.training.model_copy(update={"algorithm": name})})
        assert clips_in_simulation(plan) is facts.deployed


@given(st.lists(st.lists(st.floats(-50, 50), min_size=3, max_size=3), min_size=1, max_size=4), st.floats(0.01, 60))
def test_a_group_is_clipped_and_counted_as_its_members_one_by_one(rows: list[list[float]], clip: float) -> None:
    changes, clipping = torch.tensor(rows, dtype=torch.float64), ChangeClipping(clip)
    clipping.limit(changes)
    single = [clipped_values(np.array(row), clip) for row in rows]
    assert changes.tolist() == [values.tolist() for values, _ in single]
    assert clipping.clipped == sum(report.clipped for _, report in single)
    assert clipping.largest == [report.largest for _, report in single]
    told = clipping_module.training_totals(np.zeros(0), changes.sum(0), len(rows), 1, clipping)
    assert told.sizes == tuple(sum(size_histogram(report.largest) for _, report in single))
    assert told.clipped == clipping.clipped


SAMPLE_LEVEL = {"privacy": {"sample_level": {"noise_multiplier": 0.5, "clip": 50.0}}}


@pytest.mark.parametrize("changes", [{}, SAMPLE_LEVEL], ids=["plain", "sample level"])
@pytest.mark.parametrize("local_steps", [1, 3])
@settings(deadline=None, max_examples=10)
@given(clip=st.floats(1e-3, 10.0))
def test_both_engines_clip_the_same_changes(clip: float, local_steps: int, changes: dict[str, object]) -> None:
    plan = plan_of(changes, local_steps=local_steps)
    loop, together = (training_totals(plan, clip, vectorised=vectorised) for vectorised in (False, True))
    np.testing.assert_allclose(together.body, loop.body, rtol=0, atol=1e-11 * max(1.0, clip))
    np.testing.assert_allclose(together.header, loop.header, rtol=0, atol=1e-11)
    assert together.sizes == loop.sizes
    assert together.clipped == loop.clipped
    # Three sites have records; nobody's weighted change is beyond the clip.
    assert sum(loop.sizes) == 3
    assert np.abs(loop.body).max() <= loop.header[0] * clip * (1 + 1e-12)


@pytest.mark.parametrize("vectorised", [False, True])
def test_a_clip_that_nothing_reaches_changes_nothing_and_tells_the_sizes(*, vectorised: bool) -> None:
    plan = plan_of()
    free, wide = (training_totals(plan, clip, vectorised=vectorised) for clip in (None, 1e6))
    np.testing.assert_allclose(wide.body, free.body, rtol=0, atol=1e-12)
    assert wide.header.tolist() == free.header.tolist()
    assert (free.clipped, free.sizes, wide.clipped, sum(wide.sizes)) == (0, (), 0, 3)


@pytest.mark.parametrize("vectorised", [False, True])
def test_a_change_that_is_no_number_ends_a_simulation_and_is_not_clipped_to_one(*, vectorised: bool) -> None:
    with pytest.raises(TrainingError):
        training_totals(plan_of(precision="fp32", learning_rate=1e4), 1.0, vectorised=vectorised, scale=1e38)


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_a_simulation_moves_its_clip_from_round_to_round(engine: str) -> None:
    def model(clip: object, mode: str = "malicious") -> np.ndarray:
        plan = plan_of({"secure_aggregation": {"mode": mode, "clip": clip}}, learning_rate=0.5)
        outcome = simulate_sites(plan, sites_of(), Path(), engine=engine)  # type: ignore[arg-type]
        return outcome.model.vector

    free, tight = model("auto", "off"), model(1e-4)
    # Four rounds move no parameter by more than four clips.
    assert np.abs(tight).max() <= 4e-4 * (1 + 1e-9)
    np.testing.assert_allclose(model(1e4), free, rtol=0, atol=1e-12)
    # One clip for every round cannot be what the rule makes of these changes.
    assert not any(np.allclose(model("auto"), model(clip), rtol=0, atol=1e-6) for clip in (1.0, 1e4))
