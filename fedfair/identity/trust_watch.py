"""Decides when to read a revocation list again, so that a renewed one takes effect on streams that are open.

Decides only when: as soon as one of the files is another one, and otherwise once a minute, because certificates
and lists also end by themselves. To ask costs two looks at the disk.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from fedfair.identity.store import CA_CERTIFICATE, REVOCATION_LIST, Trust, load_trust, trust_folder

RECHECK = timedelta(minutes=1)

Stamp = tuple[int, int, int]
"""Tells one file from another under the same name."""


class TrustWatch:
    """The authority and the list of one workspace.

    Args:
        cert_folder: the workspace's `cert` folder.
    """

    def __init__(self, cert_folder: Path) -> None:
        self._cert_folder = cert_folder
        self._seen: tuple[Stamp | None, ...] | None = None
        self._looked: datetime | None = None

    def renewed(self, now: datetime) -> Trust | None:
        """Return what is to be relied upon from now on; None where nothing has changed since it was asked last.

        Args:
            now: an aware time.

        Raises:
            IdentityError: a file is missing, the authority has expired, or the list is forged or stale; said once,
                and again after a minute.
        """
        folder = trust_folder(self._cert_folder)
        seen = tuple(stamp(folder / name) for name in (CA_CERTIFICATE, REVOCATION_LIST))
        if seen == self._seen and self._looked is not None and abs(now - self._looked) < RECHECK:
            return None
        self._seen, self._looked = seen, now
        return load_trust(self._cert_folder, now)


def stamp(path: Path) -> Stamp | None:
    """Return what tells the file at `path` from a later one; None where there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_size
