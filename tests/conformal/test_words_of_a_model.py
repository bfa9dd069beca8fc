"""Prediction sets in the words of a model's file: read back as they were, and refused where they are altered."""

import json

import pytest

from fedfair.aggregation.score_histogram import score_edges
from fedfair.conformal.class_sets import is_in_set
from fedfair.conformal.prediction_sets import (
    NO_SETS_KEY,
    NOTHING_SAID,
    SETS_KEY,
    NoSets,
    PredictionSets,
    parse_sets,
    set_fields,
    set_words,
)
from fedfair.conformal.promise import Promise
from fedfair.plan.losses import CROSS_ENTROPY, SquaredLoss, SurvivalLoss

PROMISE = Promise(0.3, 0.1, 0.95)
CLASSES = PredictionSets("classes", PROMISE, "test", 412, float(score_edges(2048)[77]))
INTERVAL = PredictionSets("interval", PROMISE, "validation", 412, 2.5)
SQUARED = SquaredLoss(name="squared")


def test_sets_and_why_there_are_none_come_back() -> None:
    assert parse_sets(set_fields(CLASSES), CROSS_ENTROPY, 1) == CLASSES
    assert parse_sets(set_fields(INTERVAL), SQUARED, 0) == INTERVAL
    assert parse_sets(set_fields(NoSets("too few")), SQUARED, 0) == NoSets("too few")
    assert set_fields(NOTHING_SAID) == {}
    assert parse_sets({}, CROSS_ENTROPY, 1) == NOTHING_SAID
    told = json.loads(set_fields(CLASSES)[SETS_KEY])
    # .3 * .1 of 413 people are 12.39.
    assert (told["missed_of_all"], float(told["missed_of_all_at_most"])) == ("0.03", CLASSES.missed_at_most)
    assert 12 / 413 < CLASSES.missed_at_most < 0.05
    assert set_words(NoSets("too few")) == "none: too few"
    assert set_words(NOTHING_SAID) == "none: its file does not have any"
    assert NO_SETS_KEY in set_fields(NoSets("too few"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "interval"}, "the model's loss is the cross-entropy"),
        ({"split": "train"}, "train records are not held out"),
        ({"records": 20}, "20 records do not keep the promise"),
        ({"missed": 0.2}, "do not follow"),
        ({"confidence": 0.99}, "do not follow"),
        ({"missed_of_all_at_most": "0.03"}, "do not follow"),
        ({"missed_of_all": "0.02"}, "do not follow"),
        ({"group_size": 0.0}, "promises nothing"),
        ({"bound": "0.3"}, "no bin of scores begins at 0.3"),
        ({"bound": "nan"}, "no bin of scores begins at nan"),
        ({"bound": "1.0"}, "no bin of scores begins at 1.0"),
    ],
)
def test_altered_sets_are_refused(changes: dict[str, object], words: str) -> None:
    told = json.loads(set_fields(CLASSES)[SETS_KEY])
    with pytest.raises(ValueError, match=words):
        parse_sets({SETS_KEY: json.dumps(told | changes)}, CROSS_ENTROPY, 1)


@pytest.mark.parametrize("bound", ["inf", "nan", "0.0", "-1.0"])
def test_an_interval_without_a_finite_loss_is_refused(bound: str) -> None:
    told = json.loads(set_fields(INTERVAL)[SETS_KEY]) | {"bound": bound}
    with pytest.raises(ValueError, match="no interval"):
        parse_sets({SETS_KEY: json.dumps(told)}, SQUARED, 0)
    with pytest.raises(ValueError, match="no interval"):
        parse_sets(set_fields(INTERVAL), SurvivalLoss(name="survival", intervals=(1.0,)), 0)


def test_a_threshold_of_nothing_keeps_every_class() -> None:
    assert is_in_set(score_edges(2048)[:1, None], 0.0).all()
