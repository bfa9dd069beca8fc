"""The name that was probably meant: one rule for every "did you mean".

Decides how similar two names must be; the caller decides how the name is shown. Case never tells two
names apart here: `Y` for `y` is the commonest slip, and no letters of the two are equal.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

MEANT = 0.6
"""How like a name must be that somebody asks for."""

MIN_LETTERS = 4
LIKENESS = 0.85
"""Least length and likeness of a text that passes for a slip of the pen."""


def misspelt(text: str, known: Iterable[str]) -> str | None:
    """Return the known value that a text in a file is probably a slip for; None where there is none.

    Stricter than `meant`, for nobody has asked: a short text, or one with other digits, is another value.
    """
    digits = re.findall("[0-9]+", text)
    fitting = [one for one in known if len(one) >= MIN_LETTERS and re.findall("[0-9]+", one) == digits]
    return _closest(text, fitting, LIKENESS) if len(text) >= MIN_LETTERS else None


def meant(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like the given one; None where none is like it."""
    return _closest(name, known, MEANT)


def _closest(name: str, known: Iterable[str], likeness: float) -> str | None:
    by_letters: dict[str, str] = {}
    for each in known:
        by_letters.setdefault(each.casefold(), each)
    close = difflib.get_close_matches(name.casefold(), by_letters, n=1, cutoff=likeness)
    return by_letters[close[0]] if close else None
