"""Another process of this site, which may already do what this one is started for.

Decides what is said of it at once: whether both mean the same plan is known only when plan, model and records are
read, and then the lock of the plan's own files decides (`write_ahead.py`).
"""

from __future__ import annotations

from pathlib import Path

from fedfair.store.lock import holder_of


def other_process(state: Path, name: str) -> str:
    """Return what is said of another process that holds files of this site; empty where there is none.

    Args:
        state: the folder of the site's state.
        name: the site's.
    """
    for path in sorted(state.glob(f"{name}-*.lock")):
        try:
            process = holder_of(path)
        except OSError:
            # It is gone, or not ours to open; the start itself finds out.
            continue
        if process is not None:
            return f"process {process} already runs as {name} and holds {path}; if it is of this plan, end it"
    return ""
