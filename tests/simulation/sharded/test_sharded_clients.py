"""All collaborators sharded over workers give what the loop gives up to rounding, whatever happens to the workers.

Tolerances are those of `test_vectorised_clients.py`, by the same derivation: only the order of additions differs.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.aggregation.requests import GlobalModel
from fedfair.errors import AbortedError, LocalProtocolError, PlanError, TrainingError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.plan.simulated_clip import clips_in_simulation
from fedfair.privacy.releases import ReleaseLog
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.baselines.registry import algorithm_of
from fedfair.simulation.clients import AskedSteps, Clients
from fedfair.simulation.cohort import cohort_of
from fedfair.simulation.sharded.clients import MAX_LOSSES
from fedfair.simulation.sharded.shard import ShardTerms
from fedfair.simulation.simulate import play
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model
from tests import plans
from tests.simulation.sharded.worker_kit import LocalWorkers, sharded

Sites = Mapping[ParticipantId, Splits]

COUNTS = [9, 0, 14, 8, 11, 20, 5]
"""Training records; the second collaborator has none."""

PLANS: dict[str, dict[str, object]] = {
    "plain": {},
    "several steps, fp32": {"training": {"local_steps": 3, "precision": "fp32"}},
    "clipped": {"secure_aggregation": {"mode": "semi-honest"}},
    "standardised, exact": {"task": {"standardize": "secure"}, "evaluation": {"method": "exact"}},
    "control variates": {"training": {"local_steps": 2, "control_variates": True}},
    "own thresholds": {"training": {"algorithm": "localbpf"}},
    "loss powers": {"training": {"algorithm": "qffl"}},
    "site means": {"evaluation": {"site_means": True, "min_group": 1}},
    "no sum": {"training": {"algorithm": "drfa", "local_steps": 2}},
    "noised records": {"privacy": {"sample_level": {"noise_multiplier": 1.0}}, "evaluation": {"bins": 8}},
    "noised collaborators": {
        "secure_aggregation": {"mode": "semi-honest"},
        "federation": {"min_collaborators": len(COUNTS)},
        "training": {"weights": "uniform", "output": "last"},
        "privacy": {"collaborator_level": {"noise_multiplier": 1.0, "clip": 0.5}},
    },
}


def records(count: int, seed: int) -> Dataset:
    source = np.random.default_rng(seed)
    labels = source.integers(0, 2, count)
    features = source.normal(size=(count, 4)) + 0.5 * labels[:, None] + np.arange(4)
    return Dataset(features, labels, FeatureSchema((4,), 2, tuple(range(4))))


def sites_of(counts: list[int] = COUNTS) -> Sites:
    return {
        ParticipantId(f"site-{k}"): Splits(records(count, k), None, records(k + 1, 100 + k) if k % 2 else None)
        for k, count in enumerate(counts)
    }


def plan_of(name: str, rounds: int = 12, count: int = len(COUNTS)) -> Plan:
    asked = PLANS[name]

    def part(section: str, **values: object) -> dict[str, object]:
        given = asked.get(section, {})
        assert isinstance(given, dict)
        return {**values, **given}

    return plans.parsed(
        [f"site-{k}" for k in range(count)], federation=part("federation"),
        secure_aggregation=part("secure_aggregation", mode="off"),
        task=part("task", model={"name": "mlp", "hidden": (6,)}, standardize="none"),
        objective={"worst_group_size": 0.3, "tradeoff": 0.1},
        training=part("training", rounds=rounds, batch_size=4, learning_rate=0.02, precision="fp64", device="cpu"),
        evaluation=part("evaluation", every=3, group_sizes=[0.3], bins=16), privacy=part("privacy"),
    )  # fmt: skip


def played(plan: Plan, sites: Sites, cohort: Clients) -> TrainingRun:
    schema = next(iter(sites.values())).train.schema
    flat = flat_model(plan, schema, torch.device("cpu"), Path())
    training_run = TrainingRun(plan, flat.layout, schema, flat.vector())
    play(training_run, cohort, algorithm_of(plan, sites), clips=clips_in_simulation(plan))
    return training_run


def alone(plan: Plan, sites: Sites) -> tuple[TrainingRun, Clients, dict[ParticipantId, ReleaseLog]]:
    schema = next(iter(sites.values())).train.schema
    flat, logs = flat_model(plan, schema, torch.device("cpu"), Path()), {name: ReleaseLog() for name in sites}
    loop = cohort_of(plan, sites, flat, logs, vectorised=False)
    return played(plan, sites, loop), loop, logs


def same_bits(one: TrainingRun, other: TrainingRun) -> None:
    assert one.model.vector.tobytes() == other.model.vector.tobytes()
    assert one.model.threshold == other.model.threshold
    assert one.history == other.history


@cache
def looped(name: str) -> tuple[TrainingRun, Clients]:
    return alone(plan_of(name, rounds=4), sites_of())[:2]


EACH_WAY = [(name, vectorised) for name in PLANS for vectorised in (False, True)]
EACH_WAY.remove(("noised collaborators", True))  # no such plan is vectorised


@pytest.mark.parametrize(("name", "vectorised"), EACH_WAY)
def test_workers_compute_what_the_loop_computes(name: str, vectorised: bool) -> None:
    plan, sites = plan_of(name, rounds=4), sites_of()
    expected, loop = looped(name)
    cohort = sharded(plan, sites, LocalWorkers(3), vectorised=vectorised)
    found = played(plan, sites, cohort)
    atol = 1.2e-4 if plan.training.precision == "fp32" else 1e-12
    np.testing.assert_allclose(found.model.vector, expected.model.vector, rtol=0, atol=atol)
    assert found.model.threshold == pytest.approx(expected.model.threshold, abs=atol)
    assert [past.round for past in found.history] == [past.round for past in expected.history]
    for mine, theirs in zip(cohort.last_losses, loop.last_losses, strict=True):
        assert mine.keys() == theirs.keys()
        for split, losses in mine.items():
            np.testing.assert_allclose(losses.values, theirs[split].values, rtol=0, atol=10 * atol)
            np.testing.assert_array_equal(losses.labels, theirs[split].labels)
    np.testing.assert_array_equal(cohort.counts, loop.counts)
    np.testing.assert_array_equal(cohort.weights, loop.weights)
    if name == "noised collaborators":
        # Whole numbers: the very bits of the loop.
        same_bits(found, expected)


@pytest.mark.parametrize(
    ("name", "vectorised"),
    [
        ("several steps, fp32", True), ("control variates", False), ("own thresholds", True), ("no sum", False),
        ("noised records", True), ("noised collaborators", False),
    ],
)  # fmt: skip
def test_neither_the_number_of_workers_nor_their_loss_changes_a_bit(name: str, vectorised: bool) -> None:
    plan, sites = plan_of(name, rounds=13), sites_of()
    one = played(plan, sites, sharded(plan, sites, LocalWorkers(1), vectorised=vectorised))
    # Two in a row, one while what workers remember is copied or told, and one long after it.
    workers = LocalWorkers(4, losing=(2, 9, 10, 31, 47, 48, 64, 79), after=True)
    same_bits(one, played(plan, sites, sharded(plan, sites, workers, vectorised=vectorised)))
    assert len(workers.lost) >= 5


@pytest.mark.parametrize("name", ["control variates", "own thresholds", "noised records"])
def test_what_collaborators_remember_survives_a_loss_at_any_question(name: str) -> None:
    plan, sites = plan_of(name, rounds=11), sites_of()
    whole = played(plan, sites, sharded(plan, sites, LocalWorkers(2), vectorised=True))
    for losing in (5, 34, 63):
        workers = LocalWorkers(2, losing=(losing,), after=losing == 34)
        cohort = sharded(plan, sites, workers, vectorised=True)
        same_bits(whole, played(plan, sites, cohort))
        assert workers.lost or workers.asked < losing
    if name == "noised records":
        *_, logs = alone(plan, sites)
        ((worst, log),) = cohort.worst_log().items()
        assert log.releases == logs[worst].releases
        rates = {who: max((each.sampling_rate for each in own.releases), default=0) for who, own in logs.items()}
        assert rates[worst] == max(rates.values())


def test_copies_bound_what_is_asked_again() -> None:
    plan, sites = plan_of("control variates", rounds=28), sites_of()
    workers = LocalWorkers(2, losing=(64,))
    played(plan, sites, sharded(plan, sites, workers, vectorised=True))
    again = [method for worker, method in workers.methods if worker == workers.lost[0]].count("sum")
    kept = [method for worker, method in workers.methods if worker != workers.lost[0]].count("sum")
    assert 0 < again - kept <= 11
    assert ("restore" in [method for _, method in workers.methods]) is True


def test_a_plan_that_remembers_nothing_is_told_nothing_of_earlier_rounds() -> None:
    plan, sites = plan_of("plain"), sites_of()
    workers = LocalWorkers(2, losing=(20,))
    played(plan, sites, sharded(plan, sites, workers, vectorised=True))
    methods = [method for worker, method in workers.methods if worker == workers.lost[0]]
    others = [method for worker, method in workers.methods if worker != workers.lost[0]]
    assert methods.count("sum") == others.count("sum") + 1  # the one that was lost
    assert methods.count("begin") == 2
    assert "memory" not in methods


def test_a_question_that_costs_every_worker_ends_the_simulation() -> None:
    plan, sites = plan_of("plain"), sites_of()
    workers = LocalWorkers(1, losing=range(5, 100))
    with pytest.raises(AbortedError, match=f"worker 1 was lost {MAX_LOSSES} times in a row: the test") as ended:
        played(plan, sites, sharded(plan, sites, workers, vectorised=True))
    assert "--workers" in ended.value.remedy


def test_only_workers_with_a_drawn_collaborator_compute() -> None:
    plan, sites = plan_of("no sum"), sites_of()
    workers = LocalWorkers(len(COUNTS))
    cohort = sharded(plan, sites, workers, vectorised=False)
    start = GlobalModel(flat_model(plan, records(1, 0).schema, torch.device("cpu"), Path()).vector(), 0.5)
    _, loop, _ = alone(plan, sites)
    workers.methods.clear()
    asked = AskedSteps(RoundNumber(4), [3, 0], 1, [np.full(8, 2.0), np.full(9, 0.5)])
    np.testing.assert_allclose(cohort.changes(start, asked), loop.changes(start, asked), rtol=0, atol=1e-12)
    assert sorted(workers.methods) == [(0, "changes"), (3, "changes")]
    with pytest.raises(LocalProtocolError, match="site-1 has no training records"):
        cohort.changes(start, AskedSteps(RoundNumber(1), [1]))


def test_faults_of_workers_are_those_of_the_loop_and_another_version_is_refused() -> None:
    plan = plan_of("plain").model_copy()
    sites = {**sites_of(), ParticipantId("site-3"): Splits(records(8, 3).take(np.arange(8)))}
    sites[ParticipantId("site-3")].train.features[:] = 1e300
    for cohort in (sharded(plan, sites, LocalWorkers(2), vectorised=each) for each in (False, True)):
        with pytest.raises(TrainingError, match="NaN or infinite"):
            played(plan, sites, cohort)
    plan, sites = plan_of("plain"), sites_of()
    workers = LocalWorkers(1)
    cohort = sharded(plan, sites, workers, vectorised=True)
    begun = cohort._begin[0].given
    refused = workers.ask(
        {0: type(cohort._begin[0])("begin", (ShardTerms(plan, True, None, "0.0.1"), *begun[1:]))}
    )
    assert "the command has 0.0.1" in refused[0].message
    with pytest.raises(PlanError):
        raise refused[0].error()
