"""Decisions on a page: the sentence, the picture of it and its table."""

import pytest

from fedfair.report import sentences
from fedfair.report.calibration_lines import calibration_lines
from fedfair.report.decision_section import decision_parts
from fedfair.report.run_page import run_page
from fedfair.results.decisions import DecisionFigures, DecisionPoint
from fedfair.results.document import ResultDocument
from fedfair.results.reading import parse_result
from fedfair.simulation.beside import with_plain
from tests.report.test_run_page import read, scored, text_of
from tests.simulation.test_beside import beside

pytestmark = pytest.mark.usefixtures("undrawn")

SHARE = 0.4
Ends = tuple[float, float]


def decided(bounds: dict[float, Ends], *, calibrated: bool = True) -> ResultDocument:
    """Return a result in which 4 of 10 people are of class 1, with these intervals by threshold."""
    points = [
        DecisionPoint(
            threshold=threshold,
            net_benefit=(low + high) / 2,
            bound=(low, high),
            treat_all=SHARE - (1 - SHARE) * threshold / (1 - threshold),
        )
        for threshold, (low, high) in bounds.items()
    ]
    figures = DecisionFigures(calibrated=calibrated, points=tuple(points))
    document = read(scored(1))
    scores = document.trained.scores
    assert scores is not None
    risk = document.trained.model_copy(update={"scores": scores.model_copy(update={"decision": figures})})
    return document.model_copy(update={"train": risk})


# By default everybody has .394 at 1 %, .25 at 20 %, .143 at 30 % and -.2 at 50 %.
SURE: dict[float, Ends] = {0.01: (0.39, 0.4), 0.2: (0.3, 0.31), 0.3: (0.2, 0.2), 0.5: (0.1, 0.2)}


@pytest.mark.parametrize(
    ("bounds", "calibrated", "said"),
    [
        (SURE, True, "where that probability is from 20% to 50%."),
        (
            SURE,
            False,
            "does more good than to act on everybody or on nobody, where that score is from 20% to 50%.",
        ),
        (SURE | {0.3: (0.14, 0.2)}, True, "where that probability is 20% and 50%."),
        (SURE | {0.5: (0.0, 0.2)}, True, "where that probability is from 20% to 30%."),
        ({0.1: (0.3, 0.31), 0.9: (-0.1, 0.1)}, True, "no probability from 10% to 90% is a threshold at which"),
    ],
)
def test_a_sentence_says_where_the_model_surely_does_more_good_than_to_treat_all_alike(
    bounds: dict[float, Ends], calibrated: bool, said: str
) -> None:
    line = calibration_lines(decided(bounds, calibrated=calibrated))[-1]
    assert said in line
    assert line.startswith("For the training records, ")
    assert line in text_of(run_page({"r": decided(bounds, calibrated=calibrated)})).replace(
        "\N{NO-BREAK SPACE}", " "
    )


@pytest.mark.usefixtures("drawn")
def test_a_page_draws_the_curves_of_the_same_people_and_has_their_numbers() -> None:
    first, second = decided(SURE), decided(SURE | {0.5: (0.3, 0.3)})
    others = second.trained.model_copy(update={"n": 99})
    told = sentences.labelled({"a": first, "b": second, "c": second.model_copy(update={"train": others})})
    part = str(decision_parts(told))
    shown = text_of(part).replace("\N{NO-BREAK SPACE}", " ")
    assert "acted on from a b everybody nobody 1 % 39.5 39.5 39.4 0.0 20 % 30.5 30.5 25.0 0.0" in shown
    assert "50 % 15.0 30.0 -20.0 0.0" in shown
    picture = part[part.index('<svg id="decisions"') :].partition("</svg>")[0]
    assert "to act on everybody" in picture
    assert "2048 scores apart" in picture
    assert "Net benefit for 100 people" in run_page({"a": first})
    without = run_page({"r": read(scored(1))})
    assert "Net benefit for 100 people" not in without


def test_plain_training_beside_a_model_has_a_curve_too() -> None:
    first, second = decided(SURE), decided(SURE | {0.5: (0.3, 0.3)})
    page = run_page({"r": with_plain(first, beside(first, risk=second.trained))})
    shown = text_of(page).replace("\N{NO-BREAK SPACE}", " ")
    assert "acted on from FedSRCVaR FedSRCVaR: plain training everybody nobody" in shown
    assert "50 % 15.0 30.0 -20.0 0.0" in shown


def test_a_result_keeps_its_curve_in_its_file() -> None:
    document = decided(SURE)
    assert parse_result(document.model_dump_json(exclude_unset=True), "here") == document
