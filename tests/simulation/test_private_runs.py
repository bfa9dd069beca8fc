"""With noise for every record a run returns what it has trained: noised figures choose no model."""

import math
from pathlib import Path

from fedfair.plan.dataset_presets import ADULT, HEART
from fedfair.plan.schema import Plan
from fedfair.simulation.simulate import SimulationOutcome, simulate_sites
from fedfair.tables.source import load_federation
from tests import bc10, plans

GUESS = math.log(2.0)
RANGES = {
    "age": [0, 120], "education-num": [0, 20], "capital-gain": [0, 100_000], "capital-loss": [0, 5000],
    "hours-per-week": [0, 100],
}  # fmt: skip
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def private(names: tuple[str, ...], task: dict[str, object], seed: int) -> Plan:
    """Return a plan with noise for every record and the product's own evaluations and output."""
    return Plan.model_validate(
        plans.untuned(
            names, task={**task, "model": {"name": "linear", "init": "zeros"}},
            objective={"worst_group_size": 0.5, "tradeoff": 0.1},
            training={"rounds": 30, "learning_rate": 0.5, "batch_size": "full", "seed": seed, "device": "cpu"},
            secure_aggregation={"mode": "off"}, evaluation={"every": 10},
            privacy={"sample_level": {"noise_multiplier": 2.0}},
        )
    )  # fmt: skip


def check_trained(outcome: SimulationOutcome) -> None:
    assert outcome.model.vector.any()
    assert outcome.result.rounds == 30
    assert outcome.result.trained.mean < 0.9 * GUESS


def test_bc10_under_noise_is_returned_trained() -> None:
    plan = private(("site-0", "site-1", "site-2"), {"standardize": "none"}, 0)
    check_trained(simulate_sites(plan, bc10.sites(bc10.random_thirds()), Path()))


def test_four_hospitals_and_adult_under_noise_get_trained_models(data_root: Path) -> None:
    files = {name: str(data_root.resolve() / "heart" / f"processed.{name}.data") for name in HOSPITALS}
    table = {**HEART, "missing": "zero", "train_of": files}
    task = {"data": {"csv": table}, "test_fraction": 0.0, "standardize": "ranges"}
    plan = private(HOSPITALS, task, 0)
    check_trained(simulate_sites(plan, load_federation(plan, data_root), data_root))
    table = {**ADULT, "ranges": RANGES, "train": str(data_root.resolve() / "adult" / "adult.test.gz")}
    task = {
        "data": {"csv": table}, "test_fraction": 0.0, "standardize": "ranges", "partition": {"scheme": "random"}
    }  # fmt: skip
    plan = private(plans.NAMES, task, 0)
    check_trained(simulate_sites(plan, load_federation(plan, data_root), data_root))
