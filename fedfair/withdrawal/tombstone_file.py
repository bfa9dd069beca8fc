"""The files of a site's withdrawals: the record of tombstones, and beside it the key of their hashes.

    withdrawals/<name>.jsonl    beside `collaborator.yaml`; its `withdrawals` names another place
    withdrawals/<name>.key      32 random bytes, which only this site's user may read

Whoever reads a site's records reads these files first, by the site's configuration alone: no path around them is
left. A record without its key, or one that is damaged, stops every reading.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

from fedfair.errors import FedfairError, StateError
from fedfair.plan.schema import Plan
from fedfair.plan.sources import section_of
from fedfair.policy.site_config import SiteConfig
from fedfair.store.atomic_file import OWNER_ONLY, replace_file
from fedfair.store.disk import writing
from fedfair.store.line_file import LineFile
from fedfair.withdrawal.owners import KEY_BYTES, OwnerKey, RecordOwners
from fedfair.withdrawal.tombstones import MAX_BYTES, Tombstone, Tombstones, parse_tombstones

_BACKUP = "copy withdrawals/ back from this site's newest backup; without it nobody knows who has withdrawn"


class TombstoneFile:
    """The record of one site's withdrawals on its disk; several processes may use it.

    Args:
        path: where it is, or will be.

    Attributes:
        path: the same.
        key_path: where the key is, or will be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key_path = path.with_suffix(".key")
        self._file = LineFile(path, MAX_BYTES)

    def load(self) -> Tombstones:
        """Return everybody who has withdrawn.

        Raises:
            StateError: the record cannot be read, or is damaged.
        """
        try:
            return parse_tombstones(self._file.lines())
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error
        except StateError as fault:
            raise self._unusable(fault.message) from fault

    def key(self) -> OwnerKey | None:
        """Return the key; None where this site has never had one, and so nobody has withdrawn.

        Raises:
            StateError: it is gone although persons have withdrawn, or cannot be read.
        """
        try:
            secret = self.key_path.read_bytes()
        except FileNotFoundError as error:
            if self.path.exists():
                raise self._unusable(f"its key, {self.key_path}, is gone") from error
            return None
        except OSError as error:
            raise self._unusable(f"{self.key_path}: {error.strerror}") from error
        if len(secret) != KEY_BYTES:
            raise self._unusable(f"its key, {self.key_path}, has {len(secret)} bytes and not {KEY_BYTES}")
        return OwnerKey(secret)

    def made_key(self) -> OwnerKey:
        """Return the key, made now where this site has never had one; it is on the disk when this returns.

        Raises:
            FedfairError: it cannot be written, or as of `key`.
        """
        with writing(self.key_path), self._file.locked():
            known = self.key()
            if known is not None:
                return known
            secret = secrets.token_bytes(KEY_BYTES)
            replace_file(self.key_path, [secret], OWNER_ONLY)
        return OwnerKey(secret)

    def record(self, entries: Iterable[Tombstone]) -> Tombstones:
        """Add entries, which are on the disk when this returns, and return the whole record.

        A person who is in the record is not added again. Killed in the middle, the record has some of the entries,
        each whole, and the same call adds the others.

        Args:
            entries: in their order.

        Raises:
            FedfairError: they cannot be written, or the record is damaged.
        """
        try:
            with self._file.locked():
                longer, lines = self.load().with_more(entries)
                if lines:
                    self._file.append(*lines)
        except OSError as error:
            raise FedfairError(
                f"{self.path} cannot be written: {error.strerror or error}; no further withdrawal is recorded",
                "make room on the disk, or let this user write there; then do it again",
            ) from error
        return longer

    def _unusable(self, why: str) -> StateError:
        return StateError(f"{self.path} cannot be used as this site's record of withdrawals: {why}", _BACKUP)


def tombstone_file(site: SiteConfig) -> TombstoneFile | None:
    """Return the record of a site's withdrawals; None of a configuration that was read from no file."""
    return None if site.withdrawals is None else TombstoneFile(Path(site.withdrawals))


def owner_column(plan: Plan, site: SiteConfig) -> str | None:
    """Return the column that says whose a record is: the site's, or that of the data; None where nothing does."""
    section = section_of(plan.task.data)
    return site.data.record_id or (None if section is None else section.person_column)


def owners_of(site: SiteConfig) -> RecordOwners | None:
    """Return how a site tells whose its records are; None where it has never remembered that.

    Raises:
        StateError: its files of withdrawals are damaged or gone.
    """
    file = tombstone_file(site)
    key = None if file is None else file.key()
    if file is None or key is None:
        return None
    return RecordOwners(key, site.data.record_id, file.load().names)
