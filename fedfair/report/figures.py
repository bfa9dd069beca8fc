"""Numbers as pictures: charts with several series, drawn once by Matplotlib, as SVG that an HTML page can hold.

Decides how a chart looks; what is drawn, and in which words, is the caller's business. No two series differ by
colour alone: each has a marker and a dash pattern of its own, and the colours are those of Okabe and Ito
("Color universal design", 2008), darkened or lightened for contrast with the page. Every colour is a CSS variable,
so that one picture suits a light and a dark page. The same chart always has the same bytes.

Matplotlib is loaded when the first chart is drawn: commands that draw nothing should not wait for it. It is an
extra: a page without it says so in place of each chart.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from markupsafe import Markup

from fedfair.errors import MissingExtraError
from fedfair.extras import install_command, is_installed
from fedfair.process.printable import printable
from fedfair.report.svg import INK, LINE, PALETTE, SOFT, inlined

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES_COLOURS = [colour for colour, (name, _) in PALETTE.items() if name.startswith("series-")]
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p")
DASHES = ((), (5.0, 2.0), (1.5, 1.5), (6.0, 1.5, 1.5, 1.5))

WIDTH, HEIGHT = 4.6, 2.9
"""Inches of one panel. At this width 10 points stay readable when a phone of 390 pixels shows the panel whole."""

LEGEND_LINE = 0.2
"""Inches that each line of the legend adds below the panels."""

MAX_MARKERS = 12
MAX_LINE, MAX_LINES = 50, 3
MAX_DRAWN = 1e100
"""Anything larger is not drawn: the arithmetic of an axis would overflow, and no loss or time is that large."""


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """One axis of a chart.

    Attributes:
        label: what it measures, in words, with its unit.
        log: logarithmic, where every value is positive; linear otherwise.
        share: values are shares in [0, 1], shown in percent.
        zero: a linear vertical axis begins at 0 where no value is negative.
    """

    label: str
    log: bool = False
    share: bool = False
    zero: bool = True


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one kind of points.

    Attributes:
        label: its words in the legend.
        x: where; as many as y. What is not finite is left out.
        y: what.
        low: lower ends of intervals around y, as many as y; empty for none.
        high: upper ends.
        points: not joined by a line, and intervals are bars; otherwise intervals are a band.
        notes: a few letters beside each point; empty for none.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    points: bool = False
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line to compare with.

    Attributes:
        label: its words in the legend.
        y: where.
    """

    label: str
    y: float


@dataclass(frozen=True, slots=True)
class Chart:
    """One panel.

    Attributes:
        x: the horizontal axis.
        y: the vertical axis.
        series: what is drawn; those beyond the 308th repeat earlier looks.
        levels: horizontal lines.
        title: above the panel; empty for none.
    """

    x: ChartAxis
    y: ChartAxis
    series: Sequence[Series]
    levels: Sequence[Level] = ()
    title: str = ""


def can_draw() -> bool:
    """Return whether charts are drawn here."""
    return is_installed("matplotlib")


def draw(panels: Sequence[Chart], name: str, title: str, description: str, *, columns: int = 1) -> Markup:
    """Return a picture of one or more panels with one legend.

    Args:
        panels: at least one; series with the same label look the same in all of them if the first one has them.
        name: letters, digits and hyphens, unique on its page: the picture's id, and the beginning of all its ids.
        title: what it shows, in one line, for those who cannot see it.
        description: what there is to see in it, in sentences, for those who cannot see it.
        columns: panels side by side.

    Returns:
        The picture; where Matplotlib is not installed, its title and how to install it.
    """
    if not can_draw():
        return Markup("<p>{}: no chart, because this needs <code>{}</code></p>").format(
            title, install_command("plots")
        )
    return inlined(_svg(panels, columns), name, title, description)


def draw_on(axes: Axes | None, chart: Chart) -> Axes:
    """Draw a chart where a program wants it, with its legend.

    Args:
        axes: of Matplotlib; None for those of a new figure.
        chart: what to draw.

    Returns:
        The axes.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    if not can_draw():
        raise MissingExtraError("a plot needs matplotlib, which is not installed", install_command("plots"))
    if axes is None:
        from matplotlib import pyplot as plt

        axes = plt.subplots(figsize=(WIDTH, HEIGHT), layout="constrained")[1]
    legend: dict[str, Artist] = {}
    _panel(axes, chart, _looks([chart]), legend)
    axes.legend(list(legend.values()), [_plain(label) for label in legend], fontsize="small")
    return axes


def group_size_chart(
    curves: Sequence[Series], levels: Sequence[Level] = (), title: str = "", unit: str = "nats"
) -> Chart:
    """Return a chart of the mean loss of the worst group against its size.

    Args:
        curves: x are sizes as shares of all people, y mean losses; intervals become bands.
        levels: losses to compare with, such as that of the uniform guess.
        title: of the panel.
        unit: of the losses.
    """
    return Chart(
        ChartAxis("size of the group, as a share of all records", share=True),
        ChartAxis(f"mean loss of the worst group ({unit})"),
        curves,
        levels,
        title,
    )


# ------------------------------------------------------------------ drawing


def _svg(panels: Sequence[Chart], columns: int) -> str:
    """Return what Matplotlib draws."""
    from matplotlib.figure import Figure

    rows = -(-len(panels) // columns)
    buffer = io.StringIO()
    with _style(), warnings.catch_warnings():
        # Matplotlib measures text with a font of its own, which lacks some scripts; the reader's browser has them.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
        looks = _looks(panels)
        legend: dict[str, Artist] = {}
        for number, panel in enumerate(panels, start=1):
            _panel(figure.add_subplot(rows, columns, number), panel, looks, legend)
        _legend(figure, legend, 72 * WIDTH * columns)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return buffer.getvalue()


def _style() -> AbstractContextManager[None]:
    """Return the settings under which everything is drawn, as a context."""
    import matplotlib as mpl

    return mpl.rc_context(
        {
            "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and copied
            "svg.hashsalt": "fedfair",
            "text.parse_math": False,  # a dollar sign in somebody's name is a dollar sign
            "font.size": 10.0,
            "text.color": INK,
            "axes.edgecolor": SOFT,
            "axes.labelcolor": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 10.5,
            "axes.titlelocation": "left",
            "grid.color": LINE,
            "xtick.color": SOFT,
            "ytick.color": SOFT,
            "xtick.labelcolor": INK,
            "ytick.labelcolor": INK,
            "lines.linewidth": 1.6,
            "lines.markersize": 4.5,
            "legend.frameon": False,
        }
    )


@dataclass(frozen=True, slots=True)
class _Look:
    colour: str
    marker: str
    dashes: tuple[float, ...]


def _looks(panels: Sequence[Chart]) -> dict[str, _Look]:
    """Return what tells the series apart; 7, 11 and 4 choices in turn repeat after 308."""
    labels = dict.fromkeys(series.label for panel in panels for series in panel.series)
    return {
        label: _Look(
            SERIES_COLOURS[number % len(SERIES_COLOURS)],
            MARKERS[number % len(MARKERS)],
            DASHES[number % len(DASHES)],
        )
        for number, label in enumerate(labels)
    }


def _panel(axes: Axes, chart: Chart, looks: Mapping[str, _Look], legend: dict[str, Artist]) -> None:
    """Draw one panel, and add what is new in it to the legend."""
    for series in chart.series:
        legend.setdefault(series.label, _series(axes, series, looks[series.label]))
    for level in chart.levels:
        line = axes.axhline(_drawable(level.y), color=SOFT, linewidth=1.0, dashes=(2.0, 2.0))
        legend.setdefault(level.label, line)
    heights = [value for series in chart.series for value in (*series.y, *series.low, *series.high)]
    heights += [level.y for level in chart.levels]
    _scale(axes, "x", chart.x, [value for series in chart.series for value in series.x])
    _scale(axes, "y", chart.y, heights)
    axes.grid(visible=True, linewidth=0.6)
    # What is measured stands level above the axis: on end, a sentence is hard to read and longer than the panel.
    axes.set_title("\n".join(filter(None, (_plain(chart.title), _plain(chart.y.label)))))
    axes.set_xlabel(_plain(chart.x.label))


def _series(axes: Axes, series: Series, look: _Look) -> Artist:
    x, y = [[_drawable(value) for value in values] for values in (series.x, series.y)]
    low, high = [[_drawable(value) for value in values] for values in (series.low, series.high)]
    if low and series.points:
        below = [max(middle - end, 0.0) for middle, end in zip(y, low, strict=True)]
        above = [max(end - middle, 0.0) for middle, end in zip(y, high, strict=True)]
        axes.errorbar(x, y, yerr=(below, above), fmt="none", ecolor=look.colour, elinewidth=1.1, capsize=2.5)
    elif low:
        axes.fill_between(x, low, high, color=look.colour, alpha=0.22, linewidth=0.0)
    (line,) = axes.plot(
        x,
        y,
        color=look.colour,
        marker=look.marker,
        markevery=1 if series.points else max(1, -(-len(x) // MAX_MARKERS)),
        linestyle="none" if series.points else (0, look.dashes or None),
    )
    for across, up, note in zip(x, y, series.notes, strict=False):
        axes.annotate(_plain(note), (across, up), xytext=(4, 4), textcoords="offset points", fontsize=9)
    return line


def _scale(axes: Axes, which: Literal["x", "y"], wanted: ChartAxis, values: Iterable[float]) -> None:
    """Set the scale and the ticks of one axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    seen = [value for value in map(_drawable, values) if math.isfinite(value)]
    axis = axes.xaxis if which == "x" else axes.yaxis
    if wanted.log and seen and min(seen) > 0.0:
        axes.set(**{f"{which}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())
    elif which == "y" and wanted.zero and seen and min(seen) >= 0.0:
        axes.set_ylim(0.0, axes.get_ylim()[1] if max(seen) > 0.0 else 1.0)
    axis.set_major_formatter(FuncFormatter(_percent if wanted.share else _number))


def _percent(value: float, _position: int | None) -> str:
    return f"{100 * value:.4g} %"


def _number(value: float, _position: int | None) -> str:
    return f"{value:.6g}"


def _legend(figure: Figure, entries: Mapping[str, Artist], width: float) -> None:
    """Put the legend under all panels, in as many columns as fit into `width` points."""
    if not entries:
        return
    labels = [_plain(label) for label in entries]
    longest = max(len(line) for label in labels for line in label.splitlines() or [""])
    # About 5.5 points a letter, and 40 for the sample of the line.
    columns = max(1, min(len(entries), int(width / (40 + 5.5 * longest))))
    figure.legend(list(entries.values()), labels, loc="outside lower left", ncols=columns)
    lines = sum(label.count("\n") + 1 for label in labels[::columns])
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * lines)


def _drawable(value: float) -> float:
    return value if abs(value) < MAX_DRAWN else math.nan


def _plain(text: str) -> str:
    """Return somebody's words in a few short lines."""
    return "\n".join(textwrap.wrap(printable(text), MAX_LINE, max_lines=MAX_LINES, placeholder=" ..."))
