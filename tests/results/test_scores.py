"""What a result tells of scores: every figure by hand, and nothing about a class of too few."""

import json

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from fedfair.aggregation.cvar_bounds import Interval
from fedfair.aggregation.ranking import CalibrationGroup, ClassRanking
from fedfair.fairness.record_losses import Losses
from fedfair.report.shown import shown
from fedfair.report.tables import score_lines
from fedfair.results.document import to_text
from fedfair.results.json_schema import result_schema
from fedfair.results.reading import parse_result
from fedfair.results.risks import SplitRisk
from fedfair.results.scores import SplitScores, mean_auc, split_scores
from tests.result_files import complete, small

GROUPS = (CalibrationGroup(6, 0.25, 0.5), CalibrationGroup(4, 0.75, 1.0))


def ranking(wanted: int, positives: int, low: float, high: float) -> ClassRanking:
    return ClassRanking(wanted, positives, 10 - positives, Interval(low, high), 0.125, GROUPS)


def test_two_classes_are_told_of_by_the_score_of_class_one() -> None:
    told = split_scores([ranking(1, 5, 0.75, 0.875)], 5, {}, proved=True)
    assert json.loads(told.model_dump_json(exclude_unset=True)) == {
        "auc": 0.8125,
        "auc_bound": [0.75, 0.875],
        "brier": 0.125,
        "calibration_error": 0.25,
        "by_class": {
            "1": {
                "auc": 0.8125,
                "auc_bound": [0.75, 0.875],
                "brier": 0.125,
                "calibration_error": 0.25,
                "observed": 0.5,
                "mean_score": 0.45,
                "observed_to_expected": 0.5 / 0.45,
                "reliability": [
                    {"records": 6, "mean_score": 0.25, "observed": 0.5},
                    {"records": 4, "mean_score": 0.75, "observed": 1.0},
                ],
            }
        },
    }


@pytest.mark.parametrize(("positives", "fewest"), [(4, 5), (6, 5), (0, 1), (10, 1)])
def test_nothing_is_told_of_a_class_of_too_few_or_beside_too_few(positives: int, fewest: int) -> None:
    told = split_scores([ranking(0, 5, 0.5, 0.75), ranking(1, positives, 0.5, 0.75)], fewest, {}, proved=True)
    assert (told.auc, told.auc_bound, told.brier, told.calibration_error) == (None,) * 4
    kept_back = told.by_class["1"]
    assert (kept_back.auc, kept_back.auc_bound, kept_back.brier, kept_back.reliability) == (None, None, None, ())
    assert told.by_class["0"].auc == 0.625
    assert list(score_lines(told)) == ["AUC, Brier score and calibration: too few people in a class"]


def test_several_classes_have_mean_and_sum_and_no_interval_of_replaced_losses() -> None:
    rankings = [ranking(0, 3, 0.5, 0.75), ranking(1, 4, 0.75, 1.0), ranking(2, 3, 0.25, 0.5)]
    told = split_scores(rankings, 3, {}, proved=True)
    assert (told.auc, told.auc_bound, told.brier) == (0.625, (0.5, 0.75), 0.375)
    assert told.calibration_error == 0.25
    assert (
        split_scores(rankings, 3, {1: Interval(0.875, 0.875)}, proved=True).by_class["1"].auc_bound == (0.875,) * 2
    )
    told = split_scores([ranking(1, 5, 0.5, 0.75)], 5, {}, proved=False)
    assert (told.auc, told.auc_bound, told.by_class["1"].auc_bound) == (0.625, None, None)
    assert list(score_lines(told)) == ["AUC 0.6250 (estimate), Brier score 0.1250, calibration error 0.2500"]


def test_the_auc_of_ones_own_records_is_that_of_their_scores() -> None:
    labels = np.array([0, 1, 1])
    nothing = Losses(np.zeros(3), labels, labels)
    assert mean_auc(nothing) is None
    assert mean_auc(Losses(np.zeros(3), labels, labels, np.array([[0.3], [0.2], [0.9]]))) == 0.5
    one_class = np.array([1, 1, 1])
    assert mean_auc(Losses(np.zeros(3), one_class, labels, np.array([[0.3], [0.2], [0.9]]))) is None


def test_a_result_with_scores_fits_the_schema_is_read_again_and_is_shown() -> None:
    told = split_scores([ranking(1, 5, 0.75, 0.875)], 5, {}, proved=True)
    risk = SplitRisk.model_validate_json(json.dumps(complete()["train"])).model_copy(update={"scores": told})
    document = small(train=risk)
    text = to_text(document)
    Draft202012Validator(result_schema()).validate(json.loads(text))
    again = parse_result(text, "here")
    assert to_text(again) == text
    assert again.trained.scores == told
    assert isinstance(told, SplitScores)
    printed = shown(document)["train"]
    assert isinstance(printed, dict)
    assert printed["scores"] == json.loads(told.model_dump_json(exclude_unset=True))
