"""Every number that a person can give to a certificate, at the ends of what a computer can hold."""

from __future__ import annotations

import itertools
import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.evaluation_file import EvaluationRecord, split_sums
from fedfair.aggregation.evaluation_sums import evaluation_layout
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec, loss_block
from fedfair.certificate.check import check_figures
from fedfair.certificate.document import Certificate, parse_certificate, to_text
from fedfair.certificate.issue import IssueTerms, draft
from fedfair.certificate.page import certificate_page
from fedfair.certificate.sentences import limits, main_statement, population_sentence, sample_sentence
from fedfair.errors import CertificateError, FedfairError, PlanError
from fedfair.fairness.population_bounds import MAX_DELTA, METHODS, MIN_DELTA, MIN_GROUP_SIZE
from tests.certificate.certificate_makers import (
    CLASSES,
    MODEL_DIGEST,
    NOW,
    PLAN_DIGEST,
    make_certificate,
    make_plan,
)
from tests.oracles.header_places import evaluation_header_length, split_header

TINY, LEAST = 5e-324, sys.float_info.min
EXTREMES = (
    TINY, LEAST, 1e-300, 1e-17, 1e-13, MIN_DELTA, math.nextafter(MIN_DELTA, 0.0), MIN_GROUP_SIZE, 0.5,
    math.nextafter(0.5, 1.0), math.nextafter(1.0, 0.0), 1.0, 1e300, 1.7e308, math.inf, math.nan, 0.0, -0.0, -1.0,
)  # fmt: skip


def certified(delta: float, sizes: tuple[float, ...], method: str, loss_range: float, fewest: int) -> Certificate:
    spec = HistogramSpec(8, loss_range)
    losses = np.linspace(0.0, 2.0, 40) * min(loss_range, 1e299)
    blocks = [loss_block(losses, losses < loss_range, float(losses.sum()), spec) for _ in SPLITS]
    header = np.zeros(evaluation_header_length(spec, CLASSES))
    split_header(header, spec, CLASSES)[0][:] = blocks
    record = EvaluationRecord(
        plan_digest=PLAN_DIGEST, model_digest=MODEL_DIGEST, round=3, threshold=0.1, participants=2,
        classes=CLASSES, masked=True, bins=8, loss_range=loss_range,
        splits=split_sums(header, evaluation_layout(spec, CLASSES)),
    )  # fmt: skip
    terms = IssueTerms(split="test", group_sizes=sizes, delta=delta, method=method, fewest=fewest)  # type: ignore[arg-type]
    return draft(record, make_plan(), terms, issued_at=NOW)


def check_told(made: Certificate) -> None:
    """Check that every figure is a number, proves itself, and can be told in words and on a page."""
    assert parse_certificate(to_text(made).encode(), "it") == made
    check_figures(made)
    for statement in made.statements:
        assert all(math.isfinite(value) for value in statement.sample)
        assert statement.population is None or math.isfinite(statement.population)
    worst = main_statement(made)
    words = [sample_sentence(made, worst), population_sentence(made, worst), *limits(made), certificate_page(made)]
    assert not any(" nan" in text or " inf " in text for text in words)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("delta", EXTREMES)
def test_a_chance_of_error_is_proven_or_refused_with_the_allowed_range(delta: float, method: str) -> None:
    if MIN_DELTA <= delta <= MAX_DELTA:
        check_told(certified(delta, (0.1, 1.0), method, 4.0, 1))
        return
    with pytest.raises(PlanError, match=r"outside \[1e-12, 0\.5\]"):
        certified(delta, (0.1, 1.0), method, 4.0, 1)


@pytest.mark.parametrize("size", EXTREMES)
def test_a_group_size_is_proven_or_refused_with_the_allowed_range(size: float) -> None:
    if MIN_GROUP_SIZE <= size <= 1.0:
        check_told(certified(0.05, (size, 1.0), "dkw-binomial", 4.0, 1))
        return
    with pytest.raises(PlanError, match=r"outside \[1e-12, 1\]"):
        certified(0.05, (size, 1.0), "dkw-binomial", 4.0, 1)


@pytest.mark.parametrize(("loss_range", "method"), list(itertools.product((*EXTREMES, 1e-5, 1e5), METHODS)))
def test_a_range_of_losses_is_proven_or_refused_in_words(loss_range: float, method: str) -> None:
    try:
        made = certified(0.05, (0.1, 1.0), method, loss_range, 1)
    except FedfairError:
        return
    check_told(made)


@given(st.floats(), st.floats(), st.floats(), st.integers(1, 10**18), st.sampled_from(METHODS))
@settings(max_examples=50)
def test_any_numbers_together_are_proven_or_refused_in_words(
    delta: float, size: float, loss_range: float, fewest: int, method: str
) -> None:
    try:
        made = certified(delta, (size,), method, loss_range, fewest)
    except FedfairError:
        return
    check_told(made)


NUMBERS = (
    ("population", "delta"), ("loss_range",), ("mean",), ("uniform_floor",), ("n",), ("classes",), ("round",),
    ("statements", 0, "group_size"), ("statements", 0, "sample", 1), ("statements", 0, "population"),
    ("histogram", "sums", 0), ("histogram", "counts", 0), ("histogram", "fewest"), ("histogram", "bins"),
    ("training", "worst_group_size"), ("training", "tradeoff"),
)  # fmt: skip


@pytest.mark.parametrize("place", NUMBERS)
def test_a_foreign_certificate_with_an_extreme_number_is_refused_in_words(place: tuple[str | int, ...]) -> None:
    sound = json.loads(to_text(make_certificate()))
    for value in (*EXTREMES, 2**63, 10**400):
        document = json.loads(json.dumps(sound))
        target = document
        for part in place[:-1]:
            target = target[part]
        target[place[-1]] = int(value) if isinstance(target[place[-1]], int) and value in (1.0, 1e300) else value
        raw = (json.dumps(document, indent=1) + "\n").encode()
        try:
            made = parse_certificate(raw, "it")
            check_figures(made)
        except CertificateError:
            continue
        check_told(made)
