import json
import math
import subprocess
import sys

import numpy as np
import pytest

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.evaluation_sums import confusion_matrix
from fedfair.aggregation.evaluator import Evaluator
from fedfair.aggregation.loss_histogram import loss_block
from fedfair.aggregation.requests import histogram_spec
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.fairness.record_losses import Losses
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.results.costs import SumCost
from fedfair.results.document import JsonObject, to_json
from fedfair.results.writing import deployed_result, simulated_result
from fedfair.run.training_run import RunResult
from fedfair.statistics.table import Purpose
from tests import plans
from tests.oracles.header_places import block_length

DIGEST = "sha256:" + "ab" * 32
CLASSES = 4
SCHEMA = FeatureSchema((2,), CLASSES)
TRAIN = {"a": [0.1, 0.2, 1.0], "b": [0.4, 2.3]}
TEST = {"b": [0.5, 0.7]}
HALF_STEP = 8 * math.log(CLASSES) / 256 / 16
"""The most that a mean of rounded losses is off."""

NOISE = {"sample_level": {"noise_multiplier": 1.1}}
PROTECTED = tuple(f"site-{number}" for number in range(8))
COSTS = [SumCost(Purpose.TRAINING, 8, 0.5, contributors=2, bytes_up=200, bytes_down=100)]


def make_plan(worst_group_size: float = 0.4, *, min_group: int = 1) -> Plan:
    return plans.parsed(
        ["a", "b"], federation={"name": "test"}, task={"data": "digits"},
        objective={"worst_group_size": worst_group_size, "tradeoff": 0.25}, training={"rounds": 8},
        evaluation={"group_sizes": [0.2, 1.0], "min_group": min_group},
    )  # fmt: skip


def run_result(plan: Plan, *, smoothed: float = 3.5) -> RunResult:
    spec = histogram_spec(plan, SCHEMA)
    blocks = [
        sum(
            (loss_block(np.array(part), np.array(part) < 0.45, smoothed, spec) for part in split.values()),
            np.zeros(block_length(spec)),
        )
        for split in (TRAIN, {}, TEST)
    ]
    # Every record with a loss from 0.45 on, in class 1, was taken for class 0.
    matrices = [
        sum(
            (confusion_matrix(*classes_of(part), CLASSES) for part in split.values()), np.zeros((CLASSES, CLASSES))
        )
        for split in (TRAIN, {}, TEST)
    ]
    header = np.concatenate([*blocks, *(matrix.ravel() for matrix in matrices)])
    judge = Evaluator(plan, SCHEMA)
    evaluation = judge.evaluate(header, RoundNumber(8), 0.9, 3)
    return RunResult(RoundNumber(8), 0.9, evaluation, judge.confusion(header), (evaluation,), finished=True)


def classes_of(part: list[float]) -> tuple[np.ndarray, np.ndarray]:
    return np.ones(len(part), np.int64), (np.array(part) < 0.45).astype(np.int64)


def losses() -> dict[ParticipantId, dict[str, Losses]]:
    splits = {"train": TRAIN, "test": TEST}
    return {
        ParticipantId(site): {
            name: Losses(np.array(split[site]), *classes_of(split[site]))
            for name, split in splits.items()
            if site in split
        }
        for site in ("a", "b")
    }


def simulated(plan: Plan) -> JsonObject:
    return to_json(simulated_result(plan, DIGEST, run_result(plan), losses(), classes=4, seconds=2.0, costs=COSTS))


def deployed(plan: Plan) -> JsonObject:
    return to_json(deployed_result(plan, DIGEST, run_result(plan), classes=4, seconds=2.0, costs=()))


def test_a_simulated_result_is_the_contract_to_the_letter() -> None:
    result = json.loads(json.dumps(simulated(make_plan()), allow_nan=False))
    versions, history, plan = result.pop("versions"), result.pop("history"), result.pop("plan")
    verdict = result.pop("verdict")
    # Of five losses the worst two are 2.3 and 1.0; the mean is 0.8.
    assert result == {
        "format": "fedfair/result/1",
        "setting": "simulation",
        "plan_digest": DIGEST,
        "algorithm": "fedsrcvar",
        "centralised": False,
        "rounds": 8,
        "threshold": 0.9,
        "objective": {
            "rcvar": pytest.approx(0.75 * 1.65 + 0.25 * 0.8, rel=1e-14),
            "smoothed": pytest.approx(7.0 / 5.0, rel=1e-14), "split": "train",
        },
        "uniform_floor": math.log(4),
        "train": {
            "n": 5,
            "mean": pytest.approx(0.8, rel=1e-14),
            "accuracy": pytest.approx(0.6, rel=1e-14),
            "by_group_size": {
                "0.2": {
                    "worst": 2.3, "best": pytest.approx(0.425), "disparity": pytest.approx(1.875),
                    "bound": [2.3, 2.3],
                },
                "0.4": {
                    "worst": pytest.approx(1.65), "best": pytest.approx(0.7 / 3),
                    "disparity": pytest.approx(1.65 - 0.7 / 3),
                    "bound": [pytest.approx(1.65), pytest.approx(1.65)],
                },
                "1.0": {
                    "worst": pytest.approx(0.8), "best": None, "disparity": None,
                    "bound": [pytest.approx(0.8), pytest.approx(0.8)],
                },
            },
            "confusion": [[0, 0, 0, 0], [2, 3, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
        },
        "validation": None,
        "test": {
            "n": 2,
            "mean": pytest.approx(0.6),
            "accuracy": 0.0,
            "by_group_size": {
                size: {
                    "worst": pytest.approx(worst), "best": best,
                    "disparity": None if best is None else pytest.approx(worst - best.expected),
                    "bound": [pytest.approx(worst)] * 2,
                }
                for size, worst, best in (
                    ("0.2", 0.7, pytest.approx((1.2 - 0.4 * 0.7) / 1.6)),
                    ("0.4", 0.7, pytest.approx((1.2 - 0.8 * 0.7) / 1.2)), ("1.0", 0.6, None),
                )
            },
            "confusion": [[0, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
        },
        "collaborators": {
            "a": {"n": 3, "mean": pytest.approx(1.3 / 3), "accuracy": pytest.approx(2 / 3)},
            "b": {
                "n": 2, "mean": pytest.approx(1.35), "accuracy": 0.5,
                "test": {"n": 2, "mean": pytest.approx(0.6), "accuracy": 0.0},
            },
        },
        "left_out": [],
        "calibration": {"method": "none", "reason": "the plan sums no scores (evaluation.scores: false)"},
        "evaluation": {"method": "histogram", "given_up": None},
        "privacy": {"sample_level": None, "collaborator_level": None},
        "secure_aggregation": {
            "mode": "malicious",
            "colluders": 0,
            "masked": False,
            "guarantee": "an aggregator that may do anything, alone, learns one sum over at least 2 sites a "
            "round; no drop-out is survived: if one of 2 vanishes, the round is repeated; every site "
            "refuses an opened sum that is not what the sites added; every site sees each opened sum, so where "
            "two sites make it, each can read the other's part",
        },
        "timing": {
            "seconds": 2.0, "rounds_per_second": 4.0,
            "rounds": {"count": 1, "median": 0.5, "p90": 0.5, "longest": 0.5, "curve": [[8, 0.5]]},
        },
        "traffic": {
            "basis": "computed", "bytes_up": 200, "bytes_down": 100,
            "per_round": {"bytes_up": 100.0, "bytes_down": 50.0},
        },
    }  # fmt: skip
    assert (plan.pop("summary")[0][0], plan) == (
        "federation",
        {"federation": "test", "collaborators": 2, "worst_group_size": 0.4, "tradeoff": 0.25},
    )
    assert set(versions) == {"fedfair", "torch"}
    assert [(past["round"], past["threshold"]) for past in history] == [(8, 0.9)]
    assert history[0]["train"]["mean"] == pytest.approx(0.8, abs=HALF_STEP)
    assert set(history[0]["train"]["by_group_size"]) == {"0.2", "0.4", "1.0"}
    assert history[0]["test"]["worst"] == pytest.approx(0.7, abs=8 * math.log(4) / 256)
    # 1.4375 is above log(4), and every record is of one class, which a constant prediction gives all the chance.
    assert (verdict["state"], verdict["better_than_guess_from"]) == ("fine", 0.2)
    # Five records prove nothing against chance.
    assert verdict["findings"] == []
    assert verdict["sentences"][0].startswith("No evaluation shows this model worse than the uniform guess")


def test_a_deployed_result_has_intervals_that_hold_the_simulations_figures_and_no_collaborators() -> None:
    plan = make_plan()
    exact, known = (
        simulated(plan),
        to_json(deployed_result(plan, DIGEST, run_result(plan), classes=4, seconds=2.0, costs=COSTS)),
    )
    assert "collaborators" not in known
    assert set(known) == set(exact) - {"collaborators"}
    json.dumps(known, allow_nan=False)
    assert (known["setting"], known["secure_aggregation"]["masked"]) == ("deployment", True)
    assert known["traffic"]["basis"] == "measured"
    objective, true_objective = known["objective"], exact["objective"]
    assert isinstance(objective, dict)
    assert isinstance(true_objective, dict)
    lower, upper = objective["rcvar_bound"]
    assert lower <= true_objective["rcvar"] <= upper
    assert lower <= objective["rcvar"] <= upper
    for split in ("train", "test"):
        for size, group in known[split]["by_group_size"].items():
            truth = exact[split]["by_group_size"][size]["worst"]
            assert group["bound"][0] <= truth <= group["bound"][1]
            assert group["bound"][0] <= group["worst"] <= group["bound"][1]


def test_a_plan_that_hides_nobody_is_simulated_and_its_result_says_so() -> None:
    lonely = make_plan().model_copy(deep=True, update={"federation": make_plan().federation.model_copy(update={
        "collaborators": ("a",)
    })})  # fmt: skip
    protection = simulated(lonely)["secure_aggregation"]
    assert isinstance(protection, dict)
    assert str(protection["guarantee"]).startswith("NONE: a deployment of this plan is refused, a sum over 1 of 1")


def test_runs_without_evaluation_or_time_have_no_figures() -> None:
    training_run = RunResult(RoundNumber(0), 1.0, None, {}, (), finished=False)
    with pytest.raises(LocalProtocolError, match="never evaluated"):
        deployed_result(make_plan(), DIGEST, training_run, classes=4, seconds=1.0, costs=())
    plan = make_plan()
    result = to_json(deployed_result(plan, DIGEST, run_result(plan), classes=4, seconds=0.0, costs=()))
    assert result["timing"] == {"seconds": 0.0, "rounds_per_second": None, "rounds": None}
    assert result["traffic"] is None
    train = simulated(make_plan(0.37))["train"]
    assert isinstance(train, dict)
    assert "0.37" in train["by_group_size"]


def test_the_training_run_and_the_result_do_not_import_torch() -> None:
    code = (
        "import sys; import fedfair.run.training_run, fedfair.results.writing, fedfair.run.state; "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("make", ["simulated", "deployed"])
def test_a_group_of_fewer_people_than_the_plan_says_is_not_told_about(make: str) -> None:
    plan = make_plan(min_group=2)
    result = simulated(plan) if make == "simulated" else deployed(plan)
    shown = json.loads(json.dumps(result))
    # A fifth of five people is one person, two fifths are two; of two people a fifth and two fifths are one.
    assert shown["train"]["by_group_size"]["0.2"] == dict.fromkeys(["worst", "best", "disparity", "bound"])
    assert shown["train"]["by_group_size"]["0.4"]["worst"] == pytest.approx(1.65, rel=0.1)
    assert shown["test"]["by_group_size"]["0.4"]["worst"] is None
    assert shown["test"]["by_group_size"]["1.0"]["worst"] == pytest.approx(0.6, abs=HALF_STEP)
    assert shown["history"][0]["test"]["worst"] is None
    assert shown["history"][0]["train"]["worst"] is not None


def test_accuracies_are_those_of_the_matrix_which_many_classes_have_not() -> None:
    for split in ("train", "test"):
        shown = json.loads(json.dumps(deployed(make_plan())))[split]
        matrix = np.array(shown["confusion"])
        assert (matrix.sum(), matrix.trace() / matrix.sum()) == (shown["n"], shown["accuracy"])
    plan = make_plan()
    spec = histogram_spec(plan, SCHEMA)
    block = loss_block(np.array([0.5]), np.array([True]), 0.5, spec)
    matrices = np.zeros((3, CLASSES, CLASSES))
    matrices[0, 1, 2] = 1.0
    header = np.concatenate([block, np.zeros(2 * len(block)), matrices.ravel()])
    with pytest.raises(RemoteProtocolError, match="not over the records of its histograms"):
        Evaluator(plan, SCHEMA).evaluate(header, RoundNumber(0), 0.0, 3)
    plan, schema = make_plan(), FeatureSchema((2,), 65)
    spec = histogram_spec(plan, schema)
    block = loss_block(np.array([0.5]), np.array([True]), 0.5, spec)
    header = np.concatenate([block, np.zeros(2 * len(block))])
    judge = Evaluator(plan, schema)
    assert judge.evaluate(header, RoundNumber(0), 0.0, 3).splits["train"].accuracy == 1.0
    assert judge.confusion(header) == {}


@pytest.mark.parametrize("make", ["simulated", "deployed"])
def test_under_noise_a_deployed_verdict_is_an_estimate_and_a_simulated_one_is_not(make: str) -> None:
    plan = make_plan()
    noised = plan.model_copy(update={"privacy": plans.parsed(privacy=NOISE).privacy})
    if make == "simulated":
        result = simulated_result(noised, DIGEST, run_result(plan), losses(), classes=4, seconds=2.0, costs=COSTS)
    else:
        result = deployed_result(noised, DIGEST, run_result(plan), classes=4, seconds=2.0, costs=())
    verdict = result.verdict
    assert verdict is not None
    assert verdict.state == {"simulated": "fine", "deployed": "uncertain"}[make]
    assert verdict.findings == ()


def test_where_nothing_but_training_is_summed_the_verdict_says_that_nobody_knows() -> None:
    level = {"collaborator_level": {"clip": 1.0, "noise_multiplier": 1.0}}
    plan = plans.parsed(PROTECTED, privacy=level, training={"rounds": 1, "weights": "uniform"})
    run = RunResult(RoundNumber(1), 1.0, None, {}, (), finished=True)
    noised = distributed_dp(plan, 10)
    result = deployed_result(plan, DIGEST, run, classes=2, seconds=1.0, costs=(), noised=noised)
    assert result.verdict is not None
    assert (result.verdict.state, result.train) == ("unknown", None)
    assert result.verdict.sentences == (
        "Nothing was evaluated, so whether this model is worse than guessing is not known.",
    )
