"""Prediction sets in a result, on its page and in its sentences: the figures of the evaluation, by hand."""

import pytest

from fedfair.conformal.class_sets import SetSizes
from fedfair.conformal.prediction_sets import NOTHING_SAID, NoSets, PredictionSets
from fedfair.conformal.promise import Promise
from fedfair.conformal.set_maker import SplitSets
from fedfair.plan.losses import CROSS_ENTROPY, PinballLoss
from fedfair.report.run_page import run_page
from fedfair.report.set_section import set_lines
from fedfair.report.shown import shown
from fedfair.results.document import ResultDocument, to_text
from fedfair.results.prediction_sets import SetFigures, set_figures
from fedfair.results.reading import parse_result
from tests.result_files import complete

PROMISE = Promise(0.3, 0.1, 0.95)
CLASSES = PredictionSets("classes", PROMISE, "test", 412, 0.125)
TWO = {"test": SplitSets(0.02, SetSizes(1.25, (0.0, 0.75, 0.25)))}
MORE = {"test": SplitSets(0.02, SetSizes(2.5))}


def with_sets(figures: SetFigures) -> ResultDocument:
    return ResultDocument.model_validate(
        complete() | {"sets": figures.model_dump(exclude_unset=True)}, strict=False
    )


def test_a_result_has_what_sets_promise_and_what_they_are_of_each_split() -> None:
    found = set_figures(CLASSES, TWO, CROSS_ENTROPY).model_dump(mode="json", exclude_unset=True)
    assert found == {
        "kind": "classes", "split": "test", "records": 412, "group_size": 0.3, "missed": 0.1, "confidence": 0.95,
        "missed_of_all_at_most": CLASSES.missed_at_most, "least_score": 0.125,
        "splits": {"test": {"missed": 0.02, "mean_size": 1.25, "by_size": [0.0, 0.75, 0.25]}},
    }  # fmt: skip
    more = set_figures(CLASSES, MORE, CROSS_ENTROPY).model_dump(mode="json", exclude_unset=True)
    assert more["splits"] == {"test": {"missed": 0.02, "mean_size": 2.5}}
    interval = PredictionSets("interval", PROMISE, "validation", 412, 3.0)
    found = set_figures(interval, {"train": SplitSets(0.5, None)}, PinballLoss(name="pinball", quantile=0.25))
    told = found.model_dump(mode="json", exclude_unset=True)
    assert (told["below"], told["above"]) == (pytest.approx(4.0), pytest.approx(12.0))
    assert (told["greatest_loss"], told["splits"]) == (3.0, {"train": {"missed": 0.5}})
    assert "least_score" not in told
    without = {"kind": "none", "reason": "too few"}
    assert set_figures(NoSets("too few"), {}, CROSS_ENTROPY).model_dump(exclude_unset=True) == without
    assert set_figures(NOTHING_SAID, {}, CROSS_ENTROPY).reason == "its file does not have any"


def test_a_result_with_sets_is_read_back_and_shown() -> None:
    document = with_sets(set_figures(CLASSES, TWO, CROSS_ENTROPY))
    assert parse_result(to_text(document).encode(), "result.json") == document
    told = shown(document)["sets"]
    assert isinstance(told, dict)
    assert told["records"] == 412


def test_sentences_and_page_have_the_promise_and_the_sizes() -> None:
    document = with_sets(set_figures(CLASSES, TWO, CROSS_ENTROPY))
    lines = set_lines(document)
    assert lines[0] == (
        "Sets of classes miss at most 10 % of any group that is 30 % of people or more, on average over draws of "
        "records; they are from 412 test records."
    )
    assert f"at most {100 * CLASSES.missed_at_most:.3g} % of all people" in lines[1]
    assert lines[2] == "A class is in a set from a score of 0.125 on."
    page = run_page({"result.json": document})
    assert 'id="sets"' in page
    assert all(f"<td>{cell}</td>" in page for cell in ("2.0%", "1.25", "0.0%", "75.0%", "25.0%"))
    page = run_page({"result.json": with_sets(set_figures(CLASSES, MORE, CROSS_ENTROPY))})
    assert "<td>2.50</td>" in page
    assert "two classes" not in page
    interval = PredictionSets("interval", PROMISE, "test", 412, 3.0)
    figures = set_figures(interval, {"test": SplitSets(0.02, None)}, PinballLoss(name="pinball", quantile=0.25))
    assert set_lines(with_sets(figures))[2] == "An interval reaches from 4 below the prediction to 12 above it."
    none = with_sets(set_figures(NoSets("there are too few"), {}, CROSS_ENTROPY))
    assert set_lines(none) == ("The model has no prediction sets: there are too few.",)
    assert "there are too few" in run_page({"result.json": none})
    assert set_lines(ResultDocument.model_validate(complete(), strict=False)) == ()
