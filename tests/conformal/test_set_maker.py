"""Which sets a plan's models get from the sums of an evaluation, and why others get none."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfair.aggregation.evaluation_file import EvaluatedModel
from fedfair.aggregation.evaluation_sums import planned_layout
from fedfair.aggregation.evaluator import Evaluator
from fedfair.aggregation.loss_histogram import SPLITS, loss_block
from fedfair.aggregation.requests import histogram_spec
from fedfair.aggregation.score_histogram import score_bins, score_edges, score_sums
from fedfair.conformal.class_sets import is_in_set
from fedfair.conformal.intervals import reach
from fedfair.conformal.prediction_sets import NoSets, PredictionSets
from fedfair.conformal.set_maker import SetMaker
from fedfair.plan.derived import why_no_sets
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import HuberLoss, Loss, PinballLoss, SquaredLoss, greatest_loss
from fedfair.plan.schema import Plan
from tests import plans

Numbers = NDArray[np.float64]
Scored = tuple[Numbers, NDArray[np.int64]]

SETS = {"group_size": 0.3, "missed": 0.2}


def scored_plan(classes: int, **sections: Mapping[str, object]) -> Plan:
    """Return a plan that promises .2 of the worst .3, so that .06 of all people may be missed."""
    task = {"data": "breast-cancer" if classes == 2 else "digits"}
    values = plans.stated(task=task, evaluation={"scores": True, "sets": SETS}, training={"output": "best"})
    return Plan.model_validate(plans.over(values, **sections))


def number_plan(loss: Mapping[str, object], **evaluation: object) -> Plan:
    table = {"target": "y", "numeric": ["x"], "collaborator": "site", "train": "all.csv"}
    task = {"data": {"csv": table}, "loss": loss, "standardize": "none"}
    return plans.parsed(task=task, evaluation={"loss_range": 9.0, "sets": SETS, **evaluation})


def maker(plan: Plan, schema: FeatureSchema) -> SetMaker:
    return SetMaker(plan, schema, Evaluator(plan, schema))


def sums(
    plan: Plan,
    schema: FeatureSchema,
    scored: Mapping[str, Scored] | None = None,
    losses: Mapping[str, Numbers] | None = None,
) -> EvaluatedModel:
    """Return an opened evaluation; what no set is made of is zero."""
    layout = planned_layout(plan, schema)
    header = layout.zeros()
    fields = layout.read(header)
    for place, split in enumerate(SPLITS):
        scores, labels = (scored or {}).get(split, (np.zeros((0, 0)), np.zeros(0, np.int64)))
        fields["splits"]["records"][place] = len(labels)
        if len(labels):
            columns = scores[:, 1:] if schema.classes == 2 else scores
            for name, values in score_sums(columns, labels, columns.shape[1]).items():
                fields["scores"][name][place] = values
        if losses and split in losses:
            block = loss_block(losses[split], None, 0.0, histogram_spec(plan, schema))
            fields["splits"].view(np.float64).reshape(3, -1)[place] = block
    return EvaluatedModel(header, bytes(32), 1.0, 1, 3)


def drawn(records: int, classes: int, seed: int, sureness: float = 1.5) -> Scored:
    source = np.random.default_rng(seed)
    logits = source.normal(scale=sureness, size=(records, classes))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (chances.cumsum(axis=1) < source.random((records, 1))).sum(axis=1)
    return chances, labels.clip(max=classes - 1)


@pytest.mark.parametrize("classes", [2, 4, 10])
def test_the_threshold_is_that_of_slow_sets_on_raw_scores_rounded_down_to_an_edge(classes: int) -> None:
    plan, schema = scored_plan(classes), FeatureSchema((2,), classes)
    test, records = drawn(415, classes, 1), 415
    # The other splits are far surer, and say nothing.
    held = {"train": drawn(900, classes, 2, 9.0), "validation": drawn(300, classes, 3, 9.0), "test": test}
    made, opened = maker(plan, schema), sums(plan, schema, held)
    found = made.sets(opened)
    assert isinstance(found, PredictionSets)
    assert (found.kind, found.split, found.records) == ("classes", "test", records)
    scores, labels = test
    # .06 * 416 = 24.96, so the threshold of records is the 24th worst score.
    own = scores[np.arange(records), labels]
    exact = np.sort(own)[23]
    edges = score_edges(score_bins(1 if classes == 2 else classes))
    assert found.bound in edges
    assert found.bound <= exact < edges[np.searchsorted(edges, found.bound) + 1]
    # What the sums say of the sets is what predictions are.
    inside = is_in_set(scores, found.bound)
    seen = made.seen(opened.header, found)["test"]
    missed = ~inside[np.arange(records), labels]
    assert seen.missed == missed.mean() <= 23 / records
    assert (own[missed] < found.bound).all()
    counts = inside.sum(axis=1)
    assert seen.sizes is not None
    assert seen.sizes.mean == pytest.approx(counts.mean(), rel=1e-12)
    shares = tuple(float((counts == size).mean()) for size in range(3))
    assert seen.sizes.shares == (pytest.approx(shares) if classes == 2 else ())
    assert set(made.seen(opened.header, found)) == set(SPLITS)


def test_of_two_classes_each_is_counted_by_the_score_of_its_own() -> None:
    plan, schema = scored_plan(2), FeatureSchema((2,), 2)
    # Nine in ten of class 0, at .1 and .9 in turn; ones are all sure.
    chances = np.where(np.arange(300) % 10 == 0, 0.99, np.where(np.arange(300) % 3 == 0, 0.9, 0.1))
    labels = (np.arange(300) % 10 == 0).astype(np.int64)
    made = maker(plan, schema)
    opened = sums(plan, schema, {"test": (np.stack([1.0 - chances, chances], axis=1), labels)})
    found = made.sets(opened)
    assert isinstance(found, PredictionSets)
    # More than .06 of all have the score .1 for their class 0, so sets begin there, and hold 1 for all at .1 too.
    assert 0.099 < found.bound <= 0.1
    seen = made.seen(opened.header, found)["test"]
    assert seen.missed == 0.0
    assert seen.sizes is not None
    assert seen.sizes.shares == pytest.approx((0.0, 0.1, 0.9), abs=1e-12)


def test_other_arithmetic_only_enlarges_sets() -> None:
    source = np.random.default_rng(5)
    logits = source.normal(scale=20.0, size=(4000, 3))
    single = logits.astype(np.float32).astype(np.float64)
    chances, other = (np.exp(each - each.max(axis=1, keepdims=True)) for each in (logits, single))
    chances, other = (each / each.sum(axis=1, keepdims=True) for each in (chances, other))
    edges = score_edges(score_bins(3))
    # Scores at an edge exactly, and as another machine computes them.
    for edge in edges[np.linspace(1, len(edges) - 2, 40).astype(int)]:
        assert is_in_set(np.array([[edge]]), float(edge)).all()
        assert (is_in_set(other, float(edge)) >= (chances >= edge)).all()
        assert not is_in_set(np.array([[edge * (1.0 - 2.0**-11)]]), float(edge)).any()


@pytest.mark.parametrize(
    "loss",
    [
        SquaredLoss(name="squared"),
        HuberLoss(name="huber", delta=0.7),
        HuberLoss(name="huber", delta=50.0),
        PinballLoss(name="pinball", quantile=0.2),
    ],
)
def test_an_interval_holds_every_answer_that_does_not_count_as_missed(loss: Loss) -> None:
    plan, schema = number_plan(loss.model_dump()), FeatureSchema((1,), 0)
    source, made = np.random.default_rng(3), maker(plan, schema)
    errors = source.normal(size=500)
    losses = np.array([loss_of(loss, error) for error in errors])
    opened = sums(plan, schema, losses={"train": np.zeros(900), "test": losses})
    found = made.sets(opened)
    assert isinstance(found, PredictionSets)
    assert (found.kind, found.split, found.records) == ("interval", "test", 500)
    # .06 * 501 = 30.06: the 30th greatest of the losses is inside, and the edge after it, within a bin.
    exact = np.sort(losses)[-30]
    assert exact <= found.bound <= exact + 1.07 * 9.0 / 256
    below, above = reach(loss, found.bound)
    missed = (errors < -below) | (errors > above)
    seen = made.seen(opened.header, found)["test"]
    assert missed.mean() <= seen.missed <= 29 / 500
    assert seen.sizes is None
    # Both ends have that loss, to the last bit or more.
    assert [loss_of(loss, -below), loss_of(loss, above)] == pytest.approx([found.bound] * 2, rel=1e-12)
    assert min(loss_of(loss, -below), loss_of(loss, above)) >= found.bound


def loss_of(loss: Loss, error: float) -> float:
    match loss:
        case PinballLoss(quantile=quantile):
            return max(quantile * error, (quantile - 1.0) * error)
        case SquaredLoss() | HuberLoss():
            return greatest_loss(loss, abs(error))
        case _:
            raise AssertionError


def reason(plan: Plan, classes: int, held: Mapping[str, Scored], replaced: int = 0) -> str:
    schema = FeatureSchema((2,), classes)
    found = maker(plan, schema).sets(replace(sums(plan, schema, held), replaced=replaced))
    return found.reason if isinstance(found, NoSets) else f"sets of {found.split} records"


def test_records_that_trained_or_chose_the_model_make_no_sets() -> None:
    train, other = drawn(400, 2, 1), drawn(300, 2, 2)
    best, last = scored_plan(2), scored_plan(2, training={"output": "last"})
    weights = {"digest": "sha256:" + "ab" * 32, "weights": "sha256:" + "cd" * 32}
    assert reason(best, 2, {"train": train}) == "no records are held out from training (task.test_fraction)"
    chosen = "there are no test records, and validation records may have chosen the model"
    assert reason(best, 2, {"train": train, "validation": other}) == chosen
    assert reason(last, 2, {"train": train, "validation": other}) == "sets of validation records"
    assert reason(last, 2, {"train": train, "validation": other, "test": other}) == "sets of test records"
    given = last.model_copy(update={"training": last.training.model_copy(update={"initial": weights})})
    assert reason(given, 2, {"train": train, "validation": other}) == chosen
    assert reason(best, 2, {"test": other}, 3).startswith("3 losses of its evaluation were replaced")


def test_a_promise_that_records_are_too_few_for_names_how_many_it_takes() -> None:
    # Five records of min_group, of .06: 5 / .06 = 83.3, less the new person.
    plan = scored_plan(2)
    assert reason(plan, 2, {"test": drawn(83, 2, 1)}) == "sets of test records"
    words = reason(plan, 2, {"test": drawn(82, 2, 1)})
    assert "takes 83 test records, and there are 82" in words
    assert "at most 0.2 of any group of a share of 0.3" in words
    assert "takes 166 test" in reason(scored_plan(2, evaluation={"min_group": 10}), 2, {"test": drawn(150, 2, 1)})
    # The plan's own group size, where sets state none.
    usual = scored_plan(2, evaluation={"sets": {"missed": 0.2}}, objective={"worst_group_size": 0.1})
    assert "takes 249 test records" in reason(usual, 2, {"test": drawn(83, 2, 1)})


def test_no_interval_is_finite_where_too_many_losses_are_beyond_the_range() -> None:
    plan, schema = number_plan({"name": "squared"}), FeatureSchema((1,), 0)
    losses = np.zeros(200)
    losses[:11] = 9.5
    made = maker(plan, schema)
    # .06 * 201 = 12.06
    assert isinstance(made.sets(sums(plan, schema, losses={"test": losses})), PredictionSets)
    losses[:12] = 9.5
    found = made.sets(sums(plan, schema, losses={"test": losses}))
    assert found == NoSets(
        "12 or more of 200 test records have a loss from evaluation.loss_range on, so that no interval is finite"
    )


def test_plans_without_sets_say_why() -> None:
    survival = {"name": "survival", "intervals": [1.0, 2.0]}
    table = {"time": "t", "event": "e", "numeric": ["x"], "collaborator": "site", "train": "all.csv"}
    times = plans.parsed(task={"data": {"csv": table}, "loss": survival, "standardize": "none"})
    noise = {"sample_level": {"noise_multiplier": 1.0, "clip": 1.0, "delta": 1e-5}}
    plain = plans.parsed(
        task={"standardize": "none"}, privacy=noise, secure_aggregation={"mode": "semi-honest"},
        federation={"min_collaborators": 3},
    )  # fmt: skip
    for plan, classes, words in (
        (scored_plan(2, evaluation={"sets": None}), 2, "evaluation.sets: null"),
        (scored_plan(2, evaluation={"scores": False}), 2, "evaluation.scores: false"),
        (scored_plan(2), 11, "with more than 10 classes"),
        (times, 0, "no set of answers follows from the survival loss"),
        (plain, 2, "under noise"),
    ):
        assert words in why_no_sets(plan, classes)
        schema = FeatureSchema((2,), classes)
        assert maker(plan, schema).without == why_no_sets(plan, classes)
    assert why_no_sets(number_plan({"name": "squared"}), 0) == ""
