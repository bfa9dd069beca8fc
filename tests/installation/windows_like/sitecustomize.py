"""Hides from fedfair what Windows does not have: modules, and names of `os` and `signal`.

Libraries keep what they find, because they choose by `sys.platform` and would be broken by half a Windows.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

MODULES = {"fcntl", "resource", "termios", "pwd", "grp", "pty", "tty", "syslog"}
NAMES: dict[ModuleType, tuple[str, ...]] = {
    os: (
        "O_CLOEXEC", "O_NONBLOCK", "O_NOFOLLOW", "O_DIRECTORY", "fork", "forkpty", "pread", "pwrite", "fchmod",
        "getuid", "geteuid", "getgid", "chown", "setsid", "killpg", "sched_getaffinity", "getloadavg", "nice",
        "mkfifo", "statvfs",
    ),
    signal: ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGPIPE", "setitimer", "alarm"),
}  # fmt: skip


def _asked_by_fedfair() -> bool:
    frame = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("importlib"):
        frame = frame.f_back  # type: ignore[assignment]
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in {"fedfair", "aggregator", "collaborator"}


class Hidden:
    """Finds no module that Windows does not have, where fedfair asks for it."""

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> None:
        if name in MODULES and _asked_by_fedfair():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class WithoutNames(ModuleType):
    """A module as fedfair sees it on Windows."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a module
        if name in object.__getattribute__(self, "hidden") and _asked_by_fedfair():
            raise AttributeError(f"module has no attribute {name!r}")
        return super().__getattribute__(name)


for module, names in NAMES.items():
    module.hidden = frozenset(names)  # type: ignore[attr-defined]
    module.__class__ = WithoutNames
for loaded in MODULES:
    sys.modules.pop(loaded, None)
sys.meta_path.insert(0, Hidden())
