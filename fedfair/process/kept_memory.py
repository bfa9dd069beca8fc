"""Memory that a process keeps and uses again, in place of giving it back to the system and asking for new.

A site of a large model makes the same few vectors in every round. The C library takes each from the system and
gives it back, and the system fills each page with zeros once more: with 45 MB a vector a third of a site's
processor time. What is longer than the model is given back as ever, so that a round keeps no more than it needs.
Only the GNU C library is configured; another one continues as it does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

KEPT_BY_ITSELF = 16 << 20
"""Up to this length, in bytes, the C library may keep what is freed by default."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Parameters of mallopt(3), by `malloc.h` of the GNU C library."""

KEPT_AT_MOST = 128 << 20
"""Above this length, in bytes, kept vectors leave holes between each other that cost more than they save: with a
model of 400 MB, a site held six of them beyond its training."""

_NEVER = (1 << 31) - 1
_GIVEN_BACK = 1 << 20


def keep_freed_memory(model_bytes: int) -> bool:
    """Have this process use the memory of vectors as long as the model again.

    Args:
        model_bytes: of the model's vector.

    Returns:
        Whether it does so from now on; a short model needs nothing of the kind, and a very long one is too dear.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    longest = _longest(model_bytes)
    if mallopt is None or not longest:
        return False
    # One arena: those of threads have 64 MiB, and what is longer would be taken from the system each time.
    chosen = ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, longest), (_M_TRIM_THRESHOLD, _NEVER))
    taken = [bool(mallopt(parameter, value)) for parameter, value in chosen]
    return all(taken)


@contextmanager
def nothing_kept(model_bytes: int) -> Iterator[None]:
    """Give everything that is kept back to the system, and keep nothing that is long within the block.

    Args:
        model_bytes: of the model's vector, as for `keep_freed_memory`.
    """
    library = ctypes.CDLL(None)
    longest = _longest(model_bytes)
    if not longest or getattr(library, "mallopt", None) is None:
        yield
        return
    library.mallopt(_M_MMAP_THRESHOLD, _GIVEN_BACK)
    library.malloc_trim(0)
    try:
        yield
    finally:
        library.mallopt(_M_MMAP_THRESHOLD, longest)


def _longest(model_bytes: int) -> int:
    """Return the greatest length that is kept; 0 where nothing need be said."""
    longest = model_bytes + model_bytes // 4
    return longest if KEPT_BY_ITSELF < longest <= KEPT_AT_MOST else 0
