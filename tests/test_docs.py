"""The pages that are generated have not drifted."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import BLOCKS, DOCS, WHOLE, written


@pytest.mark.parametrize("page", [*WHOLE, *BLOCKS])
def test_a_generated_page_has_not_drifted(page: str) -> None:
    assert written(page) == (DOCS / page).read_text(encoding="utf-8"), "run: make docs"


def test_a_block_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "explain").mkdir()
    (tmp_path / "explain" / "rounds.md").write_text("# How a run goes\n")
    monkeypatch.setattr("docs.generate.DOCS", tmp_path)
    with pytest.raises(ValueError, match=r"docs/explain/rounds\.md has 0 blocks <!-- phases -->"):
        written("explain/rounds.md")
