"""Whether a model returns probabilities, and how many came true: in the terminal, on the page and the card."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fedfair.aggregation.calibration import Calibration, calibrated
from fedfair.report.baseline_lines import baseline_lines
from fedfair.report.calibration_lines import calibration_lines
from fedfair.report.model_card import model_card
from fedfair.report.per_hundred import per_hundred
from fedfair.report.run_page import run_page
from fedfair.report.shown import shown
from fedfair.report.tables import by_group_size
from fedfair.results.document import ResultDocument, to_json, to_text
from fedfair.results.reading import parse_result
from fedfair.run.saved_model import DescribedModel
from fedfair.simulation.beside import with_plain
from fedfair.simulation.simulate import SimulationOutcome
from tests import plans
from tests.prediction.saved_runs import saved_run
from tests.simulation.test_beside import beside

pytestmark = pytest.mark.usefixtures("undrawn")

TASK: dict[str, object] = {
    "partition": {"scheme": "random"}, "standardize": "secure", "validation_fraction": 0.3, "test_fraction": 0.2,
}  # fmt: skip
TRAINING: dict[str, object] = {"rounds": 4, "learning_rate": 0.3}


def made(folder: Path, data: str = "breast-cancer", **evaluation: object) -> SimulationOutcome:
    return saved_run(
        folder, plans.stated(task=TASK | {"data": data}, training=TRAINING, evaluation=evaluation)
    ).outcome


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> SimulationOutcome:
    return made(tmp_path_factory.mktemp("two"), scores=True)


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> SimulationOutcome:
    return made(tmp_path_factory.mktemp("ten"), "digits", scores=True)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> SimulationOutcome:
    return made(tmp_path_factory.mktemp("raw"))


def printed(document: ResultDocument) -> str:
    console = Console(width=400, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(by_group_size(document))
    return " ".join(captured.get().split())


def places(outcome: SimulationOutcome) -> tuple[str, str, str]:
    """Return what stands in the terminal, on the page and on the card."""
    described = DescribedModel(outcome.layout, outcome.saved, outcome.origin)
    page = run_page({"result.json": outcome.result})
    return printed(outcome.result), page, model_card(described, outcome.result).replace("\\", "")


def test_a_calibrated_model_says_it_everywhere_with_what_came_true(two: SimulationOutcome) -> None:
    lines = [*calibration_lines(two.result)]
    people = per_hundred(two.result.shown[1].confusion)
    assert people is not None
    ill, well = people.found + people.missed, people.alarmed + people.spared
    share = (people.sensitivity, people.specificity, people.precision)
    sensitivity, specificity, precision = (f"{each:.0%}" for each in share if each is not None)
    found = f"the model finds {people.found} and misses {people.missed} (sensitivity {sensitivity})."
    alarms = f"{people.alarmed} for nothing (specificity {specificity}), and {precision} of its alarms are right."
    assert lines[:3] == [
        f"Of 100 people like the test records, {ill} are of class 1; at a score of one half {found}",
        f"Of the other {well} it alarms {alarms}",
        "The model returns probabilities, calibrated on validation records.",
    ]
    scores = two.result.shown[1].scores
    assert scores is not None
    told = scores.by_class["1"]
    assert told.observed is not None
    assert told.mean_score is not None
    assert told.observed_to_expected == pytest.approx(told.observed / told.mean_score)
    assert lines[3].startswith(
        f"Of the test records {told.observed:.1%} are of class 1; the mean score is {told.mean_score:.1%} "
        f"(observed to expected {told.observed_to_expected:.2f}), calibrated "
    )
    for place in places(two):
        for line in lines:
            assert line in place
    assert "scores, not probabilities" not in " ".join(places(two))


def test_a_result_says_what_calibration_does_in_every_split(two: SimulationOutcome) -> None:
    told: Any = to_json(two.result)["calibration"]
    assert (told["method"], told["split"], list(told["splits"])) == (
        "platt", "validation", ["train", "validation", "test"],
    )  # fmt: skip
    fitted = told["splits"]["validation"]["1"]
    # On the records that it was fitted on, as many are of the class as it promises, but for the smoothing.
    records = two.result.validation.n if two.result.validation is not None else 0
    assert abs(fitted["mean_after"] - fitted["observed"]) <= 1.0 / records
    assert abs(fitted["observed_to_expected_after"] - 1.0) < abs(fitted["observed_to_expected_before"] - 1.0)
    losses = [site["test"] for site in two.losses.values()]
    exact = sum(float(each.scores.sum()) for each in losses) / sum(len(each.scores) for each in losses)
    assert told["splits"]["test"]["1"]["mean_before"] == pytest.approx(exact, abs=1e-3)
    assert shown(two.result)["calibration"] == told
    assert parse_result(to_text(two.result), "here") == two.result
    page = run_page({"result.json": two.result})
    assert "before and after the calibration, which was fitted on validation records" in page


def test_decisions_by_what_the_model_returns_are_bounded_as_records_say(two: SimulationOutcome) -> None:
    losses = [site["test"] for site in two.losses.values()]
    scores = np.concatenate([each.scores[:, 0] for each in losses])
    labels = np.concatenate([each.labels for each in losses])
    risk, found = two.result.shown[1], two.saved.calibration
    assert isinstance(found, Calibration)
    assert risk.scores is not None
    assert risk.scores.decision is not None
    assert risk.scores.decision.calibrated
    chances = calibrated(scores, found.fits[0])
    for point in risk.scores.decision.points:
        low, high = point.bound
        alarm = point.threshold / (1.0 - point.threshold)
        worth = np.where(labels == 1, 1.0, -alarm)
        assert low - 1e-12 <= worth[chances >= point.threshold].sum() / len(labels) <= high + 1e-12
        assert point.treat_all == pytest.approx(worth.mean())
    curve: Any = shown(two.result)["test"]
    assert curve["scores"]["decision"]["points"][0]["threshold"] == 0.01
    others = (two.result.train, two.result.validation)
    assert all(each is not None and each.scores is not None and each.scores.decision is None for each in others)


def test_a_card_says_what_could_be_had_without_the_model(two: SimulationOutcome) -> None:
    held = two.result.test
    assert held is not None
    plain = beside(two.result, split="test", risk=held.model_copy(update={"mean": 2.0 * held.mean}))
    described = DescribedModel(two.layout, two.saved, two.origin)
    card = model_card(described, with_plain(two.result, plain)).replace("\\", "")
    lines = baseline_lines(with_plain(two.result, plain))
    assert len(lines) == 3
    for line in lines:
        assert f"- {line}" in card
    assert baseline_lines(two.result)[0] in model_card(described, two.result).replace("\\", "")


def test_ten_classes_have_sentences_for_five_and_figures_for_all(ten: SimulationOutcome) -> None:
    lines = [*calibration_lines(ten.result)]
    assert len(lines) == 7
    assert lines[-1] == "5 of 10 classes are shown here; the result file has all of them."
    assert ten.result.calibration is not None
    assert len(ten.result.calibration.by_class) == len(ten.result.calibration.splits["test"]) == 10


def test_figures_without_calibration_are_scores_everywhere(raw: SimulationOutcome) -> None:
    words = "scores, not probabilities: the plan sums no scores (evaluation.scores: false)"
    assert calibration_lines(raw.result)[2:] == (f"The model returns {words}.",)
    for place in places(raw):
        assert words in place
    older = raw.result.model_copy(update={"calibration": None})
    assert calibration_lines(older)[2:] == (
        "The model returns scores, not probabilities: nothing says how to calibrate them.",
    )


def test_events_in_time_have_observed_to_expected_as_a_headline(raw: SimulationOutcome) -> None:
    metrics = {"observed_events": 12.0, "expected_events": 16.0, "observed_to_expected": 0.75}
    assert raw.result.test is not None
    risk = raw.result.test.model_copy(update={"accuracy": None, "confusion": None, "metrics": metrics})
    document = raw.result.model_copy(update={"test": risk})
    line = (
        "Of the test records 12 had the event in the intervals; "
        "the model expects 16.0 (observed to expected 0.75)."
    )
    assert [*calibration_lines(document)] == [line]
    assert line in printed(document)
    assert line in run_page({"result.json": document})
    described = DescribedModel(raw.layout, replace(raw.saved), raw.origin)
    assert line in model_card(described, document)
