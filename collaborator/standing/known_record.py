"""This site's own copy of the record of acts, and what the hub has acknowledged of this site's own acts.

    studies/record.jsonl         the verified record (`fedfair.consortium.record_file`)
    studies/acknowledged.jsonl   entries that the hub gave for acts of this site, until they are in the record

A hub that drops an act that it has acknowledged is found, after a restart of this site too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fedfair.consortium.members import Consortium
from fedfair.consortium.record import ActRecord, parse_entry
from fedfair.consortium.record_file import FILE, RecordFile
from fedfair.store.atomic_file import OWNER_ONLY, replace_file
from fedfair.store.disk import writing

ACKNOWLEDGED_FILE: Final = "acknowledged.jsonl"


class KnownRecord:
    """The record as this site knows it.

    Args:
        folder: where the files are; made with the first entry.
        consortium: the list of members that this site took from the lead by hand.

    Raises:
        ConsortiumError: the kept copy does not verify, or lacks what the hub has acknowledged.
        FedfairError: it cannot be read.

    Attributes:
        record: verified, with the studies that follow from it.
    """

    def __init__(self, folder: Path, consortium: Consortium) -> None:
        self._file, self._waiting = RecordFile(folder / FILE), folder / ACKNOWLEDGED_FILE
        self.record: ActRecord = self._file.load(consortium)
        self._acknowledged = self._waiting.read_bytes().splitlines() if self._waiting.exists() else []
        self._check_acknowledged()

    def extend(self, entries: Sequence[bytes]) -> None:
        """Take what the hub has sent, each entry after every check.

        Args:
            entries: in their order, following what is known.

        Raises:
            ConsortiumError: a check refuses one, or an act that the hub acknowledged is left out.
            FedfairError: the copy cannot be written.
        """
        self._file.append(self.record, entries)
        self._check_acknowledged()

    def act(self, number: int) -> bytes:
        """Return the signed bytes of an act.

        Args:
            number: of its entry, from 1 to that of the newest one.
        """
        return parse_entry(next(self._file.lines(number - 1))).act_bytes

    def acknowledge(self, entry: bytes) -> None:
        """Keep what the hub has given for an act of this site, which has to be in the record.

        Raises:
            ConsortiumError: it is no entry, or the record has another one in its place.
            FedfairError: it cannot be written.
        """
        parse_entry(entry)
        self._acknowledged.append(entry)
        self._check_acknowledged()

    def _check_acknowledged(self) -> None:
        later = [entry for entry in self._acknowledged if parse_entry(entry).number > self.record.number]
        for entry in self._acknowledged:
            if entry not in later:
                self.record.check_includes(entry)
        self._acknowledged = later
        if later or self._waiting.exists():
            with writing(self._waiting):
                replace_file(self._waiting, [entry + b"\n" for entry in later], OWNER_ONLY)
