"""The list that a migration ends with: each key and line of the old workspace, and what becomes of it.

Decides the kinds, their order and how the list is written, in Markdown and as plain values for JSON. Which
finding a key leads to is the business of `openfl_keys.py` and of the modules that read code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

MAX_VALUE = 60
"""Characters of a value that the list repeats."""

_LETTERS_OF_TABLES = str.maketrans({"|": "\\|", "\n": " ", "\r": " ", "<": "&lt;"})


class FindingKind(StrEnum):
    """The ends that a key or a piece of code comes to."""

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
    """One key of the old plan, or one piece of its code.

    Attributes:
        kind: what became of it.
        place: file and line in the old workspace, such as plan/plan.yaml:12.
        key: the key's path with dots, or the name of a class or function.
        value: its value as text; empty for code.
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
    lines = [f"# Migration of {_cell(origin)}", ""]
    lines += ["The files beside this page were written from it. Its code was read and never run.", ""]
    for kind, (heading, meaning) in HEADINGS.items():
        found = of_kind(findings, kind)
        lines += [f"## {heading}", "", meaning if found else "Nothing.", ""]
        if found:
            lines += ["| place | before | value | fedfair | what to do |", "|---|---|---|---|---|"]
            lines += [_row(finding) for finding in found]
            lines.append("")
    return "\n".join(lines)


def _row(finding: Finding) -> str:
    code = [
        f"`{_cell(text.replace('`', chr(39)))}`" if text else ""
        for text in (finding.key, finding.value, finding.becomes)
    ]
    return f"| {_cell(finding.place)} | {code[0]} | {code[1]} | {code[2]} | {_cell(finding.words)} |"


def _cell(text: str) -> str:
    return text.translate(_LETTERS_OF_TABLES)
