"""A file of this site that cannot be written: one fault that names it, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedfair.errors import FedfairError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Let what is done inside fail as the fault of this file.

    Args:
        path: the file that is written.

    Raises:
        FedfairError: the disk is full, or this user may not write there.
    """
    try:
        yield
    except OSError as error:
        raise unwritable(path, error.strerror or str(error)) from error


def unwritable(path: Path, why: str) -> FedfairError:
    """Return the fault of a file that cannot be written, with what the system says of it."""
    return FedfairError(
        f"{path} cannot be written: {why}; this site stops and sends nothing that it could not record",
        "make room on the disk, or let this user write there; then start it again, and it rejoins the run",
    )
