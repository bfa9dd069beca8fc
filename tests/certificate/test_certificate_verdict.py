"""A certificate says whether its model may be used, by its own figures alone, and a checker computes it again."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest

from fedfair.aggregation.evaluation_file import EvaluationRecord
from fedfair.certificate.check import check_figures
from fedfair.certificate.document import (
    Certificate,
    CertifiedVerdict,
    Outcomes,
    Statement,
    parse_certificate,
    to_text,
)
from fedfair.certificate.issue import IssueTerms, draft
from fedfair.certificate.page import certificate_page
from fedfair.certificate.seal import seal, verify_seal
from fedfair.certificate.sentences import verdict_sentence
from fedfair.certificate.verdict import certified_verdict
from fedfair.errors import CertificateError
from tests.certificate.certificate_makers import KEY, NOW, make_plan, make_record

LOG2 = math.log(2)
Matrix = Sequence[Sequence[int]]


def record(losses: Sequence[float], matrix: Matrix) -> EvaluationRecord:
    made = make_record(test=np.array(losses))
    correct = sum(row[place] for place, row in enumerate(matrix))
    confusion = tuple(tuple(row) for row in matrix)
    sums = made.splits["test"].model_copy(update={"confusion": confusion, "correct": correct})
    return made.model_copy(update={"splits": {"test": sums}})


def certificate(losses: Sequence[float], matrix: Matrix, fewest: int = 10) -> Certificate:
    terms = IssueTerms(split="test", group_sizes=(0.1, 0.5, 1.0), fewest=fewest)
    return draft(record(losses, matrix), make_plan(), terms, issued_at=NOW)


def statement(lower: float) -> Statement:
    return Statement(group_size=0.1, sample=(lower, lower + 0.1), population=None)


# Of 200 people 180 say no; guessing costs 0.693, and so does the best prediction for the worst tenth.
BAD = certificate([0.5] * 160 + [1.5] * 40, [[120, 60], [10, 10]])
GOOD = certificate([0.1] * 180 + [0.5] * 20, [[170, 10], [10, 10]])


def test_the_verdict_follows_from_the_figures_by_hand() -> None:
    assert BAD.outcomes == Outcomes(counts=(180, 20), correct=130)
    # The worst tenth has 1.5; 65 % of the predictions are right, and 90 % of "no".
    assert BAD.verdict == CertifiedVerdict(
        state="worse", above_uniform_guess=True, above_best_constant=True, below_majority=True
    )
    assert verdict_sentence(BAD) == (
        "Do not use this model as it is: the worst-off 10% of the evaluated people fare worse than by guessing "
        "and the best constant prediction, and fewer predictions are right than by always naming the most "
        "frequent class."
    )
    assert GOOD.verdict is not None
    assert GOOD.verdict.state == "fine"
    assert verdict_sentence(GOOD) == (
        "No figure here shows the model worse than guessing, the best constant prediction and the most frequent "
        "class; the model before training was not compared."
    )


@pytest.mark.parametrize(("lower", "state"), [(LOG2, "fine"), (LOG2 + 0.0009, "fine"), (LOG2 + 0.0011, "worse")])
def test_only_the_lower_end_of_the_interval_is_a_fault(lower: float, state: str) -> None:
    assert certified_verdict(statement(lower), LOG2, None).state == state


@pytest.mark.parametrize("matrix", [[[180, 5], [10, 5]], [[100, 60], [20, 20]], [[175, 5], [3, 17]]])
def test_outcomes_that_tell_of_too_few_people_are_not_published(matrix: Matrix) -> None:
    # 15 of a class are fewer than 20; 80 wrong and 120 right are enough; 8 wrong are not.
    made = certificate([0.1] * 180 + [0.5] * 20, matrix, fewest=20)
    enough = matrix[0][0] == 100
    assert (made.outcomes is not None) == enough
    assert made.verdict is not None
    assert (made.verdict.below_majority is not None) == enough
    check_figures(made)


def _sealed(**changes: object) -> Certificate:
    document = json.loads(to_text(BAD)) | changes
    return seal(Certificate.model_validate_json(json.dumps(document)), "aggregator", KEY)


FINE = {"state": "fine", "above_uniform_guess": False, "above_best_constant": False, "below_majority": False}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"verdict": FINE}, "the verdict is fine, its figures give worse"),
        ({"verdict": None}, "the verdict was left out"),
        ({"outcomes": None}, "the verdict is worse, its figures give worse, or other faults"),
        ({"outcomes": {"counts": [180, 21], "correct": 130}}, "201 records of 2 classes"),
        ({"outcomes": {"counts": [180, 10, 10], "correct": 130}}, "200 records of 3 classes"),
        ({"outcomes": {"counts": [180, 20], "correct": 201}}, "201 of them correct"),
        ({"outcomes": {"counts": [195, 5], "correct": 130}}, "the outcomes tell of fewer than 10 people"),
    ],
)
def test_a_signer_who_claims_another_verdict_is_caught(changes: dict[str, object], fault: str) -> None:
    check_figures(_sealed())
    with pytest.raises(CertificateError, match=fault):
        check_figures(_sealed(**changes))


def test_an_older_certificate_keeps_its_bytes_and_its_signature() -> None:
    document = json.loads(to_text(BAD))
    del document["verdict"], document["outcomes"]
    older = seal(Certificate.model_validate_json(json.dumps(document)), "aggregator", KEY)
    raw = to_text(older).encode()
    assert b"verdict" not in raw
    read = parse_certificate(raw, "certificate.json")
    check_figures(read)
    verify_seal(read, KEY.public_key())
    assert verdict_sentence(read) == "This certificate carries no verdict: an older version made it."
    # Nor can a verdict be added afterwards.
    with pytest.raises(CertificateError, match="does not cover this certificate"):
        verify_seal(read.model_copy(update={"verdict": BAD.verdict}), KEY.public_key())


def test_the_page_and_the_sealed_file_carry_the_verdict() -> None:
    sealed = seal(BAD, "aggregator", KEY)
    read = parse_certificate(to_text(sealed).encode(), "certificate.json")
    verify_seal(read, KEY.public_key())
    assert read.verdict == BAD.verdict
    assert '<p class="card" id="verdict"><b>Do not use this model as it is' in certificate_page(sealed)
    assert '<p id="verdict">No figure here shows' in certificate_page(GOOD)
