"""Checks the limit on open files before a process starts, because gRPC aborts one that runs out."""

from __future__ import annotations

from fedfair.errors import FedfairError

MIN_OPEN_FILES = 128
"""Of every process of a federation: its own files, its libraries, its threads and one connection."""


def allow_open_files(wanted: int, least: int, who: str) -> None:
    """Let this process have `wanted` files open, as far as the system lets it; what there is is never taken away.

    Args:
        wanted: how many.
        least: how many it cannot do without, at most `wanted`.
        who: this process, for the message.

    Raises:
        FedfairError: the system does not allow `least`.
    """
    # Imported here, because no system but Unix has it, and a simulation runs on others too.
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    if soft != resource.RLIM_INFINITY and soft < least:
        raise FedfairError(
            f"this system lets a process have {soft} files open; {who} needs at least {least}",
            f"raise the limit: `ulimit -n {max(least, 1024)}` in its shell, or LimitNOFILE in its service",
        )
