"""The diagrams of docs/rounds.md are made from the tables that decide.

To renew them after a change of a table: `python tests/rounds/test_rounds_document.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedfair.rounds.machine import TRANSITIONS, Standing, Step
from fedfair.rounds.phases import PHASES

DOCUMENT = Path(__file__).parents[2] / "docs" / "rounds.md"


def phase_diagram() -> str:
    """Return one line for every phase and event: where the event may lead."""
    lines = []
    for phase, events in PHASES.items():
        if not events:
            lines.append(f"{phase.value:<9} (the end: every event is answered with nothing)")
        for event, targets in events.items():
            led = " | ".join(target.value for target in PHASES if target in targets)
            lines.append(f"{phase.value:<9} --{event.__name__ + '--':-<17}> {led}")
    return "\n".join(lines)


def standing_diagram() -> str:
    """Return the matrix of standings and steps; a dot is a step that is refused."""
    lines = ["".join(f"{text:<11}" for text in ("", *(step.value for step in Step))).rstrip()]
    for standing in Standing:
        row = (TRANSITIONS[standing].get(step) for step in Step)
        cells = (standing.value, *(target.value if target else "." for target in row))
        lines.append("".join(f"{text:<11}" for text in cells).rstrip())
    return "\n".join(lines)


DIAGRAMS = {"phases": phase_diagram, "standings": standing_diagram}


def with_diagrams(text: str) -> str:
    """Return a document with every marked block replaced by its diagram."""
    for name, draw in DIAGRAMS.items():
        block = re.compile(rf"(<!-- {name} -->\n```\n).*?(\n```)", re.DOTALL)
        drawn = draw()
        text, count = block.subn(lambda match, drawn=drawn: match[1] + drawn + match[2], text)
        if count != 1:
            raise ValueError(f"the document has {count} blocks for {name}")
    return text


def test_the_diagrams_show_the_tables() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == with_diagrams(text), f"run `python {Path(__file__).name}` in its folder"


if __name__ == "__main__":
    DOCUMENT.write_text(with_diagrams(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
