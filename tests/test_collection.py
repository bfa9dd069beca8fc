"""Every worker of a test run collects the same tests, whenever it starts and whatever its hashes are."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys

import pytest

from tests.imports import REPOSITORY

COLLECT = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]


def _collected(hash_seed: str) -> list[str]:
    found = subprocess.run(
        [*COLLECT, "tests"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in found.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_two_workers_collect_the_same_tests() -> None:
    one, other = _collected("1"), _collected("2")
    assert len(one) > 1000
    assert not list(difflib.unified_diff(one, other, lineterm=""))
