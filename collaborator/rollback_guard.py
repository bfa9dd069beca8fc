"""Remembers the ledger's last entry apart from the ledger, so that a restored older copy is noticed.

A note of the last entry that this site wrote, in its folder of state. It is written after the ledger, so that it
is never ahead of it. What it cannot notice is that both were put back together.
"""

from __future__ import annotations

import json
from pathlib import Path

from fedfair.errors import PrivacyError
from fedfair.privacy.entries import START
from fedfair.store.atomic_file import OWNER_ONLY, write_whole
from fedfair.store.disk import writing


class RollbackGuard:
    """The rollback guard of one site.

    Args:
        path: its file; its folder is made with the first note.

    Attributes:
        path: its file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def seen(self) -> tuple[int, bytes]:
        """Return the number and the chain value of the last entry; of no entry where nothing was noted.

        Raises:
            PrivacyError: the note cannot be read.
        """
        try:
            words = json.loads(self.path.read_text(encoding="utf-8"))
            return int(words["entry"]), bytes.fromhex(words["chain"])
        except FileNotFoundError:
            return 0, START
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PrivacyError(
                f"{self.path} cannot be read as this site's rollback guard: {error}",
                "remove it if you are sure that the ledger is the newest one; nothing else can check that",
            ) from error

    def note(self, number: int, chain: bytes) -> None:
        """Remember the last entry.

        Raises:
            FedfairError: the note cannot be written.
        """
        with writing(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self.path, json.dumps({"entry": number, "chain": chain.hex()}) + "\n", OWNER_ONLY)


def witness_of(state: Path, participant: str) -> RollbackGuard:
    """Return the rollback guard of a site, in its folder of state."""
    return RollbackGuard(state / f"{participant}.ledger-seen")
