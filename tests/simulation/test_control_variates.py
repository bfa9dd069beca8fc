"""Control variates in a simulation: SCAFFOLD on (theta, c), against the same algorithm written out in numpy."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedfair.aggregation.contribution import encode
from fedfair.aggregation.running_sum import PlainSum
from fedfair.errors import LocalProtocolError, RemoteProtocolError, StateError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.run.packed_state import greatest_state_bytes, pack_state, unpack_state
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.cohort import simulated_memories
from fedfair.simulation.simulate import play
from fedfair.simulation.vectorised.clients import VectorisedClients
from fedfair.statistics.table import Purpose
from fedfair.terms.kept import CountedVariates
from fedfair.terms.variates.site import SiteVariates
from fedfair.training.assembly import flat_model, local_steps
from fedfair.training.client import TrainingClient
from tests import bc10
from tests.held_terms import holding
from tests.oracles.scaffold import Problem, Scaffold

EPS = 2.0**-53
DIMENSION = 22


def plan_of(
    parts: bc10.Parts, *, mode: str = "off", objective: dict[str, object] | None = None, **training: object
) -> Plan:
    """Return a full-batch fp64 plan of one class a site, ten steps a round."""
    stated: dict[str, object] = {"local_steps": 10, "control_variates": True, "threshold_learning_rate": 0.05}
    made = bc10.plan(len(parts), objective=objective, **{**stated, **training})
    return made.model_copy(
        update={"secure_aggregation": made.secure_aggregation.model_copy(update={"mode": mode})}
    )


def problem_of(parts: bc10.Parts) -> Problem:
    data = bc10.dataset()
    sites = [(data.features[part].astype(np.float64), data.labels[part]) for part in parts]
    return Problem(sites, 0.3, 0.1, 0.05)


def reference(plan: Plan, parts: bc10.Parts, *, corrects: bool = True) -> Scaffold:
    training = plan.training
    rates = np.full(DIMENSION + 1, training.learning_rate)
    rates[-1] = training.threshold_learning_rate or training.learning_rate
    start = np.zeros(DIMENSION + 1)
    start[-1] = 1.0
    weights = [float(len(part)) for part in parts]
    problem, own = problem_of(parts), [None] * len(parts)
    return Scaffold(problem, training.local_steps, rates, weights, start, list(own), corrects=corrects)


class Played:
    """A run whose every round is open to a test: who takes part in it, and what is counted."""

    def __init__(self, plan: Plan, parts: bc10.Parts) -> None:
        sites = bc10.sites(parts)
        schema = next(iter(sites.values())).train.schema
        flat = flat_model(plan, schema, torch.device("cpu"), Path())
        steps = local_steps(plan, flat, schema)
        self.plan, self.names = plan, tuple(sites)
        self.tasks = [TrainingClient(plan, name, splits, flat, steps) for name, splits in sites.items()]
        self.run = TrainingRun(plan, flat.layout, schema, flat.vector())
        variates = simulated_memories(plan, flat.layout, sites)
        assert variates is not None
        self.variates: dict[ParticipantId, SiteVariates] = variates

    def round(self, present: Sequence[int] | None = None, *, lost: bool = False) -> None:
        """Go to the next training sum and make it with those who are there; a lost one moves nothing."""
        while (request := self.run.next_sum()) is not None and request.purpose is not Purpose.TRAINING:
            members = {self.names[k]: task for k, task in enumerate(self.tasks)}
            self.run.apply_aggregate(LoopClients(members).totals(request, self.run.model), self.names)
        assert request is not None
        members = {self.names[k]: self.tasks[k] for k in (range(len(self.tasks)) if present is None else present)}
        totals = LoopClients(members, memories=self.variates).totals(request, self.run.model)
        if lost:
            self.run.retry()
        else:
            self.run.apply_aggregate(totals, tuple(members))

    @property
    def counted(self) -> CountedVariates:
        counted = self.run.state.terms["variates"]
        assert counted is not None
        return counted

    def own_sum(self) -> tuple[NDArray[np.float64], float, float]:
        """Return the sum of w_k v_k over what the run counts of every site, and of w_k."""
        kept = [own.counted(self.counted) for own in self.variates.values()]
        assert all(one is not None for one in kept)
        held = [one for one in kept if one is not None]
        vector = sum((one.weight * one.variate.vector for one in held), np.zeros(DIMENSION))
        return vector, sum(one.weight * one.variate.threshold for one in held), sum(one.weight for one in held)

    @property
    def point(self) -> NDArray[np.float64]:
        return np.append(self.run.model.vector, self.run.model.threshold)


def assert_counts_what_sites_keep(played: Played, tolerance: float) -> None:
    vector, threshold, weight = played.own_sum()
    np.testing.assert_allclose(played.counted.total.vector, vector, atol=tolerance)
    assert played.counted.total.threshold == pytest.approx(threshold, abs=tolerance)
    assert played.counted.weight == weight


ABSENCES: tuple[tuple[int, ...], ...] = ((0, 1, 2), (0, 2), (0,), (1, 2), (0, 1, 2), (2,), (0, 1))


def test_the_trajectory_is_that_of_scaffold_written_out_in_numpy() -> None:
    parts = bc10.random_thirds()
    plan = plan_of(parts, rounds=12)
    played, slow = Played(plan, parts), reference(plan, parts)
    for _ in range(12):
        played.round()
        slow.play()
        # Both make the same few thousand operations in another order; descent here does not enlarge a difference,
        # so that each of the 120 steps adds at most the rounding of a mean over 569 records of numbers below 100.
        np.testing.assert_allclose(played.point, slow.x, atol=120 * 569 * 100 * EPS)
    assert np.abs(played.point).max() > 0.1


@pytest.mark.parametrize("first", [(0, 1, 2), (1,)])
def test_who_is_absent_keeps_its_variate_and_returns_with_it(first: tuple[int, ...]) -> None:
    parts = bc10.random_thirds()
    plan = plan_of(parts, rounds=30)
    played, slow = Played(plan, parts), reference(plan, parts)
    for present in (first, *ABSENCES, *ABSENCES):
        played.round(present)
        slow.play(present)
        np.testing.assert_allclose(played.point, slow.x, atol=150 * 569 * 100 * EPS)
        np.testing.assert_allclose(
            np.append(played.counted.mean.vector, played.counted.mean.threshold), slow.common, atol=1e-8
        )
        assert_counts_what_sites_keep(played, 1e-9)


def test_a_round_that_is_lost_leaves_every_variate_as_it_was() -> None:
    parts = bc10.random_thirds()
    plan = plan_of(parts, rounds=30, batch_size=20)
    played = Played(plan, parts)
    for number in range(6):
        if number % 2:
            before = {name: own.counted(played.counted) for name, own in played.variates.items()}
            played.round(lost=True)
            assert {name: own.counted(played.counted) for name, own in played.variates.items()} == before
            played.round((0, 2), lost=True)
        played.round((0, 1) if number == 3 else None)
        assert_counts_what_sites_keep(played, 1e-9)
    assert played.counted.rounds == (6, 6, 6)


def test_with_all_sites_the_common_variate_is_the_mean_pseudo_gradient() -> None:
    parts = bc10.random_thirds()
    plan = plan_of(parts, rounds=8)
    played = Played(plan, parts)
    for _ in range(8):
        before = played.run.model
        played.round()
        after, pace = played.run.model, 10 * 0.1
        moved = (before.vector - after.vector) / pace
        np.testing.assert_allclose(played.counted.mean.vector, moved, atol=1e-12)
        assert played.counted.mean.threshold == pytest.approx(
            (before.threshold - after.threshold) / 0.5, abs=1e-12
        )


def test_one_local_step_of_all_sites_is_no_other_with_control_variates() -> None:
    parts = bc10.random_thirds()
    with_variates, without = (
        plan_of(parts, rounds=15, local_steps=2, control_variates=True),
        plan_of(parts, rounds=15, local_steps=1, control_variates=False),
    )
    one_step = with_variates.model_copy(
        update={"training": with_variates.training.model_copy(update={"local_steps": 1})}
    )
    played = Played(one_step, parts)
    for _ in range(15):
        played.round()
    other = bc10.final_model(without, parts)
    # The corrections of 569 records cancel in the sum but for its rounding: 15 rounds of numbers below 10.
    np.testing.assert_allclose(played.run.model.vector, other.vector, atol=15 * 569 * 10 * EPS)
    assert played.run.model.threshold == pytest.approx(other.threshold, abs=15 * 569 * 10 * EPS)


def test_the_limit_of_one_class_a_site_does_not_depend_on_the_number_of_local_steps() -> None:
    parts = bc10.by_class()
    stated = {"learning_rate": 0.1, "threshold_learning_rate": 0.1}
    objective = {"worst_group_size": 0.1, "tradeoff": 0.1}
    problem = replace(problem_of(parts), **objective)
    found = {}
    for steps, corrects in ((1, False), (10, False), (10, True)):
        rounds = 400 // steps
        training = {**stated, "rounds": rounds + 1, "local_steps": steps, "control_variates": corrects}
        plan = plan_of(parts, objective=objective, **training)
        run = bc10.Federation(plan, bc10.sites(parts)).training_run
        cohort = VectorisedClients(plan, bc10.sites(parts), flat_model(plan, *_at_start(parts)))
        # One round before the end, because the output may be an earlier model.
        while run.rounds_done < rounds:
            request = run.next_sum()
            assert request is not None
            run.apply_aggregate(cohort.totals(request, run.model), cohort.names)
        found[steps, corrects] = problem.objective(np.append(run.model.vector, run.model.threshold))
    # As many steps in a tenth of the rounds: the same model as with one step, where plain averaging drifts away.
    assert found[10, True] == pytest.approx(found[1, False], abs=1e-3)
    assert found[10, False] > found[1, False] + 0.05


def _at_start(parts: bc10.Parts) -> tuple[FeatureSchema, torch.device, Path]:
    schema = next(iter(bc10.sites(parts).values())).train.schema
    return schema, torch.device("cpu"), Path()


@pytest.mark.parametrize(("mode", "batch_size"), [("off", 20), ("malicious", "full")])
def test_all_at_once_is_one_after_the_other(mode: str, batch_size: object) -> None:
    parts = bc10.random_thirds()
    plan = plan_of(parts, mode=mode, rounds=10, batch_size=batch_size, learning_rate=0.5)
    sites = bc10.sites(parts)
    schema = next(iter(sites.values())).train.schema
    models = []
    for vectorised in (False, True):
        flat = flat_model(plan, schema, torch.device("cpu"), Path())
        run = TrainingRun(plan, flat.layout, schema, flat.vector())
        tasks = {name: TrainingClient(plan, name, splits, flat) for name, splits in sites.items()}
        cohort = (
            VectorisedClients(plan, sites, flat)
            if vectorised
            else LoopClients(tasks, memories=simulated_memories(plan, flat.layout, sites))
        )
        play(run, cohort, clips=mode != "off")
        counted = run.state.terms["variates"]
        assert counted is not None
        models.append(np.concatenate([run.model.vector, counted.total.vector, [run.model.threshold]]))
    np.testing.assert_allclose(models[0], models[1], atol=1e-9)


def test_a_lost_variate_and_other_records_are_refused_in_words() -> None:
    parts = bc10.random_thirds()
    plan = plan_of(parts, rounds=5)
    played = Played(plan, parts)
    played.round()
    fresh = simulated_memories(plan, played.tasks[0].layout, played.names)
    assert fresh is not None
    played.variates = fresh
    with pytest.raises(StateError, match="the control variate of round 1 is lost") as fault:
        played.round()
    assert "--fresh" in fault.value.remedy
    plan = plan_of(parts, rounds=5)
    played = Played(plan, parts)
    played.round()
    fewer = Played(plan, [parts[0][:30], *parts[1:]])
    played.tasks[0] = fewer.tasks[0]
    with pytest.raises(StateError, match="with weight 40, and its training records have weight 30 now"):
        played.round()


def test_a_site_without_records_is_counted_with_nothing_until_it_has_some() -> None:
    parts = bc10.random_thirds()
    plan = plan_of(parts, rounds=5)
    played, empty = Played(plan, parts), Played(plan, [parts[0][:0], *parts[1:]])
    with_records, played.tasks[0] = played.tasks[0], empty.tasks[0]
    played.round()
    assert (played.counted.weight, played.counted.rounds) == (len(parts[1]) + len(parts[2]), (1, 1, 1))
    played.tasks[0] = with_records
    played.round()
    assert played.counted.weight == 569
    assert_counts_what_sites_keep(played, 1e-9)


def test_a_header_tells_the_weight_of_who_is_counted_for_the_first_time_only() -> None:
    parts = bc10.random_thirds()
    plan = plan_of(parts, rounds=5)
    played = Played(plan, parts)
    played.round((0,))
    request = played.run.next_sum()
    assert request is not None
    for k, new in ((0, 0.0), (1, 160.0)):
        task, own = played.tasks[k], played.variates[played.names[k]]
        addend = task.contribution(
            request, played.run.model, own.correction(request, played.run.model, task.training_weight)
        )
        assert list(addend.header[:2]) == [len(parts[k]), new]
        total = PlainSum(request.spec)
        total.add(encode(addend, request.spec))
        assert total.totals().header[1] == new


def test_a_state_with_variates_survives_a_journey_and_names_nobody_beyond_the_plan() -> None:
    parts = bc10.random_thirds()
    plan = plan_of(parts, rounds=5)
    played = Played(plan, parts)
    played.round((1,))
    state, initial = played.run.state, played.run.initial
    packed = b"".join(pack_state(state))
    assert len(packed) <= greatest_state_bytes(DIMENSION)
    found = unpack_state(packed, initial)
    assert found.digest(bytes(32)) == state.digest(bytes(32))
    with pytest.raises(LocalProtocolError, match="does not fit this training run"):
        unpack_state(packed, holding(initial, variates=None))
    assert played.run.rules.may_be(state)
    beyond = replace(played.counted, rounds=(0, 2, 0))
    assert not played.run.rules.may_be(holding(state, variates=beyond))
    assert not played.run.rules.may_be(holding(state, variates=None))
    assert RoundNumber(1) in played.counted.rounds


@pytest.mark.parametrize(
    ("new_weight", "members", "words"),
    [
        (41.0, ("site-0",), "of that is counted for the first time"),
        (-1.0, ("site-0",), "of that is counted for the first time"),
        (40.0, ("site-0", "stranger"), "names \\['stranger'\\] among its members"),
        (40.0, (), "names nobody among its members"),
    ],
)
def test_an_uncountable_sum_is_refused_unmoved(new_weight: float, members: tuple[str, ...], words: str) -> None:
    parts = bc10.random_thirds()
    plan = plan_of(parts, rounds=5)
    played = Played(plan, parts)
    played.round((1,))
    before, request = played.run.state, played.run.next_sum()
    assert request is not None
    alone = {played.names[0]: played.tasks[0]}
    totals = LoopClients(alone, memories=played.variates).totals(request, played.run.model)
    totals.header[1] = new_weight
    with pytest.raises(RemoteProtocolError, match=words):
        played.run.apply_aggregate(totals, members)
    assert played.run.state is before
