"""The table of a sweep for the terminal: settings, validation figures, and test figures where they may be seen."""

from __future__ import annotations

from rich import box
from rich.table import Table as Drawing

from fedfair.studies.sweep.figures import WORST, Figures, Spread, figure_name
from fedfair.studies.sweep.grid import value_text
from fedfair.studies.sweep.table import SweepRow, SweepTable

MISSING = "-"
SPLITS = ("validation", "test")
MAX_DIGITS = 1e4


def sweep_drawing(table: SweepTable, most_rows: int) -> Drawing:
    """Return the first rows of a table of a sweep; the selected ones are marked."""
    drawing = Drawing(title=_title(table), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    drawing.add_column("", no_wrap=True)
    for name in table.axes:
        heading = name.rpartition(".")[2].replace("_", "\n")
        widest = max(len(word) for word in heading.split("\n"))
        drawing.add_column(heading, overflow="fold", min_width=widest)
    splits = [name for name in SPLITS if any(_figures(row, name) for row in table.rows)]
    headings = ["seeds"] if table.averaged else []
    headings += [f"{split[:5]}\n{figure}" for split in splits for figure in ("mean", "worst", "right")]
    for heading in [*headings, "seconds"]:
        drawing.add_column(heading, justify="right", no_wrap=True)
    for row in table.rows[:most_rows]:
        drawing.add_row(*_cells(row, table, splits), style="bold" if row.selected else None)
    if len(table.rows) > most_rows:
        drawing.caption = f"and {len(table.rows) - most_rows} more rows"
        drawing.caption_justify = "left"
    return drawing


def _title(table: SweepTable) -> str:
    sizes = {row.yardstick.group_size for row in table.rows}
    worst = f"worst {sizes.pop():.4g}" if len(sizes) == 1 else "worst group of the row's size"
    kept_back = "" if table.rule.show_test else ", test figures only where selected (*)"
    return (
        f"Mean loss ({table.loss_unit}) over all records and of the {worst}, and share of right answers;\n"
        f"best {table.rule.criterion} on validation records first{kept_back}"
    )


def _figures(row: SweepRow, split: str) -> Figures | None:
    return row.validation if split == "validation" else row.test


def _cells(row: SweepRow, table: SweepTable, splits: list[str]) -> list[str]:
    cells = ["*" if row.selected else "", *(value_text(row.settings[name]) for name in table.axes)]
    if table.averaged:
        cells.append(f"{row.finished}/{len(row.points)}")
    worst = figure_name(WORST, row.yardstick.group_size)
    for split in splits:
        figures = _figures(row, split) or {}
        cells += [_spread(figures.get("mean"), ".3f"), _spread(figures.get(worst), ".3f")]
        cells.append(_spread(figures.get("accuracy"), ".1%"))
    return [*cells, _spread(row.run.get("seconds"), ".1f")]


def _spread(spread: Spread | None, form: str) -> str:
    if spread is None:
        return MISSING
    error = "" if spread.standard_error is None else f"\n±{_number(spread.standard_error, form)}"
    return f"{_number(spread.mean, form)}{error}"


def _number(value: float, form: str) -> str:
    """Return a figure; what has diverged is written short."""
    return f"{value:{form}}" if abs(value) < MAX_DIGITS else f"{value:.1e}"
