import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.aggregation.cvar_bounds import summarise
from fedfair.aggregation.evaluation_file import EvaluationRecord, parse_evaluation, split_sums, to_text
from fedfair.aggregation.evaluation_sums import confusion_matrix, evaluation_layout
from fedfair.aggregation.loss_histogram import HistogramSpec, loss_block
from fedfair.errors import DataError
from tests.oracles.header_places import evaluation_header_length

SPEC = HistogramSpec(4, 2.0)
DIGEST = "sha256:" + "0f" * 32


def make_record(train: list[float]) -> EvaluationRecord:
    losses = np.array(train)
    header = np.zeros(evaluation_header_length(SPEC, 2))
    block = loss_block(losses, losses < 1.0, float(losses.sum()) / 3.0, SPEC)
    header[: len(block)] = block
    header[len(block) * 3 :][:4] = confusion_matrix(
        np.ones(len(losses), int), (losses < 1.0).astype(int), 2
    ).ravel()
    return EvaluationRecord(
        plan_digest=DIGEST, model_digest=DIGEST, round=7, threshold=0.1, participants=3, classes=2, masked=True,
        bins=SPEC.bins, loss_range=SPEC.loss_range, splits=split_sums(header, evaluation_layout(SPEC, 2)),
    )  # fmt: skip


def test_a_hand_worked_record_without_the_splits_that_nobody_has() -> None:
    sums = make_record([0.25, 0.5, 3.0]).splits["train"]
    assert (sums.n, sums.correct, sums.smoothed) == (3, 2, 1.25)
    assert sums.counts == (1, 1, 0, 0, 1)
    assert sums.sums == (0.25, 0.5, 0.0, 0.0, 3.0)
    assert sums.confusion == ((0, 0), (1, 2))
    record = make_record([0.25])
    assert list(record.splits) == ["train"]
    with pytest.raises(DataError, match="no test records; it has train"):
        record.block("test")


@given(st.lists(st.floats(0.0, 9.0), min_size=1, max_size=30))
def test_a_record_that_was_written_proves_the_same_risks_bit_for_bit(losses: list[float]) -> None:
    record = make_record(losses)
    again = parse_evaluation(to_text(record), "the file")
    assert again == record
    assert summarise(again.block("train"), [0.3], again.spec) == summarise(record.block("train"), [0.3], SPEC)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"format": "fedfair/evaluation/2"}, "format"), ({"model_digest": "sha256:0"}, "model_digest"),
        ({"model_digest": DIGEST + "\n"}, "model_digest"), ({"participants": 0}, "participants"),
        ({"classes": 1}, "classes"), ({"site": "clinic-a"}, "site"), ({"bins": 5}, "5 bins"),
        ({"loss_range": "NaN"}, "loss_range"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_evaluation_is_refused_with_its_place(change: dict[str, object], fault: str) -> None:
    text = json.dumps(json.loads(to_text(make_record([0.5]))) | change)
    with pytest.raises(DataError, match=fault):
        parse_evaluation(text, "save/evaluation.json")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"n": 2}, "train split has 2 records, its bins hold 1"),
        ({"n": 10**400}, r"splits\.train\.n"),
        ({"counts": [10**400, 0, 0, 0, 0]}, r"splits\.train\.counts\.0"),
    ],
)
def test_contradictory_or_uncountable_sums_are_refused(change: dict[str, object], fault: str) -> None:
    document = json.loads(to_text(make_record([0.5])))
    document["splits"]["train"] |= change
    with pytest.raises(DataError, match=fault):
        parse_evaluation(json.dumps(document), "save/evaluation.json")
