"""The verdict by hand, on made-up people whose true probabilities are known, and the advice that follows."""

import json
import math

import numpy as np
import pytest

from fedfair.fairness.chance import hedged_loss
from fedfair.fairness.metrics import summarise_losses
from fedfair.plan.schema import Plan
from fedfair.results.advice import FamilyFacts
from fedfair.results.document import ResultDocument, to_json
from fedfair.results.reading import parse_result
from fedfair.results.risks import Moment, PastRisk, ReportedGroupRisk, SplitRisk
from fedfair.results.served_groups import served_groups
from fedfair.results.training_trend import Evaluated, TrainingTrend, Trend
from fedfair.results.verdict import (
    Aim,
    Comparison,
    ReturnedEvaluation,
    RunVerdict,
    StartEvaluation,
    compare,
    state_of,
)
from fedfair.results.verdict_sentences import UNEVALUATED, Known, _said_all, worded
from tests import plans
from tests.result_files import small

LOG2 = math.log(2)
SAME = {"train": True, "test": True}


def group(worst: float | None, width: float = 0.0, *, proved: bool = True) -> ReportedGroupRisk:
    bound = (worst - width, worst + width) if worst is not None and proved else None
    return ReportedGroupRisk(worst=worst, best=None, disparity=None, bound=bound)


def split(
    worst: float | None,
    mean: float = 0.3,
    accuracy: float = 0.9,
    width: float = 0.0,
    *,
    proved: bool = True,
    too_sure: bool = False,
) -> SplitRisk:
    groups = {"0.1": group(worst, width, proved=proved), "0.4": group(0.5), "1.0": group(mean)}
    risk = SplitRisk(n=1000, mean=mean, accuracy=accuracy, by_group_size=groups)
    return risk.model_copy(update={"hedged": mean - (0.1 if too_sure else -0.01)}) if proved else risk


def start(worst: float | None = LOG2, mean: float = LOG2, width: float = 0.0) -> StartEvaluation:
    groups = {"0.1": group(worst, width)}
    past = PastRisk(mean=mean, worst=worst, accuracy=0.5, by_group_size=groups)
    return StartEvaluation(Moment(round=0, threshold=1.0, train=past, test=past), SAME)


BALANCED = {"train": (500, 500), "test": (500, 500)}
BANK = {"train": (887, 113), "test": (887, 113)}


def told(verdict: RunVerdict) -> str:
    return "\n".join(verdict.sentences)


def found(comparison: Comparison) -> list[tuple[str, str | None, str, bool]]:
    return [(fault.subject, fault.split, fault.reference, fault.certain) for fault in comparison.faults]


AIM = Aim(0.1, 0.01)
# ------------------------------------------------------------------ by hand


def test_the_bank_of_the_issue_is_told_in_plain_sentences() -> None:
    # 88.7 % say no; the model is right for 71.4 %, and its worst tenth has a mean loss of 0.896.
    returned = ReturnedEvaluation(split(0.88, 0.6, 0.72), split(0.896, 0.6, 0.714), BANK)
    comparison = compare(AIM, LOG2, start(), returned)
    assert found(comparison) == [("mean", "test", "base_rate", True), ("accuracy", "test", "majority", True)]
    # The entropy of 88.7 and 11.3 %.
    assert comparison.faults[0].limit == pytest.approx(0.3527, abs=1e-4)
    known = Known((Evaluated(0, LOG2), Evaluated(6, 0.9), Evaluated(10, 0.88)), 0.88, (887, 113))
    verdict = worded(comparison, plans.parsed(training={"rounds": 10, "learning_rate": 0.5}), known)
    assert verdict.state == "worse"
    assert told(verdict) == (
        "Do not use this model as it is; try training.learning_rate: 0.05 (now 0.5) or training.schedule: cosine "
        "(now constant).\n"
        "All 1000 test records have a mean loss of 0.600, above the 0.353 of predicting the base rate for all.\n"
        "The accuracy over 1000 test records is 71.4 %, below the 88.7 % of always naming the most frequent "
        "class.\n"
        "The worst 10 % of 1000 test records have a mean loss of 0.896, and the uniform guess has 0.693; chance "
        "may explain it.\n"
        "This model serves the worst 10 % no better than guessing; from 27 % on it certainly does.\n"
        "The objective rose in training: 0.693 after round 0, 0.880 after round 10."
    )
    assert verdict.findings[0].sentence == told(verdict).split("\n")[1]
    assert [remedy.key for remedy in verdict.remedies] == ["training.learning_rate", "training.schedule"]


def test_a_worst_group_that_chance_explains_is_no_fault_and_one_that_it_does_not_is() -> None:
    unlucky = compare(AIM, LOG2, start(), ReturnedEvaluation(split(1.6), split(1.7), BALANCED))
    assert (unlucky.faults, state_of(unlucky)) == ((), "fine")
    assert unlucky.unserved is not None
    assert unlucky.unserved.by_chance
    (opening, said, *_) = worded(unlucky, plans.parsed()).sentences
    assert opening.startswith("Overall, no evaluation shows this model worse than before training")
    assert said.endswith("a mean loss of 1.700, and the uniform guess has 0.693; chance may explain it.")
    badly = compare(AIM, LOG2, start(), ReturnedEvaluation(split(1.6), split(1.7, too_sure=True), BALANCED))
    assert found(badly) == [("worst_group", "test", reference, True) for reference in ("start", "uniform_guess")]
    both = split(1.6, too_sure=True)
    assert ("objective", "train", "uniform_guess", True) in found(
        compare(AIM, LOG2, start(), ReturnedEvaluation(both, both, BALANCED))
    )


def test_models_that_beat_guessing_have_no_fault_and_means_above_it_do() -> None:
    comparison = compare(AIM, LOG2, start(), ReturnedEvaluation(split(0.5), split(0.6), BALANCED))
    served = served_groups(split(0.6), LOG2)
    assert comparison == Comparison(
        (), (), compared=True, estimated=False, better_than_guess_from=0.1, served=served
    )
    verdict = worded(comparison, plans.parsed())
    assert (verdict.state, verdict.findings, verdict.remedies) == ("fine", (), ())
    assert told(verdict) == (
        "No evaluation shows this model worse than before training, the uniform guess, the base rate or the most "
        "frequent class."
    )
    # Ten thousand to one are 9.2 nats, over 1000 records.
    for mean, faulty in ((LOG2 + 0.0090, False), (LOG2 + 0.0094, True)):
        comparison = compare(AIM, LOG2, None, ReturnedEvaluation(split(0.9), split(0.9, mean), BALANCED))
        assert (("mean", "test", "uniform_guess", True) in found(comparison)) == faulty
    # Above the base rate and below the most frequent class, and better than guessing for the worst tenth.
    protecting = ReturnedEvaluation(split(0.65), split(0.65, 0.6, 0.7), BANK)
    assert compare(AIM, LOG2, start(), protecting).faults == ()
    idle = ReturnedEvaluation(split(0.69), split(0.6925, 0.69, 0.7), BANK)
    assert {fault.reference for fault in compare(AIM, LOG2, start(), idle).faults} == {"base_rate", "majority"}


@pytest.mark.parametrize(
    ("worst", "width", "faulty"),
    [(0.72, 0.02, True), (0.72, 0.027, False), (0.695, 0.0, True), (0.694, 0.0, False)],
)
def test_a_fault_is_told_only_where_the_interval_leaves_no_doubt(worst: float, width: float, faulty: bool) -> None:
    # log(2) is 0.69315: 0.7 and 0.695 are above it by more than a thousandth, 0.693 and 0.694 are not.
    test = split(worst, width=width, too_sure=True)
    comparison = compare(AIM, LOG2, None, ReturnedEvaluation(split(0.5), test, BALANCED))
    assert (("worst_group", "test", "uniform_guess", True) in found(comparison)) == faulty


def test_figures_that_carry_noise_prove_no_fault_and_no_merit() -> None:
    test = split(0.9, 0.8, accuracy=0.3, proved=False)
    noised = ReturnedEvaluation(split(0.9, proved=False), test, BALANCED, counts_noised=True)
    comparison = compare(AIM, LOG2, start(), noised)
    assert {certain for *_, certain in found(comparison)} == {False}
    assert {fault.subject for fault in comparison.faults} == {"mean", "accuracy"}
    verdict = worded(comparison, plans.parsed())
    assert verdict.state == "uncertain"
    assert verdict.sentences[0].startswith(
        "The figures are estimates, so nothing is certain; if they are right, do"
    )
    assert verdict.sentences[1].startswith("Estimated: all 1000 test records have a mean loss of 0.8")
    good = compare(
        AIM, LOG2, start(), ReturnedEvaluation(split(0.5, proved=False), None, BALANCED, counts_noised=True)
    )
    assert (state_of(good), good.faults) == ("uncertain", ())
    (only,) = worded(good, plans.parsed()).sentences
    assert only == "The figures are estimates: they show no fault of this model, and prove nothing."


def test_what_speaks_without_held_out_records_or_beside_an_interval() -> None:
    bad = split(0.8, accuracy=0.3, mean=0.75, too_sure=True)
    comparison = compare(AIM, LOG2, start(), ReturnedEvaluation(bad, None, {"train": (500, 500)}))
    assert {(subject, place) for subject, place, _, _ in found(comparison)} == {
        ("objective", "train"), ("worst_group", "train"), ("mean", "train"), ("accuracy", "train"),
    }  # fmt: skip
    returned = ReturnedEvaluation(split(0.5), split(0.9, too_sure=True), BALANCED)
    certain = ("worst_group", "test", "start", True)
    assert certain in found(compare(AIM, LOG2, start(0.8, width=0.09), returned))
    assert certain not in found(compare(AIM, LOG2, start(0.8, width=0.1), returned))
    returned = ReturnedEvaluation(split(0.5, proved=False), None, BALANCED, replaced=3)
    comparison = compare(AIM, LOG2, start(), returned)
    assert found(comparison) == [("losses", None, "finite", True)]
    verdict = worded(comparison, plans.parsed())
    assert verdict.state == "worse"
    assert verdict.sentences[1] == (
        "3 losses of this model were not finite or too large, so others were counted in their place."
    )


def test_what_cannot_be_compared_is_said() -> None:
    other = StartEvaluation(start().moment, {"train": True, "test": False})
    verdict = worded(compare(AIM, LOG2, other, ReturnedEvaluation(split(0.5), split(0.5), {})), plans.parsed())
    assert told(verdict) == (
        "No evaluation shows this model worse than the uniform guess.\n"
        "Round 0 was evaluated over other test records, so the model is not compared with the start there.\n"
        "There are too many classes for a count of each, so the base rate and the most frequent class are not "
        "known."
    )
    few = worded(compare(AIM, LOG2, None, ReturnedEvaluation(split(None), None, BALANCED)), plans.parsed())
    assert few.state == "unknown"
    assert told(few) == (
        "Too few people were evaluated to say whether this model is worse than guessing.\n"
        "The worst 10 % of the training records are fewer people than evaluation.min_group, so they are not "
        "compared."
    )
    hidden = worded(
        compare(AIM, LOG2, start(None), ReturnedEvaluation(split(0.5), None, BALANCED)), plans.parsed()
    )
    assert (hidden.state, len(hidden.sentences)) == ("fine", 2)


# ------------------------------------------------------------------ what to try

WORSE = compare(AIM, LOG2, start(), ReturnedEvaluation(split(0.7, 0.72), split(0.8, 0.72), BALANCED))
FELL = (Evaluated(0, LOG2), Evaluated(60, 0.66), Evaluated(100, 0.64))
ROSE = (Evaluated(0, LOG2), Evaluated(60, 0.9), Evaluated(100, 0.88))
FLAT = (Evaluated(0, LOG2), Evaluated(60, 0.7), Evaluated(100, 0.6935))


def tried(known: Known, comparison: Comparison = WORSE, **training: object) -> dict[str, str]:
    """Return what is to be tried after a run of the defaults, by its key."""
    plan = Plan.model_validate(plans.untuned(training={"rounds": 100, **training}))
    verdict = worded(comparison, plan, known)
    for remedy in verdict.remedies:
        assert f"{remedy.key}: {remedy.wanted} (now {remedy.now})" in told(verdict)
    return {remedy.key: remedy.wanted for remedy in verdict.remedies}


def test_advice_follows_from_training_until_no_lower_rate_is_left() -> None:
    assert tried(Known(ROSE, LOG2)) == {"training.server_optimizer": "{name: adam, learning_rate: 0.03}"}
    yogi = {"server_optimizer": {"name": "yogi", "learning_rate": 0.5}}
    assert tried(Known(ROSE, LOG2), **yogi) == {"training.server_optimizer": "{name: yogi, learning_rate: 0.05}"}
    assert tried(Known(FELL, 0.64), schedule="constant") == {"training.rounds": "200"}
    assert tried(Known((Evaluated(0, LOG2), Evaluated(50, LOG2), Evaluated(100, LOG2)))) == {
        "training.server_optimizer": "{name: adam, learning_rate: 3}"
    }
    assert tried(Known(FLAT, LOG2, (500, 500))) == {
        "objective.worst_group_size": "0.5",
        "objective.measure": "excess",
    }
    assert tried(Known()) == {}
    rates, rate = [], 0.3
    while wanted := tried(Known(ROSE, LOG2), server_optimizer={"name": "adam", "learning_rate": rate}):
        rate = float(wanted["training.server_optimizer"].removesuffix("}").rpartition(" ")[2])
        rates.append(rate)
    assert rates == pytest.approx([0.03, 0.003])


def test_the_excess_is_a_remedy_only_where_the_same_plan_could_follow_it() -> None:
    known = Known(FLAT, 0.9, (500, 500), lambda: FamilyFacts(0.38, 0.38, 0.6931))
    verdict = worded(WORSE, plans.parsed(training={"algorithm": "fedavg"}), known)
    assert "objective.measure" not in [remedy.key for remedy in verdict.remedies]
    verdict = worded(WORSE, plans.parsed(privacy={"sample_level": {"noise_multiplier": 1.0}}), known)
    assert "objective.measure" not in [remedy.key for remedy in verdict.remedies]
    verdict = worded(WORSE, plans.parsed(evaluation={"method": "exact"}), known)
    assert "objective.measure" not in [remedy.key for remedy in verdict.remedies]


def test_sizes_are_the_remedy_below_the_critical_one() -> None:
    for history in (ROSE, FELL, FLAT, ()):
        known = Known(history, 0.9, (500, 500), lambda: FamilyFacts(0.38, 0.38, 0.6931))
        assert tried(known) == {"objective.worst_group_size": "0.45", "objective.measure": "excess"}
    verdict = worded(WORSE, plans.parsed(), Known((), LOG2, (), lambda: FamilyFacts(0.38, 0.38, 0.6931)))
    assert (
        "No model of this kind serves the worst 38 % better than guessing (the critical group size)."
        in verdict.sentences
    )
    known = Known(ROSE, 0.6935, (), lambda: FamilyFacts(0.02, 0.02, 0.693))
    assert "training.server_optimizer" not in tried(known)
    stuck = Known(FLAT, 0.6935, (), lambda: FamilyFacts(0.02, 0.02, 0.5))
    assert tried(stuck) == {"training.rounds": "200"}
    risk = SplitRisk(n=10, mean=0.7, accuracy=0.9, by_group_size={"0.1": group(0.9), "1.0": group(0.7)})
    comparison = compare(AIM, LOG2, None, ReturnedEvaluation(risk, None, BALANCED))
    assert comparison.better_than_guess_from is None
    plan = Plan.model_validate(plans.untuned(training={"rounds": 100}))
    verdict = worded(comparison, plan, Known(FLAT, LOG2))
    assert "objective.worst_group_size: 0.5 (now 0.1)" in told(verdict)
    assert "serves" not in told(verdict).replace("a model of this kind serves", "")
    nobody = worded(comparison, plan)
    assert (
        "This model serves no group, not even all people together, certainly better than guessing."
        in nobody.sentences
    )
    # A group of more than twice the rare class cannot have equal parts of both.
    assert tried(Known(FLAT, LOG2, (887, 113))) == {
        "objective.worst_group_size": "0.25",
        "objective.measure": "excess",
    }
    known = Known(FLAT, LOG2, (887, 113))
    assert list(tried(known, algorithm="fedavg")) == ["training.algorithm", "objective.worst_group_size"]
    small = Known(FLAT, LOG2, (887, 113), lambda: FamilyFacts(0.2, 0.2))
    assert list(tried(small, algorithm="fedavg")) == ["objective.worst_group_size"]


def test_a_run_that_returns_its_beginning_says_so_and_verdicts_are_kept() -> None:
    returned = ReturnedEvaluation(split(0.9), None, BALANCED, given_up_after=40)
    comparison = compare(AIM, LOG2, start(), returned)
    assert found(comparison)[0] == ("training", None, "start", True)
    verdict = worded(comparison, plans.parsed())
    assert verdict.state == "worse"
    assert verdict.sentences[1] == (
        "After 40 rounds no trained model was better, so the untrained model is returned."
    )
    returned = ReturnedEvaluation(split(0.9, 0.9), None, BANK)
    verdict = worded(compare(AIM, LOG2, None, returned), plans.parsed(), Known(ROSE, 0.9))
    assert verdict.remedies
    result = small(split(0.9)).model_copy(update={"verdict": verdict})
    assert parse_result(json.dumps(to_json(result)), "here").verdict == verdict
    assert parse_result(json.dumps(to_json(small(split(0.9)))), "here").verdict is None
    assert ResultDocument.model_fields["verdict"].default is None
    assert UNEVALUATED.state == "unknown"


# ------------------------------------------------------------------ people whose true probabilities are known

NOISES, RECORDS = (0.0, 0.3, 1.0, 2.0, 5.0), 400


def evaluated(losses: np.ndarray, labels: np.ndarray, right: np.ndarray, size: float) -> Comparison:
    """Return the comparison of a model whose every loss is known; before training it was the guess."""
    summary = summarise_losses(losses, right, (size,))
    worst = summary.by_group_size[size].worst
    risk = SplitRisk(
        n=summary.count, mean=summary.mean, accuracy=summary.accuracy,
        by_group_size={str(size): ReportedGroupRisk(worst=worst, best=None, disparity=None, bound=(worst, worst))},
        hedged=hedged_loss(losses, np.ones(len(losses)), LOG2, size),
    )  # fmt: skip
    guess = ReportedGroupRisk(worst=LOG2, best=None, disparity=None, bound=(LOG2, LOG2))
    past = PastRisk(mean=LOG2, worst=LOG2, by_group_size={str(size): guess})
    began = StartEvaluation(Moment(round=0, threshold=1.0, train=past, test=past), SAME)
    counts = np.bincount(labels, minlength=2).tolist()
    returned = ReturnedEvaluation(risk, risk, {"train": counts, "test": counts})
    return compare(Aim(size, 0.01), LOG2, began, returned)


def outcomes(draw: np.random.Generator, scale: float, bias: float) -> tuple[np.ndarray, np.ndarray]:
    """Return logits, and outcomes that are drawn with exactly their probabilities."""
    logits = scale * draw.normal(size=RECORDS) + bias
    return logits, (draw.random(RECORDS) < 1.0 / (1.0 + np.exp(-logits))).astype(np.int64)


def judged(logits: np.ndarray, labels: np.ndarray, size: float = 0.1) -> Comparison:
    losses = np.logaddexp(0.0, np.where(labels == 1, -logits, logits))
    return evaluated(losses, labels, (logits > 0.0) == (labels == 1), size)


@pytest.mark.parametrize("size", [0.05, 0.1, 0.3, 0.5])
def test_the_true_probabilities_are_never_called_bad(size: float) -> None:
    draw = np.random.default_rng(7)
    above_the_guess = 0
    for scale in NOISES:
        for bias in (0.0, 1.5, 3.0):
            for _ in range(20):
                logits, labels = outcomes(draw, scale, bias)
                comparison = judged(logits, labels, size)
                assert comparison.faults == ()
                above_the_guess += comparison.unserved is not None
    # The test could not fail if chance had nothing to explain.
    assert above_the_guess > 100


@pytest.mark.parametrize("bias", [0.0, 1.5])
def test_models_that_are_bad_by_their_making_are_called_so(bias: float) -> None:
    draw = np.random.default_rng(8)
    logits, labels = outcomes(draw, 4.0, bias)
    group = np.arange(RECORDS) % 5 == 0
    bad = {
        "a fifth has the opposite outcomes": (logits, np.where(group, 1 - labels, labels)),
        "everything is the opposite": (-logits, labels),
        "training diverged": (1000.0 * draw.normal(size=RECORDS), labels),
        "one class for everybody, the wrong one": (np.full(RECORDS, -6.0), labels),
        "ten times too sure": (10.0 * logits, labels),
    }
    for made, (given, came_true) in bad.items():
        assert state_of(judged(given, came_true)) == "worse", made
    # An untrained model tells less than the base rate, where there is one to tell.
    untrained = judged(np.zeros(RECORDS), labels)
    assert (state_of(untrained) == "worse") == (bias > 0.0)


# ------------------------------------------------------------------ a number


def number(worst: float, explained: float, mean: float = 1.0) -> SplitRisk:
    risk = split(worst, mean, 0.0)
    return risk.model_copy(update={"accuracy": None, "metrics": {"r_squared": explained}})


def start_of_number(worst: float, explained: float | None) -> StartEvaluation:
    metrics = None if explained is None else {"r_squared": explained}
    groups = {"0.1": group(worst), "1.0": group(2.0)}
    past = PastRisk(mean=2.0, worst=worst, by_group_size=groups, metrics=metrics)
    moment = Moment(round=0, threshold=1.0, train=past, test=past)
    return StartEvaluation(moment, {"train": True, "test": True})


def judged_number(
    explained: float, aim: Aim = AIM, began: StartEvaluation | None = None, worst: float = 3.0
) -> tuple[Comparison, RunVerdict]:
    held = number(worst, explained)
    began = began or start_of_number(2.0, 0.0)
    comparison = compare(aim, None, began, ReturnedEvaluation(held, held, {}))
    return comparison, worded(comparison, plans.parsed())


def test_means_of_numbers_decide_beyond_chance_and_rounding() -> None:
    comparison, verdict = judged_number(-1.4)
    assert ("r_squared", "test", "target_mean", True) in found(comparison)
    assert verdict.state == "worse"
    assert (
        "The share of variance explained (R squared) over 1000 test records is -1.40, below the 0 of always "
        "predicting their mean." in told(verdict)
    )
    # 18 variances over 1000 records.
    assert not judged_number(-0.0179, worst=1.0)[0].faults
    assert judged_number(-0.0181, worst=3.0)[0].faults
    assert "or always predicting the mean" in told(judged_number(0.4, worst=1.0)[1])
    for began, is_excused in (
        (start_of_number(9.0, 0.0), True),
        (start_of_number(9.0, -6.0), False),
        (start_of_number(9.0, None), False),
        (start_of_number(2.0, 0.0), False),
    ):
        subjects = {fault.subject for fault in judged_number(-0.5, began=began)[0].faults}
        assert ("r_squared" not in subjects) == is_excused


def test_quantiles_and_replaced_losses_are_held_to_what_they_explain() -> None:
    """The median may be one deviation from the mean, and so explain -1."""
    median = Aim(0.1, 0.01, -1.0)
    assert not judged_number(-0.9, median, worst=1.0)[0].faults
    comparison, verdict = judged_number(-1.4, median)
    assert ("r_squared", "test", "right_model", True) in found(comparison)
    assert "below the -1.00 that a model which is right about its loss has at least" in told(verdict)
    assert "always predicting the mean" not in told(judged_number(0.4, median, worst=1.0)[1])
    held = number(3.0, -1.4)
    returned = ReturnedEvaluation(held, held, {}, replaced=2)
    comparison = compare(AIM, None, start_of_number(2.0, 0.0), returned)
    assert ("r_squared", "test", "target_mean", False) in found(comparison)


@pytest.mark.parametrize(
    ("trend", "says"),
    [
        (Trend.RISING, "rose"), (Trend.FALLING, "still falling"), (Trend.STILL, "hardly moved"),
        (Trend.FLAT, "flat"), (Trend.UNKNOWN, None),
    ],
)  # fmt: skip
def test_how_training_went_is_said_with_both_figures(trend: Trend, says: str | None) -> None:
    seen = TrainingTrend(trend, Evaluated(3, 0.5), Evaluated(9, 0.25))
    found = _said_all("trend", 0.1, trend=seen, minimised="The objective", too_small=False)
    assert len(found) == (says is not None)
    for sentence in found:
        assert says is not None
        assert says in sentence
        assert "0.500 after round 3, 0.250 after round 9" in sentence
