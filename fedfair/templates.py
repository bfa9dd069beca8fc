"""Documents of text: a template file and its values give the document.

Decides how templates are read: from the folder `templates` of the package that writes the document, with Jinja.
A name that a template misses is our own mistake and raises. What a document says is its template's business, and
its values are those of the package.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


_KEPT_BREAK = "\0"
"""In place of a line break in a value, until the lines are divided."""


@cache
def environment(package: str) -> Environment:
    """Return the templates of a package; those whose names end with html.jinja escape what they are given.

    Args:
        package: such as fedfair.report.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=PackageLoader(package),
        autoescape=select_autoescape(("html.jinja",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )


def filled(package: str, name: str, /, **values: object) -> str:
    """Return the document that a template becomes.

    Args:
        package: such as fedfair.workspace.
        name: the file's, in the package's folder `templates`.
        values: by the names that the template uses.
    """
    return environment(package).get_template(name).render(values)


def sentences(package: str, name: str, /, **values: object) -> tuple[str, ...]:
    """Return the lines of a document that are not empty; arguments as of `filled`.

    Only the template begins lines: a line break in a value, which others may have chosen, stays in its line.
    """
    lines = _of_lines(package).get_template(name).render(values).split("\n")
    return tuple(line.replace(_KEPT_BREAK, "\n") for line in lines if line.strip())


@cache
def _of_lines(package: str) -> Environment:
    return environment(package).overlay(finalize=_one_line)


def _one_line(value: object) -> object:
    return value.replace("\n", _KEPT_BREAK) if isinstance(value, str) else value
