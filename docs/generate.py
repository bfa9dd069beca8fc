"""Writes every page, and every part of a page, that is made from the code; `make docs` runs it.

A page that is made whole has a function that returns its text. A page that people write may have blocks between
`<!-- name -->` and `<!-- /name -->`; what stands between the two is replaced. `drifted` tells which pages differ
from what the code says today; a test fails when there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from docs import events_page, results_tables
from fedfair.report import disclosure_table, plan_keys, presets_page
from fedfair.rounds.phases import PHASES
from fedfair.rounds.plain_sum import TRANSITIONS
from fedfair.rounds.sum_round import MemberStanding, Step
from fedfair.secagg.graph_terms import bits, graph_terms
from fedfair.secagg.params import Mode, drop_outs_survived, guarantee_in_words, threshold

DOCS = Path(__file__).resolve().parent
SIZES = ((3, 0), (3, 1), (5, 1), (10, 3), (20, 6), (100, 33))
IN_WORDS = ((5, 1), (3, 1))
GRAPHS = ((200, 0), (200, 20), (500, 50), (1000, 0), (1000, 20), (1000, 100), (1000, 333))


def phase_diagram() -> str:
    """Return one line for every phase and event: where the event may lead."""
    lines = []
    for phase, events in PHASES.items():
        if not events:
            lines.append(f"{phase.value:<9} (the end: every event is answered with nothing)")
        for event, targets in events.items():
            led = " | ".join(target.value for target in PHASES if target in targets)
            lines.append(f"{phase.value:<9} --{event.__name__ + '--':-<17}> {led}")
    return _fenced(lines)


def standing_diagram() -> str:
    """Return the matrix of standings and steps; a dot is a step that is refused."""
    lines = ["".join(f"{text:<11}" for text in ("", *(step.value for step in Step))).rstrip()]
    for standing in MemberStanding:
        row = (TRANSITIONS[standing].get(step) for step in Step)
        cells = (standing.value, *(target.value if target else "." for target in row))
        lines.append("".join(f"{text:<11}" for text in cells).rstrip())
    return _fenced(lines)


def threshold_table() -> str:
    """Return the table of thresholds and of the drop-outs that each survives."""
    lines = [
        "| n | n_C | t, malicious | drop-outs survived | t, semi-honest | drop-outs survived |",
        "|---|---|---|---|---|---|",
    ]
    for members, colluders in SIZES:
        cells = [members, colluders]
        for mode in (Mode.MALICIOUS, Mode.SEMI_HONEST):
            cells += [threshold(mode, members, colluders), drop_outs_survived(mode, members, colluders)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def graph_table() -> str:
    """Return the table of sparse graphs: their numbers, and the bits of the two probabilities of failure."""
    lines = [
        "| n | n_C | neighbours k | c | shares T | committee q | votes | not hidden, over a run | a round lost |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for members, colluders in GRAPHS:
        found = graph_terms(members, colluders)
        cells: list[object] = [members, colluders, "all others", *["-"] * 6]
        if found is not None:
            near = found.shares - found.neighbours // 2 - 2
            cells[2:7] = [found.neighbours, near, found.shares, found.committee, found.votes]
            cells[7:] = [f"below 2^-{bits(each)}" if each else "never" for each in (found.secrecy, found.loss)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def guarantees() -> str:
    """Return the guarantees of two plans in words."""
    return "\n".join(f"> {guarantee_in_words(Mode.MALICIOUS, *size)}.\n>" for size in IN_WORDS).removesuffix("\n>")


WHOLE: Mapping[str, Callable[[], str]] = {
    "reference/plan.md": plan_keys.page,
    "how-to/published-tables.md": presets_page.page,
    "reference/events.md": events_page.page,
}
BLOCKS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "explain/algorithms.md": {"algorithms": lambda: disclosure_table.table().rstrip("\n")},
    "explain/rounds.md": {"phases": phase_diagram, "standings": standing_diagram},
    "explain/secure-aggregation.md": {
        "thresholds": threshold_table,
        "graphs": graph_table,
        "guarantees": guarantees,
    },
    "results/README.md": {
        "worst-tenths": lambda: results_tables.worst_tenths(DOCS / "results"),
        "claims": lambda: results_tables.verdicts(DOCS / "results"),
    },
}


def written(page: str) -> str:
    """Return the text that a page should have.

    Args:
        page: its path below `docs`, one of `WHOLE` or `BLOCKS`.

    Raises:
        ValueError: a block is missing from the page, or there twice.
    """
    if page in WHOLE:
        return WHOLE[page]()
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, draw in BLOCKS[page].items():
        text = _with_block(page, text, name, draw())
    return text


def drifted() -> list[str]:
    """Return the pages whose text is not the one that the code gives today."""
    return [page for page in (*WHOLE, *BLOCKS) if (DOCS / page).read_text(encoding="utf-8") != written(page)]


def main() -> None:
    """Write every page that has drifted, and say which."""
    for page in drifted():
        (DOCS / page).write_text(written(page), encoding="utf-8")
        sys.stdout.write(f"docs/{page} written again\n")


def _fenced(lines: list[str]) -> str:
    return "\n".join(("```text", *lines, "```"))


def _with_block(page: str, text: str, name: str, drawn: str) -> str:
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    changed, count = block.subn(lambda match: f"{match[1]}{drawn}\n{match[2]}", text)
    if count != 1:
        raise ValueError(f"docs/{page} has {count} blocks <!-- {name} --> ... <!-- /{name} -->, not one")
    return changed


if __name__ == "__main__":
    main()
