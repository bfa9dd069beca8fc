"""One heap for the whole process, so that the aggregator's memory stays a few times the model's bytes.

glibc gives every thread a heap of its own. gRPC's threads take and free a megabyte per frame, and what one heap
has freed another cannot use: with an 11-million-parameter model that costs about half a model more at the peak
(`benchmarks/aggregator_memory.py`). Other C libraries are left as they are.
"""

from __future__ import annotations

import ctypes
import platform

M_ARENA_MAX = -8
"""glibc's number for the parameter, from malloc.h."""


def use_one_heap() -> None:
    """Limit glibc to one heap; to be called before the first thread starts."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
