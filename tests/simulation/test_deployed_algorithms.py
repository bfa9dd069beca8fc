"""Algorithms whose round is one sum: drop-outs, both engines, and what a sum refuses."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.aggregation.masking_terms import guarantee
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import PlanError, RemoteProtocolError, StateError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.deployment import check_deployment
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.known_groups import group_names
from fedfair.plan.schema import Plan
from fedfair.plan.simulated_clip import clips_in_simulation
from fedfair.run.packed_state import pack_state, unpack_state
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.baselines.fedminmax import MinimaxOverGroups, groups_of
from fedfair.simulation.clients import Clients, LoopClients
from fedfair.simulation.cohort import simulated_memories
from fedfair.simulation.simulate import play
from fedfair.simulation.vectorised.clients import VectorisedClients
from fedfair.tables.dataset import Dataset
from fedfair.tables.source import load_federation
from fedfair.terms.group_weights.site import record_groups
from fedfair.terms.loss_powers.site import MAX_POWER, LossPowers
from fedfair.terms.site_thresholds.state import ReportedThreshold, renewed_threshold
from fedfair.terms.table import training_layout
from fedfair.training.assembly import flat_model
from fedfair.training.binding import bound
from fedfair.training.client import TrainingClient
from tests import bc10, plans
from tests.held_terms import holding
from tests.simulation import slow_algorithms as slow

THIRDS = slow.thirds()
RATE, STEPS, RHO, EPS, GAMMA = 0.1, 2, 0.3, 0.1, 0.05


def plan_of(algorithm: str, mode: str = "off", **training: object) -> Plan:
    return plans.parsed(
        [f"site-{k}" for k in range(3)],
        task={"model": {"name": "linear", "init": "zeros"}},
        objective={"worst_group_size": RHO, "tradeoff": EPS, "smoothing": {"name": "softplus", "gamma": GAMMA}},
        training={
            "algorithm": algorithm, "rounds": 12, "local_steps": STEPS, "batch_size": "full",
            "learning_rate": RATE, "threshold_learning_rate": RATE, "threshold_init": 1.0, "schedule": "constant",
            "output": "last", "precision": "fp64", "device": "cpu", **training,
        },
        secure_aggregation={"mode": mode},
        evaluation={"every": 10**9, "group_sizes": [RHO]},
    )  # fmt: skip


class Played:
    """A run whose every training round is open to a test."""

    def __init__(self, plan: Plan, parts: Sequence[slow.Vector]) -> None:
        sites = bc10.sites(list(parts))
        schema = next(iter(sites.values())).train.schema
        flat = flat_model(plan, schema, torch.device("cpu"), Path())
        self.names, self.layout = tuple(sites), flat.layout
        self.tasks = {name: TrainingClient(plan, name, splits, flat) for name, splits in sites.items()}
        self.run = TrainingRun(plan, flat.layout, schema, flat.vector())
        self.memories = simulated_memories(plan, flat.layout, sites)
        self._pass_evaluations()

    def _pass_evaluations(self) -> None:
        while (request := self.run.next_sum()) is not None and request.spec.body_length == 0:
            self.run.apply_aggregate(LoopClients(self.tasks).totals(request, self.run.model), self.names)

    def totals(self, present: Sequence[int]) -> tuple[Totals, tuple[ParticipantId, ...]]:
        request = self.run.next_sum()
        assert request is not None
        members = {self.names[k]: self.tasks[self.names[k]] for k in present}
        return LoopClients(members, memories=self.memories).totals(request, self.run.model), tuple(members)

    def round(self, present: Sequence[int]) -> None:
        self.run.apply_aggregate(*self.totals(present))


ABSENCES: tuple[tuple[int, ...], ...] = ((0, 1), (0, 2), (2,), (1, 2), (0, 1, 2), (2,), (0, 1, 2))


def test_local_bpf_with_drop_outs_is_its_slow_version_and_a_lost_round_leaves_every_threshold() -> None:
    played = Played(plan_of("localbpf"), THIRDS)
    theta, shared, own = np.zeros(slow.DIMENSION), 1.0, dict[int, float]()
    for present in ABSENCES:
        # Sums that nobody opens: of others, and of the same. What sites keep for them counts nowhere.
        for lost in ((0, 1, 2), present):
            played.totals(lost)
            played.run.retry()
        played.round(present)
        ends, weights = [], np.array([float(len(THIRDS[k])) for k in present])
        for k in present:
            mine, level = theta, own.get(k, shared)
            for _ in range(STEPS):
                sigma = 1.0 / (1.0 + np.exp(-(slow.losses(mine, THIRDS[k]) - level) / GAMMA))
                slope = (1.0 - EPS) * (1.0 - sigma.mean() / RHO)
                mine = mine - RATE * slow.gradient(mine, THIRDS[k], (1.0 - EPS) * sigma / RHO + EPS)
                level -= RATE * slope
            ends.append(mine)
            own[k] = max(level, 0.0)
        weights /= weights.sum()
        theta, shared = weights @ np.array(ends), float(weights @ np.array([own[k] for k in present]))
        # A few rounds of sums of hundreds of numbers of order one, in float64.
        np.testing.assert_allclose(played.run.model.vector, theta, rtol=0, atol=1e-11)
        assert played.run.model.threshold == pytest.approx(shared, abs=1e-11)
    assert len({round(level, 6) for level in own.values()}) == 3


def test_q_ffl_with_drop_outs_is_its_slow_version_among_those_who_are_there() -> None:
    played = Played(plan_of("qffl", options={"loss_power": 2.0}), THIRDS)
    theta = np.zeros(slow.DIMENSION)
    for present in ABSENCES:
        played.round(present)
        above, below = np.zeros(slow.DIMENSION), 0.0
        for k in present:
            delta = (theta - slow.local(theta, THIRDS[k], RATE, STEPS)) / RATE
            risk, weight = slow.losses(theta, THIRDS[k]).mean(), len(THIRDS[k])
            above += weight * risk**2 * delta
            below += weight * (2 * risk * (delta @ delta) + risk**2 / RATE)
        theta = theta - above / below
        np.testing.assert_allclose(played.run.model.vector, theta, rtol=0, atol=1e-11)
        assert played.run.model.threshold == 1.0


@pytest.mark.parametrize(("mode", "batch_size"), [("off", 20), ("malicious", "full")])
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("qffl", {"loss_power": 1.5}), ("localbpf", {}), ("fedminmax", {"adversary_interval": 3})],
)
def test_at_once_is_one_by_one(algorithm: str, options: dict[str, object], mode: str, batch_size: object) -> None:
    steps = 1 if algorithm == "fedminmax" else STEPS
    plan = plan_of(algorithm, mode, batch_size=batch_size, options=options, local_steps=steps)
    sites = bc10.sites(bc10.random_thirds())
    schema = next(iter(sites.values())).train.schema
    points = []
    for vectorised in (False, True):
        flat = flat_model(plan, schema, torch.device("cpu"), Path())
        run = TrainingRun(plan, flat.layout, schema, flat.vector())
        tasks = {name: TrainingClient(plan, name, splits, flat) for name, splits in sites.items()}
        cohort: Clients = LoopClients(tasks, memories=simulated_memories(plan, flat.layout, sites))
        if vectorised:
            cohort = VectorisedClients(plan, sites, flat)
        play(run, cohort, clips=mode != "off")
        points.append(np.append(run.model.vector, run.model.threshold))
    np.testing.assert_allclose(points[0], points[1], rtol=0, atol=1e-11)
    assert np.abs(points[0]).max() > 0.1


def test_a_threshold_that_is_lost_ends_this_sites_part_in_words() -> None:
    plan = plan_of("localbpf")
    played = Played(plan, THIRDS)
    played.round((0, 1, 2))
    played.memories = simulated_memories(plan, played.layout, played.names)
    with pytest.raises(StateError, match="own threshold of round 1 is lost") as fault:
        played.round((0, 1, 2))
    assert "--fresh" in fault.value.remedy


@pytest.mark.parametrize("curvature", [0.0, -1.0])
def test_a_sum_of_curvatures_that_is_not_positive_is_refused(curvature: float) -> None:
    plan = plan_of("qffl")
    played = Played(plan, THIRDS)
    totals, members = played.totals((0, 1, 2))
    training_layout(plan, 2).read(totals.header)["curvature"] = curvature
    with pytest.raises(RemoteProtocolError, match=r"the curvatures of this round add up to") as fault:
        played.run.apply_aggregate(totals, members)
    assert "loss_power" in fault.value.remedy


def test_a_told_threshold_and_powers_of_losses_stay_within_their_limits() -> None:
    bounded = plan_of("localbpf").model_copy(
        update={"objective": plan_of("localbpf").objective.model_copy(update={"loss_bound": 2.0})}
    )
    told = ReportedThreshold(bounded, 2)
    assert told(0.5, 1.0, 0.25) == 0.75
    assert (told(0.5, 1.0, -3.0), told(0.5, 1.0, 3.0)) == (-0.5, 1.5)
    assert renewed_threshold(bounded, 0.5, 1.5) == 2.0
    free = ReportedThreshold(plan_of("localbpf"), 2)
    limit = 8 * np.log(2)
    assert free(1.0, 30.0, 1.0) == pytest.approx(limit)
    for power in (0.0, 0.5, 1.0, 40.0, 1e6):
        powers = LossPowers(power, float(np.log(2)))
        found = powers.factors(np.array([0.0, np.log(2), 1e6, 1e300]))
        assert np.isfinite(found).all()
        assert found[1] == 1.0
        assert found.max() <= MAX_POWER
    # A site whose change is not finite has a curvature that is not, which is never added in the clear.
    assert np.isnan(LossPowers(1.0, 1.0).curvatures(np.ones(1), np.array([np.nan]), 0.1))[0]


def test_a_masked_change_that_is_not_finite_counts_as_none_and_keeps_its_loss() -> None:
    plan = plan_of("qffl", "malicious", learning_rate=1e308, options={"loss_power": 1.0})
    sites = bc10.sites([np.arange(40)])
    name, splits = next(iter(sites.items()))
    flat = flat_model(plan, splits.train.schema, torch.device("cpu"), Path())
    task = TrainingClient(plan, name, splits, flat, masked=True)
    run = TrainingRun(plan, flat.layout, splits.train.schema, flat.vector())
    found = task.summable_change(run.model, RoundNumber(1), 1)
    assert found is not None
    assert found.replaced >= flat.layout.dimension
    assert not found.model.any()
    assert found.further["curvature"] == pytest.approx(found.weight)


def by_label(members: Sequence[int]) -> list[slow.Vector]:
    held = np.concatenate([THIRDS[k] for k in members])
    return [held[bc10.dataset().labels[held] == label] for label in (0, 1)]


@pytest.mark.parametrize("interval", [1, 2])
def test_fedminmax_with_drop_outs_is_its_slow_version(interval: int) -> None:
    options = {"adversary_learning_rate": 0.3, "adversary_interval": interval}
    played = Played(plan_of("fedminmax", options=options, local_steps=1), THIRDS)
    theta, factors = np.zeros(slow.DIMENSION), np.ones(2)
    weights: slow.Vector | None = None
    for number, present in enumerate(ABSENCES, start=1):
        groups = by_label(present)
        held, labels = np.concatenate([THIRDS[k] for k in present]), bc10.dataset().labels
        slope = slow.gradient(theta, held, factors[labels[held]])
        if (number - 1) % interval == 0:
            counts = np.array([float(len(group)) for group in groups])
            risks = np.array([slow.losses(theta, group).mean() for group in groups])
            shares = counts / counts.sum()
            weights = slow.project((shares if weights is None else weights) + interval * 0.3 * risks)
            factors = weights / shares
        theta = theta - RATE * slope
        played.round(present)
        np.testing.assert_allclose(played.run.model.vector, theta, rtol=0, atol=1e-11)
        assert played.run.state.terms["groups"] is not None
        np.testing.assert_allclose(played.run.state.terms["groups"].factors, factors, rtol=0, atol=1e-11)


def test_a_group_that_a_later_sum_brings_counts_as_it_is_until_then_and_grows_from_zero() -> None:
    labels = bc10.dataset().labels
    parts = [np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)[:100], np.flatnonzero(labels == 1)[100:]]
    plan = plan_of("fedminmax", options={"adversary_learning_rate": 0.3}, local_steps=1)
    played = Played(plan, parts)
    played.round((0,))
    held = played.run.state.terms["groups"]
    assert held is not None
    assert held.weights.tolist() == [1.0, 0.0]
    assert held.factors.tolist() == [1.0, 1.0]
    start = played.run.model.vector
    played.round((0, 1))
    grown = played.run.state.terms["groups"]
    assert grown is not None
    risks = np.array([slow.losses(start, part).mean() for part in parts[:2]])
    np.testing.assert_allclose(grown.weights, slow.project(np.array([1.0, 0.0]) + 0.3 * risks), rtol=0, atol=1e-12)
    assert grown.counts.tolist() == [len(parts[0]), 100]
    # Nobody of the other group: it keeps the counts of the sum before.
    played.round((0,))
    assert played.run.state.terms["groups"] is not None
    assert played.run.state.terms["groups"].counts.tolist() == [len(parts[0]), 100]


def test_states_with_thresholds_or_groups_survive_a_journey_and_no_other_may_be() -> None:
    played = Played(plan_of("localbpf"), THIRDS)
    played.round((0, 2))
    state, initial = played.run.state, played.run.initial
    found = unpack_state(b"".join(pack_state(state)), initial)
    assert found.digest(bytes(32)) == state.digest(bytes(32))
    assert found.terms["variates"] is not None
    assert found.terms["variates"].rounds == (1, 0, 1)
    may_be = played.run.rules.may_be
    assert may_be(state)
    assert not may_be(holding(state, variates=None))
    assert not may_be(holding(state, variates=replace(found.terms["variates"], rounds=(2, 0, 1))))
    assert not may_be(holding(state, variates=replace(found.terms["variates"], weight=1.0)))
    played = Played(plan_of("fedminmax", local_steps=1), THIRDS)
    played.round((0, 1, 2))
    state = played.run.state
    found = unpack_state(b"".join(pack_state(state)), played.run.initial)
    assert found.digest(bytes(32)) == state.digest(bytes(32))
    may_be, held = played.run.rules.may_be, state.terms["groups"]
    assert held is not None
    assert may_be(state)
    assert not may_be(holding(state, groups=None))
    assert not may_be(holding(state, groups=replace(held, weights=-held.weights)))
    assert not may_be(holding(state, groups=replace(held, counts=np.ones(3))))


@pytest.mark.parametrize(("field", "value"), [("group_counts", 0.0), ("group_losses", -1.0)])
def test_sums_of_groups_that_nobody_has_are_refused(field: str, value: float) -> None:
    plan = plan_of("fedminmax", local_steps=1)
    played = Played(plan, THIRDS)
    totals, members = played.totals((0, 1, 2))
    training_layout(plan, 2).read(totals.header)[field] = value
    with pytest.raises(RemoteProtocolError, match="the groups of round 1 have"):
        played.run.apply_aggregate(totals, members)


CATEGORIES = {"sex": ["f", "m"], "age": ["young", "old"]}


def grouped_plan(column: str | None, mode: str = "off", **csv: object) -> Plan:
    table = {"label": "y", "numeric": ["x"], "categorical": CATEGORIES, **csv}
    return plans.parsed(
        ["site-0", "site-1"],
        task={"data": {"csv": table}, "partition": {"scheme": "random"}, "model": {"name": "linear"}},
        training={
            "algorithm": "fedminmax", "rounds": 4, "schedule": "constant", "options": {"group_column": column},
        },
        secure_aggregation={"mode": mode},
    )  # fmt: skip


def test_the_groups_of_a_declared_category_are_its_values_and_an_unknown_one_is_refused() -> None:
    plan = grouped_plan("sex", missing_of={"sex": "own"})
    assert group_names(plan, 2) == ("sex=f", "sex=m", "sex=other", "sex=missing")
    assert group_names(grouped_plan(None), 3) == ("class 0", "class 1", "class 2")
    schema = FeatureSchema((7,), 2, (0,), ("x", *group_names(plan, 2), "age=young", "age=old"))
    features = np.zeros((3, 7))
    features[[0, 1, 2], [2, 1, 4]] = 1.0
    groups = record_groups(plan, Dataset(features, np.array([0, 1, 1]), schema))
    assert groups is not None
    assert groups.tolist() == [1, 0, 3]
    check_deployment(grouped_plan("sex"))
    check_deployment(grouped_plan(None))
    with pytest.raises(PlanError, match="'race' is no declared category") as fault:
        check_deployment(grouped_plan("race"))
    assert "categorical" in fault.value.remedy
    assert clips_in_simulation(grouped_plan("sex", "malicious"))
    assert not clips_in_simulation(grouped_plan("race", "malicious"))


def test_groups_that_the_plan_tells_and_groups_that_the_records_tell_train_the_same_model(tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 7},{i % 2},{'fm'[i % 3 == 0]},{'young'}" for i in range(60))
    (tmp_path / "t.csv").write_text("x,y,sex,age\n" + rows + "\n")
    plan = grouped_plan("sex", train="t.csv")
    sites = load_federation(plan, tmp_path)
    schema = next(iter(sites.values())).train.schema
    flat = flat_model(plan, schema, torch.device("cpu"), tmp_path)
    run = TrainingRun(plan, flat.layout, schema, bound(plan, schema, tmp_path).vector)
    tasks = {name: TrainingClient(plan, name, splits, flat) for name, splits in sites.items()}
    cohort = LoopClients(tasks, memories=simulated_memories(plan, flat.layout, sites))
    groups = groups_of((splits.train for splits in sites.values()), "sex")
    algorithm, model = MinimaxOverGroups(groups, plan.training.learning_rate), run.model
    while (request := run.next_sum()) is not None and request.round < 4:
        run.apply_aggregate(cohort.totals(request, run.model), cohort.names)
        if request.spec.body_length:
            model = algorithm.round(cohort, model, request.round)
            # Three rounds in float32, whose numbers are below 1.
            np.testing.assert_allclose(run.model.vector, model.vector, rtol=0, atol=1e-6)
    assert model.vector.any()


def test_a_plan_that_may_leave_sites_out_says_what_that_shows_of_their_groups() -> None:
    plan = grouped_plan("sex", "malicious")
    names = [f"site-{k}" for k in range(5)]
    may_leave = {"federation": plan.federation.model_copy(update={"collaborators": names, "min_collaborators": 4})}
    everybody = {"federation": plan.federation.model_copy(update={"collaborators": names})}
    told = "how many records of each group"
    assert told in guarantee(plan.model_copy(update=may_leave))
    assert told not in guarantee(plan.model_copy(update=everybody))
