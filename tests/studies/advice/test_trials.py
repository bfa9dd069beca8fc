"""Trials: the rule by hand-made figures, the base rate, the folds, and that a run reaches what was promised."""

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_wine

import fedfair
from fedfair.fairness.cvar import cvar
from fedfair.fairness.record_losses import Losses
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import CROSS_ENTROPY, HuberLoss, MultiLabelLoss, PinballLoss, SquaredLoss, SurvivalLoss
from fedfair.studies.advice.base_rate import base_losses
from fedfair.studies.advice.figures import promised_figures, standard_error, worst_terms
from fedfair.studies.advice.folds import drawn_sites, trial_folds
from fedfair.studies.advice.remark import advice_remarks
from fedfair.studies.advice.settings import (
    EXCESS,
    PLAIN,
    AdvisedSetting,
    plan_with,
    setting_of,
    task_digest,
)
from fedfair.studies.advice.trial_choice import chosen_place
from fedfair.studies.advice.trials import usual_candidates
from fedfair.tables.dataset import Dataset, Splits
from tests import plans
from tests.studies.advice.trial_makers import LOSS, tried, tried_advice

SLOW_EXCESS = AdvisedSetting("excess", 0.1, 0.05, 0.1)

# ------------------------------------------------------------------ the rule


@pytest.mark.parametrize(
    ("found", "place"),
    [
        # A little more than plain training, or much more and unsure: the excess.
        ([tried(PLAIN), tried(EXCESS, 0.406, cost=0.006, cost_error=0.001)], 1),
        ([tried(PLAIN), tried(EXCESS, 0.5, cost=0.1, cost_error=0.06)], 1),
        # Surely and materially more: the loss where it protects at a price that is small, else plain training.
        ([tried(PLAIN), tried(EXCESS, 0.45, cost=0.05), tried(LOSS, 0.41, cost=0.01, gain=0.2)], 2),
        ([tried(PLAIN), tried(EXCESS, 0.45, cost=0.05), tried(LOSS, 0.44, cost=0.04, gain=0.2)], 0),
        ([tried(PLAIN), tried(EXCESS, 0.45, cost=0.05), tried(LOSS, 0.41, cost=0.01, gain=0.03)], 0),
        # A lower rate is only there where it is better.
        ([tried(PLAIN), tried(EXCESS), tried(SLOW_EXCESS, 0.3, cost=-0.1)], 2),
        ([tried(PLAIN), tried(EXCESS, 0.45, cost=0.05), tried(AdvisedSetting("loss", 1.0, 1.0, 0.1), 0.3)], 2),
        # What is no better than the base rate is of no use.
        ([tried(PLAIN, base_gain=-0.1), tried(EXCESS, base_gain=-0.1)], None),
        ([tried(PLAIN, base_gain=0.015), tried(EXCESS, base_gain=-0.1)], 0),
        ([tried(PLAIN, base_gain=-0.01), tried(EXCESS, base_gain=-0.1), tried(SLOW_EXCESS, base_gain=0.1)], 2),
        ([tried(PLAIN, base_gain=None), tried(EXCESS, base_gain=None)], 1),
    ],
)
def test_the_rule_chooses_by_differences_that_are_sure_and_material(found: list, place: int | None) -> None:
    assert chosen_place(found) == place


def test_what_was_chosen_is_said_with_its_reason() -> None:
    said = " ".join(tried_advice().sentences)
    assert "Recommended: measure excess, worst_group_size 0.1 and tradeoff 0.05." in said
    assert "a mean loss of 0.405 ± 0.010; plain training reaches 0.400 (difference 0.005 ± 0.004)" in said
    assert "the base rate, which knows nothing of a person, 0.600" in said
    assert "have 1.600 ± 0.050 instead of 1.900" in said
    assert "an estimate" not in said
    worse = [tried(PLAIN), tried(EXCESS, 0.45, cost=0.05)]
    assert "tradeoff 0.05 would raise the mean loss by 0.050 ± 0.004" in " ".join(tried_advice(worse).sentences)
    none = " ".join(tried_advice([tried(PLAIN, 0.7, base_gain=-0.1)]).sentences)
    assert "no training of this plan has a lower mean loss (0.700 at best) than the base rate" in none
    unsure = " ".join(tried_advice([tried(PLAIN, base_gain=0.015)]).sentences)
    assert "less than two standard errors away" in unsure


# ------------------------------------------------------------------ the base rate


def test_the_base_rate_is_the_loss_of_the_best_constant_of_the_training_answers() -> None:
    train, held = np.array([0, 0, 0, 1]), np.array([0, 1, 1])
    found = base_losses(CROSS_ENTROPY, train, held, 2)
    np.testing.assert_allclose(found, -np.log([4 / 6, 2 / 6, 2 / 6]))
    labels, asked = np.array([[1, 0], [1, 1]]), np.array([[1, 0]])
    each = -np.log([3 / 4, 2 / 4])
    for reduction, expected in (("sum", each.sum()), ("mean", each.mean())):
        multi = MultiLabelLoss(name="multi_label", reduction=reduction)  # type: ignore[arg-type]
        np.testing.assert_allclose(base_losses(multi, labels, asked, 0), [expected])
    numbers, apart = np.array([[1.0], [2.0], [9.0]]), np.array([[3.0], [0.0]])
    np.testing.assert_allclose(base_losses(SquaredLoss(name="squared"), numbers, apart, 0), [1.0, 16.0])
    np.testing.assert_allclose(base_losses(HuberLoss(name="huber", delta=1.0), numbers, apart, 0), [0.5, 1.5])
    pinball = PinballLoss(name="pinball", quantile=0.5)
    np.testing.assert_allclose(base_losses(pinball, numbers, apart, 0), [0.5, 1.0])
    assert base_losses(SurvivalLoss(name="survival", intervals=(1.0,)), labels, labels, 0) is None


def test_the_error_of_a_promise_covers_what_differs_between_trainings() -> None:
    """A training shifts every loss of its fold by a normal of deviation .5; its records vary by 1."""
    source, beyond = np.random.default_rng(3), 0
    for _ in range(200):
        shifts = 0.5 * source.normal(size=5)
        folds = [9.0 + shift + source.normal(size=400) for shift in shifts]
        nobody = np.zeros(400, np.int64)
        told = promised_figures([Losses(fold, nobody, nobody) for fold in folds], (0.1,))
        reached = 9.0 + 0.5 * source.normal() + source.normal(size=400)
        beyond += abs(reached.mean() - told.mean) > 3.0 * math.hypot(told.error, standard_error(reached))
        alike = promised_figures([Losses(folds[0], nobody, nobody)] * 5, (0.1,))
        assert alike.error == pytest.approx(standard_error(np.concatenate([folds[0]] * 5)))
    # Student's t of 4 degrees is beyond 3 in 4 % of cases, and the mean of five folds has a fifth of the variance.
    assert beyond <= 0.1 * 200


def test_folds_that_agree_by_luck_promise_no_more_than_those_of_other_settings() -> None:
    values, nobody = np.random.default_rng(0).exponential(size=400), np.zeros(400, np.int64)
    alike, apart = ([Losses(values + shift, nobody, nobody) for shift in shifts] for shifts in ((1, 1), (1, 5)))
    alone, beside = promised_figures(alike, (0.1,)), promised_figures(alike, (0.1,), [apart])
    # Two folds that are 4 apart have a variance of 8, of which their records explain that of a mean.
    of_mean, of_worst = standard_error(values) ** 2, standard_error(worst_terms(values, 0.1)) ** 2
    records = standard_error(np.concatenate([values, values])) ** 2
    assert alone.error == pytest.approx(math.sqrt(records))
    assert beside.error == pytest.approx(math.sqrt(records + (8.0 - 2 * of_mean) / 2))
    assert beside.group(0.1).error ** 2 == pytest.approx(alone.group(0.1).error ** 2 + (8.0 - 2 * of_worst) / 2)
    assert (beside.mean, beside.group(0.1).worst) == (alone.mean, alone.group(0.1).worst)


# ------------------------------------------------------------------ folds and settings


def made_up(features: NDArray[np.float64], labels: NDArray[np.int64]) -> Dataset:
    return Dataset(features, labels, FeatureSchema((features.shape[1],), 2, tuple(range(features.shape[1]))))


def test_every_record_is_held_out_once_and_sites_validate_by_the_share_that_they_have() -> None:
    whole = made_up(np.arange(240.0)[:, None], np.arange(240) % 2)
    first = Splits(*(whole.take(np.arange(*ends)) for ends in ((0, 120), (120, 160), (160, 200))))
    sites = {ParticipantId("a"): first, ParticipantId("b"): Splits(whole.take(np.arange(200, 240)))}
    folds = trial_folds(sites, 10_000, 4, 7)
    held = np.concatenate([fold[name].test.features[:, 0] for fold in folds for name in sites])  # type: ignore[union-attr]
    assert sorted(held) == [*range(160), *range(200, 240)]
    for fold in folds:
        own = fold[ParticipantId("a")]
        assert own.validation is not None
        # A quarter validates in the plan, and a quarter of what is not held out does here.
        assert (len(own.train), len(own.validation)) == (90, 30)
        assert not len(fold[ParticipantId("b")].validation or ())
    many = {ParticipantId(f"site-{place}"): sites[ParticipantId("b")] for place in range(20)}
    drawn = [*drawn_sites(many, 5, 7)]
    assert len(drawn) == 5
    assert drawn == [name for name in many if name in drawn] != [*many][:5]
    assert drawn_sites(sites, 2, 7) == sites
    few = trial_folds(sites, 100, 4, 7)
    assert sum(site.records for site in few[0].values()) == pytest.approx(100, abs=2)


def test_a_setting_is_what_its_plan_has_and_the_task_is_the_same_wherever_its_records_are(tmp_path: Path) -> None:
    plan = plans.parsed(training={"algorithm": "fedavg"})
    assert setting_of(plan) == PLAIN
    for setting in (PLAIN, EXCESS, LOSS):
        assert setting_of(plan_with(plan, setting)) == setting
        for other in (PLAIN, EXCESS, LOSS):
            assert setting_of(plan_with(plan_with(plan, other), setting)) == setting
    noised = plans.parsed(privacy={"sample_level": {"noise_multiplier": 1.0, "clip": 1.0, "delta": 1e-5}})
    assert EXCESS not in usual_candidates(noised)
    # What decides the size of a step: here the sites' rate, because the smallest plan averages plainly.
    assert plan_with(plan, SLOW_EXCESS).training.learning_rate == 0.1
    table = {"label": "died", "numeric": ["age"], "train": "a.csv", "collaborator": "site"}
    there = plans.parsed(task={"data": {"csv": table}})
    at_sites = plans.parsed(task={"data": {"csv": {"label": "died", "numeric": ["age"]}}})
    other = plans.parsed(task={"data": {"csv": {"label": "died", "numeric": ["weight"]}}})
    assert task_digest(there) == task_digest(at_sites) != task_digest(other)
    # What an advice says against a plan of its task, and of no other.
    place = tmp_path / "advice.json"
    assert advice_remarks(there, place) == ()
    place.write_text("{}")
    assert advice_remarks(there, place) == ()
    place.write_text(tried_advice(task_digest=task_digest(there)).model_dump_json())
    (told,) = advice_remarks(plan_with(at_sites, PLAIN), place)
    assert "recommends measure excess, worst_group_size 0.1 and tradeoff 0.05" in told
    assert "a mean loss of 0.405 ± 0.010 and 1.600 in the worst 10 %" in told
    assert "own setting reached 0.400 and 1.900" in told
    assert "was not tried" in advice_remarks(plan_with(at_sites, LOSS), place)[0]
    assert advice_remarks(plan_with(at_sites, EXCESS), place) == ()
    assert advice_remarks(plan_with(other, PLAIN), place) == ()


# ------------------------------------------------------------------ what is promised is reached

ERRORS = 3.0
"""Standard errors of the difference between a promise and what a run reaches on its own test records."""

TRAINED = {"rounds": 60, "threshold_init": "quantile"}
REFERENCES = {"hidden": [16], "rounds": 15, "local_steps": 10}


def population(kind: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return features and outcomes of a table, or of made-up people."""
    if kind == "breast cancer":
        features, labels = load_breast_cancer(return_X_y=True)
        return features[:, :10], labels
    if kind == "wine":
        return load_wine(return_X_y=True)
    source = np.random.default_rng(17)
    features = source.normal(size=(1500, 6))
    logits = {"noisy": 1.2 * features[:, 0], "rare": 1.5 * features[:, 0] - 4.2, "nothing": 0.0 * features[:, 0]}
    logits["heavy-tailed"] = logits["noisy"]
    labels = (source.random(1500) < 1.0 / (1.0 + np.exp(-logits[kind]))).astype(np.int64)
    return (np.exp(1.5 * features) if kind == "heavy-tailed" else features), labels


@pytest.mark.parametrize(
    "kind",
    [
        "noisy",
        "rare",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("breast cancer", "wine", "heavy-tailed")),
    ],
)
def test_a_run_of_the_advised_plan_reaches_what_was_promised(kind: str) -> None:
    features, labels = population(kind)
    sites = {f"site-{place}": (features[place::2], labels[place::2]) for place in range(2)}
    objective = {"measure": "excess", "worst_group_size": 0.1, "tradeoff": 0.05, "reference": REFERENCES}
    task = {"test_fraction": 0.3, "validation_fraction": 0.2}
    sections = {"task": task, "objective": objective, "training": TRAINED}
    advice = fedfair.advise(sites, quick=True, **sections)
    trials = advice.document.trials
    assert trials is not None
    assert trials.chosen is not None
    promised = trials.tried[trials.chosen].held_out
    reached = fedfair.simulate(sites, advice.applied())
    losses = np.asarray([], np.float64)
    for name, own in reached._simulated.losses.items():
        assert name in sites
        losses = np.concatenate([losses, own["test"].values])
    for told, error, values in (
        (promised.mean, promised.error, losses),
        (promised.group(0.1).worst, promised.group(0.1).error, worst_terms(losses, 0.1)),
    ):
        assert abs(values.mean() - told) < ERRORS * math.hypot(error, standard_error(values))
    assert cvar(losses, 0.1) == pytest.approx(worst_terms(losses, 0.1).mean())
    assert reached.result.model is not None
    assert reached.result.model.round > 0
    assert reached.result.verdict is not None
    assert reached.result.verdict.state != "worse"


def test_where_features_tell_nothing_no_setting_is_recommended() -> None:
    features, labels = population("nothing")
    sites = {f"site-{place}": (features[place::2][:200], labels[place::2][:200]) for place in range(2)}
    objective = {"worst_group_size": 0.1, "tradeoff": 0.05, "reference": REFERENCES}
    advice = fedfair.advise(sites, quick=True, objective=objective, training=TRAINED)
    assert advice.document.recommendation is None
    assert advice.document.plan_measure == "excess"
    assert "than the base rate, which knows nothing of a person" in repr(advice)


def test_a_setting_whose_trainings_fail_blurs_no_other_promise() -> None:
    source, nobody = np.random.default_rng(4), np.zeros(400, np.int64)
    steady = [[Losses(source.exponential(size=400), nobody, nobody) for _ in range(3)] for _ in range(4)]
    failed = [Losses(np.full(400, value), nobody, nobody) for value in (1.0, 1e6, np.inf)]
    far = [Losses(np.full(400, value), nobody, nobody) for value in (1.0, 1e6, 1e12)]
    alone = promised_figures(steady[0], (0.1,), steady[1:])
    told = promised_figures(steady[0], (0.1,), [*steady[1:], far, failed])
    assert alone.error <= told.error < 2.0 * alone.error
    assert told.groups[0].error < 3.0 * alone.groups[0].error
