"""The table of attacks and the threat model of docs/explain/secure-aggregation.md, held against the checks."""

from __future__ import annotations

import re

from fedfair.secagg.checks import Check
from tests.conftest import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "explain" / "secure-aggregation.md"


def test_the_attack_table_names_every_check_and_no_other() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.split("<!-- attacks -->")[1].split("<!-- /attacks -->")[0]
    named = {name for row in table.splitlines()[3:] for name in re.findall(r"`([^`]+)`", row.split("|")[-2])}
    assert named == {check.value for check in Check}


def test_the_threat_model_has_ten_lines() -> None:
    part = DOCUMENT.read_text(encoding="utf-8").split("## Threat model in ten lines")[1].split("\n## ")[0]
    assert re.findall(r"^(\d+)\.", part, re.MULTILINE) == [str(number) for number in range(1, 11)]
