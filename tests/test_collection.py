"""Whoever asks for the slow tests alone gets all of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.conftest import SLOW, pytest_itemcollected


def collected(path: Path, marked: str) -> None:
    item = SimpleNamespace(path=path, get_closest_marker={marked: pytest.mark.slow.mark}.get)
    pytest_itemcollected(cast("pytest.Item", item))


def test_a_slow_test_whose_file_does_not_name_its_mark_is_refused(tmp_path: Path) -> None:
    named, imported = tmp_path / "named.py", tmp_path / "imported.py"
    named.write_text(f"pytestmark = pytest.{SLOW}\n")
    imported.write_text("from elsewhere import pytestmark\n")
    collected(named, "slow")
    collected(imported, "parametrize")
    with pytest.raises(pytest.UsageError, match=r"imported\.py: a file of slow tests holds the text 'mark\.slow'"):
        collected(imported, "slow")
