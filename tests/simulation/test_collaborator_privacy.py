"""Differential privacy of whole collaborators through training: the same numbers, masked or simulated."""

import functools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from collaborator.masking_policy import masking_policy
from fedfair.aggregation.distributed_dp import DistributedDp, distributed_dp
from fedfair.aggregation.masked_encoding import sum_shapes
from fedfair.aggregation.masking_terms import session_terms
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.errors import DataError, LocalProtocolError, PlanError, PrivacyError, TrainingError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SitePolicy as SiteFile
from fedfair.privacy.releases import Release, ReleaseLog, SkellamRelease
from fedfair.privacy.skellam import skellam_epsilon
from fedfair.report.plan_review import plan_review
from fedfair.report.privacy_cost import multiplier_for
from fedfair.results.costs import SumCost
from fedfair.results.document import to_json
from fedfair.results.privacy import deployed_privacy
from fedfair.results.reading import parse_result
from fedfair.results.writing import deployed_result
from fedfair.run.progress import RunResult
from fedfair.run.saved_model import TrainedModel, evaluation_run
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.messages import Kind
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.simulation.backend import chosen_engine
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.simulate import SimulationOutcome, simulate_sites
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Splits
from fedfair.terms.local_change import LocalChange
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import RecordProtection, simulated_protection, site_protection
from fedfair.training.local_descent import LocalDescent
from fedfair.training.masked_update import noised_update
from tests import bc10
from tests.contributions import evaluation_of, standardisation_of
from tests.secagg.federation_in_memory import Wire

FIRST = RoundNumber(1)
CPU = torch.device("cpu")


def noised(
    collaborators: int = 3,
    *,
    privacy: dict[str, object] | None = None,
    federation: dict[str, object] | None = None,
    protection: dict[str, object] | None = None,
    hidden: int = 0,
    **training: object,
) -> Plan:
    objective = {"worst_group_size": 0.1, "tradeoff": 0.01}
    stated = {"weights": "uniform", "rounds": 4, "threshold_learning_rate": 0.01} | training
    values = bc10.plan(collaborators, objective=objective, **stated).model_dump()
    values["privacy"] = {"collaborator_level": {"noise_multiplier": 3.0, "clip": 0.5, **(privacy or {})}}
    values["federation"] |= federation or {}
    values["secure_aggregation"] |= protection or {}
    if hidden:
        values["task"]["model"] = {"name": "mlp", "hidden": [hidden]}
    return Plan.model_validate(values)


def simulated(plan: Plan) -> SimulationOutcome:
    return simulate_sites(plan, bc10.sites(bc10.random_thirds()), Path())


def said(outcome: SimulationOutcome) -> dict[str, object]:
    privacy = to_json(outcome.result)["privacy"]
    assert isinstance(privacy, dict)
    level = privacy["collaborator_level"]
    assert isinstance(level, dict)
    return level


def tasks_of(plan: Plan, parts: bc10.Parts) -> tuple[dict[ParticipantId, TrainingClient], GlobalModel]:
    """Return a task for each part, with the draws of the simulation, and the model before round 1."""
    sites = bc10.sites(parts)
    flat = flat_model(plan, next(iter(sites.values())).train.schema, CPU, Path())
    tasks = {
        name: TrainingClient(plan, name, splits, flat, protection=simulated_protection(plan, name, ReleaseLog()))
        for name, splits in sites.items()
    }
    return tasks, GlobalModel(flat.vector(), 1.0)


def mechanism(plan: Plan, model: GlobalModel) -> DistributedDp:
    found = distributed_dp(plan, len(model.vector))
    assert found is not None
    return found


# ------------------------------------------------------------------ simulations


@functools.cache
def stated() -> SimulationOutcome:
    return simulated(noised())


def test_a_simulation_states_what_a_deployment_would_and_judges_the_model_without_noise() -> None:
    told, result = said(stated()), to_json(stated().result)
    _, model = tasks_of(noised(), bc10.random_thirds())
    sums = mechanism(noised(), model).sums
    assert told["epsilon"] == skellam_epsilon([sums.release(4)], 1e-5)
    assert told["epsilon"] == pytest.approx(3.0, abs=0.2)
    assert (told["h_min"], told["mu"], told["rounds"]) == (3, sums.variance, 4)
    assert "protects nobody" in str(told["statement"])
    assert "unit = one collaborator (zero-out), against the aggregator and up to 0 colluders" in str(
        told["statement"]
    )
    assert "T=4, RDP." in str(told["statement"])
    follows = said(simulated(noised(protection={"mode": "semi-honest"}, rounds=1)))
    assert "against an aggregator that follows the protocol and up to 0" in str(follows["statement"])
    assert isinstance(result["train"], dict)
    assert result["train"]["n"] == 569
    losses = [site["train"].values for site in stated().losses.values()]
    assert result["train"]["mean"] == pytest.approx(np.concatenate(losses).mean(), rel=1e-12)
    assert [moment["round"] for moment in result["history"]] == [4]  # type: ignore[index, union-attr, call-overload]
    json.dumps(result, allow_nan=False)


def test_with_next_to_no_noise_and_no_clipping_a_sum_is_that_of_equal_weights() -> None:
    plan = noised(privacy={"noise_multiplier": 1e-4, "clip": 10.0})
    open_plan = plan.model_copy(update={"privacy": bc10.plan(3).privacy})
    tasks, model = tasks_of(plan, bc10.random_thirds())
    found = mechanism(plan, model)
    spec = sum_specs(plan, tasks[ParticipantId("site-0")].layout, bc10.dataset().schema)[Purpose.TRAINING]
    request = SumRequest(Purpose.TRAINING, FIRST, 1, spec)
    noisy = LoopClients(tasks, found).totals(request, model)
    flat = flat_model(open_plan, bc10.dataset().schema, CPU, Path())
    sites = bc10.sites(bc10.random_thirds())
    clear = LoopClients({name: TrainingClient(open_plan, name, splits, flat) for name, splits in sites.items()})
    plain = clear.totals(request, model)
    # Three roundings, and noise of 1e-4 clips: six deviations hold in all 23 entries but for 1e-7.
    allowed = 1.5 / found.sums.scale + 6 * 1e-4 * 10.0 * 1.001
    assert noisy.header[0] == plain.header[0] == 3.0
    assert abs(noisy.header[1] - plain.header[1]) <= allowed
    assert abs(noisy.body - plain.body).max() <= allowed


def test_a_threshold_that_is_not_learnt_does_not_move_and_all_else_is_clipped_as_one_vector() -> None:
    plan = noised(privacy={"clip": 0.01})
    tasks, model = tasks_of(plan, bc10.random_thirds())
    sums = mechanism(plan, model).sums
    task = tasks[ParticipantId("site-2")]
    change = task.descent.training_change(model, FIRST, 1)
    assert change is not None
    whole = np.append(change.model, change.threshold)
    assert np.linalg.norm(whole) > 0.01
    kept = sums.whole_numbers(mechanism(plan, model).vector(change.model, change.threshold)) / sums.scale
    np.testing.assert_allclose(kept, whole * 0.01 / np.linalg.norm(whole), atol=0.51 / sums.scale)
    outcome = simulated(noised(algorithm="fedavg", threshold_learning_rate=None))
    assert outcome.model.threshold == 1.0


# ------------------------------------------------------------------ masked sums

FIVE = [np.arange(start, 569, 5) for start in range(5)]


def opened_and_simulated(plan: Plan, dropped: int) -> tuple[OpenedSum, Totals, DistributedDp]:
    """Return what a real masked sum over five sites opens to, and what simulated survivors add up to."""
    tasks, model = tasks_of(plan, FIVE)
    found, names = mechanism(plan, model), list(tasks)
    layout = tasks[names[0]].layout
    wire = Wire(
        5, session_terms(plan), sum_shapes(plan, layout, bc10.dataset().schema),
        masking_policy(plan, SiteFile(colluders=1)), dtype=layout.dtype.type,
    )  # fmt: skip
    wire.set_up()
    wire.silent = {(5, Kind.UPLOAD)} if dropped else set()
    numbers = {index: tasks[name].noised_numbers(model, FIRST, 1) for index, name in enumerate(names, start=1)}
    opened = wire.round({index: noised_update(part) for index, part in numbers.items()}, clip=found.sums.clip)
    assert opened is not None
    survivors = [numbers[index] for index in opened.survivors]
    return opened, found.opened_totals(np.add.reduce(survivors), len(survivors), layout.dtype), found


def five(**training: object) -> Plan:
    return noised(
        5,
        federation={"min_collaborators": 4},
        protection={"mode": "malicious", "colluders": 1},
        **training,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("ring_bits", [32, 24, 20])
@pytest.mark.parametrize("dropped", [0, 1])
def test_a_masked_sum_opens_to_the_very_numbers_of_the_simulation(ring_bits: int, dropped: int) -> None:
    plan = five()
    plan = plan.model_copy(
        update={"secure_aggregation": plan.secure_aggregation.model_copy(update={"ring_bits": ring_bits})}
    )
    opened, simulated_totals, found = opened_and_simulated(plan, dropped)
    totals = found.totals(opened.body, opened.contributors)
    np.testing.assert_array_equal(totals.body, simulated_totals.body)
    np.testing.assert_array_equal(totals.header, simulated_totals.header)
    assert totals.header[0] == opened.weight == 5 - dropped
    # Nothing that the protocol counts tells of a change: no clipped value, and no largest one.
    assert (opened.clipped, opened.histogram[0], sum(opened.histogram)) == (0, 5 - dropped, 5 - dropped)
    assert opened.header.size == 0


@pytest.mark.parametrize("dropped", [0, 1])
def test_an_opened_sum_carries_the_noise_of_every_survivor_and_never_less_than_is_stated(dropped: int) -> None:
    # So little is learnt, beside a clip this large, that what is left of the sum is noise in 18 000 entries.
    plan = five(learning_rate=1e-12, threshold_learning_rate=1e-12, hidden=1400)
    opened, _, found = opened_and_simulated(plan, dropped)
    steps, sums = opened.body.astype(np.float64) * found.sums.scale, found.sums
    assert sums.shares == 3
    ratio = (steps**2).sum() / sums.variance
    lowest, highest = (stats.chi2.isf(probability, len(steps)) for probability in (1 - 1e-7, 1e-7))
    assert lowest < ratio * 3 / (5 - dropped) < highest
    # One survivor colludes and tells its share: what is left of the least sum is the promise itself.
    assert ratio * (4 - dropped) / (5 - dropped) > lowest
    assert sums.variance >= (3.0 * sums.bound) ** 2


# ------------------------------------------------------------------ what a site does whatever its data are


class Failing(LocalDescent):
    """Local steps whose model fails on its records, or makes numbers that are none."""

    fault: TrainingError | None = None

    def training_change(self, *args: object, **options: object) -> LocalChange | None:
        del args, options
        if self.fault is not None:
            raise self.fault
        return LocalChange(1, math.nan, np.zeros(self.records.model.layout.dimension))


@pytest.mark.parametrize("fault", [None, TrainingError("the model fails on a batch")])
def test_a_site_whose_training_fails_takes_part_with_noise_alone_and_is_told(fault: TrainingError | None) -> None:
    plan, log = noised(), ReleaseLog()
    tasks, model = tasks_of(plan, bc10.random_thirds())
    sound = tasks[ParticipantId("site-0")]
    task = TrainingClient(
        plan, sound.participant, Splits(bc10.dataset()), flat_model(plan, bc10.dataset().schema, CPU, Path()),
        protection=simulated_protection(plan, sound.participant, log),
    )  # fmt: skip
    task.descent.__class__ = Failing
    task.descent.fault = fault
    numbers = task.noised_numbers(model, FIRST, 1)
    sums = mechanism(plan, model).sums
    np.testing.assert_array_equal(
        numbers,
        sums.contribution(
            np.zeros(sums.length), simulated_protection(plan, sound.participant, log).entropy("collaborator", 1, 1)
        ),
    )
    assert task.last_fault
    assert [release.count for release in log.sums] == [1]


def test_a_site_takes_part_without_records_and_insists_on_survivors() -> None:
    assert masking_policy(five(), SiteFile(colluders=1)).least_survivors == 4
    assert masking_policy(five(), SiteFile(colluders=1)).greatest_clip == 0.5
    plan = noised()
    tasks, model = tasks_of(plan, [*bc10.random_thirds()[:2], np.arange(0)])
    numbers = tasks[ParticipantId("site-2")].noised_numbers(model, FIRST, 1)
    assert numbers.any()
    assert tasks[ParticipantId("site-2")].last_fault == ""
    assert noised_update(numbers).weight == 1


def test_every_attempt_is_a_release_with_noise_of_its_own_and_one_that_may_not_be_draws_none() -> None:
    plan, log = noised(), ReleaseLog()
    name = ParticipantId("site-0")
    flat = flat_model(plan, bc10.dataset().schema, CPU, Path())
    task = TrainingClient(
        plan, name, Splits(bc10.dataset()), flat, protection=simulated_protection(plan, name, log)
    )
    model = GlobalModel(flat.vector(), 1.0)
    first, second = (task.noised_numbers(model, FIRST, attempt) for attempt in (1, 2))
    assert not np.array_equal(first, second)
    assert log.sums == [mechanism(plan, model).sums.release(1)] * 2

    def refuse(release: Release) -> None:
        del release
        raise PrivacyError("the budget is spent", "use another data set")

    def no_entropy(*words: str | int) -> int:
        raise AssertionError(words)

    broke = TrainingClient(
        plan, name, Splits(bc10.dataset()), flat, protection=RecordProtection(no_entropy, refuse)
    )
    with pytest.raises(PrivacyError, match="budget"):
        broke.noised_numbers(model, FIRST, 1)


def test_noise_repeats_itself_in_a_simulation_only() -> None:
    again, other = simulated(noised()), simulated(noised(seed=1))
    np.testing.assert_array_equal(stated().model.vector, again.model.vector)
    assert stated().model.threshold == again.model.threshold
    assert not np.allclose(stated().model.vector, other.model.vector)
    plan = noised()
    flat = flat_model(plan, bc10.dataset().schema, CPU, Path())
    protection = site_protection(ReleaseLog().record)
    task = TrainingClient(plan, ParticipantId("site-0"), Splits(bc10.dataset()), flat, protection=protection)
    model = GlobalModel(flat.vector(), 1.0)
    once, again = (task.noised_numbers(model, FIRST, 1) for _ in range(2))
    assert not np.array_equal(once, again)


# ------------------------------------------------------------------ nothing outside the accountant


def test_no_other_sum_exists_and_no_change_leaves_a_site_as_it_is() -> None:
    plan = noised()
    tasks, model = tasks_of(plan, bc10.random_thirds())
    task = tasks[ParticipantId("site-0")]
    schema = bc10.dataset().schema
    specs, shapes = sum_specs(plan, task.layout, schema), sum_shapes(plan, task.layout, schema)
    assert set(specs) == {Purpose.TRAINING}
    assert set(shapes) == {"training"}
    assert shapes["training"].header_length == 0
    with pytest.raises(LocalProtocolError, match="whole numbers"):
        task.rounds.contribution(model, FIRST, 1)
    with pytest.raises(LocalProtocolError, match="asks for no"):
        evaluation_of(task, model)
    with pytest.raises(LocalProtocolError, match="never summed"):
        standardisation_of(task)


@pytest.mark.parametrize("output", ["last", "average", "tail"])
def test_a_training_run_asks_for_training_sums_only_and_counts_the_attempts_that_were_lost(output: str) -> None:
    plan = noised(output=output)
    tasks, model = tasks_of(plan, bc10.random_thirds())
    layout = tasks[ParticipantId("site-0")].layout
    training_run = TrainingRun(plan, layout, bc10.dataset().schema, model.vector)
    asked = []
    while (request := training_run.next_sum()) is not None:
        asked.append((request.purpose, request.round))
        if request.round == 2 and request.attempt == 1:
            training_run.retry()
            continue
        training_run.apply_aggregate(Totals(np.array([3.0, 0.0]), np.ones(layout.dimension), 3))
    assert asked == [(Purpose.TRAINING, number) for number in (1, 2, 2, 3, 4)]
    result = training_run.result()
    assert (result.finished, result.rounds, result.lost_rounds, result.evaluation) == (True, 4, 1, None)
    # The mean step is 1/3: the last model is 4/3, the mean of the four broadcasts 1/2, of the last two 5/6.
    expected = {"last": 4 / 3, "average": 1 / 2, "tail": 5 / 6}[output]
    np.testing.assert_allclose(training_run.model.vector, expected, rtol=1e-12)
    again = TrainingRun(plan, layout, bc10.dataset().schema, model.vector)
    again.restore(training_run.snapshot())
    assert again.result().lost_rounds == 1


def came_to(rounds: int, lost: int) -> RunResult:
    return RunResult(RoundNumber(rounds), 1.0, None, {}, (), finished=True, lost_rounds=lost)


def test_a_deployment_states_an_epsilon_that_counts_lost_attempts_and_none_where_shares_were_missing() -> None:
    plan = five()
    found = distributed_dp(plan, 22)

    def level(lost: int, contributors: list[int], purpose: Purpose = Purpose.TRAINING) -> dict[str, object]:
        costs = [SumCost(purpose, number, 1.0, count, 1, 1) for number, count in enumerate(contributors, start=1)]
        told = deployed_privacy(plan, found, came_to(4, lost), costs).collaborator_level
        assert told is not None
        return told.model_dump()

    whole, repeated, thin = level(0, [5, 4, 5, 4]), level(2, [5, 4, 5, 4]), level(0, [5, 3, 5, 5])
    assert "up to 1 colluders, if ≥ 3 honest noise shares" in str(whole["statement"])
    assert "T=6" in str(repeated["statement"])
    assert float(str(repeated["epsilon"])) > float(str(whole["epsilon"]))
    assert thin["epsilon"] is None
    assert "no epsilon can be stated: a round had 3 collaborators" in str(thin["statement"])
    assert level(0, [])["h_min"] == 3
    beside = level(0, [5], Purpose.EVALUATION)
    assert beside["epsilon"] is None
    assert "released outside the accountant" in str(beside["statement"])


def test_a_result_without_an_evaluation_has_no_figures_and_a_report_of_it_says_why() -> None:
    plan = five()
    document = deployed_result(
        plan, "sha256:" + 64 * "0", came_to(4, 0), classes=2, seconds=1.0, costs=[],
        noised=distributed_dp(plan, 22),
    )  # fmt: skip
    result = to_json(document)
    assert result["train"] is None
    assert result["objective"] == {"rcvar": None, "rcvar_bound": None, "smoothed": None, "split": "train"}
    assert result["evaluation"] == {"method": "none", "given_up": None}
    with pytest.raises(DataError, match="whole collaborators"):
        parse_result(json.dumps(result), "result.json")


# ------------------------------------------------------------------ what a plan is told


def test_a_plan_check_says_what_the_noise_is_worth_and_what_it_does() -> None:
    (told,) = (
        note for note in plan_review(noised(rounds=100)).notes if note.startswith("privacy.collaborator_level")
    )
    spent = skellam_epsilon([SkellamRelease("training", 1e6, 1e6, 9e12, 100)], 1e-5)
    assert f"epsilon {spent:.3g} at delta 1e-05 after 100 rounds" in told
    enough = multiplier_for(8.0, 100, 1e-5)
    releases = [SkellamRelease("training", 1e6, 1e6, (z * 1e6) ** 2, 100) for z in (enough, enough - 0.01)]
    assert skellam_epsilon(releases[:1], 1e-5) <= 8.0 < skellam_epsilon(releases[1:], 1e-5)
    assert f"would need a noise_multiplier of {enough:.3g}" in told
    # z sqrt(d) / sqrt(n h): 3 sqrt(63) / 3 for the 62 parameters of the built-in data and the threshold.
    assert "about 7.9" in told
    assert "Nothing is evaluated" in told


def test_plans_with_noise_for_collaborators_are_neither_vectorised_nor_evaluated_nor_too_large() -> None:
    plan = noised()
    tasks, model = tasks_of(plan, bc10.random_thirds())
    layout = tasks[ParticipantId("site-0")].layout
    with pytest.raises(PlanError, match="no evaluation sum"):
        evaluation_run(plan, layout, bc10.dataset().schema, TrainedModel(model, FIRST, "", None), exact=False)
    with pytest.raises(PlanError, match="collaborator_level"):
        chosen_engine(noised(), "vectorised")
    plan = noised(hidden=9000, protection={"ring_bits": 16})
    with pytest.raises(PlanError, match=r"rounding is too coarse.*16 bits"):
        plan_review(plan)
    with pytest.raises(PlanError, match=r"rounding is too coarse.*16 bits"):
        simulated(plan)


def test_the_widest_ring_of_a_plan_decides_its_steps() -> None:
    wide, narrow = (distributed_dp(noised(protection={"ring_bits": bits}), 10) for bits in (32, 20))
    assert wide is not None
    assert narrow is not None
    assert wide.sums.bound >= narrow.sums.bound
    assert replace(narrow, sums=wide.sums, ring_bits=32) == wide
