"""Words that others wrote, made harmless to whatever shows them: a terminal, a page, a picture, a message.

Decides, for all of fedfair, which characters are shown. The others are controls, format characters such as those
that turn a line's direction, line and paragraph separators, lone surrogates, and characters that are private or
not assigned: the Unicode categories C*, Zl and Zp. Source: Unicode Standard, table 4-4.
"""

from __future__ import annotations

import re
import unicodedata

_SUSPECT = re.compile(r"[^ -~]")
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def is_shown(letter: str) -> bool:
    """Return whether one character may reach a terminal, a page or a picture."""
    return unicodedata.category(letter) not in _HIDDEN


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}", keep: str = "") -> str:
    """Return somebody's words without characters that steer a terminal, turn a line's direction, or break XML.

    Args:
        text: any text.
        instead: what stands for each character that is not shown.
        keep: characters that stay, such as line ends.
    """
    return _SUSPECT.sub(lambda found: found[0] if is_shown(found[0]) or found[0] in keep else instead, text)
