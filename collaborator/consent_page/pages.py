"""How the page looks: its shell, the inbox, a study, one of its parts, a login, a fault. Every word is escaped."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from markupsafe import Markup

from collaborator.study_review.blocks import Lines, SourceText, TableBlock
from fedfair.process.printable import printable
from fedfair.report.html import render
from fedfair.report.svg import palette_css
from fedfair.version import __version__


@cache
def _style() -> Markup:
    return Markup(palette_css() + render("style.css") + render("consent.css"))  # noqa: S704 - our own files


@cache
def content_policy() -> str:
    """Return the Content-Security-Policy of every answer."""
    style = base64.b64encode(hashlib.sha256(_style().encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )


def whole_page(template: str, title: str, *, refresh: int = 0, form_token: str = "", **values: object) -> str:
    """Return a page.

    Args:
        template: of its body, such as consent_study.html.jinja.
        title: of the page.
        refresh: seconds until the browser asks again by itself; 0 for never.
        form_token: of the login; empty where nobody is logged in.
        values: what the template names.
    """
    body = render(template, title=title, form_token=form_token, kind_of=_kind, **values)
    shell = {"title": title, "body": body, "refresh": refresh, "form_token": form_token}
    made = render("consent.html.jinja", **shell, style=_style(), version=__version__)
    # Escaping does not stop a character that turns a line's direction, as code that deceives its reader has.
    return printable(made, keep="\n\t")


def _kind(block: object) -> str:
    """Return how a block of a part is shown."""
    kinds = {Lines: "lines", TableBlock: "table", SourceText: "text"}
    return kinds[type(block)]
