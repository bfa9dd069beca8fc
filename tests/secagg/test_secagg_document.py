"""The tables of docs/secure-aggregation.md are made from the rules that decide.

To renew them after a change of a rule: `python -m tests.secagg.test_secagg_document`.
"""

from __future__ import annotations

import re

from fedfair.secagg.checks import Check
from fedfair.secagg.params import Mode, drop_outs_survived, guarantee_in_words, threshold
from tests.conftest import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "secure-aggregation.md"
SIZES = ((3, 0), (3, 1), (4, 1), (5, 1), (7, 2), (10, 3), (20, 6), (50, 16), (100, 33))
IN_WORDS = ((5, 1), (3, 1))


def thresholds() -> str:
    """Return the table of thresholds and drop-outs survived."""
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


def guarantees() -> str:
    """Return the guarantee of two plans in words."""
    return "\n".join(f"> {guarantee_in_words(Mode.MALICIOUS, *size)}.\n>" for size in IN_WORDS).removesuffix("\n>")


TABLES = {"thresholds": thresholds, "guarantees": guarantees}


def with_tables(text: str) -> str:
    """Return a document with every marked block replaced by its table."""
    for name, draw in TABLES.items():
        block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        drawn = draw()
        text, count = block.subn(lambda match, drawn=drawn: f"{match[1]}{drawn}\n{match[2]}", text)
        if count != 1:
            raise ValueError(f"the document has {count} blocks for {name}")
    return text


def test_the_tables_show_what_is_computed() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == with_tables(text), "run `python -m tests.secagg.test_secagg_document`"


def test_the_attack_table_names_every_check_and_no_other() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.split("<!-- attacks -->")[1].split("<!-- /attacks -->")[0]
    named = {name for row in table.splitlines()[3:] for name in re.findall(r"`([^`]+)`", row.split("|")[-2])}
    assert named == {check.value for check in Check}


def test_the_threat_model_has_ten_lines() -> None:
    part = DOCUMENT.read_text(encoding="utf-8").split("## Threat model in ten lines")[1].split("\n## ")[0]
    assert re.findall(r"^(\d+)\.", part, re.MULTILINE) == [str(number) for number in range(1, 11)]


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
