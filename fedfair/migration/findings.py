"""The list that a migration ends with: each key of the old workspace, and what becomes of it.

Decides the kinds, their order and how the list is written, in Markdown and as plain values for JSON. Which
finding a key leads to stands in `openfl_keys.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fedfair.templates import filled

MAX_VALUE = 60
"""Characters of a value that the list repeats."""

_LETTERS_OF_TABLES = str.maketrans({"|": "\\|", "\n": " ", "\r": " ", "<": "&lt;"})


class FindingKind(StrEnum):
    """The ends that a key comes to."""

    BY_HAND = "by-hand"
    NO_COUNTERPART = "no-counterpart"
    BUILT_IN = "built-in"
    CARRIED_OVER = "carried-over"


HEADINGS = {
    FindingKind.BY_HAND: ("To do by hand", "The migration cannot know this."),
    FindingKind.NO_COUNTERPART: (
        "Without a counterpart",
        "Nothing of fedfair does this. The last column says what comes nearest.",
    ),
    FindingKind.BUILT_IN: ("Built in", "fedfair does this by itself, so there is no key for it."),
    FindingKind.CARRIED_OVER: ("Carried over", "This is in the files that were written."),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One key of the old workspace.

    Attributes:
        place: file and line in the old workspace, such as plan/plan.yaml:12.
        key: the key's path with dots.
        value: its value as text; empty where there is none.
        becomes: the key or function of fedfair that has its part; empty where there is none.
        words: what to do, or what fedfair does.
    """

    kind: FindingKind
    place: str
    key: str
    value: str
    becomes: str
    words: str


def shown_value(value: object) -> str:
    """Return a value of the old plan as short text."""
    text = str(value)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def of_kind(findings: Iterable[Finding], kind: FindingKind) -> list[Finding]:
    """Return the findings of one kind, in their order."""
    return [finding for finding in findings if finding.kind == kind]


def as_values(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Return the findings as plain values, for JSON."""
    return [
        {
            "kind": str(finding.kind),
            "place": finding.place,
            "key": finding.key,
            "value": finding.value,
            "becomes": finding.becomes,
            "what_to_do": finding.words,
        }
        for finding in findings
    ]


def as_markdown(origin: str, findings: Sequence[Finding]) -> str:
    """Return the list as a page.

    Args:
        origin: the old workspace, in words.
        findings: everything that was found.
    """
    parts = [(*HEADINGS[kind], list(map(_cells, of_kind(findings, kind)))) for kind in HEADINGS]
    return filled("fedfair.migration", "MIGRATION.md.jinja", origin=_cell(origin), parts=parts)


def _cells(finding: Finding) -> list[str]:
    code = [
        f"`{_cell(text.replace('`', chr(39)))}`" if text else ""
        for text in (finding.key, finding.value, finding.becomes)
    ]
    return [_cell(finding.place), *code, _cell(finding.words)]


def _cell(text: str) -> str:
    return text.translate(_LETTERS_OF_TABLES)
