"""The shell of every page."""

from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from fedfair.errors import FedfairError
from fedfair.report.html import MARK, PageSection, check_replaceable, page, render

HOSTILE = '</title><script>alert("1")</script>'


def test_pages_escape_headings_and_forbid_scripts_and_gaps() -> None:
    text = page(HOSTILE, [PageSection("a", HOSTILE, Markup("<p>{}</p>").format(HOSTILE))])
    assert "<script" not in text
    assert text.count("&lt;/title&gt;&lt;script&gt;") == 4  # title, first heading, heading, body
    assert '<section id="a">' in text
    assert "default-src 'none'; style-src 'unsafe-inline'\">" in page("t", [])
    with pytest.raises(UndefinedError, match="style"):
        render("page.html.jinja", title="t", sections=[], mark=MARK, language="en")


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
