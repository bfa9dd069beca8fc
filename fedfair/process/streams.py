"""Standard output and standard error that take every text, whatever the locale says of their encoding.

A terminal in latin-1, a service without a locale, a name with a byte that is no UTF-8: a character that a stream
cannot write is replaced by a plain one, and no command fails because of it.
"""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType

ERRORS = "fedfair-plain"
"""Name of the codec error handler that writes plain characters."""

PLAIN: Mapping[str, str] = MappingProxyType(
    {
        "\N{CHECK MARK}": "+",
        "\N{BALLOT X}": "x",
        "\N{EN DASH}": "-",
        "\N{EM DASH}": "-",
        "\N{HORIZONTAL ELLIPSIS}": "...",
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{MIDDLE DOT}": "-",
        "\N{MULTIPLICATION SIGN}": "x",
        "\N{RIGHTWARDS ARROW}": "->",
        "\N{LESS-THAN OR EQUAL TO}": "<=",
        "\N{GREATER-THAN OR EQUAL TO}": ">=",
        "\N{PLUS-MINUS SIGN}": "+-",
        "\N{INFINITY}": "inf",
        "\N{GREEK SMALL LETTER EPSILON}": "epsilon",
        "\N{GREEK SMALL LETTER DELTA}": "delta",
        "\N{GREEK SMALL LETTER ALPHA}": "alpha",
        "\N{GREEK SMALL LETTER GAMMA}": "gamma",
        "\N{GREEK SMALL LETTER SIGMA}": "sigma",
        "\N{FULL BLOCK}": "#",
        "\N{LIGHT SHADE}": ".",
        "\N{BOX DRAWINGS HEAVY HORIZONTAL}": "-",
        "\N{BOX DRAWINGS HEAVY LEFT}": "-",
        "\N{BOX DRAWINGS HEAVY RIGHT}": "-",
    }
)
"""Substitutes for characters that cannot be written; an accent is dropped, anything else becomes a `?`."""


def plain(text: str) -> str:
    """Return a text in ASCII that a person can read in place of this one."""
    return "".join(PLAIN.get(letter) or _without_accent(letter) for letter in text)


def accept_every_text() -> None:
    """Let both streams of this process write every text; called once, before anything is written."""
    codecs.register_error(ERRORS, _replaced)
    for stream in (sys.stdout, sys.stderr):
        # A test, or a program that embeds a command, may have put another object in their place.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ERRORS)


def _replaced(fault: UnicodeError) -> tuple[str, int]:
    if not isinstance(fault, UnicodeEncodeError):
        raise fault
    return plain(fault.object[fault.start : fault.end]), fault.end


def _without_accent(letter: str) -> str:
    decomposed = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode("ascii")
    return decomposed or "?"
