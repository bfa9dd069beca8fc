"""The fate of the paper's claims: every one has a verdict and a reason, whatever was run."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from fedfair.results.risks import ReportedGroupRisk, SplitRisk
from fedfair.studies.reproduction.claims import CLAIMS, Decision, Grounds, decisions
from fedfair.studies.reproduction.comparison import Verdict
from fedfair.studies.reproduction.evidence import Evidence, evidence_of
from fedfair.studies.reproduction.exact_checks import ExactCheck, no_group_above
from fedfair.studies.reproduction.runs import RunList
from fedfair.studies.reproduction.study import Figure
from tests.result_files import small
from tests.studies.reproduction.small_study import SIZE, study

METHODS = ("fedsrcvar-zang", "fedavg", "fedminmax", "dro")

Risk = Callable[[Mapping[str, object]], float]
"""From a run's settings to its worst-group risk."""


def split(worst: float) -> SplitRisk:
    risk = ReportedGroupRisk(worst=worst, best=0.1, disparity=worst - 0.1, bound=None)
    return SplitRisk(n=10, mean=worst / 2, accuracy=0.9, by_group_size={"0.1": risk, "0.3": risk})


def marks(worst: Risk, *figures: Figure) -> Evidence:
    """Return marks of results that the settings decide, a little different in each repetition."""
    of = study(*figures, methods=METHODS)
    runs = RunList(of, SIZE, Path())
    results = {}
    for point in runs.points:
        value = worst(point.settings) + 0.001 * float(str(point.settings["repetition"]))
        results[point.id] = small(train=split(value), validation=split(value), test=split(value))
    return evidence_of(runs, results, of)


def decided(evidence: Evidence, **more: object) -> dict[str, Decision]:
    grounds = Grounds(evidence, "fedsrcvar-zang", dict(more), {})  # type: ignore[arg-type]  # checks by their names
    return {decision.claim: decision for decision in decisions(grounds)}


def ours_or(ours: float, others: float) -> Risk:
    return lambda settings: ours if settings["method"] == "fedsrcvar-zang" else others


def test_differences_decide_either_way() -> None:
    better = decided(marks(ours_or(0.7, 1.5), Figure.BASELINES))["C6"]
    assert better.verdict is Verdict.HOLDS
    assert "FedAvg 1.50" in better.reason or "FedMinMax" in better.reason
    worse = decided(marks(ours_or(1.5, 0.7), Figure.BASELINES))["C6"]
    assert worse.verdict is Verdict.FAILS
    assert "worst 10%, train: 1.50" in worse.reason
    assert decided(marks(ours_or(0.7, 0.7), Figure.BASELINES))["C9"].verdict is Verdict.HOLDS
    assert decided(marks(ours_or(0.7, 0.8), Figure.BASELINES))["C9"].verdict is Verdict.FAILS
    # `split` halves the worst risk for the mean, so that they rise together and the claim about the mean fails.
    found = decided(marks(lambda settings: 0.7 + float(str(settings["tradeoff"])), Figure.TRADEOFFS))["C5"]
    assert found.verdict is Verdict.FAILS
    assert found.reason.startswith("mean, train")


def test_small_groups_and_compositions_hold_or_are_about_smaller_ones() -> None:
    found = {worst: decided(marks(ours_or(worst, 1.5), Figure.BASELINES))["C4"] for worst in (0.69, 0.8, 0.3)}
    assert [found[worst].verdict for worst in (0.69, 0.8, 0.3)] == [
        Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED,
    ]  # fmt: skip
    assert "above the critical size" in found[0.3].reason
    checks = {"C1": ExactCheck(True, "near"), "C2": ExactCheck(False, "other bits")}
    found = decided(Evidence((), ()), **checks)
    assert (found["C1"].verdict, found["C1"].reason) == (Verdict.HOLDS, "near")
    assert (found["C2"].verdict, found["C2"].reason) == (Verdict.FAILS, "other bits")
    distances = {"worst 10 %": (0.4, 0.41, 0.39), "worst 30 %": (0.1, 0.11, 0.12)}
    for held, expected in ((distances, Verdict.HOLDS), (dict(reversed(distances.items())), Verdict.FAILS)):
        found = decisions(Grounds(Evidence((), ()), "fedsrcvar-zang", {}, held))
        assert {decision.claim: decision for decision in found}["C13"].verdict is expected


@pytest.mark.parametrize("rho", [0.1, 0.25, 1.0])
def test_no_group_is_above_the_worst_group_risk_and_a_false_bound_would_be_found(rho: float) -> None:
    losses = np.random.default_rng(5).exponential(size=400)
    assert no_group_above(losses, rho).holds
    assert "301 groups" in no_group_above(losses, rho).sentence


def test_claims_without_runs_or_with_unfinished_ones_are_open() -> None:
    found = decided(Evidence((), ()))
    assert list(found) == list(CLAIMS)
    assert {decision.verdict for decision in found.values()} == {Verdict.UNDECIDED}
    assert all(decision.reason for decision in found.values())
    whole = marks(ours_or(0.7, 1.5), Figure.BASELINES)
    lost = next(mark for mark in whole.marks if mark.cell.method == "fedminmax")
    part = Evidence(tuple(mark for mark in whole.marks if mark is not lost), (lost.cell,))
    assert decided(part)["C6"].verdict is Verdict.UNDECIDED
    assert decided(part)["C6"].reason == "unfinished runs are behind 1 of its marks"
    assert decided(part)["C9"].verdict is decided(whole)["C9"].verdict
