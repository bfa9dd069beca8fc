"""A record on the disk: one entry a line, appended to and waited for.

The hub keeps the record so, and every member what it has verified of it: then a hub that shows another past is
found after a restart too. A line that was cut, by a full disk or with the process, is dropped at the next start.

    kept = RecordFile(folder / "record.jsonl")
    record = kept.load(known=consortium)
    kept.append(record, await hub.acts(record.number, 30))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedfair.consortium.faults import ConsortiumError
from fedfair.consortium.members import Consortium
from fedfair.consortium.record import MAX_BYTES, ActRecord, parse_entry
from fedfair.errors import FedfairError
from fedfair.store.line_file import LineFile

FILE = "record.jsonl"
"""Its name in the folder of a member."""


class RecordFile:
    """The file of a record; several processes may append to it.

    Args:
        path: where it is, or will be.

    Attributes:
        path: the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = LineFile(path, MAX_BYTES)

    def load(self, known: Consortium | None = None) -> ActRecord:
        """Return the record in the file, verified again; an empty one where there is no file.

        Args:
            known: the list of members that was taken from the lead by hand; None at the hub.

        Raises:
            ConsortiumError: a line is refused by a check.
            FedfairError: the file cannot be read.
        """
        record = ActRecord(known)
        try:
            for number, line in enumerate(self.lines(), 1):
                try:
                    record.extend(line)
                except ConsortiumError as fault:
                    raise ConsortiumError(
                        fault.check,
                        f"{self.path}:{number}: {fault.message}",
                        "the file was changed, or is another federation's: put a backup back",
                    ) from fault
        except OSError as error:
            raise FedfairError(f"{self.path} cannot be read: {error.strerror}", "let this user read it") from error
        return record

    def lines(self, after: int = 0) -> Iterator[bytes]:
        """Yield the entries after a number, without their line ends and unverified.

        Raises:
            OSError: the file cannot be read.
        """
        yield from self._file.lines(after)

    def append(self, record: ActRecord, entries: Sequence[bytes]) -> None:
        """Write entries that are not here yet, wait for the disk, and take them into the record.

        What another process has appended meanwhile is taken first: a command may ask the hub beside a service.

        Args:
            record: as `load` returned it, with what was appended since.
            entries: in their order; some may be in the record already.

        Raises:
            ConsortiumError: a check refuses one; those before it are in the file and in the record.
            FedfairError: they cannot be written; the record is as it was.
        """
        with self._locked():
            record.extend_all(self.lines(record.number))
            for raw in entries:
                if parse_entry(raw).number <= record.number:
                    record.check_includes(raw)
                else:
                    record.extend(raw, self._write)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as held:
            try:
                held.enter_context(self._file.locked())
            except OSError as error:
                raise FedfairError(f"{error.filename}: {error.strerror}", "let this user write there") from error
            yield

    def _write(self, raw: bytes) -> None:
        try:
            self._file.append(raw)
        except OSError as error:
            raise FedfairError(
                f"{self.path} cannot be written: {error.strerror}; the act is not in the record",
                "make room on the disk, then do it again",
            ) from error
