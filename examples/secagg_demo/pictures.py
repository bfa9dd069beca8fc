"""Pictures as inline SVG: nothing to load, sharp at any size, readable in light and dark.

Draws what it is given: signed numbers as red (above zero) and blue (below), byte counts as bars. Colours come
from the classes of the page.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEVELS = 7
GAP = 1
TILES_A_ROW = 5
HEIGHT = 60


def mosaic(tiles: Sequence[NDArray[np.float64]], label: str) -> str:
    """Return equally large square tiles, five a row, on one scale: the largest magnitude has the full colour."""
    side = tiles[0].shape[0]
    corners = [(side + GAP) * np.array(divmod(number, TILES_A_ROW)) for number in range(len(tiles))]
    height, width = corners[-1] + side
    strongest = max(float(np.abs(tile).max()) for tile in tiles) or 1.0
    cells: dict[int, list[str]] = {}
    for (top, left), tile in zip(corners, tiles, strict=True):
        levels = np.rint(LEVELS * tile / strongest).astype(int)
        for (row, column), level in np.ndenumerate(levels):
            cells.setdefault(int(level), []).append(f"M{left + column} {top + row}h1v1h-1z")
    paths = [
        f'<path class="{"up" if level > 0 else "down"}" opacity="{abs(level) / LEVELS:.2f}" d="{"".join(where)}"/>'
        for level, where in sorted(cells.items())
        if level
    ]
    back = "".join(
        f'<rect class="paper" x="{left}" y="{top}" width="{side}" height="{side}"/>' for top, left in corners
    )
    return _svg(width, height, label, back + "".join(paths), ' shape-rendering="crispEdges"')


def bars(counts: Sequence[int], ceiling: float, expected: float, label: str) -> str:
    """Return a histogram; bars above `ceiling` are cut off there, and a line shows the `expected` count."""
    heights = [min(count / ceiling, 1.0) * HEIGHT for count in counts]
    path = "".join(
        f"M{place} {HEIGHT}v-{height:.1f}h1v{height:.1f}z" for place, height in enumerate(heights) if height
    )
    level = HEIGHT * (1.0 - expected / ceiling)
    drawn = (
        f'<rect class="paper" x="0" y="0" width="{len(counts)}" height="{HEIGHT}"/><path class="bar" d="{path}"/>'
        f'<path class="line" d="M0 {level:.1f}H{len(counts)}"/>'
    )
    return _svg(len(counts), HEIGHT, label, drawn, ' preserveAspectRatio="none"')


def people(names: Sequence[str], gone: Sequence[str], label: str) -> str:
    """Return a row of clinics; those that are gone are hollow and crossed out."""
    step, drawn = 64, []
    for number, name in enumerate(names):
        middle = step * number + step // 2
        kind = "gone" if name in gone else "here"
        drawn.append(f'<circle class="{kind}" cx="{middle}" cy="18" r="13"/>')
        if name in gone:
            drawn.append(f'<path class="cross" d="M{middle - 8} 10l16 16m0-16l-16 16"/>')
        drawn.append(f'<text class="name" x="{middle}" y="46">{name}</text>')
    return _svg(step * len(names), 52, label, "".join(drawn))


def _svg(width: int, height: int, label: str, inside: str, how: str = "") -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}"{how}>{inside}</svg>'
