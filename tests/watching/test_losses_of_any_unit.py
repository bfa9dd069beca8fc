"""The page and the terminal write a loss alike, in whatever unit a plan measures it."""

from dataclasses import replace
from datetime import datetime

import pytest
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.watching.page import status_part
from fedfair.watching.pages import status_pages
from fedfair.watching.run_status import PooledEvaluation, PooledFigures, RunStatus, evaluated
from tests.watching.served_status import served
from tests.watching.statuses import NOON, START

EACH_UNIT = pytest.mark.parametrize(
    ("losses", "everybody", "worst"),
    [
        ((0.0000412, 0.000213), "0.00004120", "0.0002130"),
        ((6543210987.6, 8765432109.8), "6543210988", "8765432110"),
    ],
)


def after_two_evaluations(mean: float, worst: float) -> RunStatus:
    figures = PooledFigures(mean, worst, None)
    first = evaluated(START, PooledEvaluation(1, {"validation": figures}))
    return evaluated(replace(first, loss_unit="squares of dollars"), PooledEvaluation(2, {"validation": figures}))


def now() -> datetime:
    return NOON


@EACH_UNIT
def test_the_page_writes_all_digits_that_count(losses: tuple[float, float], everybody: str, worst: str) -> None:
    page = status_part(after_two_evaluations(*losses), NOON).decode()
    assert f"everybody {everybody} to {everybody}, the worst group {worst} to {worst}." in page


@EACH_UNIT
def test_the_terminal_writes_what_the_page_writes(losses: tuple[float, float], everybody: str, worst: str) -> None:
    with served(status_pages(lambda: after_two_evaluations(*losses), now)) as address:
        told = CliRunner().invoke(app, ["status", address], env={"COLUMNS": "300"}, catch_exceptions=False)
    assert told.exit_code == 0
    assert f"everybody {everybody}, worst 10 % {worst} squares of dollars" in told.output
