"""Advice on data whose critical size is known, on folds, on errors, and by training."""

import json
import math
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from fedfair.errors import DataError, PlanError
from fedfair.fairness.critical_size import critical_group_size
from fedfair.fairness.cvar import cvar
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.studies.advice.document import AdviceDocument, advice_schema, to_text
from fedfair.studies.advice.families import SolvedLinearModels, TrainedModels, varied_plan
from fedfair.studies.advice.figures import standard_error, worst_terms
from fedfair.studies.advice.folds import pooled_folds, pooled_records, sampled, site_folds
from fedfair.studies.advice.search import AdviceGrid, advise, advise_sites, fit_all, linear_limits, trained_limits
from fedfair.tables.dataset import Dataset, Splits
from tests import plans

GUESS = math.log(2)


def base_rate(records: int, minority: float, seed: int = 0) -> Dataset:
    """Return records that only a base rate tells of: one feature, the same for all."""
    labels = (np.arange(records) < minority * records).astype(np.int64)
    np.random.default_rng(seed).shuffle(labels)
    return Dataset(np.ones((records, 1)), labels, FeatureSchema((1,), 2, (0,), ("one",)))


def noisy(records: int, seed: int = 0) -> Dataset:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, records)
    features = generator.normal(size=(records, 2)) + 1.2 * labels[:, None] * np.array([1.0, -0.5])
    return Dataset(features, labels, FeatureSchema((2,), 2, (0, 1), ("a", "b")))


def dealt(whole: Dataset, parts: int = 3) -> dict[ParticipantId, Splits]:
    """Return the records dealt in turn, the first site's also into validation and test records."""
    own = [whole.take(np.arange(part, len(whole), parts)) for part in range(parts)]
    sites = {ParticipantId(name): Splits(data) for name, data in zip(plans.NAMES, own, strict=False)}
    first, data = next(iter(sites)), own[0]
    third = len(data) // 3
    pieces = [data.take(np.arange(start, start + third)) for start in (0, third, 2 * third)]
    return sites | {first: Splits(*pieces)}


def linear_plan(**training: object) -> plans.Plan:
    return plans.parsed(
        task={"model": {"name": "linear", "init": "zeros"}},
        objective={"worst_group_size": 0.2, "tradeoff": 0.1},
        training={"rounds": 60, "batch_size": "full", "learning_rate": 0.5, **training},
    )


@pytest.mark.parametrize("minority", [0.1, 0.25, 0.4])
def test_program_and_grid_agree_on_the_critical_size_of_a_base_rate(minority: float) -> None:
    # A worst group of share rho holds the whole minority m where the majority is preferred; a majority within it
    # remains only above rho = 2 m. So 2 m is critical.
    records, critical = base_rate(400, minority), 2 * minority
    exact = linear_limits(records)
    assert exact.lowest == exact.highest == pytest.approx(critical, abs=1e-6)
    # Every fold has its own base rate, within a record of the whole's share: hold_out is not stratified.
    family = SolvedLinearModels(records, 5, seed=1)
    step = 0.1
    sizes = [round(step * number, 10) for number in range(1, 10)]
    _, models = fit_all(family, [(size, 0.0) for size in sizes], [].append)
    beaten = [
        model.worst_group_size
        for model in models
        if np.mean([cvar(fold.train.values, model.worst_group_size) for fold in model.folds]) < GUESS - 1e-3
    ]
    assert min(beaten, default=1.0) - critical < 1.5 * step
    assert critical - min(beaten, default=1.0) <= 0.05


@pytest.mark.parametrize(("records", "method"), [(5000, "linear-program"), (5001, "hinge-bounds")])
def test_how_the_critical_size_was_found_is_told_where_both_ways_give_the_same(records: int, method: str) -> None:
    labels = np.arange(records) % 2
    separable = Dataset(labels[:, None] * 2.0 - 1.0, labels, FeatureSchema((1,), 2, (0,), ("one",)))
    found = linear_limits(separable)
    assert found.lowest == found.highest == pytest.approx(0.0, abs=1e-6)
    assert found.method == method


def test_trained_models_find_the_critical_size_of_the_linear_program() -> None:
    records = noisy(300)
    plan = linear_plan(rounds=90, learning_rate=0.3)
    sites = {ParticipantId("clinic-a"): Splits(records)}
    plan = plan.model_copy(
        update={"federation": plan.federation.model_copy(update={"collaborators": ("clinic-a",)})}
    )
    family = TrainedModels(plan, sites, Path(), 2, 90)
    plain, models = fit_all(family, [(0.5, 0.1), (0.9, 0.1)], [].append)
    found = trained_limits(family, [plain, *models], GUESS, 3, [].append)
    exact = [
        critical_group_size(
            part[ParticipantId("clinic-a")].train.features, part[ParticipantId("clinic-a")].train.labels, 2
        )
        for part in site_folds(sites, 2, plan.training.seed)
    ]
    assert found.lowest is None
    assert found.highest is not None
    # No model is below the critical size of its own records; three halvings of 0.9 leave about a tenth.
    assert min(exact) - 1e-6 <= found.highest <= max(exact) + 0.15


def test_trained_models_that_serve_every_record_leave_no_size_to_look_for() -> None:
    labels = np.arange(40) % 2
    separable = Dataset(labels[:, None] * 2.0 - 1.0, labels, FeatureSchema((1,), 2, (0,), ("one",)))
    sites = {ParticipantId("clinic-a"): Splits(separable)}
    plan = linear_plan(rounds=9, learning_rate=0.3)
    plan = plan.model_copy(
        update={"federation": plan.federation.model_copy(update={"collaborators": ("clinic-a",)})}
    )
    family = TrainedModels(plan, sites, Path(), 2, 9)
    plain, models = fit_all(family, [(0.5, 0.1)], [].append)
    fits: list[int] = []
    assert trained_limits(family, [plain, *models], GUESS, 3, fits.append).highest == 0.0
    assert fits == []


def test_advice_on_noisy_records_is_whole_deterministic_and_fits_its_schema() -> None:
    plan, sites = linear_plan(), dealt(noisy(600))
    fits: list[tuple[int, int]] = []
    grid = AdviceGrid((0.3, 0.6), (0.1, 0.5), trials=False)
    made = advise_sites(plan, sites, Path(), grid, lambda *done: fits.append(done))
    again = advise_sites(plan, sites, Path(), grid)
    assert made.model_copy(update={"seconds": 0.0}) == again.model_copy(update={"seconds": 0.0})
    # Four settings, the plan's own and plain training, in five folds.
    assert fits[-1] == (30, 30)
    assert [done for done, _ in fits] == sorted(done for done, _ in fits)
    assert made.sizes == (0.2, 0.3, 0.6)
    values = json.loads(to_text(made))
    jsonschema.validate(values, advice_schema())
    assert AdviceDocument.model_validate_json(to_text(made)) == made
    assert made.records == made.records_available == 400 + 2 * 66  # test records have no part


def test_held_out_figures_are_those_of_models_that_never_saw_the_record() -> None:
    # Every record is its own category: a model can learn each label by heart, and nothing of any other.
    records = 40
    labels = np.arange(records, dtype=np.int64) % 2
    features = np.eye(records)
    data = Dataset(features, labels, FeatureSchema((records,), 2, (), tuple(map(str, range(records)))))
    made = advise_sites(
        linear_plan(), {ParticipantId("clinic-a"): Splits(data)}, Path(), AdviceGrid((0.5,), (0.1,), trials=False)
    )
    assert made.plain.train.mean < 0.65
    assert made.plain.held_out.mean > 0.68
    assert made.plain.train.accuracy > 0.95


def test_folds_are_disjoint_cover_everything_and_keep_persons_together() -> None:
    person = np.repeat(np.arange(50), 4)
    whole = noisy(200)
    records = Dataset(whole.features, whole.labels, whole.schema, {"person": person}, "person")
    records = pooled_records(
        {ParticipantId("a"): Splits(records.take(np.arange(100)), records.take(np.arange(100, 200)))}
    )
    parts = pooled_folds(records, 5, seed=3)
    seen = np.concatenate([held.columns["person"] for _, held in parts])
    assert sorted(seen) == sorted(person)
    for train, held in parts:
        assert set(train.columns["person"]).isdisjoint(held.columns["person"])
        assert len(train) + len(held) == 200


def test_test_records_change_nothing_and_few_are_held_out_nowhere() -> None:
    plan, sites = linear_plan(), dealt(noisy(300))
    grid = AdviceGrid((0.5,), (0.1,), trials=False)
    made = advise_sites(plan, sites, Path(), grid)
    name = next(iter(sites))
    without = sites | {name: Splits(sites[name].train, sites[name].validation)}
    assert advise_sites(plan, without, Path(), grid).models == made.models
    small, large = noisy(2), noisy(30)
    sites = {ParticipantId("small"): Splits(small), ParticipantId("large"): Splits(large)}
    for part in site_folds(sites, 3, 0):
        assert part[ParticipantId("small")].test is None
        held = part[ParticipantId("large")].test
        assert held is not None
        assert len(held) == 10
    with pytest.raises(DataError, match="no collaborator has the 3 training records"):
        site_folds({ParticipantId("small"): Splits(small)}, 3, 0)


def test_a_varied_plan_has_no_masks_no_noise_and_a_stable_threshold() -> None:
    plan = plans.parsed(
        privacy={"sample_level": {"noise_multiplier": 1.0, "clip": 1.0, "delta": 1e-5}},
        training={"rounds": 7, "threshold_learning_rate": 5.0},
    )
    excess = plan.model_copy(update={"objective": plan.objective.model_copy(update={"measure": "excess"})})
    varied = varied_plan(excess, 0.4, 0.2, 9)
    assert varied == varied_plan(plan, 0.4, 0.2, 9)
    assert (varied.objective.worst_group_size, varied.objective.tradeoff) == (0.4, 0.2)
    assert (varied.training.rounds, varied.evaluation.every, varied.secure_aggregation.mode) == (9, 9, "off")
    assert varied.privacy.sample_level is None
    # 4 gamma rho / (1 - epsilon) with softplus, gamma 0.05.
    assert varied.training.threshold_learning_rate == pytest.approx(4 * 0.05 * 0.4 / 0.8)


def test_samples_errors_and_rounds_are_as_asked() -> None:
    assert len(sampled(noisy(1000), 100, 0)) == pytest.approx(100, abs=1)
    assert len(sampled(noisy(50), 100, 0)) == 50
    generator = np.random.default_rng(4)
    draws = generator.exponential(size=(2000, 400))
    spread = np.std([cvar(draw, 0.2) for draw in draws])
    errors = [standard_error(worst_terms(draw, 0.2)) for draw in draws[:200]]
    # The spread of 2000 draws is known to 1 / sqrt(4000), 1.6 %; the errors' own mean to less; the rest is of
    # second order in 1 / (400 * 0.2).
    assert np.mean(errors) == pytest.approx(spread, rel=0.08)
    assert worst_terms(draws[0], 0.2).mean() == pytest.approx(cvar(draws[0], 0.2), rel=1e-12)
    with pytest.raises(PlanError, match="solved without rounds"):
        advise_sites(linear_plan(), dealt(noisy(60)), Path(), AdviceGrid(rounds=5, trials=False))


def test_advice_on_a_plan_of_another_model_trains_it(tmp_path: Path) -> None:
    plan = plans.parsed(
        task={
            "partition": {"scheme": "random"}, "standardize": "secure", "model": {"name": "mlp", "hidden": [4]},
            "test_fraction": 0.5,
        },
        objective={"worst_group_size": 0.4, "tradeoff": 0.2, "measure": "loss"},
        training={"rounds": 3, "algorithm": "fedavg"},
    )  # fmt: skip
    made = advise(plan, tmp_path, AdviceGrid((0.5,), (0.2,), 5, trials=False))
    assert (made.fitted, made.rounds, made.folds) == ("training", 5, 3)
    assert made.family.method == "training"
    assert [(one.worst_group_size, one.tradeoff) for one in made.models] == [(0.4, 0.2), (0.5, 0.2)]
    assert made.plain.mean_cost == 0.0
