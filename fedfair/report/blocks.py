"""The parts that sections are made of: paragraphs, lists, facts, tables, figures. Every word given is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup


def paragraph(text: str, kind: str = "") -> Markup:
    """Return a paragraph; `kind` is a class of the style, such as lead, soft or card."""
    return Markup('<p class="{}">{}</p>').format(kind, _tied(text)) if kind else _joined("<p>{}</p>", [(text,)])


def bullets(sentences: Iterable[str]) -> Markup:
    """Return a list."""
    return Markup("<ul>{}</ul>").format(_joined("<li>{}</li>", ((text,) for text in sentences)))


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Return names with what belongs to them."""
    return Markup("<dl>{}</dl>").format(_joined("<dt>{}</dt><dd>{}</dd>", pairs))


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table that scrolls by itself where it is wider than the page; its first column holds names."""
    head = _joined('<th scope="col">{}</th>', ((text,) for text in headings))
    body = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            _tied(row[0]), _joined("<td>{}</td>", ((text,) for text in row[1:]))
        )
        for row in rows
    )
    # The frame can be reached by keyboard, because only then can it be scrolled without a mouse.
    return Markup(
        '<div class="scroll" tabindex="0" role="group" aria-label="{0}"><table><caption>{0}</caption>'
        "<thead><tr>{1}</tr></thead><tbody>{2}</tbody></table></div>"
    ).format(caption, head, body)


def figure(picture: Markup, caption: str) -> Markup:
    """Return a picture with the words that stand under it."""
    return Markup("<figure>{}<figcaption>{}</figcaption></figure>").format(picture, _tied(caption))


def notebook(parts: Iterable[Markup]) -> str:
    """Return parts as the output of a notebook's cell, no wider than a text."""
    return str(Markup('<div style="max-width: 40rem">{}</div>').format(Markup("").join(parts)))


def _joined(form: str, each: Iterable[Sequence[str]]) -> Markup:
    filled = Markup(form)  # noqa: S704 - the forms are our own
    return Markup("").join(filled.format(*map(_tied, values)) for values in each)


def _tied(text: str) -> str:
    """Return the text with its percent signs kept on the line of their numbers."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")
