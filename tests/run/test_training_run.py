import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedfair.aggregation.loss_histogram import loss_block
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.quantile_query import exact_header
from fedfair.aggregation.requests import GlobalModel, SumRequest, histogram_spec
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.training_sum import BLOCK, IterateMean, moved_by_mean
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.plan.derived import reported_group_sizes, threshold_limit
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.run.snapshot import RunSnapshot
from fedfair.run.training_run import TrainingRun
from fedfair.statistics.table import Purpose
from fedfair.store.spilled import SpilledVectors
from tests import plans
from tests.oracles.header_places import block_length

DIMENSION = 3
LAYOUT = Layout((LayoutEntry("weight", (DIMENSION,)),), np.dtype(np.float64))
SCHEMA = FeatureSchema((2,), 2, (0, 1))


def make_plan(
    *,
    every: int = 2,
    standardize: str = "none",
    loss_bound: float | None = None,
    worst_group_size: float = 0.25,
    method: str = "histogram",
    **training: object,
) -> Plan:
    return plans.parsed(
        ["a", "b"],
        task={"standardize": standardize},
        objective={"worst_group_size": worst_group_size, "tradeoff": 0.5, "loss_bound": loss_bound},
        training={"rounds": 3, "precision": "fp64", **training},
        evaluation={"every": every, "group_sizes": [0.5], "method": method},
    )


HALF_STEP = 8 * math.log(2) / 256 / 16
"""The most that a loss below the range is from its rounded value, for plans of two classes and 256 bins."""


def make_training_run(plan: Plan) -> TrainingRun:
    return TrainingRun(plan, LAYOUT, SCHEMA, np.zeros(DIMENSION))


def begun(**fields: object) -> tuple[Plan, TrainingRun]:
    """Return a plan and a run of it before its first sum."""
    plan = make_plan(**fields)
    return plan, make_training_run(plan)


def training(weight: float, threshold: float, *body: float) -> Totals:
    return Totals(np.array([weight, threshold]), np.array(body or (0.0,) * DIMENSION), 2)


def evaluation(plan: Plan, train: list[float], validation: list[float] | None = None) -> Totals:
    spec = histogram_spec(plan, SCHEMA)
    blocks = [
        loss_block(np.array(losses), np.zeros(len(losses), bool), sum(losses), spec)
        if losses
        else np.zeros(block_length(spec))
        for losses in (train, validation, None)
    ]
    # Every record is in class 1 and taken for class 0.
    matrices = [[0.0, 0.0, len(losses or ()), 0.0] for losses in (train, validation, None)]
    return Totals(np.concatenate([*blocks, *matrices]), np.zeros(0), 2)


def answer(request: SumRequest, plan: Plan, scale: float = 1.0) -> Totals:
    """Return some plausible total of the requested sum."""
    if request.purpose is Purpose.TRAINING:
        return training(4.0, -0.4 * scale, scale, 2.0 * scale, 1.0)
    if request.purpose is Purpose.EVALUATION:
        return evaluation(plan, [0.1, 0.4, 0.9, 1.7 * scale])
    if request.query is not None:
        losses = {"train": np.array([0.1, 0.4, 0.9, 1.7 * scale])}
        return Totals(exact_header(losses, request.query, len(reported_group_sizes(plan))), np.zeros(0), 2)
    return Totals(np.array([2.0, 2.0, 2.0, 2.0, 4.0, 10.0, 8.0]), np.zeros(0), 2)


def finish(training_run: TrainingRun, plan: Plan) -> list[str]:
    """Run to the end; return purpose and round of every sum."""
    taken = []
    while (request := training_run.next_sum()) is not None:
        taken.append(f"{request.purpose.value} {request.round}")
        training_run.apply_aggregate(answer(request, plan, 1.0 + 0.1 * len(taken)))
    return taken


def fingerprint(training_run: TrainingRun) -> tuple[object, ...]:
    """Return all that the state of a training run consists of, as values."""
    snapshot = training_run.snapshot()
    return (
        snapshot.state,
        {name: vector.tobytes() for name, vector in snapshot.vectors.items()},
        training_run.next_sum(),
    )


def test_a_run_evaluates_first_then_every_so_many_rounds_and_after_the_last() -> None:
    plan = make_plan()
    assert finish(make_training_run(plan), plan) == [
        "evaluation 0", "training 1", "training 2", "evaluation 2", "training 3", "evaluation 3",
    ]  # fmt: skip


def test_secure_standardisation_comes_before_everything() -> None:
    plan = make_plan(standardize="secure")
    assert finish(make_training_run(plan), plan)[:2] == ["standardisation 0", "evaluation 0"]


def test_features_without_numeric_columns_are_not_standardised() -> None:
    plan = make_plan(standardize="secure")
    request = TrainingRun(plan, LAYOUT, FeatureSchema((2,), 2), np.zeros(DIMENSION)).next_sum()
    assert request.purpose is Purpose.EVALUATION


def test_the_scaling_is_mean_and_standard_deviation_of_all_records() -> None:
    training_run = make_training_run(make_plan(standardize="secure"))
    assert training_run.scaling is None
    # Two records (0, 2) and (2, 2): sums 2, 4; squares 4, 8. The second column never varies.
    training_run.apply_aggregate(Totals(np.array([2.0, 2.0, 2.0, 2.0, 4.0, 4.0, 8.0]), np.zeros(0), 2))
    assert training_run.scaling.mean.tolist() == [1.0, 2.0]
    assert training_run.scaling.scale.tolist() == [1.0, 1.0]


def test_a_training_total_moves_the_model_by_the_weighted_mean() -> None:
    plan, training_run = begun()
    training_run.apply_aggregate(evaluation(plan, [0.5]))
    progress = training_run.apply_aggregate(training(4.0, -1.0, 4.0, -2.0, 1.0))
    assert (training_run.model.vector.tolist(), training_run.model.threshold) == ([1.0, -0.5, 0.25], 0.75)
    assert (progress.round, progress.threshold, progress.model_changed) == (1, 0.75, True)


def test_a_retry_asks_for_the_same_sum_one_attempt_later_and_success_counts_anew() -> None:
    plan, training_run = begun()
    first = training_run.next_sum()
    training_run.retry()
    second = training_run.next_sum()
    assert (second.purpose, second.round, second.attempt) == (first.purpose, first.round, 2)
    training_run.apply_aggregate(evaluation(plan, [0.5]))
    assert training_run.next_sum().attempt == 1


@pytest.mark.parametrize(
    ("change", "bound", "expected"),
    [(-20.0, None, 0.0), (8.0, 2.0, 2.0), (20.0, None, threshold_limit(make_plan(), 2))],
)
def test_the_threshold_is_projected_on_its_range(change: float, bound: float | None, expected: float) -> None:
    plan, training_run = begun(loss_bound=bound, threshold_init=1.0)
    training_run.apply_aggregate(evaluation(plan, [0.5]))
    training_run.apply_aggregate(training(4.0, change))
    assert training_run.model.threshold == expected


@pytest.mark.parametrize(
    ("init", "bound", "expected"), [("bound", None, 1.0), ("bound", 3.0, 3.0), (0.25, None, 0.25)]
)
def test_the_threshold_starts_where_the_plan_says(init: object, bound: float | None, expected: float) -> None:
    assert make_training_run(make_plan(threshold_init=init, loss_bound=bound)).model.threshold == expected


def test_no_round_lifts_the_threshold_above_the_highest_loss_that_was_found() -> None:
    """One site that lies moves it by as much as a sum may; the last evaluation says how far that can go."""
    plan, training_run = begun(threshold_init=0.5, rounds=6, every=2)
    most, levels = threshold_limit(plan, 2), list[float]()
    while (request := training_run.next_sum()) is not None:
        lies = request.purpose is Purpose.TRAINING
        training_run.apply_aggregate(training(1.0, most) if lies else evaluation(plan, [0.1, 0.7, 0.76, 1.7]))
        levels += [training_run.model.threshold] if lies else []
        if request.purpose is Purpose.EVALUATION and request.round == 2:
            # What honest sites pull it down by, once they see the losses.
            state = training_run.state
            training_run.state = replace(state, model=GlobalModel(state.model.vector, 0.76))
    assert levels[:2] == [most, most], "only the range is known before the first model that was trained"
    bin_above = 1.7 + most / plan.evaluation.bins
    assert all(1.7 < level <= bin_above for level in levels[2:])
    assert len(levels) == 6


def test_a_threshold_above_every_loss_may_stay_and_fall() -> None:
    plan = make_plan(threshold_init=5.0, rounds=3, every=1)
    training_run, levels = make_training_run(plan), []
    while (request := training_run.next_sum()) is not None:
        lies = request.purpose is Purpose.TRAINING
        training_run.apply_aggregate(
            training(1.0, -0.5 + 0.75 * (request.round == 2)) if lies else evaluation(plan, [0.5])
        )
        levels += [training_run.model.threshold] if lies else []
    assert levels == [4.5, 4.5, 4.0]


@pytest.mark.parametrize("init", ["quantile", None])
def test_a_quantile_start_takes_the_threshold_from_the_first_evaluation(init: str | None) -> None:
    plan, training_run = begun(threshold_init=init, worst_group_size=0.25)
    # One of four losses is above 0.9; alone in its bin, 0.9 is known as exactly as it was rounded.
    progress = training_run.apply_aggregate(evaluation(plan, [0.1, 0.4, 1.7, 0.9]))
    assert progress.model_changed
    # The smallest optimal threshold is 0.9, the largest 1.7; any of them is a right answer.
    assert 0.9 - HALF_STEP <= training_run.model.threshold <= 1.7 + HALF_STEP
    assert progress.threshold == training_run.model.threshold


@pytest.mark.parametrize(("output", "first"), [("average", 0), ("tail", 2)])
def test_a_mean_is_of_the_models_that_were_broadcast_or_of_their_second_half(output: str, first: int) -> None:
    plan = make_plan(output=output, rounds=5, every=9)
    training_run, broadcast, thresholds = make_training_run(plan), [], []
    while (request := training_run.next_sum()) is not None:
        if request.purpose is Purpose.TRAINING:
            broadcast.append(training_run.model.vector.copy())
            thresholds.append(training_run.model.threshold)
        training_run.apply_aggregate(answer(request, plan))
    # Means of a few small numbers: a few roundings of numbers below 4.
    np.testing.assert_allclose(training_run.model.vector, np.mean(broadcast[first:], axis=0), atol=1e-14)
    assert training_run.model.threshold == pytest.approx(np.mean(thresholds[first:]), abs=1e-14)


def test_best_output_is_the_model_with_the_lowest_objective_on_validation_records() -> None:
    plan, training_run = begun(output="best", every=1)
    training_run.apply_aggregate(evaluation(plan, [0.1], [2.0]))
    best = []
    for validation in (0.5, 0.3, 0.9):
        training_run.apply_aggregate(training(1.0, 0.0, 1.0, 1.0, 1.0))
        best.append(training_run.apply_aggregate(evaluation(plan, [1.0], [validation])).is_best)
    assert (best, training_run.model.vector.tolist()) == ([True, True, False], [2.0, 2.0, 2.0])
    assert training_run.next_sum() is None, "the best model was evaluated when it was found"
    assert training_run.result().evaluation == training_run.history[2]


@pytest.mark.parametrize("output", ["last", "average", "tail", "best"])
def test_the_best_model_is_the_evaluated_one_even_where_the_output_is_another(output: str) -> None:
    plan, training_run = begun(output=output, every=3)
    training_run.apply_aggregate(evaluation(plan, [2.0, 2.0]))
    for _ in range(3):
        training_run.apply_aggregate(training(1.0, 0.0, 1.0, 1.0, 1.0))
    assert training_run.apply_aggregate(evaluation(plan, [0.1, 0.1])).is_best
    assert training_run.best.vector.tolist() == [3.0, 3.0, 3.0]


def test_without_validation_records_the_training_records_decide() -> None:
    plan, training_run = begun(output="best", every=1, rounds=1)
    assert training_run.apply_aggregate(evaluation(plan, [0.7])).is_best
    training_run.apply_aggregate(training(1.0, 0.0, 1.0, 0.0, 0.0))
    assert not training_run.apply_aggregate(evaluation(plan, [0.8])).is_best


@pytest.mark.parametrize("output", ["average", "tail"])
def test_a_mean_of_one_model_is_not_evaluated_a_second_time(output: str) -> None:
    # A site refuses to mask its part in the evaluation of one and the same model twice.
    plan, training_run = begun(output=output, rounds=1)
    assert finish(training_run, plan) == ["evaluation 0", "training 1", "evaluation 1"]
    assert training_run.result().evaluation == training_run.history[0]
    assert training_run.model.vector.tolist() == [0.0, 0.0, 0.0]


def test_a_model_that_did_not_change_is_not_asked_about_again() -> None:
    plan, training_run = begun(every=1, rounds=3)
    first = training_run.apply_aggregate(evaluation(plan, [0.2, 0.4]))
    still = training_run.apply_aggregate(training(1.0, 0.0))
    assert (still.purpose, still.round, still.is_best) == (Purpose.TRAINING, 1, False)
    assert still.evaluation.splits == first.evaluation.splits
    request = training_run.next_sum()
    assert (request.purpose, request.round) == (Purpose.TRAINING, 2)
    moved = training_run.apply_aggregate(training(1.0, -0.5))
    assert moved.evaluation is None, "another threshold is another model"
    training_run.apply_aggregate(evaluation(plan, [0.2, 0.4]))
    assert training_run.apply_aggregate(training(1.0, 0.0)).evaluation is not None
    assert training_run.next_sum() is None
    assert [past.round for past in training_run.history] == [0, 1, 2, 3]
    restored = make_training_run(plan)
    restored.restore(
        RunSnapshot(json.loads(json.dumps(training_run.snapshot().state)), training_run.snapshot().vectors)
    )
    assert fingerprint(restored) == fingerprint(training_run)


@pytest.mark.parametrize("output", ["last", "average", "tail", "best"])
def test_an_evaluation_on_the_way_can_be_left_out_and_is_named(output: str) -> None:
    plan, training_run = begun(every=1, rounds=3, output=output)
    while (request := training_run.next_sum()) is not None:
        if request.purpose is Purpose.EVALUATION and request.round == 1:
            assert training_run.may_skip
            training_run.retry()
            training_run.skip("nobody came")
            following = training_run.next_sum()
            assert (following.purpose, following.attempt) == (Purpose.TRAINING, 1)
        else:
            training_run.apply_aggregate(answer(request, plan, 1.0 + 0.1 * request.round))
    assert training_run.result().left_out == (1,)
    assert [past.round for past in training_run.history] == [0, 2, 3]
    assert training_run.result().evaluation is not None


@pytest.mark.parametrize(("output", "needed"), [("last", True), ("best", False), ("average", False)])
def test_only_the_evaluation_of_the_output_model_is_needed(output: str, needed: bool) -> None:
    plan, training_run = begun(every=1, rounds=2, output=output)
    for total in (evaluation(plan, [0.3]), answer_training(), evaluation(plan, [0.2]), answer_training()):
        training_run.apply_aggregate(total)
    assert training_run.may_skip is not needed
    if needed:
        with pytest.raises(LocalProtocolError, match="cannot do without its next sum"):
            training_run.skip("nobody came")
        return
    training_run.skip("nobody came")
    if output == "best":
        assert training_run.next_sum() is None
        assert training_run.result().evaluation == training_run.history[1]
        assert (training_run.model.vector.tolist(), training_run.evaluated.round) == ([0.25, 0.5, 0.25], 1)
    else:
        assert not training_run.may_skip, "the mean has no other evaluation"
        training_run.apply_aggregate(evaluation(plan, [0.1]))
        assert training_run.next_sum() is None


def test_what_an_evaluation_teaches_cannot_be_left_out() -> None:
    assert not make_training_run(make_plan(threshold_init="quantile")).may_skip
    assert not make_training_run(make_plan(threshold_init=None)).may_skip
    assert make_training_run(make_plan()).may_skip
    assert not make_training_run(make_plan(standardize="secure")).may_skip


def answer_training() -> Totals:
    return training(4.0, -0.4, 1.0, 2.0, 1.0)


def test_the_result_holds_the_output_models_own_evaluation_beside_the_history() -> None:
    plan, training_run = begun(output="average", every=1, rounds=2)
    for losses in ([0.3], [0.5], [0.4], [0.25]):
        training_run.apply_aggregate(evaluation(plan, losses))
        if training_run.rounds_done < 2:
            training_run.apply_aggregate(training(1.0, 0.0, 1.0, 0.0, 0.0))
    result = training_run.result()
    assert result.finished
    assert result.evaluation.splits["train"].mean == pytest.approx(0.25, abs=HALF_STEP)
    assert [past.splits["train"].mean for past in result.history] == pytest.approx([0.3, 0.5, 0.4], abs=HALF_STEP)


def played(output: str, *losses: list[float], validation: bool = False) -> TrainingRun:
    """Play a run of two rounds whose evaluations find these losses, of round 0, 1, 2 and of a mean."""
    plan, training_run = begun(output=output, every=1, rounds=2)
    for found in losses:
        # Training records that say the opposite have no voice where there are validation records.
        totals = evaluation(plan, [1.0 / found[0]], found) if validation else evaluation(plan, found)
        training_run.apply_aggregate(totals)
        if training_run.rounds_done < 2:
            training_run.apply_aggregate(training(1.0, 0.0, 1.0, 0.0, 0.0))
    assert training_run.next_sum() is None
    return training_run


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize(
    ("output", "losses", "returned"),
    [
        ("last", ([0.9], [0.3], [0.5]), 2.0), ("last", ([0.4], [0.5], [0.9]), 2.0),
        ("best", ([0.9], [0.3], [0.5]), 1.0), ("best", ([0.4], [0.5], [0.9]), 0.0),
        ("best", ([0.9], [0.5], [0.3]), 2.0), ("average", ([0.9], [0.3], [0.5], [0.6]), 0.5),
        ("average", ([0.4], [0.5], [0.6], [0.9]), 0.5), ("tail", ([0.4], [0.9], [0.5]), 1.0),
    ],
)  # fmt: skip
def test_a_run_returns_the_model_that_its_plan_names_and_best_alone_chooses(
    output: str, losses: tuple[list[float], ...], returned: float, validation: bool
) -> None:
    training_run = played(output, *losses, validation=validation)
    result, evaluated = training_run.result(), training_run.evaluated
    assert list(training_run.model.vector) == [returned, 0.0, 0.0]
    assert result.evaluation is not None
    # The figures are those of the model that is returned.
    assert evaluated.vector_sha256 == training_run.model.vector_sha256
    if output == "best":
        assert result.evaluation.objective == pytest.approx(min(loss for (loss,) in losses), abs=2.1 * HALF_STEP)
    # What training ended with is kept, whatever is returned.
    assert list(training_run.trained.vector) == [2.0, 0.0, 0.0]


@pytest.mark.parametrize(("output", "returned"), [("best", 0.0), ("last", 1.0)])
def test_a_model_whose_losses_had_to_be_replaced_is_not_the_best(output: str, returned: float) -> None:
    plan, training_run = begun(output=output, every=1, rounds=1)
    training_run.apply_aggregate(evaluation(plan, [0.9]))
    training_run.apply_aggregate(training(1.0, 0.0, 1.0, 0.0, 0.0))
    training_run.apply_aggregate(replace(evaluation(plan, [0.1]), replaced=1, replacing=1))
    assert list(training_run.model.vector) == [returned, 0.0, 0.0]


@pytest.mark.parametrize(
    ("totals", "fault"),
    [
        (training(0.0, 0.0), "add up to 0.0"),
        (training(-1.0, 0.0), "add up to -1.0"),
        (training(math.nan, 0.0), "NaN or an infinity"),
        (training(1.0, math.inf), "NaN or an infinity"),
        (training(1.0, 0.0, math.nan, 0.0, 0.0), "not finite or too large"),
        (training(1.0, 0.0, 0.0, -math.inf, 0.0), "not finite or too large"),
        (training(1e-300, 0.0, 1e10, 0.0, 0.0), "not finite or too large"),
        (training(5e-324, 1.0), "would move the threshold by inf"),
        (training(4.0, 22.2), "would move the threshold by 5.55, a round moves it by at most 5.54518"),
        (training(4.0, -22.2), "would move the threshold by -5.55, a round moves it by at most 5.54518"),
    ],
)
def test_a_bad_training_total_is_refused_and_changes_nothing(totals: Totals, fault: str) -> None:
    plan, training_run = begun(output="average")
    training_run.apply_aggregate(evaluation(plan, [0.5]))
    training_run.apply_aggregate(training(1.0, 0.1, 1.0, 1.0, 1.0))
    before = fingerprint(training_run)
    with pytest.raises(RemoteProtocolError, match=fault):
        training_run.apply_aggregate(totals)
    assert fingerprint(training_run) == before


@pytest.mark.parametrize(("bound", "highest"), [(None, threshold_limit(make_plan(), 2)), (3.0, 3.0)])
def test_round_0_sets_no_threshold_above_what_a_round_may_move_it_by(bound: float | None, highest: float) -> None:
    plan, training_run = begun(loss_bound=bound, threshold_init="quantile")
    training_run.apply_aggregate(evaluation(plan, [1e15, 1e15]))
    assert training_run.model.threshold == highest


@pytest.mark.parametrize(
    "totals",
    [
        Totals(np.zeros(3), np.zeros(DIMENSION), 1),
        Totals(np.ones(2), np.zeros(DIMENSION + 1), 1),
        Totals(np.ones(2), np.zeros(0), 1),
    ],
)
def test_totals_of_another_shape_are_refused_and_change_nothing(totals: Totals) -> None:
    plan, training_run = begun()
    training_run.apply_aggregate(evaluation(plan, [0.5]))
    before = fingerprint(training_run)
    with pytest.raises(LocalProtocolError, match="totals have shapes"):
        training_run.apply_aggregate(totals)
    assert fingerprint(training_run) == before


def test_an_evaluation_over_nobody_is_refused_and_changes_nothing() -> None:
    plan, training_run = begun(threshold_init="quantile", output="best")
    before = fingerprint(training_run)
    with pytest.raises(RemoteProtocolError, match="no training record"):
        training_run.apply_aggregate(evaluation(plan, []))
    assert fingerprint(training_run) == before


def test_impossible_sums_for_standardisation_are_refused() -> None:
    training_run = make_training_run(make_plan(standardize="secure"))
    before = fingerprint(training_run)
    for header in ([0.0] * 7, [2.0, 2.0, 2.0, 4.0, 4.0, 1.0, 8.0], [2.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0]):
        with pytest.raises(RemoteProtocolError):
            training_run.apply_aggregate(Totals(np.array(header), np.zeros(0), 1))
    assert fingerprint(training_run) == before


def test_a_finished_training_run_takes_no_aggregate() -> None:
    plan, training_run = begun()
    finish(training_run, plan)
    assert training_run.next_sum() is None
    with pytest.raises(LocalProtocolError, match="finished"):
        training_run.apply_aggregate(training(1.0, 0.0))


def test_an_initial_model_of_another_length_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="initial model"):
        TrainingRun(make_plan(), LAYOUT, SCHEMA, np.zeros(DIMENSION + 1))


def test_the_training_run_owns_its_model() -> None:
    vector: NDArray[np.float64] = np.zeros(DIMENSION)
    plan = make_plan()
    training_run = TrainingRun(plan, LAYOUT, SCHEMA, vector)
    training_run.apply_aggregate(evaluation(plan, [0.5]))
    training_run.apply_aggregate(training(1.0, 0.0, 1.0, 1.0, 1.0))
    assert not vector.any()


@settings(deadline=None, max_examples=25)
@given(
    output=st.sampled_from(["last", "average", "tail", "best"]),
    standardize=st.sampled_from(["none", "secure"]),
    init=st.sampled_from(["bound", "quantile", 0.3]),
    method=st.sampled_from(["histogram", "exact"]),
    stop=st.integers(0, 25),
)
def test_a_training_run_that_crashed_anywhere_continues_to_the_same_bytes(
    output: str, standardize: str, init: object, method: str, stop: int
) -> None:
    plan = make_plan(output=output, standardize=standardize, threshold_init=init, method=method, rounds=9, every=3)
    whole, crashed = make_training_run(plan), make_training_run(plan)
    sums = 0
    while (request := crashed.next_sum()) is not None and sums < stop:
        crashed.apply_aggregate(answer(request, plan, 1.0 + 0.1 * request.round))
        sums += 1
    crashed.retry()
    taken = crashed.snapshot()
    # What a journal does: words through JSON, vectors through bytes.
    words = json.loads(json.dumps(taken.state))
    vectors = {name: np.frombuffer(vector.tobytes(), vector.dtype) for name, vector in taken.vectors.items()}
    restored = make_training_run(plan)
    restored.restore(RunSnapshot(words, vectors))
    assert fingerprint(restored) == fingerprint(crashed)
    for training_run in (whole, restored):
        while (request := training_run.next_sum()) is not None:
            training_run.apply_aggregate(answer(request, plan, 1.0 + 0.1 * request.round))
    assert restored.model.vector.tobytes() == whole.model.vector.tobytes()
    # The attempt that was given up is all that tells them apart; noise has to be counted for it.
    assert restored.result() == replace(whole.result(), lost_rounds=restored.lost_rounds)


def test_a_snapshot_of_another_plan_is_refused_and_changes_nothing() -> None:
    plan, training_run = begun(output="average")
    before = fingerprint(training_run)
    with pytest.raises(LocalProtocolError, match="does not fit"):
        training_run.restore(make_training_run(make_plan()).snapshot())
    longer = Layout((LayoutEntry("weight", (9,)),), np.dtype(np.float64))
    with pytest.raises(LocalProtocolError, match="does not fit"):
        training_run.restore(TrainingRun(plan, longer, SCHEMA, np.zeros(9)).snapshot())
    assert fingerprint(training_run) == before


@settings(deadline=None, max_examples=25)
@given(size=st.sampled_from([0, 1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK]), weight=st.floats(0.1, 1e3))
def test_adding_in_blocks_is_adding_at_once(size: int, weight: float) -> None:
    source = np.random.default_rng(size)
    vector, total = source.normal(size=size), source.normal(size=size)
    before = vector.copy()
    np.testing.assert_array_equal(moved_by_mean(vector, total, weight), before + total / weight)
    np.testing.assert_array_equal(vector, before)
    expected, summed = before + total / weight, total.copy()
    np.testing.assert_array_equal(moved_by_mean(vector, summed, weight, in_place=True), expected)
    np.testing.assert_array_equal(summed, expected)
    total.flags.writeable = False
    np.testing.assert_array_equal(moved_by_mean(vector, total, weight, in_place=True), expected)


def test_the_iterate_mean_forgets_nothing() -> None:
    iterates = np.random.default_rng(1).normal(size=(50, BLOCK + 3))
    mean = IterateMean(np.zeros(BLOCK + 3))
    for number, iterate in enumerate(iterates):
        mean = mean.including(iterate, float(number))
    # 50 updates, each with a rounding of numbers below 5.
    np.testing.assert_allclose(mean.vector, iterates.mean(axis=0), atol=50 * 5 * 2.0**-52)
    assert mean.threshold == pytest.approx(24.5, abs=1e-12)


def until_the_query(training_run: TrainingRun, plan: Plan) -> None:
    while (request := training_run.next_sum()) is not None and request.query is None:
        training_run.apply_aggregate(answer(request, plan), ["a", "b"])


@pytest.mark.parametrize("output", ["last", "average", "best"])
def test_an_exact_evaluation_follows_the_last_and_sharpens_it(output: str) -> None:
    plan, training_run = begun(method="exact", output=output)
    until_the_query(training_run, plan)
    coarse = training_run.result().evaluation
    assert finish_query(training_run, plan) == [1, 2, 3, 4]
    result = training_run.result()
    assert (result.finished, result.query_fault) == (True, "")
    # The worst quarter of 0.1, 0.4, 0.9, 1.7 is 1.7, the worst half 1.3; the objective is half of 1.7 and 0.775.
    sharp, blunt = result.evaluation.splits["train"].by_group_size, coarse.splits["train"].by_group_size
    for size, worst in ((0.25, 1.7), (0.5, 1.3)):
        assert sharp[size].bound.lower <= worst <= sharp[size].bound.upper
        assert sharp[size].bound.upper - sharp[size].bound.lower < 1e-6
        assert blunt[size].bound.lower <= worst <= blunt[size].bound.upper
    assert (sharp[0.25].at_least, sharp[0.5].at_least) == (np.float32(1.7), np.float32(0.9))
    assert sharp[0.5].best == pytest.approx(0.25, abs=1e-6)
    objective = result.evaluation.objectives["train"]
    assert objective.lower <= 0.5 * (1.7 + 0.775) <= objective.upper
    assert objective.upper - objective.lower < 1e-6
    assert len(result.history) == 3


def finish_query(training_run: TrainingRun, plan: Plan) -> list[int]:
    steps = []
    while (request := training_run.next_sum()) is not None and request.query is not None:
        steps.append(request.query.number)
        training_run.apply_aggregate(answer(request, plan), ["a", "b"])
    return steps


def test_a_query_that_other_members_go_on_with_is_given_up_and_the_histogram_stands() -> None:
    plan, training_run = begun(method="exact")
    until_the_query(training_run, plan)
    coarse = training_run.result().evaluation
    for members in (["a", "b"], ["a"]):
        request = training_run.next_sum()
        assert request is not None
        assert training_run.apply_aggregate(answer(request, plan), members).evaluation is None
    result = training_run.result()
    assert training_run.next_sum() is None
    assert (result.finished, result.evaluation) == (True, coarse)
    assert result.query_fault.startswith("step 2 of a query was answered by a, step 1 by a, b")


def test_a_query_over_other_records_than_the_evaluation_is_given_up() -> None:
    plan, training_run = begun(method="exact")
    until_the_query(training_run, plan)
    sizes = len(reported_group_sizes(plan))
    while (request := training_run.next_sum()) is not None:
        assert request.query is not None
        header = exact_header({"train": np.array([0.1, 0.4])}, request.query, sizes)
        training_run.apply_aggregate(Totals(header, np.zeros(0), 2), ["a", "b"])
    assert "other records than the evaluation" in training_run.result().query_fault


def test_an_exact_evaluation_that_cannot_be_had_is_given_up_in_words() -> None:
    plan, training_run = begun(method="exact")
    until_the_query(training_run, plan)
    assert training_run.may_skip
    training_run.skip("nobody came")
    assert training_run.next_sum() is None
    assert training_run.result().query_fault == "nobody came"
    assert training_run.result().finished


@pytest.mark.parametrize("init", ["bound", "quantile"])
@pytest.mark.parametrize("output", ["last", "best", "average", "tail"])
def test_the_threshold_of_an_evaluation_is_one_number_wherever_it_is_told(init: str, output: str) -> None:
    plan, training_run = begun(threshold_init=init, output=output, every=1)
    told: dict[int, float] = {}
    started: dict[int, float] = {}
    while (request := training_run.next_sum()) is not None:
        if request.purpose is Purpose.TRAINING:
            started[request.round] = training_run.model.threshold
        progress = training_run.apply_aggregate(answer(request, plan, 1.0 + 0.1 * request.round))
        if progress.evaluation is not None:
            assert progress.threshold == progress.evaluation.threshold
            told.setdefault(request.round, progress.threshold)
    result = training_run.result()
    assert {past.round: past.threshold for past in result.history} == told
    # Every round starts from what the evaluation before it says.
    assert started == {number + 1: told[number] for number in range(len(started))}
    assert result.threshold == result.evaluation.threshold == training_run.evaluated.threshold


def test_a_model_that_was_trained_for_the_mean_is_judged_by_the_mean() -> None:
    # The worst group grows from 0.6 to 1.2 while the mean falls from 0.6 to 0.3.
    found = {}
    for algorithm in ("fedavg", "fedsrcvar"):
        plan = make_plan(every=1, rounds=1, algorithm=algorithm, output="best")
        training_run = make_training_run(plan)
        training_run.apply_aggregate(evaluation(plan, [0.6, 0.6, 0.6, 0.6]))
        training_run.apply_aggregate(training(1.0, 0.0, 1.0, 0.0, 0.0))
        training_run.apply_aggregate(evaluation(plan, [0.0, 0.0, 0.0, 1.2]))
        found[algorithm] = list(training_run.model.vector)
    assert found == {"fedavg": [1.0, 0.0, 0.0], "fedsrcvar": [0.0, 0.0, 0.0]}


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_a_run_with_its_moments_in_files_is_the_one_in_memory(name: str, tmp_path: Path) -> None:
    plan = make_plan(server_optimizer={"name": name})
    room = SpilledVectors(tmp_path, small_bytes=0)
    spilled, in_memory = TrainingRun(plan, LAYOUT, SCHEMA, np.zeros(DIMENSION), room=room), make_training_run(plan)
    while (request := in_memory.next_sum()) is not None:
        assert fingerprint(spilled) == fingerprint(in_memory)
        assert spilled.state.digest(bytes(32)) == in_memory.state.digest(bytes(32))
        restarted = TrainingRun(plan, LAYOUT, SCHEMA, np.zeros(DIMENSION), room=room)
        restarted.restore(in_memory.snapshot())
        assert room.houses(restarted.state.terms["moments"].first)
        assert fingerprint(restarted) == fingerprint(in_memory)
        spilled = restarted
        spilled.apply_aggregate(answer(request, plan))
        in_memory.apply_aggregate(answer(request, plan))
    assert spilled.next_sum() is None
    assert fingerprint(spilled) == fingerprint(in_memory)
