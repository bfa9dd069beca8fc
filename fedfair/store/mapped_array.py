"""Which file an array's numbers lie in, when they are mapped instead of in memory."""

from __future__ import annotations

import mmap

import numpy as np


def mapping_of(array: object) -> mmap.mmap | None:
    """Return the mapped file that an array or memoryview is a view of; None where it is in memory."""
    below = array
    while isinstance(below, np.ndarray | memoryview):
        below = below.base if isinstance(below, np.ndarray) else below.obj
    return below if isinstance(below, mmap.mmap) else None
