"""The processes of a demonstration: none is left behind, whenever it is interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from fedfair.cli.loopback import Processes, Workspace


class InterruptedNames(Sequence[str]):
    """Collaborators' names of which the second arrives with a Ctrl-C."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: object) -> NoReturn:
        raise AssertionError(place)

    def __iter__(self) -> Iterator[str]:
        yield "clinic-a"
        raise KeyboardInterrupt


def test_an_interrupt_between_two_starts_leaves_no_process(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, InterruptedNames())  # type: ignore[arg-type]  # any names will do
    processes = Processes(workspace)
    with pytest.raises(KeyboardInterrupt), processes:
        pytest.fail("nothing was interrupted")
    started = [
        psutil.pid_exists(process.pid) and process.poll() is None for process in processes._running.values()
    ]
    assert started == [False, False]
