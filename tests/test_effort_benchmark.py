"""The figures of `docs/explain/effort.md` follow fedfair's own pages."""

import importlib

import pytest

from tests.conftest import REPOSITORY


def test_the_page_has_todays_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    effort = importlib.import_module("effort")
    text = effort.PAGE.read_text(encoding="utf-8")
    assert effort.table() in text, "run: python benchmarks/effort.py --write"
    assert effort.page(text) == text


def test_the_commands_of_the_pages_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    own = importlib.import_module("effort").fedfair()
    assert own.lead > own.site > 0
    assert (own.predict, own.code) == (1, 0)
    assert own.settings > 20
