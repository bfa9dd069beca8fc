"""Tables that keep every cell on a narrow terminal: row by row where the columns do not fit side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

MIN_FOLDED = 12
"""Characters that a column needs whose cells may be broken over lines, such as digests."""

BETWEEN = 3
"""Characters between two columns, at most."""

MAX_LINES = 6
"""Cells of a row that have a line each. More share lines, or a table of numbers would fill ten screens."""


def fitting(table: Table, width: int) -> RenderableType:
    """Return a table as it is where it fits into a width, and else one block of lines for every row.

    Cells of a column with `overflow="fold"` may be broken over lines; those of others are never cut.

    Args:
        table: of texts, with a heading over each column but that of a mark; one without headings is returned as
            it is.
        width: in characters.
    """
    if not any(_words(column.header) for column in table.columns):
        return table
    needed = [_needed(column) for column in table.columns]
    if sum(needed) + BETWEEN * len(needed) <= width:
        for column, least in zip(table.columns, needed, strict=True):
            column.no_wrap = column.no_wrap or (column.overflow != "fold" and _length(column.header) <= least)
        return table
    return _blocks(table, width)


def _needed(column: Column) -> int:
    heading = max((cell_len(word) for word in _words(column.header).split()), default=0)
    cells = max((_length(cell) for cell in column.cells), default=0)
    return max(heading, min(cells, MIN_FOLDED) if column.overflow == "fold" else cells)


def _blocks(table: Table, width: int) -> Group:
    lines = [] if table.title is None else [Text(_words(table.title), style="italic")]
    headings = [_words(column.header) for column in table.columns]
    for row in zip(*(column.cells for column in table.columns), strict=True):
        told = _filled_cells(headings, row)
        lines += [*(told if len(told) <= MAX_LINES else _side_by_side(told, width)), Text()]
    if table.caption is not None:
        lines.append(Text(_words(table.caption), style="italic"))
    return Group(*lines)


def _filled_cells(headings: Sequence[str], row: Sequence[RenderableType]) -> list[Text]:
    """Return every cell of a row that says something after its heading, and after the mark before it."""
    told: list[Text] = []
    mark = Text()
    for heading, cell in zip(headings, row, strict=True):
        text = cell.copy() if isinstance(cell, Text) else Text.from_markup(str(cell))
        if not heading:
            mark.append_text(text).append(" ")
        elif text.plain:
            told.append(Text.assemble(mark, f"{heading}: ", text, overflow="fold"))
            mark = Text()
    return told


def _side_by_side(told: Sequence[Text], width: int) -> list[Text]:
    """Return cells as lines of at most `width`, as many in each as fit; one that is longer has its own."""
    lines: list[Text] = []
    for cell in told:
        if lines and lines[-1].cell_len + 2 + cell.cell_len <= width:
            lines[-1].append(", ").append_text(cell)
        else:
            lines.append(cell)
    return lines


def _words(cell: RenderableType | None) -> str:
    """Return what a heading or a cell says, without its style."""
    if isinstance(cell, Text):
        return cell.plain
    return "" if cell is None else Text.from_markup(str(cell)).plain


def _length(cell: RenderableType) -> int:
    return max((cell_len(line) for line in _words(cell).splitlines()), default=0)
