"""Whom a certificate's population consists of: the sites' shares of the records, or the weights of the plan."""

from __future__ import annotations

import pytest

from fedfair.certificate.check import check_figures, check_plan
from fedfair.certificate.document import Certificate, Population, parse_certificate, to_text
from fedfair.certificate.issue import IssueTerms, draft
from fedfair.certificate.page import certificate_page
from fedfair.certificate.proof import statements
from fedfair.errors import CertificateError, DataError, PlanError
from fedfair.plan.schema import Plan
from tests.certificate.certificate_makers import (
    NOW,
    PLAN_DIGEST,
    make_certificate,
    make_plan,
    make_told_record,
    some_losses,
)

SIZES = (0.1, 0.3, 1.0)
SITES = {"clinic-a": 800, "clinic-b": 200}
EVEN = {"clinic-a": 2.0, "clinic-b": 2.0}


def issued(plan: Plan, sites: dict[str, int] = SITES, method: str = "binomial") -> Certificate:
    terms = IssueTerms("test", SIZES, method=method)  # type: ignore[arg-type]
    return draft(make_told_record(sites, some_losses()), plan, terms, issued_at=NOW)


def test_the_shares_of_the_sites_stand_in_the_file_and_on_the_page() -> None:
    plan = make_plan(site_means=True)
    made = issued(plan)
    assert made.sites == SITES
    assert parse_certificate(to_text(made).encode(), "it") == made
    check_figures(made)
    check_plan(made, plan, PLAN_DIGEST)
    page = certificate_page(made)
    assert "in the proportions of the evaluated records, one record a person" in page
    assert "clinic-a 80.0%, clinic-b 20.0%" in page
    assert "are not published" in certificate_page(make_certificate())


def test_the_bounds_for_weighted_sites_are_those_of_groups_smaller_by_the_largest_ratio() -> None:
    plan = make_plan(site_means=True, site_weights=EVEN)
    made = issued(plan)
    # clinic-b has a fifth of the records and half of the people, so its people count 2.5 times.
    plain = Population(method="binomial", delta=0.05, mixture="evaluated records", weights=None)
    smaller = statements(made.loss_histogram(), [size / 2.5 for size in SIZES], plain)
    for weighted, expected in zip(made.statements, smaller, strict=True):
        assert weighted.population == pytest.approx(expected.population, rel=1e-9)
    unweighted = issued(make_plan(site_means=True))
    assert [each.sample for each in made.statements] == [each.sample for each in unweighted.statements]
    check_figures(made)
    check_plan(made, plan, PLAN_DIGEST)
    page = certificate_page(made)
    assert "by the weights that the plan declares: clinic-a 50.0%, clinic-b 50.0%" in page
    assert "of the population that the plan&#39;s site weights make up has a mean loss above" in page


def test_a_site_with_a_weight_and_no_published_records_lets_no_certificate_be_issued() -> None:
    plan = make_plan(site_means=True, site_weights=EVEN)
    with pytest.raises(DataError, match="the weights name clinic-b"):
        issued(plan, {"clinic-a": 995})


def test_a_method_that_is_not_proven_for_fixed_numbers_of_records_is_refused_with_weights() -> None:
    with pytest.raises(PlanError, match="the method dkw is not proven for the numbers of records"):
        issued(make_plan(site_means=True, site_weights=EVEN), method="dkw")


def test_weights_need_published_records_of_known_sites() -> None:
    with pytest.raises(ValueError, match="site_means: false does not publish"):
        make_plan(site_weights=EVEN)
    with pytest.raises(ValueError, match="'clinic-c' is no collaborator"):
        make_plan(site_means=True, site_weights={"clinic-c": 1.0})
    for weight in (0.0, -1.0, 1e13):
        with pytest.raises(ValueError, match="site_weights"):
            make_plan(site_means=True, site_weights={"clinic-a": weight})


WEIGHTED = make_plan(site_means=True, site_weights=EVEN)
UNWEIGHTED = make_plan(site_means=True)


@pytest.mark.parametrize(
    ("made", "plan", "fault"),
    [
        (WEIGHTED, UNWEIGHTED, "weighs the sites by .*, the plan by None"),
        (UNWEIGHTED, WEIGHTED, "weighs the sites by None, the plan by"),
        (UNWEIGHTED, make_plan(), "how many records clinic-a, clinic-b has, which the plan does not publish"),
        (UNWEIGHTED, make_plan(site_means=True, min_group=201), "as few as 10 people"),
    ],
)
def test_a_certificate_of_other_weights_or_sites_than_the_plan_has_is_refused(
    made: Plan, plan: Plan, fault: str
) -> None:
    with pytest.raises(CertificateError, match=fault):
        check_plan(issued(made), plan, PLAN_DIGEST)


def test_a_site_of_too_few_records_may_not_be_told_of() -> None:
    plan = make_plan(site_means=True, min_group=10)
    with pytest.raises(CertificateError, match="tells of 9 records of clinic-b, the plan allows 10 at least"):
        check_plan(issued(plan, {"clinic-a": 980, "clinic-b": 9}), plan, PLAN_DIGEST)


def test_more_records_at_the_sites_than_there_are_or_weights_that_prove_nothing_are_refused() -> None:
    with pytest.raises(CertificateError, match="the sites have 1001 records, which are more than all 1000"):
        check_figures(issued(UNWEIGHTED, {"clinic-a": 800, "clinic-b": 201}))
    made = issued(WEIGHTED)
    assert made.population is not None
    for change, fault in (
        ({"mixture": "evaluated records"}, "mixes by evaluated records, the weights are"),
        ({"method": "dkw"}, "dkw proves nothing about weighted sites"),
        ({"weights": None, "mixture": "evaluated records"}, "the population bound is"),
    ):
        claimed = made.model_copy(update={"population": made.population.model_copy(update=change)})
        with pytest.raises(CertificateError, match=fault):
            check_figures(claimed)
    untold = made.model_copy(update={"sites": {"clinic-a": 800}})
    with pytest.raises(CertificateError, match="proves nothing: the weights name clinic-b"):
        check_figures(untold)
