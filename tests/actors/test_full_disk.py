"""Every file that a site writes names itself when the disk is full, and is as it was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from collaborator.ledger import RollbackGuard
from collaborator.records import SiteLogs
from collaborator.site_history import ANSWERED
from collaborator.write_ahead import WriteAheadLog
from fedfair.errors import FedfairError
from fedfair.policy.refusal import Refusal
from fedfair.secagg.log import Record, entries, frame, whole_length
from fedfair.store.table_file import TableFile
from tests.full_disk import full_beyond

LONG = "x" * 500_000


def _append(folder: Path) -> None:
    with closing(WriteAheadLog(folder / "a.secagg")) as log:
        log.append([LONG.encode()])


def _replace(folder: Path) -> None:
    with closing(WriteAheadLog(folder / "a.secagg")) as log:
        log.replace([LONG.encode()])


def _answered(folder: Path) -> None:
    with closing(TableFile(folder / "a.answered", ANSWERED)) as table:
        table.write([(b"key", LONG.encode())])


def _witness(folder: Path) -> None:
    RollbackGuard(folder / "a.ledger-seen").note(1, bytes(500_000))


def _note(folder: Path) -> None:
    with closing(SiteLogs(folder, "a")) as records:
        records.append_note(LONG)


def _refusal(folder: Path) -> None:
    with closing(SiteLogs(folder, "a")) as records:
        records.refused(Refusal(LONG), None)


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (_append, "a.secagg"),
        (_replace, "a.secagg"),
        (_answered, "a.answered"),
        (_witness, "a.ledger-seen"),
        (_note, "a_notes.log"),
        (_refusal, "a_refusals.jsonl"),
    ],
)
def test_a_full_disk_is_told_with_the_file_and_the_remedy(
    tmp_path: Path, write: Callable[[Path], None], name: str
) -> None:
    with pytest.raises(FedfairError) as fault, full_beyond(300_000):
        write(tmp_path)
    why = "disk I/O error" if name == "a.answered" else "File too large"
    assert f"/{name} cannot be written: {why}" in fault.value.message
    assert fault.value.remedy.startswith("make room on the disk")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    if name == "a.secagg":
        assert (tmp_path / name).read_bytes() == b""


def test_a_record_that_was_torn_is_cut_off_before_the_next_one_is_appended(tmp_path: Path) -> None:
    first, second = frame(Record.HISTORY, bytes(8)), frame(Record.VOTE, b"vote")
    with closing(WriteAheadLog(tmp_path / "a.secagg")) as log:
        log.replace([first])
        log.append([second[:-1]])
        log.keep(whole_length(log.read()))
        assert log.read() == first
        log.append([second])
        assert [entry.record for entry in entries(log.read())] == [Record.HISTORY, Record.VOTE]
