"""Notices a renewed certificate on the disk, so that a running process takes it up without a restart.

Decides when to look again: as soon as the key or the certificate is another file. What is found counts only where
it is a whole identity, of the same participant; otherwise the present one stays in use.
"""

from __future__ import annotations

from datetime import datetime

from fedfair.errors import IdentityError
from fedfair.identity.store import TLS_CERTIFICATE, TLS_KEY, SiteIdentity, load_site_identity
from fedfair.identity.trust_watch import Stamp, stamp


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
