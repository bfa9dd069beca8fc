"""Reads what the text of a query says of itself, before any database sees it.

Decides whether it is one statement that only reads, and whether it asks for an order. Comments and texts in quotes
are passed over, and an ORDER BY in parentheses does not count. The database has the last word: its transaction is
read only where it can be.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from fedfair.errors import DataError

READING = ("select", "with", "values", "table", "from")
"""First words of a statement that reads; DuckDB begins with FROM too."""

_TOKEN = re.compile(
    r"""
      (?P<passed> --[^\n]* | /\* .*? \*/ | \s+ )
    | (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \$(?P<tag>\w*)\$ .*? \$(?P=tag)\$ )
    | (?P<word> [^\W\d]\w* )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def check_reads(query: str, key: str) -> None:
    """Raise a DataError unless a query is one statement that reads.

    Args:
        query: its text.
        key: where it is stated, for the message.
    """
    words = [word for word, _ in _tokens(query)]
    while words and words[-1] == ";":
        words.pop()
    if ";" in words:
        raise DataError(f"{key} holds more than one statement", "keep the one SELECT")
    first = next((word for word in words if word != "("), "")
    if first not in READING:
        found = f"begins with {first.upper()}" if first.isalpha() else "holds no statement"
        raise DataError(f"{key} {found}; only a query that reads is run", "write one SELECT")


def asks_for_order(query: str) -> bool:
    """Return whether the outermost statement has an ORDER BY."""
    words = [word for word, depth in _tokens(query) if depth == 0]
    return ("order", "by") in itertools.pairwise(words)


def _tokens(query: str) -> Iterator[tuple[str, int]]:
    """Yield words in lower case and single marks, each with the number of parentheses around it."""
    depth = 0
    for token in _TOKEN.finditer(query):
        text = token["word"] or token["mark"]
        if not text:
            continue
        depth -= text == ")" and depth > 0
        yield text.lower(), depth
        depth += text == "("
