"""The excess over a reference: formulas by brute force, cross-fitting against a slow version, and the promise."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import xlogy
from torch import Tensor

from fedfair.aggregation.evaluation_sums import planned_layout
from fedfair.aggregation.evaluator import Evaluation, Evaluator
from fedfair.aggregation.reference import (
    CHANGE_STEP,
    LOSS_STEP,
    NATURAL,
    TEMPERATURES,
    first_references,
    reference_header,
    reference_shape,
    stepped_references,
)
from fedfair.aggregation.requests import GlobalModel, histogram_spec
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.fairness.cvar import worst_and_best
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import (
    BinaryLoss,
    CrossEntropyLoss,
    Loss,
    MultiLabelLoss,
    OrdinalLoss,
    SquaredLoss,
    SurvivalLoss,
)
from fedfair.tables.dataset import Splits
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.device import SplitRecords
from fedfair.training.inference import evaluate
from fedfair.training.record_loss import record_loss
from fedfair.training.reference_answers import ReferenceAnswers, class_chances, reference_answers
from fedfair.training.reference_training import ReferenceSetting, judged, reference_addend
from tests import bc10
from tests.plans import parsed

RECORDS = 7
SOURCE = torch.Generator().manual_seed(3)
LIKE = torch.zeros(1, dtype=torch.float64)
SITE = ParticipantId("site-0")


def answers_of(loss: Loss, classes: int = 0, outputs: tuple[int, ...] = (1,)) -> ReferenceAnswers:
    schema = FeatureSchema((2,), classes, (), outputs=outputs) if not classes else FeatureSchema((2,), classes, ())
    return reference_answers(loss, record_loss(loss, schema, 8.0, Path()))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=SOURCE, dtype=torch.float64)


def by_enumeration(loss: Loss, outputs: Tensor, chances: NDArray[np.float64], outcomes: list[Tensor]) -> float:
    """Return the expected loss of one record over its outcomes, minus the least that any chances have."""
    schema = FeatureSchema((2,), 0, ()) if not isinstance(loss, CrossEntropyLoss) else FeatureSchema((2,), 3, ())
    costs = [float(record_loss(loss, schema, 8.0, Path()).per_record(outputs, each)[0]) for each in outcomes]
    return float(chances @ np.array(costs) + xlogy(chances, chances).sum())


@pytest.mark.parametrize("name", ["cross_entropy", "binary", "ordinal"])
def test_the_excess_of_classes_is_the_expected_loss_minus_the_entropy_of_the_answer(name: str) -> None:
    kind = {"cross_entropy": CrossEntropyLoss, "binary": BinaryLoss, "ordinal": OrdinalLoss}[name]
    loss, classes = kind(name=name), 2 if name == "binary" else 3
    found = answers_of(loss, classes)
    said = found.answers(3.0 * drawn(RECORDS, classes))
    # Cumulative logits fall from column to column.
    outputs = drawn(RECORDS, classes) if name == "cross_entropy" else drawn(RECORDS, classes - 1).sort(1, True)[0]
    excess = found.excess(outputs, said)
    for row in range(RECORDS):
        outcomes = [torch.tensor([label]) for label in range(classes)]
        expected = by_enumeration(loss, outputs[row : row + 1], said[row].numpy(), outcomes)
        assert float(excess[row]) == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(said.sum(1), 1.0, rtol=0, atol=1e-12)
    assert 0.002 <= float(said.min()) <= float(said.max()) <= 0.998


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_the_excess_of_labels_is_that_of_all_their_outcomes(reduction: str) -> None:
    loss = MultiLabelLoss(name="multi_label", reduction=reduction)
    found = answers_of(loss, outputs=(3,))
    said, outputs = found.answers(drawn(RECORDS, 3)), drawn(RECORDS, 3)
    excess = found.excess(outputs, said)
    whole = MultiLabelLoss(name="multi_label", reduction="sum")
    for row in range(RECORDS):
        outcomes = [torch.tensor([each], dtype=torch.float64) for each in itertools.product((0, 1), repeat=3)]
        one = said[row].numpy()
        chances = np.array([np.prod(np.where(each.numpy()[0] == 1, one, 1 - one)) for each in outcomes])
        expected = by_enumeration(whole, outputs[row : row + 1], chances, outcomes)
        assert float(excess[row]) == pytest.approx(expected / (3 if reduction == "mean" else 1), abs=1e-12)


def test_the_excess_of_a_time_is_that_of_the_interval_in_which_it_falls() -> None:
    ends = (1.0, 2.0, 4.0)
    loss = SurvivalLoss(name="survival", intervals=ends)
    found = answers_of(loss, outputs=(3,))
    said, outputs = found.answers(drawn(RECORDS, 3)), drawn(RECORDS, 3)
    excess = found.excess(outputs, said)
    # An event in one of the intervals, or none within them.
    outcomes = [torch.tensor([[end, 1.0]], dtype=torch.float64) for end in ends]
    outcomes.append(torch.tensor([[4.0, 0.0]], dtype=torch.float64))
    for row in range(RECORDS):
        hazards = said[row].numpy()
        survived = np.concatenate([[1.0], np.cumprod(1.0 - hazards)])
        chances = np.concatenate([survived[:-1] * hazards, survived[-1:]])
        expected = by_enumeration(loss, outputs[row : row + 1], chances, outcomes)
        assert float(excess[row]) == pytest.approx(expected, abs=1e-12)


def test_the_excess_of_a_number_is_the_squared_distance_from_its_mean() -> None:
    found = answers_of(SquaredLoss(name="squared"))
    outputs, said = drawn(RECORDS, 1), drawn(RECORDS, 1)
    spread = drawn(RECORDS, 10_000)
    spread = spread - spread.mean(1, keepdim=True) + said
    above = (outputs - spread).square().mean(1) - (said - spread).square().mean(1)
    np.testing.assert_allclose(found.excess(outputs, said), above, rtol=0, atol=1e-10)


def test_where_a_model_says_what_the_reference_says_there_is_no_excess_and_no_slope() -> None:
    found = answers_of(CrossEntropyLoss(name="cross_entropy"), 4)
    said = found.answers(drawn(RECORDS, 4))
    outputs = said.log().requires_grad_()
    excess = found.excess(outputs, said)
    np.testing.assert_allclose(excess.detach(), 0.0, rtol=0, atol=1e-14)
    (slope,) = torch.autograd.grad(excess.sum(), outputs)
    np.testing.assert_allclose(slope, 0.0, rtol=0, atol=1e-14)


# ------------------------------------------------------------------ cross-fitting


def setting_of(**reference: object) -> ReferenceSetting:
    stated = {"hidden": [3], "folds": 3, "local_steps": 4, "batch_size": 10_000, "learning_rate": 0.05}
    objective = {"measure": "excess", "reference": {**stated, **reference}}
    plan = parsed(("site-0", "site-1"), objective=objective, training={"algorithm": "fedsrcvar"})
    return ReferenceSetting.of(
        plan, bc10.dataset().schema, record_loss(plan.task.loss, bc10.dataset().schema, 8.0, Path())
    )


def placed(rows: slice = slice(0, 60), flipped: Tensor | None = None) -> SplitRecords:
    whole = bc10.dataset()
    labels = torch.tensor(whole.labels[rows])
    if flipped is not None:
        labels[flipped] = 1 - labels[flipped]
    return SplitRecords.place(whole.features[rows], labels.numpy(), torch.float64, torch.device("cpu"))


def slow_change(
    start: NDArray[np.float64], features: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return what 4 steps of size .05 change, by backpropagation written out: layers of 10, 3 and 2."""
    flat = start.copy()
    for _ in range(4):
        first, bias_1 = flat[:30].reshape(3, 10), flat[30:33]
        last, bias_2 = flat[33:39].reshape(2, 3), flat[39:41]
        entered = features @ first.T + bias_1
        hidden = np.maximum(entered, 0.0)
        outputs = hidden @ last.T + bias_2
        chances = np.exp(outputs - outputs.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        error = (chances - np.eye(2)[labels]) / len(labels)
        below = (error @ last) * (entered > 0.0)
        gradient = [below.T @ features, below.sum(0), error.T @ hidden, error.sum(0)]
        flat -= 0.05 * np.concatenate([part.ravel() for part in gradient])
    return flat - start


def test_a_sum_of_the_references_is_that_of_a_slow_version() -> None:
    setting, schema = setting_of(), bc10.dataset().schema
    references = first_references(setting.plan, schema)
    source = np.random.default_rng(5)
    references = replace(references, present=source.normal(size=references.present.shape) * 0.3)
    records = placed()
    header = reference_addend(setting, SITE, records, references, (1, 1), LIKE)
    sums = reference_header(setting.plan, schema).read(header)
    folds, shape = setting.fold_of(SITE, 60).numpy(), reference_shape(setting.plan, schema)
    assert np.bincount(folds).tolist() == [20, 20, 20]
    features, labels = records.features.numpy(), records.labels.numpy()
    held_out = np.zeros(len(TEMPERATURES))
    for fold, flat in enumerate(references.present.reshape(shape.folds, shape.dimension)):
        seen = folds != fold
        expected = seen.sum() * slow_change(flat, features[seen], labels[seen])
        # Each weight is rounded by half a step at most, and counts 40 times.
        np.testing.assert_allclose(sums["changes"][fold], expected, rtol=0, atol=40 * CHANGE_STEP / 2 + 1e-12)
        assert np.array_equal(np.rint(sums["changes"][fold] / CHANGE_STEP) * CHANGE_STEP, sums["changes"][fold])
        outputs = np.maximum(features[~seen] @ flat[:30].reshape(3, 10).T + flat[30:33], 0.0)
        outputs = outputs @ flat[33:39].reshape(2, 3).T + flat[39:41]
        for place, temperature in enumerate(TEMPERATURES):
            logs = outputs / temperature - np.logaddexp.reduce(outputs / temperature, axis=1, keepdims=True)
            losses = -logs[np.arange(20), labels[~seen]]
            held_out[place] += np.rint(losses / LOSS_STEP).sum()
    assert sums["held_out"].tolist() == held_out.tolist()
    assert (sums["records"], sums["judged"], sums["weights"].tolist()) == (60, 60, [40, 40, 40])
    again = reference_header(setting.plan, schema).read(
        reference_addend(setting, SITE, records, references, (1, 2), LIKE)
    )
    assert again["judged"] == 0
    assert not again["held_out"].any()
    assert again["weights"].tolist() == [40, 40, 40]


def test_no_training_record_is_judged_by_a_reference_that_has_seen_it() -> None:
    setting, schema = setting_of(learning_rate=0.5), bc10.dataset().schema
    folds, layout = setting.fold_of(SITE, 60), reference_header(setting.plan, schema)

    def answers(records: SplitRecords) -> Tensor:
        references = first_references(setting.plan, schema)
        for number in range(1, 5):
            header = reference_addend(setting, SITE, records, references, (number, 1), LIKE)
            references = stepped_references(references, Totals(header, np.empty(0), 1), layout)
        # Of a record's own answer its loss decides nothing but which moment and temperature are best for all.
        references = replace(references, best=references.present, temperature=NATURAL)
        return judged(setting, SITE, {"train": records, "test": records}, references, LIKE)["train"].labels

    before = answers(placed())
    for fold in range(3):
        after = answers(placed(flipped=folds == fold))
        assert torch.equal(before[folds == fold], after[folds == fold])
        assert not torch.isclose(before[folds != fold], after[folds != fold]).all()


def test_the_best_references_and_their_temperature_are_kept_until_patience_ends() -> None:
    setting, schema = setting_of(patience=2, rounds=9), bc10.dataset().schema
    layout, references = reference_header(setting.plan, schema), first_references(setting.plan, schema)
    stated = setting.plan.objective.reference
    assert stated is not None

    def total(held_out: list[float], judged_records: float = 6.0) -> Totals:
        header = layout.built(records=6.0, judged=judged_records, weights=4.0, held_out=held_out, changes=4.0)
        return Totals(header, np.empty(0), 2)

    told = [400.0] * len(TEMPERATURES)
    first = stepped_references(references, total(told), layout)
    assert (first.best_loss, first.temperature, first.best_at) == (400.0 * LOSS_STEP / 6.0, NATURAL, 0)
    np.testing.assert_array_equal(first.present, references.present + 1.0)
    np.testing.assert_array_equal(first.best, references.present)
    told[5] = 200.0
    second = stepped_references(first, total(told), layout)
    assert (second.temperature, second.best_at) == (5, 1)
    np.testing.assert_array_equal(second.best, first.present)
    # A later attempt of some site tells no losses: nothing is compared.
    unknown = stepped_references(second, total([0.0] * len(TEMPERATURES), 3.0), layout)
    assert (unknown.best_loss, unknown.best_at, unknown.sums) == (second.best_loss, 1, 3)
    third = stepped_references(second, total([300.0] * len(TEMPERATURES)), layout)
    assert third.best_loss == second.best_loss
    assert not third.are_done(stated)
    fourth = stepped_references(third, total([300.0] * len(TEMPERATURES)), layout)
    assert fourth.are_done(stated)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"weights": 0.0}, "0 outside one of the folds"),
        ({"records": 0.0, "judged": 0.0}, "over 0 training records"),
        ({"held_out": -1.0}, "none that so many records can have"),
        ({"held_out": 1e9}, "none that so many records can have"),
        ({"changes": 1e12}, "further than honest sites"),
    ],
)
def test_a_sum_that_no_honest_sites_have_is_refused(told: dict[str, float], words: str) -> None:
    setting, schema = setting_of(), bc10.dataset().schema
    layout, references = reference_header(setting.plan, schema), first_references(setting.plan, schema)
    honest: dict[str, object] = {"records": 6.0, "judged": 6.0, "weights": 4.0, "held_out": 400.0, "changes": 4.0}
    stepped_references(references, Totals(layout.built(**honest), np.empty(0), 2), layout)
    with pytest.raises(RemoteProtocolError, match=words):
        stepped_references(references, Totals(layout.built(**{**honest, **told}), np.empty(0), 2), layout)


# ------------------------------------------------------------------ the promise


@pytest.mark.parametrize("seed", range(5))
def test_every_group_that_features_define_is_bounded_by_the_worst_excess(seed: int) -> None:
    """E[loss | G] <= E[loss of q | G] + CVaR of the excess + Delta_G, on a population whose p* is known."""
    source = np.random.default_rng(seed)
    cells, classes, size = 12, 3, 0.25
    share = np.full(cells, 1.0 / cells)
    truth = source.dirichlet(np.ones(classes), cells)
    found = answers_of(CrossEntropyLoss(name="cross_entropy"), classes)
    said = found.answers(torch.tensor(source.normal(size=(cells, classes)) * 2.0))
    outputs = torch.tensor(source.normal(size=(cells, classes)))
    excess = found.excess(outputs, said).numpy()
    reference, model = said.numpy(), torch.softmax(outputs, 1).numpy()
    worst = float(worst_and_best(excess, size)[0])
    tight = math.inf
    for members in itertools.combinations(range(cells), int(size * cells)):
        group = list(members)
        weight = share[group] / share[group].sum()
        loss = weight @ -(truth[group] * np.log(model[group])).sum(1)
        attained = weight @ -(truth[group] * np.log(reference[group])).sum(1)
        miscalibration = weight @ ((truth - reference)[group] * np.log(reference / model)[group]).sum(1)
        assert loss <= attained + worst + miscalibration + 1e-12
        tight = min(tight, attained + worst + miscalibration - loss)
    # The worst group attains it.
    assert tight == pytest.approx(0.0, abs=1e-12)


def test_an_evaluation_whose_excess_is_over_other_records_is_refused() -> None:
    plan, schema = setting_of().plan, bc10.dataset().schema
    evaluator, layout = Evaluator(plan, schema), planned_layout(plan, schema)
    header = layout.zeros()
    sums = layout.read(header)
    for part in ("splits", "excess"):
        sums[part]["records"][0], sums[part]["counts"][0][0] = 6.0, 6.0
    sums["confusion"][0][0, 0] = sums["splits"]["correct"][0] = 6.0
    told = evaluator.evaluate(header, RoundNumber(0), 1.0, 1).splits["train"].metrics
    assert told["mean_excess"] == 0.0
    sums["excess"]["records"][0] = 3.0
    with pytest.raises(RemoteProtocolError, match="not over the records of its losses"):
        evaluator.evaluate(header, RoundNumber(0), 1.0, 1)


def test_a_held_out_record_gets_the_mean_answer_and_every_answer_the_best_temperature() -> None:
    setting, schema = setting_of(), bc10.dataset().schema
    shape, references = reference_shape(setting.plan, schema), first_references(setting.plan, schema)
    best = np.random.default_rng(9).normal(size=references.best.shape)
    place = len(TEMPERATURES) - 1
    references = replace(references, best=best, temperature=place)
    records = placed()
    found = judged(setting, SITE, {"train": records, "test": records}, references, LIKE)
    each = []
    for flat in best.reshape(shape.folds, shape.dimension):
        hidden = np.maximum(records.features.numpy() @ flat[:30].reshape(3, 10).T + flat[30:33], 0.0)
        outputs = hidden @ flat[33:39].reshape(2, 3).T + flat[39:41]
        each.append(class_chances(torch.tensor(outputs / TEMPERATURES[place])).numpy())
    np.testing.assert_allclose(found["test"].labels, np.mean(each, axis=0), rtol=0, atol=1e-12)
    folds = setting.fold_of(SITE, 60).numpy()
    own = np.stack(each)[folds, np.arange(60)]
    np.testing.assert_allclose(found["train"].labels, own, rtol=0, atol=1e-12)
    assert found["test"].features is records.features


def test_models_are_compared_by_their_excess_and_not_by_their_losses() -> None:
    plan, schema = setting_of().plan, bc10.dataset().schema
    evaluator, layout = Evaluator(plan, schema), planned_layout(plan, schema)

    def told(loss_bin: int, excess_bin: int) -> Evaluation:
        header = layout.zeros()
        sums, edges = layout.read(header), histogram_spec(plan, schema).edges
        for part, place in (("splits", loss_bin), ("excess", excess_bin)):
            sums[part]["records"][0], sums[part]["counts"][0][place] = 6.0, 6.0
            sums[part]["losses"][0][place] = 6.0 * edges[place]
        sums["confusion"][0][0, 0] = sums["splits"]["correct"][0] = 6.0
        return evaluator.evaluate(header, RoundNumber(0), 1.0, 1)

    unlucky, badly = told(loss_bin=200, excess_bin=2), told(loss_bin=20, excess_bin=50)
    assert evaluator.rank(unlucky) < evaluator.rank(badly)
    assert unlucky.splits["train"].mean > badly.splits["train"].mean
    metrics = badly.splits["train"].metrics
    assert metrics["mean_excess"] == pytest.approx(histogram_spec(plan, schema).edges[50])
    assert metrics["worst_group_excess"] == pytest.approx(metrics["mean_excess"], abs=0.02)


def test_an_excess_that_is_no_number_is_replaced_and_counted_under_masks() -> None:
    setting = setting_of()
    flat = flat_model(setting.plan, bc10.dataset().schema, torch.device("cpu"), Path())
    own = Splits(bc10.dataset().take(np.arange(60)))
    client = TrainingClient(setting.plan, SITE, own, flat, masked=True)
    references = first_references(setting.plan, bc10.dataset().schema)
    client.apply_references(replace(references, best=references.best + 0.1, sums=60, best_at=60))
    lost = GlobalModel(np.full_like(flat.vector(), np.nan), 0.5)
    losses, replaced = client.records.summable_losses(lost)
    assert replaced == 60
    end = histogram_spec(setting.plan, bc10.dataset().schema).loss_range
    assert losses["train"].excess.tolist() == [end] * 60


def test_a_model_whose_steps_follow_the_loss_is_not_judged_by_references() -> None:
    plan = setting_of().plan.with_(training={"precision": "fp64"})
    flat = flat_model(plan, bc10.dataset().schema, torch.device("cpu"), Path())
    with pytest.raises(LocalProtocolError, match="whose steps follow the loss has no excess"):
        evaluate(flat, placed(), 1, judged=placed())
