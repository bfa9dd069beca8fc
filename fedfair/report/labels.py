"""Names results that are shown beside each other: by what somebody calls them, or else by their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from fedfair.errors import DataError


def result_labels(places: Sequence[str], asked: Sequence[str] = ()) -> tuple[str, ...]:
    """Return one name for each result, no two alike.

    Args:
        places: the files that the results were read from, no two alike.
        asked: the names that somebody wants, in the order of the files; without any, each is named by as much of
            the end of its path as tells it apart.

    Raises:
        DataError: the names are not as many as the files, one is empty, or two are alike.
    """
    if not asked:
        return _ends_of_paths(places)
    if len(asked) != len(places):
        raise DataError(
            f"--label names {len(asked)} of {len(places)} results",
            "give one --label for each result, in their order, or none",
        )
    for label in asked:
        if not label.strip():
            raise DataError("--label is empty", "give each result a name")
        if asked.count(label) > 1:
            raise DataError(f"--label {label!r} names two results", "give each a name of its own")
    return tuple(asked)


def _ends_of_paths(places: Sequence[str]) -> tuple[str, ...]:
    parts = [PurePath(place).parts for place in places]
    longest = max(map(len, parts), default=0)
    for count in range(1, longest + 1):
        ends = tuple(str(PurePath(*one[-count:])) for one in parts)
        if len(set(ends)) == len(ends):
            return ends
    return tuple(places)
