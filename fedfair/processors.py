"""How many processors this process may use."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """Return their number, which in a container or under `taskset` is not that of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
