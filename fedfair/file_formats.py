"""Refuses a file of another version in one sentence: its name, the version found, and those understood.

Each format has a name and a number of its own, such as `fedfair/result/1`. A leaf.
"""

from __future__ import annotations

import re

from fedfair.version import __version__

_STATED = re.compile(rb'"format"\s*:\s*"(fedfair/[a-z-]{1,40}/[0-9]{1,9})"')
_SEARCHED = 1 << 16
REMEDY = "use the version of fedfair that wrote it, or make it again with this one"


def format_fault(found: str, known: str, place: str) -> str:
    """Return the sentence about a file of another version.

    Args:
        found: the format that the file states.
        known: what this version reads.
        place: the file's name.
    """
    return f"{place} has the format {found}, and fedfair {__version__} reads {known}"


def other_version(raw: str | bytes, known: str, place: str) -> str:
    """Return the sentence about a file that states another version of a format; empty for any other file.

    Args:
        raw: the file's text; the format stands near its beginning.
        known: the format that is read, such as "fedfair/result/1".
        place: the file's name.
    """
    start = raw[:_SEARCHED].encode() if isinstance(raw, str) else raw[:_SEARCHED]
    stated = _STATED.search(start)
    found = "" if stated is None else stated[1].decode("ascii")
    is_other = found.rpartition("/")[0] == known.rpartition("/")[0] and found != known
    return format_fault(found, known, place) if is_other else ""
