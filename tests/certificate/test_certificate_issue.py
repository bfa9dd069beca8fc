import json
import math
import re
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner

from fedfair.certificate.check import check_figures, check_plan
from fedfair.certificate.document import Certificate, Population, parse_certificate, to_text
from fedfair.certificate.excerpt import check_result, excerpt
from fedfair.certificate.issue import IssueTerms, draft, held_out_split
from fedfair.certificate.page import certificate_page
from fedfair.certificate.proof import statements
from fedfair.certificate.sentences import at_most, confidence, in_words, main_statement, share
from fedfair.cli.commands import app
from fedfair.errors import CertificateError, DataError, PlanError
from fedfair.fairness.cvar import cvar
from fedfair.plan.schema import Plan
from fedfair.results.document import ResultDocument
from fedfair.results.loss_text import decimals_for
from fedfair.results.reading import parse_result
from tests.browser import PHONE_WIDTH, Browser
from tests.certificate.certificate_makers import (
    NOW,
    PLAN_DIGEST,
    make_certificate,
    make_plan,
    make_record,
    make_sealed,
    make_told_record,
    some_losses,
)
from tests.result_files import complete

SIZES = (0.02, 0.1, 0.3, 0.7, 1.0)


def test_no_group_exceeds_the_bound_of_many_models_and_the_worst_group_attains_it() -> None:
    # The records' own order and sizes are random; each of 30 linear models is drawn at random. A group is a set of
    # at least rho n records: random ones, and the adversary's, the records with the largest losses.
    generator = np.random.default_rng(7)
    features, labels = load_breast_cancer(return_X_y=True)
    features, n = (features - features.mean(axis=0)) / features.std(axis=0), len(labels)
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
            assert np.sort(losses)[::-1][: int(np.ceil(statement.group_size * n))].mean() <= high
        check_figures(made)


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


@given(st.floats(0.0, 1e6))
def test_a_number_in_words_is_never_below_the_proven_one(value: float) -> None:
    shown = Decimal(at_most(value))
    assert Decimal(value) <= shown <= Decimal(value) + Decimal(1).scaleb(-decimals_for(value))


@pytest.mark.parametrize(("value", "words"), [(0.1, "10%"), (1.0, "100%"), (0.3, "30%"), (0.005, "0.5%")])
def test_shares_are_in_percent(value: float, words: str) -> None:
    assert share(value) == words


def test_no_confidence_is_rounded_up_to_certainty() -> None:
    record, plan = make_record(test=some_losses()), make_plan()
    for delta, words in ((0.05, "95%"), (0.001, "99.9%"), (1e-9, "99.9999999%")):
        assert confidence(draft(record, plan, IssueTerms("test", (0.1,), delta=delta), issued_at=NOW)) == words


def test_a_certificate_of_training_by_the_excess_says_on_what_the_promise_of_that_hangs() -> None:
    plan = make_plan()
    excess = plan.with_(objective={"measure": "excess"})
    for stated, told in ((plan, False), (excess, True)):
        made = draft(make_record(test=some_losses()), stated, IssueTerms("test", (0.1,)), issued_at=NOW)
        assert any("no bound here is of the excess" in text for text in in_words(made).limits) == told
        assert any("by slices" in text for text in in_words(made).limits) == told


def test_the_statements_in_words() -> None:
    made = make_certificate()
    worst = main_statement(made)
    assert worst.group_size == make_plan().objective.worst_group_size
    assert in_words(made).sample == (
        "No group making up at least 10% of the 1000 evaluated people, people the model has not seen, has a mean "
        f"loss above {at_most(worst.sample[1])}."
    )
    assert worst.population is not None
    assert in_words(made).population == (
        "With 95% confidence, no group making up at least 10% of the population that those people represent has a "
        f"mean loss above {at_most(worst.population)}, where a loss above 4.000 counts as 4.000."
    )


PROPORTIONS = (
    "That population mixes the sites' people in the proportions of the evaluated records, one record a person."
)


def test_the_population_is_said_to_mix_the_sites_as_the_evaluated_records_do() -> None:
    untold = "The shares of the sites in the evaluated records are not published."
    assert list(in_words(make_certificate()).mixture) == [PROPORTIONS, untold]
    terms = IssueTerms("test", (0.1,))
    for sites, words in (
        ({"clinic-a": 750, "clinic-b": 250}, "clinic-a 75.0%, clinic-b 25.0%"),
        ({"clinic-a": 750}, "clinic-a 75.0%, others 25.0%"),
    ):
        record = make_told_record(sites, some_losses())
        made = draft(record, make_plan(site_means=True), terms, issued_at=NOW)
        assert list(in_words(made).mixture) == [PROPORTIONS, f"The evaluated records are from: {words}."]


def test_weights_of_the_sites_are_said_as_shares_of_the_population() -> None:
    plan = make_plan(site_means=True, site_weights={"clinic-a": 3.0, "clinic-b": 1.0})
    record = make_told_record({"clinic-a": 500, "clinic-b": 500}, some_losses())
    mixed, told = in_words(draft(record, plan, IssueTerms("test", (0.1,)), issued_at=NOW)).mixture
    assert mixed.endswith("by the weights that the plan declares: clinic-a 75.0%, clinic-b 25.0%.")
    assert told == "The evaluated records are from: clinic-a 50.0%, clinic-b 50.0%."


def test_a_bound_that_every_model_meets_is_called_nothing() -> None:
    made = make_certificate(some_losses(20))
    worst = main_statement(made)
    assert worst.population == made.loss_range
    assert "nothing is proven: 20 evaluated people are too few" in in_words(made).population


def test_training_records_are_never_said_to_speak_for_others() -> None:
    made = draft(make_record(train=some_losses()), make_plan(), IssueTerms("train", (0.1,)), issued_at=NOW)
    assert "Nothing is proven about people who were not evaluated" in in_words(made).population
    assert any(
        "trained on the evaluated people: this proves nothing about new people" in text
        for text in in_words(made).limits
    )
    assert not any("were drawn from the people of their sites" in text for text in in_words(made).limits)
    assert list(in_words(made).mixture) == ["The shares of the sites in the evaluated records are not published."]


def test_the_limits_say_how_large_losses_count_and_whom_the_records_stand_for() -> None:
    losses = some_losses(500)
    losses[:12] = 9.0
    told = " ".join(in_words(make_certificate(losses)).limits)
    assert "a loss above 4.000 counts as 4.000" in told
    assert "Above it: at most 12 of the 500 evaluated losses" in told
    assert "not about accuracy" in told
    assert "do not represent those whom the model will be used for, or the sites have other shares there" in told
    assert "each person has one record" in told
    assert "each range holds at least 10" in told
    validation = draft(
        make_record(validation=losses), make_plan(), IssueTerms("validation", (0.1,)), issued_at=NOW
    )
    assert "by which the run chose among its models" in " ".join(in_words(validation).limits)


@pytest.mark.parametrize(("loss", "words"), [(0.1, "served better than that"), (2.0, "served worse than that")])
def test_the_worst_group_is_held_against_guessing(loss: float, words: str) -> None:
    assert words in in_words(make_certificate(np.full(100, loss))).guess


# ---- whom a certificate's population consists of: the sites' shares of the records, or the weights of the plan

SITE_SIZES = (0.1, 0.3, 1.0)
SITES = {"clinic-a": 800, "clinic-b": 200}
EVEN = {"clinic-a": 2.0, "clinic-b": 2.0}


def issued(plan: Plan, sites: dict[str, int] = SITES, method: str = "binomial") -> Certificate:
    terms = IssueTerms("test", SITE_SIZES, method=method)  # type: ignore[arg-type]
    return draft(make_told_record(sites, some_losses()), plan, terms, issued_at=NOW)


def test_the_shares_of_the_sites_stand_in_the_file_and_on_the_page() -> None:
    plan = make_plan(site_means=True)
    made = issued(plan)
    assert (made.sites, parse_certificate(to_text(made).encode(), "it")) == (SITES, made)
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
    smaller = statements(made.loss_histogram(), [size / 2.5 for size in SITE_SIZES], plain)
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
def test_a_certificate_of_other_weights_or_sites_is_refused(made: Plan, plan: Plan, fault: str) -> None:
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


# ---- the page of a certificate: what stands on it, and that a browser shows it without a network or a complaint


class _Elements(HTMLParser):
    """The ids, the tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attributes if name == "id" and value]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def sealed() -> Certificate:
    return make_sealed()


def test_the_page_has_every_part_once_and_every_bound(sealed: Certificate) -> None:
    found = _Elements(certificate_page(sealed))
    for part in ("proven", "curve", "bounds", "limits", "facts", "check", "group-sizes"):
        assert found.ids.count(part) == 1
    assert found.tags.count("svg") == 1
    for statement in sealed.statements:
        assert statement.population is not None
        assert at_most(statement.population) in found.text
        assert at_most(statement.sample[1]) in found.text
    assert "uniform guess: 0.693" in found.text
    assert f"{sealed.mean:.3f}" in found.text
    assert PLAN_DIGEST in found.text
    assert "fedfair certificate verify FILE --key KEY" in found.text
    assert f"KEY is the key of {sealed.issuer.name}, as you have it by a way that you trust" in found.text
    assert f"--key {sealed.issuer.key}" not in found.text, "a forger would be checked by the forger's own key"
    assert "NOT SIGNED" not in found.text


def test_the_page_is_one_file_that_loads_and_runs_nothing(sealed: Certificate) -> None:
    page = certificate_page(sealed)
    assert set(_Elements(page).tags).isdisjoint({"script", "link", "img", "iframe", "object", "form"})
    assert re.findall(r"https?://|@import|url\((?!#)", page) == []


def test_an_unsigned_page_says_so_before_anything_else() -> None:
    found = _Elements(certificate_page(make_certificate()))
    assert "unsigned" in found.ids
    assert found.text.index("NOT SIGNED") < found.text.index("No group making up")


def test_a_page_about_training_records_or_too_few_people_promises_nothing_about_others() -> None:
    train = draft(make_record(train=some_losses()), make_plan(), IssueTerms("train", (0.1, 1.0)), issued_at=NOW)
    for certificate in (train, make_certificate(some_losses(3))):
        text = _Elements(certificate_page(certificate)).text
        assert "% confidence, no group" not in text
        assert "othing" in text
    assert "in the population" not in certificate_page(train)


@pytest.mark.parametrize("width", [PHONE_WIDTH, 1200])
def test_a_browser_shows_the_page_without_a_complaint_or_a_sideways_scroll(
    sealed: Certificate, browser: Browser, width: int, tmp_path: Path
) -> None:
    file = tmp_path / "certificate.html"
    file.write_text(certificate_page(sealed))
    seen = browser.look(file.as_uri(), width=width)
    assert (seen.complaints, seen.requests, seen.widest) == ([], [file.as_uri()], width)


# ---- what a certificate says on the page of its run, and that it says nothing there about another one


def result(certificate: Certificate, **changed: object) -> dict[str, Any]:
    """Return the result of the run that a certificate is about."""
    made = complete() | {"plan_digest": PLAN_DIGEST}
    test = made["train"] | {"n": certificate.n, "mean": certificate.mean, **changed}
    past = [moment | {"test": moment["train"]} for moment in made["history"]]
    return made | {"test": test, "history": past}


def read(made: dict[str, Any]) -> ResultDocument:
    return parse_result(json.dumps(made), "result.json")


def test_the_page_of_its_run_quotes_it_with_what_it_does_not_mean() -> None:
    certificate = make_sealed()
    check_result(certificate, read(result(certificate)), "certificate.json")
    text = excerpt(certificate, "certificate.json").body.unescape()
    assert in_words(certificate).sample in text
    assert in_words(certificate).population in text
    assert "It is about a loss, not about accuracy" in text
    assert "aggregator signed it. This page was made without checking that" in text
    assert "NOT SIGNED" in excerpt(make_certificate(), "certificate.json").body


@pytest.mark.parametrize("changed", [{"n": 999}, {"mean": 0.123}])
def test_a_certificate_of_other_people_is_refused(changed: dict[str, object]) -> None:
    certificate = make_certificate()
    with pytest.raises(CertificateError, match=r"the result beside it is about others"):
        check_result(certificate, read(result(certificate, **changed)), "certificate.json")


def test_a_certificate_of_another_plan_or_of_a_split_without_people_is_refused() -> None:
    certificate = make_certificate()
    with pytest.raises(CertificateError, match="about the plan"):
        check_result(certificate, read(complete()), "certificate.json")
    with pytest.raises(CertificateError, match="about others"):
        check_result(certificate, read(result(certificate) | {"test": None}), "certificate.json")


def test_a_report_shows_the_certificate_that_lies_beside_its_result(tmp_path: Path) -> None:
    certificate = make_certificate(some_losses(200))
    files = {"result.json": json.dumps(result(certificate)), "certificate.json": to_text(certificate)}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    outcome = CliRunner().invoke(app, ["report", str(tmp_path / "result.json")])
    assert outcome.exit_code == 0, outcome.output
    assert '<section id="certificate">' in (tmp_path / "report.html").read_text(encoding="utf-8")
    (tmp_path / "report.html").unlink()
    (tmp_path / "certificate.json").write_text(files["certificate.json"].replace('"n": 200', '"n": 201'))
    outcome = CliRunner().invoke(app, ["report", str(tmp_path / "result.json")])
    assert outcome.exit_code == 0, outcome.output
    assert "certificate.json" in outcome.stderr
    assert '<section id="certificate">' not in (tmp_path / "report.html").read_text(encoding="utf-8")
