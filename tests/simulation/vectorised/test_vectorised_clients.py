"""All sites at once give what one after the other gives, up to the order in which numbers are added.

Tolerance of a trajectory in float64: a step adds at most b + columns + hidden + classes + members < 100 roundings
of 2^-53 to changes of at most learning_rate * |gradient| < 1, so that 50 rounds of 4 steps differ by less than
200 * 100 * 2^-53 = 2e-12 if no rounding ever cancels another; as they do cancel, 1e-12 is held. In float32 five
rounds of 4 steps differ by less than 20 * 100 * 2^-24 = 1.2e-4 in the same way. Descent with a small learning rate
does not amplify what came before.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.errors import LocalProtocolError, PlanError, RemoteProtocolError, TrainingError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.derived import threshold_limit
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.clients import AskedSteps, Clients, LoopClients
from fedfair.simulation.simulate import play, simulate_sites
from fedfair.simulation.vectorised.clients import VectorisedClients
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from tests import plans

COLUMNS = 4
FIRST = RoundNumber(1)
CLOSE = {"rtol": 0.0, "atol": 1e-12}

Sites = Mapping[ParticipantId, Splits]


def records(count: int, seed: int, classes: int) -> Dataset:
    source = np.random.default_rng(seed)
    labels = source.integers(0, classes, count)
    features = source.normal(size=(count, COLUMNS)) + 0.5 * labels[:, None] + np.arange(COLUMNS)
    return Dataset(features, labels, FeatureSchema((COLUMNS,), classes, tuple(range(COLUMNS))))


def sites_of(counts: list[int], classes: int = 2) -> Sites:
    """Return sites with so many training records; every other one has test records, the last one none."""
    return {
        ParticipantId(f"site-{k}"): Splits(
            records(count, k, classes), None, records(k, 100 + k, classes) if k % 2 else None
        )
        for k, count in enumerate(counts)
    }


def plan_of(
    sites: Sites,
    hidden: tuple[int, ...] = (),
    *,
    objective: dict[str, object] | None = None,
    standardize: str = "none",
    method: str = "histogram",
    **training: object,
) -> Plan:
    model = {"name": "mlp", "hidden": hidden} if hidden else {"name": "linear", "init": "random"}
    return plans.parsed(
        list(sites),
        task={"model": model, "standardize": standardize},
        objective={"worst_group_size": 0.3, "tradeoff": 0.1, **(objective or {})},
        training={
            "rounds": 3, "batch_size": 8, "learning_rate": 0.02, "precision": "fp64", "device": "cpu", **training,
        },
        evaluation={"every": 2, "group_sizes": [0.3], "bins": 16, "method": method},
    )  # fmt: skip


def both(plan: Plan, sites: Sites, group_bytes: int | None = None) -> tuple[LoopClients, VectorisedClients]:
    schema = next(iter(sites.values())).train.schema
    flat = flat_model(plan, schema, torch.device("cpu"), Path())
    loop = LoopClients({name: TrainingClient(plan, name, splits, flat) for name, splits in sites.items()})
    return loop, VectorisedClients(plan, sites, flat, group_bytes=group_bytes)


def played(plan: Plan, sites: Sites, cohort: Clients) -> TrainingRun:
    schema = next(iter(sites.values())).train.schema
    flat = flat_model(plan, schema, torch.device("cpu"), Path())
    training_run = TrainingRun(plan, flat.layout, schema, flat.vector())
    play(training_run, cohort)
    return training_run


def assert_alike(plan: Plan, sites: Sites, group_bytes: int | None = None, atol: float = 1e-12) -> None:
    loop, vectorised = both(plan, sites, group_bytes)
    one, other = played(plan, sites, loop), played(plan, sites, vectorised)
    np.testing.assert_allclose(other.model.vector, one.model.vector, rtol=0, atol=atol)
    assert other.model.threshold == pytest.approx(one.model.threshold, abs=atol)
    for ours, theirs in zip(other.history, one.history, strict=True):
        assert ours.splits.keys() == theirs.splits.keys()
        for name, split in ours.splits.items():
            assert split.n == theirs.splits[name].n
            assert split.mean == pytest.approx(theirs.splits[name].mean, abs=10 * atol)
            assert split.smoothed == pytest.approx(theirs.splits[name].smoothed, abs=100 * atol)
    for mine, yours in zip(vectorised.last_losses, loop.last_losses, strict=True):
        assert mine.keys() == yours.keys()
        for name, losses in mine.items():
            np.testing.assert_allclose(losses.values, yours[name].values, rtol=0, atol=10 * atol)


EPOCHS = st.sampled_from([{"local_epochs": 1}, {"local_epochs": 2}])
STEPS = st.fixed_dictionaries({"local_steps": st.integers(1, 3), "resample": st.sampled_from(["step", "round"])})


@settings(max_examples=20, deadline=None)
@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any), classes=st.integers(2, 4),
    hidden=st.sampled_from([(), (8,), (8, 4)]), batch=st.one_of(st.integers(1, 12), st.just("full")),
    weights=st.sampled_from(["samples", "batch", "uniform"]), algorithm=st.sampled_from(["fedsrcvar", "fedavg"]),
    output=st.sampled_from(["last", "best", "tail", "average"]), standardize=st.sampled_from(["none", "secure"]),
    smoothing=st.sampled_from(["softplus", "zang", "chks"]), walk=st.one_of(EPOCHS, STEPS),
    group_bytes=st.sampled_from([None, 1, 5_000]),
)  # fmt: skip
def test_a_run_of_all_sites_at_once_is_the_run_of_the_loop(
    counts: list[int],
    classes: int,
    hidden: tuple[int, ...],
    batch: int | str,
    weights: str,
    algorithm: str,
    output: str,
    standardize: str,
    smoothing: str,
    walk: dict[str, object],
    group_bytes: int | None,
) -> None:
    sites = sites_of(counts, classes)
    plan = plan_of(
        sites, hidden, objective={"smoothing": {"name": smoothing, "gamma": 0.5}}, standardize=standardize,
        batch_size=batch, weights=weights, algorithm=algorithm, output=output, **walk,
    )  # fmt: skip
    assert_alike(plan, sites, group_bytes)


@pytest.mark.parametrize("hidden", [(), (8, 4)])
def test_twenty_rounds_of_four_steps_end_at_the_same_model(hidden: tuple[int, ...]) -> None:
    sites = sites_of([40, 3, 17, 90, 1, 64, 8], classes=3)
    plan = plan_of(sites, hidden, rounds=20, local_steps=4, batch_size=16, standardize="secure")
    assert_alike(plan, sites, group_bytes=20_000)


def test_groups_of_any_size_and_float32_end_within_their_rounding() -> None:
    sites = sites_of([40, 3, 17, 90])
    assert_alike(plan_of(sites, (8,), rounds=5, local_steps=4, precision="fp32"), sites, atol=1.2e-4)
    sites = sites_of([9] * 7)
    plan = plan_of(sites, (8,), local_steps=2)
    small, large = (played(plan, sites, both(plan, sites, size)[1]) for size in (1, 10**9))
    np.testing.assert_allclose(small.model.vector, large.model.vector, **CLOSE)


def test_single_changes_are_those_of_the_loop() -> None:
    sites = sites_of([20, 1, 9, 30, 5])
    plan = plan_of(sites, (8,), local_steps=3, batch_size=6)
    loop, vectorised = both(plan, sites, 4_000)
    start = GlobalModel(flat_model(plan, sites_schema(sites), torch.device("cpu"), Path()).vector(), 0.7)
    source = np.random.default_rng(3)
    members = [3, 0, 2, 3]
    asked = {
        "members": members,
        "steps": 2,
        "record_weights": [source.random(loop.counts[member]) for member in members],
    }
    for names in ((), ("members",), ("members", "record_weights"), ("steps",), tuple(asked)):
        words = AskedSteps(FIRST, **{name: asked[name] for name in names})
        one, other = loop.changes(start, words), vectorised.changes(start, words)
        np.testing.assert_allclose(other, one, **CLOSE)
        assert other.dtype == one.dtype


def thresholds(loop: LoopClients, model: GlobalModel) -> np.ndarray:
    """By how much the local steps of each who has records move the threshold."""
    found = [task.descent.training_change(model, FIRST, 1) for task in loop._tasks]
    return np.array([change.threshold for change in found if change is not None])


def sites_schema(sites: Sites) -> FeatureSchema:
    return next(iter(sites.values())).train.schema


def test_a_sum_is_the_weighted_sum_of_the_single_changes() -> None:
    sites = sites_of([20, 0, 9, 30, 5])
    plan = plan_of(sites, (8, 4), local_steps=3)
    loop, cohort = both(plan, sites, 4_000)
    schema = sites_schema(sites)
    flat = flat_model(plan, schema, torch.device("cpu"), Path())
    training_run = TrainingRun(plan, flat.layout, schema, flat.vector())
    training_run.apply_aggregate(cohort.totals(training_run.next_sum(), training_run.model))
    request = training_run.next_sum()
    totals = cohort.totals(request, training_run.model)
    members = [0, 2, 3, 4]
    changes = cohort.changes(training_run.model, AskedSteps(FIRST, members))
    weights, moved = cohort.weights[members], thresholds(loop, training_run.model)
    np.testing.assert_allclose(totals.body, weights @ changes, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(totals.header, [weights.sum(), weights @ moved], rtol=1e-12)
    assert totals.contributors == len(sites)


def test_every_site_is_described_and_losses_are_those_of_each_site() -> None:
    sites = sites_of([20, 0, 9])
    for weights in ("samples", "batch", "uniform"):
        loop, vectorised = both(plan_of(sites, weights=weights), sites)
        assert vectorised.names == loop.names
        assert vectorised.counts.tolist() == loop.counts.tolist()
        assert vectorised.weights.tolist() == loop.weights.tolist()
    sites = sites_of([20, 0, 9, 4])
    plan = plan_of(sites, (8,))
    loop, vectorised = both(plan, sites)
    model = GlobalModel(flat_model(plan, sites_schema(sites), torch.device("cpu"), Path()).vector(), 0.7)
    for one, other in zip(loop.losses(model), vectorised.losses(model), strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_allclose(other[name].values, one[name].values, **CLOSE)
            assert other[name].correct.tolist() == one[name].correct.tolist()


def test_a_run_that_leaves_the_finite_numbers_says_so_and_stops() -> None:
    sites = sites_of([20, 9])
    plan = plan_of(sites, (8,), learning_rate=1e200, threshold_learning_rate=0.1, local_steps=3, rounds=50)
    for cohort in both(plan, sites):
        with pytest.raises(TrainingError, match="NaN or infinite"):
            played(plan, sites, cohort)


def test_records_before_their_scaling_and_no_records_at_all_are_refused() -> None:
    sites = sites_of([20, 9])
    _, cohort = both(plan_of(sites, standardize="secure"), sites)
    with pytest.raises(LocalProtocolError, match="their scaling has not arrived"):
        cohort.losses(GlobalModel(np.zeros(10), 1.0))
    with pytest.raises(LocalProtocolError, match="numeric columns"):
        cohort.apply_scaling(FeatureScaling(np.zeros(1), np.ones(1)))
    sites = sites_of([0, 0])
    plan = plan_of(sites)
    for cohort in both(plan, sites):
        with pytest.raises(RemoteProtocolError, match="no training record"):
            played(plan, sites, cohort)


@pytest.mark.parametrize(
    ("task", "training", "reason"),
    [
        ({"model": "models.py:build"}, {}, "linear model or an mlp is written down"),
        ({}, {"precision": "bf16"}, "precision is bf16"),
        ({}, {"compile": True}, "compile is true"),
    ],
)
def test_a_plan_that_cannot_be_vectorised_is_refused_in_one_sentence(
    task: dict[str, object], training: dict[str, object], reason: str
) -> None:
    sites = sites_of([5])
    stated = plan_of(sites).model_dump()
    plan = Plan.model_validate(
        {**stated, "task": stated["task"] | task, "training": stated["training"] | training}
    )
    with pytest.raises(PlanError, match=reason):
        simulate_sites(plan, sites, Path(), engine="vectorised")


def test_an_exact_evaluation_is_that_of_the_loop_and_asks_every_site_at_once() -> None:
    sites = sites_of([20, 0, 9, 4])
    plan = plan_of(sites, method="exact")
    found = [played(plan, sites, cohort).result() for cohort in both(plan, sites)]
    assert [result.query_fault for result in found] == ["", ""]
    one, other = (result.evaluation.splits["train"].by_group_size[0.3] for result in found if result.evaluation)
    assert one.at_least is not None
    # The same losses up to the order of additions: a key may fall on the other side of a rounding.
    assert other.at_least == pytest.approx(one.at_least, rel=2.0**-22)
    assert other.bound.lower <= one.bound.upper
    assert one.bound.lower <= other.bound.upper
    sites = sites_of([20, 0, 9, 30])
    stated = plan_of(sites, (8,)).model_dump()
    plan = Plan.model_validate({**stated, "evaluation": stated["evaluation"] | {"method": "exact"}})
    one, other = (played(plan, sites, cohort).result() for cohort in both(plan, sites))
    assert (one.query_fault, other.query_fault) == ("", "")
    assert one.evaluation is not None
    assert other.evaluation is not None
    for name, split in one.evaluation.splits.items():
        for size, risk in split.by_group_size.items():
            assert other.evaluation.splits[name].by_group_size[size].worst == pytest.approx(risk.worst, abs=1e-11)


def test_a_change_of_the_threshold_that_is_clipped_is_clipped_alike() -> None:
    sites = sites_of([9, 20, 4])
    plan = plan_of(sites, threshold_learning_rate=50.0, local_steps=3)
    limit = threshold_limit(plan, 2)
    loop, vectorised = both(plan, sites)
    flat = flat_model(plan, next(iter(sites.values())).train.schema, torch.device("cpu"), Path())
    training_run = TrainingRun(plan, flat.layout, next(iter(sites.values())).train.schema, flat.vector())
    request = training_run.next_sum()
    assert request is not None
    training_run.apply_aggregate(loop.totals(request, training_run.model))
    request = training_run.next_sum()
    assert request is not None
    assert request.purpose is Purpose.TRAINING
    first, second = loop.totals(request, training_run.model), vectorised.totals(request, training_run.model)
    moved = thresholds(loop, training_run.model)
    assert (np.abs(moved) > limit).all()
    np.testing.assert_allclose(first.header, second.header, **CLOSE)
    assert first.header[1] == pytest.approx(loop.weights @ np.clip(moved, -limit, limit))
    assert_alike(plan, sites)
