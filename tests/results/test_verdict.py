"""The verdict by hand, and against a slow one that is written from the words of its table."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from fedfair.fairness.cvar import cvar
from fedfair.fairness.metrics import summarise_losses
from fedfair.plan.schema import Plan
from fedfair.results.document import ResultDocument, to_json
from fedfair.results.reading import parse_result
from fedfair.results.risks import Moment, PastRisk, ReportedGroupRisk, SplitRisk
from fedfair.results.served_groups import served_groups
from fedfair.results.verdict import (
    MARGIN,
    Aim,
    Comparison,
    ReturnedEvaluation,
    RunVerdict,
    StartEvaluation,
    compare,
    state_of,
)
from fedfair.results.verdict_words import UNEVALUATED, worded
from tests import plans
from tests.result_files import small

LOG2 = math.log(2)
SAME = {"train": True, "test": True}


def group(worst: float | None, width: float = 0.0, *, proved: bool = True) -> ReportedGroupRisk:
    bound = (worst - width, worst + width) if worst is not None and proved else None
    return ReportedGroupRisk(worst=worst, best=None, disparity=None, bound=bound)


def split(
    worst: float | None, mean: float = 0.3, accuracy: float = 0.9, width: float = 0.0, *, proved: bool = True
) -> SplitRisk:
    groups = {"0.1": group(worst, width, proved=proved), "0.4": group(0.5), "1.0": group(mean)}
    return SplitRisk(n=1000, mean=mean, accuracy=accuracy, by_group_size=groups)


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
THREE = ("start", "uniform_guess", "best_constant")

# ------------------------------------------------------------------ by hand


def test_a_model_that_serves_everybody_better_than_guessing_has_no_fault() -> None:
    comparison = compare(AIM, LOG2, start(), ReturnedEvaluation(split(0.5), split(0.6), BALANCED))
    served = served_groups(split(0.6), LOG2)
    assert comparison == Comparison(
        (), (), compared=True, estimated=False, better_than_guess_from=0.1, served=served
    )
    verdict = worded(comparison, plans.parsed())
    assert (verdict.state, verdict.findings) == ("fine", ())
    assert told(verdict) == (
        "No evaluation shows this model worse than before training, the uniform guess, the best constant "
        "prediction or the most frequent class."
    )


def test_the_bank_of_the_issue_is_told_in_plain_sentences() -> None:
    # 88.7 % say no; the model is right for 71.4 %, and its worst tenth stands at 0.896.
    returned = ReturnedEvaluation(split(0.88, 0.6, 0.72), split(0.896, 0.6, 0.714), BANK)
    comparison = compare(AIM, LOG2, start(), returned)
    assert found(comparison) == [
        *(("objective", "train", reference, True) for reference in THREE),
        *(("worst_group", "test", reference, True) for reference in THREE),
        ("accuracy", "test", "majority", True),
    ]
    # 0.99 * 0.88 + 0.01 * 0.6; the rare class is more than a tenth, so that the best constant is half and half.
    assert comparison.faults[0].value == pytest.approx(0.8772)
    assert comparison.faults[2].limit == pytest.approx(LOG2, rel=1e-12)
    verdict = worded(comparison, plans.parsed(training={"rounds": 1, "learning_rate": 0.5}))
    assert verdict.state == "worse"
    assert told(verdict) == (
        "Do not use this model as it is; try training.learning_rate: 0.05 (now 0.5), training.schedule: linear "
        "(now constant), objective.smoothing.name: zang (now softplus) or objective.worst_group_size: 0.4 (now "
        "0.1).\n"
        "The plan's objective over 1000 training records is 0.877, above the 0.693 before training, the 0.693 of "
        "the uniform guess and the 0.693 of the best constant prediction.\n"
        "The worst 10 % of 1000 test records have a mean loss of 0.896, above the 0.693 before training, the "
        "0.693 of the uniform guess and the 0.693 of the best constant prediction.\n"
        "The accuracy over 1000 test records is 71.4 %, below the 88.7 % of always naming the most frequent "
        "class.\n"
        "This model serves the worst 10 % no better than guessing; from 27 % on it certainly does."
    )
    sentences = [finding.sentence for finding in verdict.findings]
    assert sentences[3] == (
        "The worst 10 % of 1000 test records have a mean loss of 0.896, above the 0.693 before training."
    )
    assert sentences[5] == (
        "The worst 10 % of 1000 test records have a mean loss of 0.896, above the 0.693 of the best constant "
        "prediction."
    )


def test_where_only_the_group_asks_for_too_much_a_larger_one_is_the_first_advice() -> None:
    comparison = compare(AIM, LOG2, start(), ReturnedEvaluation(split(0.6), split(0.75), BALANCED))
    assert found(comparison) == [("worst_group", "test", reference, True) for reference in THREE]
    (opening, *_) = worded(comparison, plans.parsed(training={"rounds": 1, "algorithm": "fedavg"})).sentences
    assert opening == (
        "Do not use this model as it is; try objective.worst_group_size: 0.4 (now 0.1), training.algorithm: "
        "fedsrcvar (now fedavg), training.learning_rate: 0.005 (now 0.05) or training.schedule: linear (now "
        "constant)."
    )


def test_without_held_out_records_the_training_records_speak() -> None:
    comparison = compare(
        AIM, LOG2, start(), ReturnedEvaluation(split(0.8, accuracy=0.4), None, {"train": (500, 500)})
    )
    assert {(subject, place) for subject, place, _, _ in found(comparison)} == {
        ("objective", "train"),
        ("worst_group", "train"),
        ("accuracy", "train"),
    }


@pytest.mark.parametrize(
    ("worst", "width", "faulty"),
    [(0.72, 0.02, True), (0.72, 0.027, False), (0.695, 0.0, True), (0.694, 0.0, False)],
)
def test_a_fault_is_told_only_where_the_interval_leaves_no_doubt(worst: float, width: float, faulty: bool) -> None:
    # log(2) is 0.69315: 0.7 and 0.695 are above it by more than a thousandth, 0.693 and 0.694 are not.
    comparison = compare(AIM, LOG2, None, ReturnedEvaluation(split(0.5), split(worst, width=width), BALANCED))
    assert (("worst_group", "test", "uniform_guess", True) in found(comparison)) == faulty


def test_the_interval_of_the_start_counts_too() -> None:
    returned = ReturnedEvaluation(split(0.5), split(0.9), BALANCED)
    certain = ("worst_group", "test", "start", True)
    assert certain in found(compare(AIM, LOG2, start(0.8, width=0.09), returned))
    assert certain not in found(compare(AIM, LOG2, start(0.8, width=0.1), returned))


def test_figures_that_carry_noise_prove_no_fault_and_no_merit() -> None:
    test = split(0.9, accuracy=0.3, proved=False)
    noised = ReturnedEvaluation(split(0.9, proved=False), test, BALANCED, counts_noised=True)
    comparison = compare(AIM, LOG2, start(), noised)
    assert {certain for *_, certain in found(comparison)} == {False}
    assert len(comparison.faults) == 7
    verdict = worded(comparison, plans.parsed())
    assert verdict.state == "uncertain"
    assert verdict.sentences[0].startswith(
        "The figures are estimates, so nothing is certain; if they are right, do"
    )
    assert verdict.sentences[2].startswith(
        "Estimated: the worst 10 % of 1000 test records have a mean loss of 0.9"
    )
    good = compare(
        AIM, LOG2, start(), ReturnedEvaluation(split(0.5, proved=False), None, BALANCED, counts_noised=True)
    )
    assert (state_of(good), good.faults) == ("uncertain", ())
    (only,) = worded(good, plans.parsed()).sentences
    assert only == "The figures are estimates: they show no fault of this model, and prove nothing."


def test_losses_that_are_no_numbers_are_a_fault_whatever_the_estimates_are() -> None:
    returned = ReturnedEvaluation(split(0.5, proved=False), None, BALANCED, replaced=3)
    comparison = compare(AIM, LOG2, start(), returned)
    assert found(comparison) == [("losses", None, "finite", True)]
    verdict = worded(comparison, plans.parsed())
    assert verdict.state == "worse"
    assert verdict.sentences[1] == (
        "3 losses of this model were not finite or too large, so others were counted in their place."
    )


def test_a_run_that_returns_the_model_before_training_says_so_and_why() -> None:
    returned = ReturnedEvaluation(split(0.9), None, BALANCED, given_up_after=40)
    comparison = compare(AIM, LOG2, start(), returned)
    assert found(comparison)[0] == ("training", None, "start", True)
    verdict = worded(comparison, plans.parsed())
    assert verdict.state == "worse"
    assert verdict.sentences[1] == (
        "Training made the model worse, so these figures are of round 40 and the model before training is "
        "returned."
    )


def test_what_cannot_be_compared_is_said() -> None:
    other = StartEvaluation(start().moment, {"train": True, "test": False})
    verdict = worded(compare(AIM, LOG2, other, ReturnedEvaluation(split(0.5), split(0.5), {})), plans.parsed())
    assert told(verdict) == (
        "No evaluation shows this model worse than the uniform guess.\n"
        "There are too many classes for a count of each, so the best constant prediction and the most frequent "
        "class are not known.\n"
        "Round 0 was evaluated over other test records, so the model is not compared with the start there."
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


def test_the_advice_names_the_rate_that_decides_how_far_a_round_goes() -> None:
    comparison = compare(AIM, LOG2, start(), ReturnedEvaluation(split(0.88), None, BALANCED))
    for stated, wanted in (
        ({}, "{name: adam, learning_rate: 0.03} (now adam at 0.3)"),
        (
            {"server_optimizer": {"name": "yogi", "learning_rate": 0.5}},
            "{name: yogi, learning_rate: 0.05} (now yogi",
        ),
    ):
        plan = Plan.model_validate(plans.untuned(training={"rounds": 1, **stated}))
        (opening, *_) = worded(comparison, plan).sentences
        assert f"try training.server_optimizer: {wanted}" in opening
        assert "training.learning_rate" not in opening


def test_no_size_is_named_where_none_is_served_better_than_guessing() -> None:
    risk = SplitRisk(n=10, mean=0.7, accuracy=0.9, by_group_size={"0.1": group(0.9), "1.0": group(0.7)})
    comparison = compare(AIM, LOG2, None, ReturnedEvaluation(risk, None, BALANCED))
    assert comparison.better_than_guess_from is None
    verdict = worded(comparison, plans.parsed())
    assert "This model serves no group, not even everybody, certainly better than guessing." in verdict.sentences
    assert "objective.worst_group_size: 0.3 (now 0.1)" in verdict.sentences[0]


def test_a_result_keeps_its_verdict_and_one_without_still_reads() -> None:
    verdict = worded(compare(AIM, LOG2, None, ReturnedEvaluation(split(0.9), None, BANK)), plans.parsed())
    result = small(split(0.9)).model_copy(update={"verdict": verdict})
    assert parse_result(json.dumps(to_json(result)), "here").verdict == verdict
    assert parse_result(json.dumps(to_json(small(split(0.9)))), "here").verdict is None
    assert ResultDocument.model_fields["verdict"].default is None
    assert UNEVALUATED.state == "unknown"


# ------------------------------------------------------------------ against the slow one


@dataclass(frozen=True)
class Made:
    """An evaluation whose every loss is known."""

    losses: np.ndarray
    labels: np.ndarray
    correct: np.ndarray


def _risk(made: Made, size: float, width: float = 0.0) -> SplitRisk:
    summary = summarise_losses(made.losses, made.correct, (size,))
    worst = summary.by_group_size[size].worst
    # Where the truth lies in an interval is nobody's knowledge.
    low, high = worst - 0.3 * width, worst + 0.7 * width
    told = ReportedGroupRisk(worst=(low + high) / 2, best=None, disparity=None, bound=(low, high))
    return SplitRisk(
        n=summary.count,
        mean=summary.mean,
        accuracy=summary.accuracy,
        by_group_size={str(size): told},
    )


def _slow_constant(labels: np.ndarray, size: float, tradeoff: float) -> float:
    """Search for the best chance of the first of two classes; the risk is convex in it."""

    def risk(chance: float) -> float:
        losses = np.where(labels == 0, -math.log(chance), -math.log1p(-chance))
        return (1.0 - tradeoff) * cvar(losses, size) + tradeoff * float(losses.mean())

    return float(minimize_scalar(risk, bounds=(1e-12, 1.0 - 1e-12), options={"xatol": 1e-13}).fun)


def _slow(size: float, tradeoff: float, before: Made, train: Made, test: Made) -> set[tuple[str, str]]:
    faults = set()

    def objective(made: Made) -> float:
        return (1.0 - tradeoff) * cvar(made.losses, size) + tradeoff * float(made.losses.mean())

    for name, model, past, weight, records in (
        ("objective", objective(train), objective(before), tradeoff, train),
        ("worst_group", cvar(test.losses, size), cvar(before.losses, size), 0.0, test),
    ):
        if model > past + MARGIN:
            faults.add((name, "start"))
        if model > LOG2 + MARGIN:
            faults.add((name, "uniform_guess"))
        if model > _slow_constant(records.labels, size, weight) + MARGIN:
            faults.add((name, "best_constant"))
    if test.correct.mean() < max((test.labels == label).mean() for label in (0, 1)) - MARGIN:
        faults.add(("accuracy", "majority"))
    return faults


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([0.05, 0.1, 0.3, 0.5, 1.0]),
    tradeoff=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    scale=st.floats(0.05, 1.5),
    share=st.floats(0.0, 1.0),
    right=st.floats(0.3, 1.0),
    width=st.floats(0.0, 0.5),
)
def test_a_finding_is_there_exactly_when_the_slow_one_says_so(
    seed: int, size: float, tradeoff: float, scale: float, share: float, right: float, width: float
) -> None:
    draw = np.random.default_rng(seed)

    def made(spread: float) -> Made:
        labels = (draw.random(200) < share).astype(np.int64)
        return Made(draw.gamma(2.0, spread, 200), labels, draw.random(200) < right)

    before, train, test = made(0.35), made(scale), made(scale)
    slow = _slow(size, tradeoff, before, train, test)
    both = {"train": train, "test": test}
    counts = {name: np.bincount(one.labels, minlength=2).tolist() for name, one in both.items()}

    def compared(width: float) -> Comparison:
        past = _risk(before, size, width)
        moment = PastRisk(mean=past.mean, worst=None, by_group_size=past.by_group_size)
        began = StartEvaluation(Moment(round=0, threshold=1.0, train=moment, test=moment), SAME)
        returned = ReturnedEvaluation(_risk(train, size, width), _risk(test, size, width), counts)
        return compare(Aim(size, tradeoff), LOG2, began, returned)

    exact = compared(0.0)
    assert {(fault.subject, fault.reference) for fault in exact.faults} == slow
    assert state_of(exact) == ("worse" if slow else "fine")
    # Intervals that hold the truth leave some faults open, and make none up.
    assert {(fault.subject, fault.reference) for fault in compared(width).faults} <= slow
