"""Pages of one file: no script, no network, readable on a phone, in light and dark, and on paper.

Every page has the same shell: its title, its sections, one style, and a policy that forbids the browser to load or
run anything, whatever a page's content turns out to hold. Words that people chose (names, labels, plans) are
escaped: by the templates, and by `Markup.format` where a page is put together in Python. What a page says is
decided by those who make its sections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from fedfair.errors import FedfairError
from fedfair.process.printable import printable
from fedfair.report.blocks import bullets, facts, figure, paragraph, table
from fedfair.report.svg import palette_css
from fedfair.templates import environment

MARK = Markup("<!-- made by fedfair -->")
"""Second line of every page, so that no file of somebody else is ever replaced."""


@dataclass(frozen=True, slots=True)
class PageSection:
    """One part of a page.

    Attributes:
        name: its id on the page, of letters, digits and hyphens; empty for none.
        heading: its heading; empty for none. Escaped.
        body: HTML; make it with `render` or `Markup.format`, which escape.
    """

    name: str
    heading: str
    body: Markup


def page(title: str, sections: Sequence[PageSection], style: str = "", language: str = "en") -> str:
    """Return a whole page.

    Args:
        title: of the page, also its first heading. Escaped.
        sections: in this order.
        style: CSS that only this page needs, written by us.
        language: of its words, such as en.
    """
    css = palette_css() + _environment("fedfair.report").get_template("style.css").render() + style
    shell = {"style": Markup(css), "mark": MARK, "language": language}  # noqa: S704 - our own style
    made = render("page.html.jinja", title=title, sections=sections, **shell)
    # Escaping does not stop a character that turns a line's direction.
    return printable(made, keep="\n")


def render(template: str, package: str = "fedfair.report", /, **values: object) -> Markup:
    """Return a template of a package filled in; every value is escaped unless it is `Markup`.

    Args:
        template: name of a file in its folder `templates`; it may use the functions of `blocks.py`.
        package: such as fedfair.certificate.
        values: everything else that it names.
    """
    return Markup(_environment(package).get_template(template).render(values))  # noqa: S704 - the template escapes


def check_place(path: Path) -> None:
    """Refuse a place where a page may not go, or cannot because its folder does not exist.

    Raises:
        FedfairError: there is no such folder, or a file there that fedfair did not make.
    """
    if not path.parent.is_dir():
        raise FedfairError(
            f"{path}: the folder {path.parent} does not exist", "create it, or choose another place"
        )
    check_replaceable(path)


def check_replaceable(path: Path) -> None:
    """Refuse a place where a page may not go.

    Raises:
        FedfairError: there is a folder, or a file that fedfair did not make.
    """
    if path.is_dir():
        raise FedfairError(f"{path} is a folder", "name a file")
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace")[:200]:
        raise FedfairError(
            f"{path} exists and is no page of fedfair's", "move it away, or choose another place for the page"
        )


@cache
def _environment(package: str) -> Environment:
    made = environment(package).overlay(autoescape=True, keep_trailing_newline=False)
    made.globals.update({block.__name__: block for block in (paragraph, bullets, facts, table, figure)})
    return made
