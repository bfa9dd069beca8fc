"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Return the folder of the real data sets, or skip: they are not part of the repository."""
    root = Path(os.environ.get("FEDFAIR_DATA", REPOSITORY.parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"real data sets not found at {root}; set FEDFAIR_DATA to their folder")
    return root
