from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fedfair.rounds.exit_reasons import TRY_AGAIN, ExitReason

SOURCES = Path(__file__).resolve().parents[2]

FINAL = {ExitReason.FINISHED, ExitReason.NOT_ADMITTED, ExitReason.MISBEHAVED, ExitReason.REPLACED}
"""What nobody mends by waiting: another plan, a revoked or removed site, a broken protocol, a second process."""


@pytest.mark.parametrize("reason", ExitReason)
def test_a_site_tries_again_after_everything_that_an_operator_can_mend(reason: ExitReason) -> None:
    assert TRY_AGAIN[reason] == (reason not in FINAL)


def test_nobody_but_the_table_decides_whether_a_site_tries_again() -> None:
    stated = [
        f"{path.relative_to(SOURCES)}:{call.lineno}"
        for package in ("aggregator", "fedfair/rounds")
        for path in sorted((SOURCES / package).glob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "try_again" and isinstance(keyword.value, ast.Constant | ast.Compare)
    ]
    assert not stated
