"""The verdict of a simulation speaks of every linear model, on records whose critical size is known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.simulation.linear_family import critical_sizes, family_facts
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.dataset import Dataset, Splits
from tests import plans


def base_rate(records: int, minority: float) -> Dataset:
    """Return records that only a base rate tells of: one feature, the same for all."""
    labels = (np.arange(records) < minority * records).astype(np.int64)
    return Dataset(np.ones((records, 1)), labels, FeatureSchema((1,), 2, (0,), ("one",)))


def plan_of(**sections: object) -> Plan:
    return plans.parsed(
        plans.NAMES[:2], task={"model": {"name": "linear", "init": "zeros"}},
        objective={"worst_group_size": 0.2, "tradeoff": 0.9},
        training={"rounds": 20, "batch_size": "full", "learning_rate": 1.0, "output": "last"}, **sections,
    )  # fmt: skip


def sites(minority: float, held_out: float | None = None) -> dict[ParticipantId, Splits]:
    tested = None if held_out is None else base_rate(200, held_out)
    return {ParticipantId(name): Splits(base_rate(200, minority), None, tested) for name in plans.NAMES[:2]}


def least_served(plan: Plan, held: dict[ParticipantId, Splits]) -> float | None:
    facts = family_facts(plan, held)
    return None if facts is None else facts.lowest


def test_twice_the_minority_is_served_by_no_base_rate_and_the_verdict_says_so() -> None:
    # A worst group of share rho holds the whole minority m where the majority is preferred; a majority within it
    # remains only above rho = 2 m.
    assert least_served(plan_of(), sites(0.15)) == pytest.approx(0.3, abs=1e-6)
    assert least_served(plan_of(), sites(0.15, held_out=0.1)) == pytest.approx(0.2, abs=1e-6)
    outcome = simulate_sites(plan_of(), sites(0.15), Path())
    assert outcome.result.verdict is not None
    (found,) = [said for said in outcome.result.verdict.sentences if "better than guessing" in said]
    assert found == "No model of this kind serves the worst 30 % better than guessing (the critical group size)."


def test_nobody_knows_all_models_of_another_kind_or_of_too_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    other = plan_of().model_copy(
        update={"task": plans.parsed(task={"model": {"name": "mlp", "hidden": [2]}}).task}
    )
    assert least_served(other, sites(0.15)) is None
    monkeypatch.setattr("fedfair.simulation.linear_family.MAX_VALUES", 399)
    assert least_served(plan_of(), sites(0.15)) is None


def test_a_missing_value_counts_as_the_mean_and_bounds_hold_the_program() -> None:
    known = sites(0.15)
    gaps = {name: Splits(replace(site.train, features=site.train.features.copy())) for name, site in known.items()}
    for site in gaps.values():
        site.train.features[::2] = np.nan
    assert least_served(plan_of(), gaps) == pytest.approx(0.3, abs=1e-6)
    drawn = np.random.default_rng(3)
    labels = drawn.integers(0, 2, 6000)
    features = drawn.normal(size=(6000, 2)) + labels[:, None] * np.array([0.5, -0.2])
    low, high = critical_sizes(features, labels, 2)
    first, again = critical_sizes(features[:3000], labels[:3000], 2)
    assert first == again
    assert low <= high
    assert high - low < 0.01
