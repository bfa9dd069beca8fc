"""One name for one figure: the terminal's tables, the page and the model card call it the same."""

import re

import pytest

from fedfair.plan.meanings import meanings
from fedfair.report.figure_names import BY_GROUP_SIZE, DISPARITY, OVERALL, UNIFORM_GUESS
from fedfair.report.run_page import run_page
from fedfair.report.tables import by_group_size, comparison
from fedfair.results.risks import ReportedGroupRisk
from tests.report.test_run_page import read, text_of
from tests.result_files import complete

pytestmark = pytest.mark.usefixtures("undrawn")


def headings(page: str) -> list[list[str]]:
    rows = re.findall(r"<thead.*?</thead>", page, re.DOTALL)
    return [[text_of(cell) for cell in re.findall(r"<th.*?</th>", row, re.DOTALL)] for row in rows]


def test_terminal_page_and_result_name_figures_alike() -> None:
    document = read(complete())
    terminal = tuple(str(column.header) for column in by_group_size(document).columns)
    assert terminal == BY_GROUP_SIZE
    assert [*BY_GROUP_SIZE] in headings(run_page({"a": document}))
    pair = {"a": read(complete()), "b": read(complete("fedavg"))}
    size = read(complete()).worst_group_size
    terminal = [str(column.header) for column in comparison(pair, [size]).columns]
    assert terminal == ["model", OVERALL, "worst 10 %", DISPARITY, "accuracy"]
    page = run_page(pair)
    found = next(row for row in headings(page) if row[:2] == ["model", "trained by"])
    assert [found[0], *(name.replace("\N{NO-BREAK SPACE}", " ") for name in found[2:])] == terminal
    assert UNIFORM_GUESS in text_of(page)
    told = meanings(ReportedGroupRisk)
    assert {"worst", "best", "disparity", "bound"} <= told.keys()
    assert "the best group" in told["best"]
