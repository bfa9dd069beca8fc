"""Many names in few words: `site-{1..1000}` in a plan's list stands for site-1 to site-1000.

A plan is a small file, and a simulation may have 100,000 collaborators. What is written out counts: digests,
rosters and messages know the names alone.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

_RANGE = re.compile(r"([^{}]*)\{(0|[1-9][0-9]{0,8})\.\.(0|[1-9][0-9]{0,8})\}([^{}]*)")


def written_out(names: object, most: int) -> object:
    """Return a list with the names that its ranges stand for; anything but a list stays as it is.

    Args:
        names: as they stand in the plan.
        most: at most so many names, and one more that tells that there are too many.
    """
    if not isinstance(names, list | tuple):
        return names
    return list(itertools.islice(itertools.chain.from_iterable(_each(name) for name in names), most + 1))


def _each(name: object) -> Iterator[object]:
    found = _RANGE.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        yield name
        return
    before, first, last, after = found.groups()
    if int(last) < int(first):
        yield name  # The check of single names says what is wrong with it.
        return
    yield from (f"{before}{number}{after}" for number in range(int(first), int(last) + 1))
