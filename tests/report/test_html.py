"""The shell of every page."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from fedfair.errors import FedfairError
from fedfair.report.html import MARK, PageSection, check_replaceable, page, render

HOSTILE = '</title><script>alert("1")</script>'


def test_headings_are_escaped_and_the_body_is_taken_as_it_is() -> None:
    text = page(HOSTILE, [PageSection("a", HOSTILE, Markup("<p>{}</p>").format(HOSTILE))])
    assert "<script" not in text
    assert text.count("&lt;/title&gt;&lt;script&gt;") == 4  # title, first heading, heading, body
    assert '<section id="a">' in text


def test_a_page_forbids_scripts_and_every_request() -> None:
    assert "default-src 'none'; style-src 'unsafe-inline'\">" in page("t", [])


def test_a_name_that_a_template_misses_is_a_fault_and_no_gap() -> None:
    with pytest.raises(UndefinedError, match="style"):
        render("page.html.jinja", title="t", sections=[], mark=MARK)


def test_only_our_own_page_may_be_replaced(tmp_path: Path) -> None:
    place = tmp_path / "report.html"
    check_replaceable(place)
    place.write_text(page("t", []))
    check_replaceable(place)
    place.write_text("<!doctype html>my thesis")
    with pytest.raises(FedfairError, match="is no page of fedfair's"):
        check_replaceable(place)
    with pytest.raises(FedfairError, match="is a folder"):
        check_replaceable(tmp_path)
