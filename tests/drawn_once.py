"""Draws each picture of a session once, and none where a page is not about its pictures.

That a picture is the same every time is a test of `report/test_figures.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from fedfair.report import figures
from fedfair.report.figures import Chart

_drawn: dict[str, str] = {}


@pytest.fixture(autouse=True, scope="session")
def drawn_once() -> Iterator[None]:
    """Answer from what was drawn before."""
    draw = figures._svg

    def remembered(panels: Sequence[Chart], columns: int) -> str:
        key = repr((panels, columns))
        if key not in _drawn:
            _drawn[key] = draw(panels, columns)
        return _drawn[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "_svg", remembered)
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures of pages empty."""
    empty = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>'
    monkeypatch.setattr(figures, "_svg", lambda *_: empty)
