"""Long vectors that are rarely read, in a file in place of memory: mapped, and brought in page by page.

The file has no name, so nobody can change or cut it, and it is gone with the last reference to the vector, or with
the process. It is no record of anything: what must survive a crash is written elsewhere.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.mapped_array import mapping_of

def spilled(parts: Iterable[bytes | memoryview], folder: Path) -> memoryview:
    """Return the bytes of `parts`, one after the other, read-only and not in memory.

    Args:
        parts: at least one byte together.
        folder: where there is room for them.

    Raises:
        OSError: there is none.
    """
    with tempfile.TemporaryFile(dir=folder, prefix=".spilled-", buffering=0) as file:
        for part in parts:
            left = memoryview(part).cast("B")
            while left:
                left = left[file.write(left) :]
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def spilled_array(vector: NDArray[np.floating], folder: Path) -> NDArray[np.floating]:
    """Return an equal vector, read-only and not in memory; the vector itself where it is one already.

    Raises:
        OSError: there is no room.
    """
    if mapping_of(vector) is not None or not vector.size:
        return vector
    return np.frombuffer(spilled([np.ascontiguousarray(vector).data], folder), vector.dtype)


def forget_pages(vector: NDArray[np.floating] | bytes | memoryview) -> None:
    """Give back the memory of what was read of a spilled vector; do nothing with any other."""
    mapping = mapping_of(vector)
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)
