"""What this site must not forget, one JSON object a line: on the disk before anything is done about it.

Decides how lines become durable and what a crash leaves of them: a line that was cut off was never acted on and is
passed over. What a line says is its user's business.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from fedfair.errors import FedfairError

OWNER_ONLY = 0o600


class JsonLines:
    """One file that only grows; made by the first line.

    Args:
        path: the file.
        what: it holds, for messages.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what

    def read(self) -> Iterator[Mapping[str, object]]:
        """Yield every whole line.

        Raises:
            FedfairError: the file cannot be read, or a line is no JSON object.
        """
        try:
            lines = self._path.read_text().splitlines() if self._path.exists() else []
            yield from (dict(json.loads(line)) for line in lines if line.endswith("}"))
        except (OSError, ValueError, TypeError) as error:
            raise self.damaged(error) from error

    def damaged(self, error: Exception) -> FedfairError:
        """Return the fault of a file that does not say what it must."""
        return FedfairError(
            f"{self._path} cannot be read as {self._what}: {error}",
            "copy it back from a backup; without it a site cannot know what it has answered",
        )

    def append(self, entry: Mapping[str, object]) -> None:
        """Write a line; it is on the disk when this returns.

        Raises:
            OSError: it cannot be written.
        """
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, OWNER_ONLY)
        with os.fdopen(descriptor, "a") as target:
            # A line that a crash cut off must not swallow this one.
            target.write("\n" + json.dumps(entry) + "\n")
            target.flush()
            os.fsync(target.fileno())
