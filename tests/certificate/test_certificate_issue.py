from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from fedfair.certificate.check import check_figures
from fedfair.certificate.document import parse_certificate, to_text
from fedfair.certificate.issue import IssueTerms, draft, held_out_split
from fedfair.errors import CertificateError, DataError, PlanError
from fedfair.fairness.cvar import cvar
from tests.certificate.certificate_makers import (
    NOW,
    make_certificate,
    make_plan,
    make_record,
    make_sealed,
    some_losses,
)

SIZES = (0.02, 0.1, 0.3, 0.7, 1.0)


def test_no_group_exceeds_the_bound_of_many_models_and_the_worst_group_attains_it() -> None:
    # The records' own order and sizes are random; each of 30 linear models is drawn at random. A group is a set of
    # at least rho n records: random ones, and the adversary's, the records with the largest losses.
    generator = np.random.default_rng(7)
    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    n = len(labels)
    for _ in range(30):
        margins = features @ generator.normal(scale=generator.uniform(0.05, 1.0), size=30) * (2 * labels - 1)
        losses = np.logaddexp(0.0, -margins)
        terms = IssueTerms(split="test", group_sizes=SIZES, fewest=int(generator.integers(1, 20)))
        made = draft(make_record(test=losses), make_plan(), terms, issued_at=NOW)
        for statement in made.statements:
            low, high = statement.sample
            for _ in range(50):
                members = generator.integers(int(np.ceil(statement.group_size * n)), n + 1)
                assert losses[generator.permutation(n)[:members]].mean() <= high
            assert low <= cvar(losses, statement.group_size) <= high
            worst = np.sort(losses)[::-1][: int(np.ceil(statement.group_size * n))]
            assert worst.mean() <= high
        check_figures(made)


def test_a_certificate_survives_its_file_bit_for_bit() -> None:
    sealed = make_sealed()
    assert parse_certificate(to_text(sealed).encode(), "certificate.json") == sealed


def test_statements_stand_by_increasing_group_size_once() -> None:
    terms = IssueTerms(split="test", group_sizes=(1.0, 0.1, 0.3, 0.1))
    made = draft(make_record(test=some_losses()), make_plan(), terms, issued_at=NOW)
    assert [statement.group_size for statement in made.statements] == [0.1, 0.3, 1.0]


def test_held_out_records_come_first_and_training_records_never_by_themselves() -> None:
    losses = some_losses(20)
    assert held_out_split(make_record(train=losses, validation=losses, test=losses)) == "test"
    assert held_out_split(make_record(train=losses, validation=losses)) == "validation"
    with pytest.raises(CertificateError, match="no held-out records"):
        held_out_split(make_record(train=losses))


@pytest.mark.parametrize(
    ("split", "output", "speaks"),
    [
        ("test", "best", True),
        ("validation", "last", False),
        ("validation", "best", False),
        ("train", "last", False),
    ],
)
def test_records_that_the_model_depends_on_do_not_speak_for_others(split: str, output: str, speaks: bool) -> None:
    record = make_record(**{split: some_losses()})
    made = draft(record, make_plan(output=output), IssueTerms(split=split, group_sizes=SIZES), issued_at=NOW)
    assert (made.population is not None) == speaks
    assert all((statement.population is not None) == speaks for statement in made.statements)


def test_no_published_range_of_losses_is_about_a_few_people() -> None:
    held = make_certificate(some_losses(200)).histogram
    assert held.fewest == 10
    assert all(count == 0 or count >= 10 for count in held.counts)
    few = make_certificate(some_losses(4)).histogram
    assert (few.counts, few.starts) == ((4,), (0,))


def test_a_group_of_fewer_people_than_the_plan_allows_is_not_told_about() -> None:
    record, plan = make_record(test=some_losses(100)), make_plan(min_group=20)
    made = draft(record, plan, IssueTerms("test", (0.1, 0.2, 1.0)), issued_at=NOW)
    assert [statement.group_size for statement in made.statements] == [0.2, 1.0]
    assert made.histogram.fewest == 20
    assert all(count == 0 or count >= 20 for count in made.histogram.counts)
    with pytest.raises(CertificateError, match=r"evaluation\.min_group, 20"):
        draft(record, plan, IssueTerms("test", (0.1, 0.18)), issued_at=NOW)


def test_a_split_that_was_not_evaluated_cannot_be_certified() -> None:
    record = make_record(train=some_losses(5))
    with pytest.raises(DataError, match="has no test records"):
        draft(record, make_plan(), IssueTerms(split="test", group_sizes=(0.1,)), issued_at=NOW)


def test_terms_for_which_nothing_is_proven_are_refused() -> None:
    for delta in (0.0, 0.6, math.nan):
        with pytest.raises(PlanError, match=r"delta is .*, outside"):
            IssueTerms("test", (0.1,), delta=delta)
    for size in (0.0, 1.5, math.nan):
        with pytest.raises(PlanError, match=r"group size is .*, outside"):
            IssueTerms("test", (0.1, size))
    for sizes in ((), (0.5,) * 1001):
        with pytest.raises(PlanError, match="1 to 1000 group sizes"):
            IssueTerms("test", sizes)
