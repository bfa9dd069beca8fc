"""Notices a renewed certificate or revocation list on the disk, so that a running process takes it up.

Decides when to look again: as soon as the key or the certificate is another file. What is found counts only where
it is a whole identity, of the same participant; otherwise the present one stays in use.

A revocation list is read again as soon as one of the files is another one, and otherwise once a minute, because
certificates and lists also end by themselves. To ask costs two looks at the disk.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from fedfair.errors import IdentityError
from fedfair.identity.store import (
    CA_CERTIFICATE,
    REVOCATION_LIST,
    TLS_CERTIFICATE,
    TLS_KEY,
    SiteIdentity,
    Trust,
    load_site_identity,
    load_trust,
    trust_folder,
)

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


class IdentityWatch:
    """The key and the certificate of one participant.

    Args:
        present: what is in use.
        passphrase: of encrypted keys; None where they are not encrypted.

    Attributes:
        present: what is in use: what was found last.
    """

    def __init__(self, present: SiteIdentity, passphrase: bytes | None = None) -> None:
        self.present = present
        self._passphrase = passphrase
        self._seen: tuple[Stamp | None, ...] | None = None

    def renewed(self, now: datetime) -> SiteIdentity | None:
        """Return the identity to use from now on; None where there is nothing new.

        Args:
            now: an aware time.

        Raises:
            IdentityError: what lies there now cannot be used; said once, and the present one stays.
        """
        folder, name = self.present.folder, self.present.participant.name
        seen = tuple(stamp(folder / file) for file in (TLS_KEY, TLS_CERTIFICATE))
        if seen == self._seen:
            return None
        self._seen = seen
        found = load_site_identity(folder.parent, name, now, self._passphrase)
        if found.participant != self.present.participant:
            raise IdentityError(f"the certificate in {folder} is of {found.participant.uri}")
        if found.certificate == self.present.certificate:
            return None
        self.present = found
        return found
