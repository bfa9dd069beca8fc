"""Statistics of columns for people: a table at the terminal, and a page of their own.

Decides words and rounding; which numbers are reported is `results.column_statistics`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup
from rich.table import Table
from rich.text import Text

from fedfair.errors import DataError
from fedfair.report.blocks import facts, paragraph, table
from fedfair.report.figure_names import TOO_FEW
from fedfair.report.html import PageSection, page
from fedfair.results.document import ResultDocument
from fedfair.results.statistics_fields import StatisticRow, StatisticsFields

HEADINGS = ("column", "number", "value", "noise ±")


def statistics_of(documents: Mapping[str, ResultDocument]) -> dict[str, StatisticsFields]:
    """Return the statistics of results by their files; nothing where all are of models.

    Raises:
        DataError: some are of models and some of statistics.
    """
    found = {place: each.statistics for place, each in documents.items() if each.statistics is not None}
    if found and len(found) < len(documents):
        place = next(iter(found))
        raise DataError(f"{place} holds statistics, another result a model", "report on each by itself")
    return found


def statistics_table(found: StatisticsFields, title: str = "") -> Table:
    """Return the table of a terminal.

    Args:
        found: what a result tells.
        title: of the table; empty for the usual one.
    """
    made = Table(title=Text(title or "Statistics of columns"), title_justify="left")
    for heading in _headings(found):
        made.add_column(heading, justify="right" if heading in HEADINGS[2:] else "left")
    for row in found.rows:
        made.add_row(*map(Text, _cells(row, found)), style="dim" if row.value is None else None)
    made.caption, made.caption_justify = Text("\n".join(sentences(found))), "left"
    return made


def statistics_page(documents: Mapping[str, ResultDocument]) -> str:
    """Return a page of one file about results that are of statistics."""
    sections = [_section(place, each) for place, each in documents.items()]
    name = next(iter(documents.values())).plan
    return page("Statistics of columns" if name is None else f"{name.federation}: statistics of columns", sections)


def sentences(found: StatisticsFields) -> tuple[str, ...]:
    """Return what is to be said beside the numbers."""
    few = f"Numbers of fewer than {found.min_group} records are not shown"
    if found.least_reported is None:
        return f"{few}. {found.statement[:1].upper()}{found.statement[1:]}.", f"The opened sum itself {_OPENED}"
    below = f"a count below {found.least_reported:.4g} is not, so one of fewer records is with a chance of 1 %"
    return f"{few}: {below}.", found.statement


_OPENED = "holds them, and every site and the aggregator know it."


def _section(place: str, document: ResultDocument) -> PageSection:
    found = document.statistics
    if found is None:
        raise DataError(f"{place} holds no statistics", "report on it by itself")
    rows = [_cells(row, found) for row in found.rows]
    parts = [table("Numbers over all sites.", _headings(found), rows), *map(paragraph, sentences(found))]
    if document.plan is not None:
        parts.append(facts(document.plan.summary))
    return PageSection("", place, Markup("").join(parts))


def _headings(found: StatisticsFields) -> tuple[str, ...]:
    return HEADINGS if found.by is None else (found.by, *HEADINGS)


def _cells(row: StatisticRow, found: StatisticsFields) -> tuple[str, ...]:
    number = row.cell if row.statistic == "count" else row.statistic
    value, error = TOO_FEW, ""
    if row.value is not None and row.error is not None:
        value = f"{row.value:.0f}" if row.statistic != "mean" else f"{row.value:.5g}"
        error = f"{row.error:.3g}" if row.error else "exact"
    cells = (row.column or "all", number, value, error)
    return cells if found.by is None else (row.group, *cells)
