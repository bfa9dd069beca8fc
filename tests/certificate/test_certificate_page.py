"""The page of a certificate: what stands on it, and that a browser shows it without a network or a complaint."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedfair.certificate.document import Certificate
from fedfair.certificate.issue import IssueTerms, draft
from fedfair.certificate.page import certificate_page
from fedfair.certificate.sentences import at_most
from tests.browser import PHONE_WIDTH, Browser
from tests.certificate.certificate_makers import (
    NOW,
    PLAN_DIGEST,
    make_certificate,
    make_plan,
    make_record,
    make_sealed,
    some_losses,
)


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
    assert sealed.issuer is not None
    assert "fedfair certificate verify FILE --key KEY" in found.text
    assert f"KEY is the key of {sealed.issuer.name}, as you have it by a way that you trust" in found.text
    assert f"--key {sealed.issuer.key}" not in found.text, "a forger would be checked by the forger's own key"
    assert "NOT SIGNED" not in found.text


def test_the_page_is_one_file_that_loads_and_runs_nothing(sealed: Certificate) -> None:
    page = certificate_page(sealed)
    tags = set(_Elements(page).tags)
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "form"})
    assert re.findall(r"https?://|@import|url\((?!#)", page) == []


def test_the_same_certificate_always_makes_the_same_page(sealed: Certificate) -> None:
    assert certificate_page(sealed) == certificate_page(sealed)


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
