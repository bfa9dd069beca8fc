"""Differential privacy of records through the whole of training: draws, releases, refusals, and still learning."""

import functools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.aggregation.feature_moments import column_sums, noise_deviation, possible_sums
from fedfair.aggregation.feature_scaling import scaling_from_sums
from fedfair.aggregation.masked_encoding import header_parts
from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.spec import SumSpec
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.errors import LocalProtocolError, PlanError, PrivacyError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.releases import GaussianRelease, ReleaseLog
from fedfair.privacy.statement import ZERO_OUT
from fedfair.results.document import to_json
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.backend import chosen_engine
from fedfair.simulation.simulate import SimulationOutcome, simulate_sites
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset, Splits
from fedfair.terms.local_change import LocalChange
from fedfair.training.assembly import flat_model, mechanism_of
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import RecordProtection, simulated_protection, site_protection
from tests import bc10
from tests.contributions import evaluation_of

NAME = ParticipantId("site-0")
FIRST = RoundNumber(1)


def private(collaborators: int = 1, *, privacy: dict[str, object] | None = None, **training: object) -> Plan:
    plan = bc10.plan(collaborators, objective={"worst_group_size": 0.1, "tradeoff": 0.01}, **training)
    values = plan.model_dump() | {"privacy": {"sample_level": {"noise_multiplier": 6.0, **(privacy or {})}}}
    values["evaluation"]["bins"] = 16
    return Plan.model_validate(values)


def simulated(plan: Plan, parts: bc10.Parts | None = None) -> SimulationOutcome:
    return simulate_sites(plan, bc10.sites(parts or bc10.everybody()), Path())


@functools.cache
def learnt(clipping: str) -> SimulationOutcome:
    rates = {"rounds": 100, "learning_rate": 0.5, "threshold_learning_rate": 0.02}
    return simulated(private(privacy={"clipping": clipping}, **rates))


def worst(outcome: SimulationOutcome) -> float:
    train = to_json(outcome.result)["train"]
    assert isinstance(train, dict)
    groups = train["by_group_size"]
    assert isinstance(groups, dict)
    return float(groups["0.1"]["worst"])


def said(outcome: SimulationOutcome) -> dict[str, object]:
    privacy = to_json(outcome.result)["privacy"]
    assert isinstance(privacy, dict)
    sample_level = privacy["sample_level"]
    assert isinstance(sample_level, dict)
    return sample_level


def test_a_fair_model_is_learnt_at_epsilon_eight_and_joint_clipping_undoes_the_fairness() -> None:
    # The optimum of this objective has a worst risk of 0.64 (tests/vectors/bc10.json), the uniform classifier 0.69
    # and FedAvg's model about 1.5. Joint clipping at the same noise clips the weights of the worst group away.
    before_weighting, joint = learnt("before_weighting"), learnt("joint")
    assert said(before_weighting)["epsilon"] == said(joint)["epsilon"] == pytest.approx(8.01, abs=0.01)
    assert worst(before_weighting) < 0.85
    assert worst(joint) > 1.05


def test_a_simulation_states_what_a_deployment_would_and_that_it_protects_nobody() -> None:
    told = said(learnt("before_weighting"))
    assert "protects nobody" in str(told["statement"])
    unit = f"unit = one record of collaborator site-0 ({ZERO_OUT}), Poisson sampling q=1,"
    assert unit in str(told["statement"])
    assert told["noise_deviation"] == 6.0 * told["sensitivity"]  # type: ignore[operator]
    json.dumps(to_json(learnt("before_weighting").result), allow_nan=False)


def task(
    plan: Plan, protection: RecordProtection | None, splits: Splits | None = None
) -> tuple[TrainingClient, GlobalModel]:
    splits = splits or Splits(bc10.dataset())
    flat = flat_model(plan, splits.train.schema, torch.device("cpu"), Path())
    return TrainingClient(plan, NAME, splits, flat, protection=protection), GlobalModel(flat.vector(), 1.0)


def test_every_attempt_and_every_sum_is_a_release_and_the_worst_site_is_counted() -> None:
    plan = private(3, rounds=4, batch_size=32, local_steps=3)
    outcome = simulated(plan, bc10.random_thirds())
    # site-0 has 40 records. Four rounds of three steps, and evaluations before the first and after the last.
    releases = [
        GaussianRelease("training", 6.0, 32 / 40, 12, clip=1.0),
        GaussianRelease("evaluation", 20.0, 1.0, 2),
    ]
    assert said(outcome)["worst_collaborator"] == "site-0"
    assert said(outcome)["epsilon"] == pytest.approx(epsilon(releases, 1e-5), rel=1e-9)
    plan, log = private(batch_size=64, local_epochs=2), ReleaseLog()
    work, model = task(plan, simulated_protection(plan, NAME, log))
    first = work.rounds.contribution(model, FIRST, 1).body.copy()
    second = work.rounds.contribution(model, FIRST, 2).body
    # 569 records in batches of 64 on average: nine steps an epoch.
    assert log.releases == [GaussianRelease("training", 6.0, 64 / 569, 18, clip=1.0)] * 2
    assert not np.allclose(first, second)
    plan, log = private(), ReleaseLog()
    work, model = task(plan, simulated_protection(plan, NAME, log))
    evaluation_of(work, model)
    assert log.releases == [GaussianRelease("evaluation", 20.0, 1.0, 1)]
    nobody = Splits(bc10.dataset().take(np.arange(0)))
    empty = ReleaseLog()
    work, model = task(plan, simulated_protection(plan, NAME, empty), nobody)
    assert not evaluation_of(work, model).header.any()
    assert work.descent.training_change(model, FIRST, 1) is None
    assert empty.releases == []


def test_simulations_repeat_themselves_and_real_sites_do_not() -> None:
    stated = {"rounds": 3, "batch_size": 64, "local_steps": 2}
    first, again = (simulated(private(3, **stated), bc10.random_thirds()) for _ in range(2))
    np.testing.assert_array_equal(first.model.vector, again.model.vector)
    other = simulated(private(3, seed=1, **stated), bc10.random_thirds())
    assert not np.allclose(first.model.vector, other.model.vector)
    plan = private(batch_size=64)
    changes = []
    for _ in range(2):
        work, model = task(plan, site_protection(ReleaseLog().record))
        changes.append(work.rounds.contribution(model, FIRST, 1).body)
    assert not np.allclose(*changes)


def test_every_sites_steps_are_made_at_once_and_need_a_protection_that_fits() -> None:
    with pytest.raises(LocalProtocolError, match="entropy and a ledger"):
        task(private(), None)
    with pytest.raises(LocalProtocolError, match="entropy and a ledger"):
        task(bc10.plan(1), site_protection(ReleaseLog().record))
    assert chosen_engine(private(), "auto") == "vectorised"
    assert chosen_engine(private(precision="fp32"), "auto") == "vectorised"
    with pytest.raises(PlanError, match="precision is bf16"):
        chosen_engine(private(precision="bf16"), "vectorised")


MODELS = """
from torch import nn

def normed(schema):
    return nn.Sequential(nn.Linear(10, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

def dropping(schema):
    return nn.Sequential(nn.Linear(10, 4), nn.Dropout(0.5), nn.LayerNorm(4), nn.Linear(4, 2))
"""


def of_module(name: str) -> Plan:
    values = private(rounds=1, batch_size=32).model_dump()
    values["task"]["model"] = f"private_models:{name}"
    return Plan.model_validate(values)


def test_a_model_of_the_plans_own_is_trained_and_what_opacus_refuses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "private_models.py").write_text(MODELS)
    sites = bc10.sites(bc10.everybody())
    outcome = simulate_sites(of_module("dropping"), sites, tmp_path)
    again = simulate_sites(of_module("dropping"), sites, tmp_path)
    np.testing.assert_array_equal(outcome.model.vector, again.model.vector)
    with pytest.raises(PlanError, match=r"1 \(BatchNorm1d\)") as refused:
        simulate_sites(of_module("normed"), sites, tmp_path)
    assert "GroupNorm" in refused.value.remedy


def test_the_server_reads_noised_evaluations_and_masks_them_as_real_numbers() -> None:
    plan, sites = private(3, rounds=1), bc10.sites(bc10.random_thirds())
    schema = bc10.dataset().schema
    flat = flat_model(plan, schema, torch.device("cpu"), Path())
    training_run = TrainingRun(plan, flat.layout, schema, flat.vector())
    request = training_run.next_sum()
    assert request is not None
    steps = None
    headers = []
    for name, splits in sites.items():
        own = flat_model(plan, schema, torch.device("cpu"), Path())
        protected = simulated_protection(plan, name, ReleaseLog())
        work = TrainingClient(plan, name, splits, own, steps, protected)
        headers.append(work.contribution(request, training_run.model).header)
    counts = header_parts(plan, schema)[Purpose.EVALUATION].counts
    # Of a block only the number of records is whole; of the matrices nothing is.
    assert counts.sum() == 3
    total = sum(headers, np.zeros_like(headers[0]))
    assert not np.equal(total, np.floor(total)).all()
    progress = training_run.apply_aggregate(Totals(total, np.zeros(0, flat.layout.dtype), 3))
    assert progress.evaluation is not None
    assert progress.evaluation.splits["train"].n == 569
    assert sum_specs(plan, flat.layout, schema)[Purpose.EVALUATION].header_length == len(total)


def test_exact_evaluations_of_protected_records_and_refused_releases_draw_nothing() -> None:
    drawn = []

    def entropy(*words: str | int) -> int:
        drawn.append(words)
        return 0

    def refuse(release: GaussianRelease) -> None:
        raise PrivacyError(f"the budget of {NAME} allows no {release.purpose}")

    plan = private()
    work, model = task(plan, RecordProtection(entropy, refuse))
    before = model.vector.copy()
    for ask in (lambda: work.rounds.contribution(model, FIRST, 1), lambda: evaluation_of(work, model)):
        with pytest.raises(PrivacyError, match="allows no"):
            ask()
    assert drawn == []
    np.testing.assert_array_equal(model.vector, before)
    plan, sites = private(), bc10.sites(bc10.everybody())
    flat = flat_model(plan, bc10.dataset().schema, torch.device("cpu"), Path())
    log = ReleaseLog()
    site = TrainingClient(plan, NAME, sites[NAME], flat, protection=simulated_protection(plan, NAME, log))
    asked = SumRequest(
        Purpose.EXACT_EVALUATION, FIRST, 1, SumSpec(Purpose.EXACT_EVALUATION, 10, 0, np.float64), QueryStep(1, ())
    )
    with pytest.raises(LocalProtocolError, match="carries no noise"):
        site.contribution(asked, GlobalModel(flat.vector(), 0.5))
    assert log.releases == []


def test_columns_with_ranges_are_standardised_under_noise() -> None:
    source = np.random.Generator(np.random.PCG64(1))
    ages, weights = source.uniform(20, 90, 20_000), source.normal(80, 10, 20_000).clip(0, 250)
    schema = FeatureSchema((2,), 2, (0, 1), units=(128.0, 256.0))
    data = Dataset(np.stack([ages, weights], axis=1), np.zeros(20_000, np.int64), schema)
    header = column_sums(data.features.T, data.features.shape[1], schema.units)
    deviation = noise_deviation(6, 20.0)
    assert deviation == pytest.approx(20.0 * np.sqrt(6))
    noise = np.append(0.0, deviation * source.standard_normal(6))
    found = scaling_from_sums(possible_sums(header + noise, deviation), schema.units)
    # A sum is off by a few times 49 units of 20 000 values: the mean by 4 * 49 * 256 / 20 000 = 2.5, the variance
    # by about 2 * 2.5 * 80 plus 2.5 * 256: in standard deviations of 10 that is rough, and of the right size.
    np.testing.assert_allclose(found.mean, [ages.mean(), weights.mean()], atol=2.5)
    np.testing.assert_allclose(found.scale, [ages.std(), weights.std()], rtol=1.0)


def test_noise_does_not_blow_up_a_constant_column_and_is_never_taken_for_what_was_sent() -> None:
    header = column_sums([np.full(100, 0.5)], 1, (1.0,))
    deviation = 34.6
    for sign in (-1.0, 1.0):
        possible = possible_sums(header + np.array([0.0, sign, -sign, -sign]) * deviation, deviation)
        # The variance is taken to be at least what noise makes of none.
        assert scaling_from_sums(possible, (1.0,)).scale[0] >= np.sqrt(deviation / 100) - 1e-9
    noised, _ = task(private(), site_protection(ReleaseLog().record))
    plain = TrainingClient(bc10.plan(1), NAME, Splits(bc10.dataset()), noised.records.model)
    for purpose in Purpose:
        assert noised.draws(purpose, FIRST, 1) != noised.draws(purpose, FIRST, 1)
        # All batches here are of all records, but those of the references, which have a size of their own.
        same = plain.draws(purpose, FIRST, 1) == plain.draws(purpose, RoundNumber(2), 2)
        assert same is (purpose is not Purpose.REFERENCE)


# ------------------------------------------------------------------ a model that fails


class Failing(TrainingClient):
    """A task whose model raises on the second batch of every round."""

    def summable_change(self, model: GlobalModel, round_number: RoundNumber, attempt: int) -> LocalChange | None:
        batches = 0

        def fail(*_: object) -> None:
            nonlocal batches
            batches += 1
            if batches > 1:
                raise ValueError(batches)

        hook = self.records.model.register_forward_pre_hook(fail)
        try:
            return super().summable_change(model, round_number, attempt)
        finally:
            hook.remove()


def changes_of(kind: type[TrainingClient], splits: Splits, attempts: int) -> tuple[list[LocalChange], ReleaseLog]:
    plan, log = private(batch_size=64, local_steps=3, threshold_learning_rate=0.01), ReleaseLog()
    flat = flat_model(plan, splits.train.schema, torch.device("cpu"), Path())
    work = kind(plan, NAME, splits, flat, protection=simulated_protection(plan, NAME, log), masked=True)
    model, found = GlobalModel(flat.vector(), 1.0), []
    for attempt in range(1, attempts + 1):
        change = work.summable_change(model, FIRST, attempt)
        assert change is not None
        found.append(replace(change, model=change.model.copy()))
        assert ("ValueError" in work.last_fault) is (kind is Failing)
    return found, log


def test_a_training_that_fails_adds_the_noise_of_its_steps_and_is_a_release() -> None:
    attempts = 60
    found, log = changes_of(Failing, Splits(bc10.dataset()), attempts)
    assert log.releases == [GaussianRelease("training", 6.0, 64 / 569, 3, clip=1.0)] * attempts
    plan = private(batch_size=64, local_steps=3, threshold_learning_rate=0.01)
    assert plan.privacy.sample_level is not None
    grid = mechanism_of(plan, plan.privacy.sample_level).grid(len(found[0].model), torch.float64)
    # Three independent steps, each eta / b times noise of the grid's deviation.
    expected = np.sqrt(3) * plan.training.learning_rate * grid.deviation / 64
    moved = np.concatenate([change.model for change in found])
    # 60 changes of 22 entries: the deviation of the mean is 1 / 36 of an entry's, that of the variance 4 %.
    assert abs(moved.mean()) < 5 * expected / np.sqrt(moved.size)
    assert moved.std() == pytest.approx(expected, rel=5 / np.sqrt(2 * moved.size))
    thresholds = np.array([change.threshold for change in found])
    assert thresholds.std() == pytest.approx(
        np.sqrt(3) * 0.01 * grid.deviation / 64, rel=5 / np.sqrt(2 * attempts)
    )
    assert all(change.weight == 569 and not change.replaced for change in found)
    assert not np.array_equal(found[0].model, found[1].model)
