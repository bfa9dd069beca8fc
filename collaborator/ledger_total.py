"""The total of a ledger at an earlier entry, so that a start reads only what was written since.

One small file in the site's folder of state, `<name>.ledger-total`: the entry, its chain value, and the entries up
to it with those alike counted together. It is written after every thousandth entry and is no evidence: it is used
only where the ledger still holds that very entry, `fedfair privacy show` never uses it, and a file that is missing
or damaged means that a start reads the whole ledger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fedfair.errors import PrivacyError
from fedfair.privacy.entries import LedgerEntry, Origin, Written, parse_release
from fedfair.privacy.releases import GaussianRelease, SkellamRelease
from fedfair.store.atomic_file import OWNER_ONLY, write_whole
from fedfair.store.disk import writing

EVERY = 1000
"""Entries between two notes."""

_FORM = "fedfair/ledger-total/1"


class LedgerTotal:
    """The total of one ledger; one thread uses it at a time.

    Args:
        path: its file; its folder is made with the first note.
        every: entries between two notes, at least 1.

    Attributes:
        noted: the number of the entry that the file is about; 0 where there is no file that can be used.
    """

    def __init__(self, path: Path, every: int = EVERY) -> None:
        self._path = path
        self._every = every
        self._merged: dict[tuple[Origin, Written], LedgerEntry] = {}
        self.noted = 0

    def load(self, most: int) -> tuple[tuple[int, bytes], tuple[LedgerEntry, ...]] | None:
        """Return number and chain value of the entry that was noted, and the entries up to it, counted together.

        Args:
            most: a later entry than this is not believed; None is returned.
        """
        try:
            stated, text = self._path.read_text(encoding="utf-8").split("\n", 1)
            if hashlib.sha256(text.encode()).hexdigest() != stated:
                return None
            words = json.loads(text)
            if words["form"] != _FORM or words["entry"] > most:
                return None
            entries = tuple(
                LedgerEntry(at, Origin(*origin), parse_release(kind, parameters))
                for at, origin, kind, parameters in words["entries"]
            )
            head = (int(words["entry"]), bytes.fromhex(words["chain"]))
        except (OSError, ValueError, KeyError, TypeError, PrivacyError):
            return None
        self.count(entries)
        self.noted = head[0]
        return head, entries

    def count(self, entries: Iterable[LedgerEntry]) -> None:
        """Count entries."""
        for entry in entries:
            key = (entry.origin, _one(entry.release))
            known = self._merged.get(key)
            self._merged[key] = (
                entry if known is None else replace(known, release=_sum(known.release, entry.release))
            )

    def note(self, number: int, chain: bytes) -> None:
        """Write what was counted so far, where enough is new.

        Args:
            number: of the last entry that was counted.
            chain: its chain value.

        Raises:
            FedfairError: the note cannot be written.
        """
        if number - self.noted < self._every:
            return
        entries = [
            (
                entry.at,
                (
                    entry.origin.participant,
                    entry.origin.federation,
                    entry.origin.plan_digest,
                    entry.origin.data_set,
                ),
                entry.kind,
                entry.parameters,
            )
            for entry in self._merged.values()
        ]
        text = json.dumps({"form": _FORM, "entry": number, "chain": chain.hex(), "entries": entries})
        with writing(self._path):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}", OWNER_ONLY)
        self.noted = number


def _one(release: Written) -> Written:
    """Return a release that is the same for all those that are alike in all but their number."""
    match release:
        case GaussianRelease():
            return replace(release, steps=1)
        case SkellamRelease():
            return replace(release, count=1)
        case _:
            return release


def _sum(first: Written, second: Written) -> Written:
    if isinstance(first, GaussianRelease) and isinstance(second, GaussianRelease):
        return replace(first, steps=first.steps + second.steps)
    if isinstance(first, SkellamRelease) and isinstance(second, SkellamRelease):
        return replace(first, count=first.count + second.count)
    return first


def total_of(state: Path, participant: str) -> LedgerTotal:
    """Return the total of a site's ledger, in its folder of state."""
    return LedgerTotal(state / f"{participant}.ledger-total")
