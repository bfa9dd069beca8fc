"""What tests of real processes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.processes import Started


@pytest.fixture
def started() -> Iterator[Started]:
    """Yield the processes of one test, and end them after it."""
    processes = Started()
    yield processes
    for process in processes.running:
        process.kill()
        process.communicate()
