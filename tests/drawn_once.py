"""Draws each picture of a session once, and none where a page is not about its pictures.

That a picture is the same every time is a test of `report/test_figures.py`.
"""

from collections.abc import Iterator, Sequence

import pytest

from fedfair.report import figures
from fedfair.report.figures import Chart

_EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>'
_draw = figures._svg
_drawn: dict[str, str] = {}


def _remembered(panels: Sequence[Chart], columns: int) -> str:
    key = repr((panels, columns))
    if key not in _drawn:
        _drawn[key] = _draw(panels, columns)
    return _drawn[key]


@pytest.fixture(autouse=True, scope="session")
def drawn_once() -> Iterator[None]:
    """Answer from what was drawn before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "_svg", _remembered)
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures of pages empty."""
    monkeypatch.setattr(figures, "_svg", lambda *_: _EMPTY)


@pytest.fixture
def drawn(undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the pictures of pages, among tests that leave them empty."""
    del undrawn
    monkeypatch.setattr(figures, "_svg", _remembered)
