"""The section `worker` of `collaborator.yaml`: whether what computes is a process of its own, and what starts it.

Decides what may be written there. To start it is the collaborator's (`collaborator/computing/launching.py`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from fedfair.plan import fields

COMMAND = "{command}"


class WorkerSection(fields.Section):
    """The process that reads the records and trains: own code runs there, without keys, ledger and network."""

    process: bool = False
    """true gives it a process of its own (docs/how-to/worker.md)"""
    launch: fields.Text = COMMAND
    """what starts it; {command} stands for the command, as in: srun --gres=gpu:1 {command}"""
    over: Literal["socket", "tcp", "folder"] = "socket"
    """how it is reached: socket (this machine alone), tcp, or folder (a shared one, where no connection is
    allowed)"""
    listen: fields.Host = "127.0.0.1"
    """with tcp, the address of this machine that it connects to"""
    folder: fields.Text | None = None
    """folder of its own files, which it must reach under the same path; null takes one in state/"""
    start_seconds: float = Field(default=3600.0, gt=0, le=31 * 24 * 3600)
    """seconds that it may wait in a queue before it connects, above 0"""

    @model_validator(mode="after")
    def _check(self) -> WorkerSection:
        fields.refuse(self, self._faults())
        return self

    def _faults(self) -> Iterator[fields.Fault]:
        if COMMAND not in self.launch:
            yield fields.Fault(("launch",), f"has no {COMMAND}", f"write it like srun --gres=gpu:1 {COMMAND}")
        try:
            shlex.split(self.launch)
        except ValueError as fault:
            yield fields.Fault(("launch",), f"is no command: {fault}", "close every quotation mark")
