"""What a part of a study is shown as, on a terminal and on a page alike: lines, tables and texts of files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TypeAlias


class Tone(StrEnum):
    """How much a line matters."""

    PLAIN = ""
    GOOD = "good"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Lines:
    """Sentences.

    Attributes:
        heading: above them; may be empty.
        lines: one sentence each.
        tone: of all of them.
    """

    heading: str
    lines: tuple[str, ...]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table.

    Attributes:
        heading: above it.
        columns: their headings; empty for a table of names and what belongs to them.
        rows: as many texts each as there are columns; two where there are no headings.
        marked: numbers of the rows that break a rule.
    """

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceText:
    """A file as it stands, or the lines in which it differs from an earlier one.

    Attributes:
        heading: its path, and what is to be said of it.
        text: line by line.
        is_difference: whether lines begin with "+", "-" or a space.
    """

    heading: str
    text: str
    is_difference: bool = False


Block: TypeAlias = Lines | TableBlock | SourceText


def fingerprint(blocks: Sequence[Block], *more: str) -> str:
    """Return the SHA-256 of what is shown, in hex: two that are equal show the same."""
    shown = [[type(block).__name__, asdict(block)] for block in blocks]
    return hashlib.sha256(json.dumps([shown, more], sort_keys=True).encode("ascii")).hexdigest()
