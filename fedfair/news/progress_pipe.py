"""Writes the progress of a run as JSON lines, for the program that started this process and reads a pipe.

One line for each sum that was taken, below the 4096 bytes that a pipe takes whole or not at all. The run never
waits for its reader: a line for which the pipe has no room is left out, and so are all of them once nobody reads.
"""

from __future__ import annotations

import contextlib
import json
import os

from fedfair.news.event import StatusUpdate
from fedfair.news.sums import SumApplied


class ProgressPipe:
    """The processor that writes to an open pipe, which belongs to it from now on.

    Args:
        pipe: number of the open file.
        worst_group_size: the group size of the objective, whose risk the lines tell.

    Raises:
        OSError: no such file is open.
    """

    def __init__(self, pipe: int, worst_group_size: float) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._worst_group_size = worst_group_size

    def __call__(self, update: StatusUpdate) -> None:
        """Write which sum was taken and, of an evaluation, the figures by split; nothing else."""
        if not isinstance(update, SumApplied):
            return
        progress = update.progress
        line: dict[str, object] = {"round": progress.round, "purpose": progress.purpose.value}
        if progress.evaluation is not None:
            line |= {
                name: {"mean": split.mean, "worst": split.by_group_size[self._worst_group_size].worst}
                for name, split in progress.evaluation.splits.items()
            }
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._pipe, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Let the reader know that nothing follows."""
        os.close(self._pipe)
