"""Long vectors of the journal as files: bit for bit, after a kill at every step, refused where one was changed."""

import asyncio
import errno
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregator.journal import Journal, JournalEntry, forget
from aggregator.journal_vectors import LARGE_BYTES, LongVectors
from collaborator.ledger import RollbackGuard
from collaborator.participation import _until_stopped
from collaborator.records import SiteLogs
from collaborator.site_history import ANSWERED
from collaborator.write_ahead import WriteAheadLog
from fedfair.errors import FedfairError, StoppedError
from fedfair.news.event import StatusUpdate
from fedfair.policy.refusal import Refusal
from fedfair.secagg.log import Record, entries, frame, whole_length
from fedfair.store.table_file import TableFile
from fedfair.wire.frames import Finished
from tests.actors.journal_crashes import DIGEST, LARGE, NOW, RUN, entry
from tests.full_disk import full_beyond
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def begun(path: Path) -> Journal:
    return Journal.open(path, DIGEST, RUN, NOW, LongVectors(LARGE))


def opened(path: Path) -> Journal:
    return Journal.open(path, DIGEST, "f" * 32, NOW, LongVectors(LARGE))


def read(path: Path) -> JournalEntry | None:
    with closing(opened(path)) as journal:
        return journal.latest()


def names(path: Path) -> set[str]:
    return {file.name for file in path.with_suffix(".vectors").iterdir()}


def is_entry(found: JournalEntry | None, value: int) -> bool:
    kept = entry(value)
    return (
        found is not None
        and found.training_run.state == kept.training_run.state
        and found.opened == kept.opened
        and found.training_run.vectors.keys() == kept.training_run.vectors.keys()
        and all(
            np.array_equal(found.training_run.vectors[name], vector)
            and found.training_run.vectors[name].dtype == vector.dtype
            for name, vector in kept.training_run.vectors.items()
        )
    )


def test_long_vectors_are_files_and_what_stays_the_same_is_written_once(path: Path) -> None:
    with closing(begun(path)) as journal:
        journal.record(entry(1))
        first = {file.name: file.stat().st_ino for file in path.with_suffix(".vectors").iterdir()}
        journal.record(entry(2))
    second = {file.name: file.stat().st_ino for file in path.with_suffix(".vectors").iterdir()}
    assert (len(first), len(second), len(first.items() & second.items())) == (3, 3, 1)
    assert is_entry(read(path), 2)


def test_what_is_no_longer_than_four_mebibytes_stays_in_the_database(path: Path) -> None:
    lengths = {"short": LARGE_BYTES // 4, "long": LARGE_BYTES // 4 + 1}
    vectors = {name: np.zeros(length, np.float32) for name, length in lengths.items()}
    with closing(Journal.open(path, DIGEST, RUN, NOW)) as journal:
        journal.record(JournalEntry(replace(entry(1).training_run, vectors=vectors), 1.0))
        assert len(names(path)) == 1
        assert {name: vector.size for name, vector in journal.latest().training_run.vectors.items()} == lengths


def test_a_digest_that_is_known_is_the_name_of_the_file(path: Path) -> None:
    kept, known = entry(1), {"model": "ab" * 32}
    with closing(begun(path)) as journal:
        journal.record(replace(kept, known_sha256=known))
    assert f"{'ab' * 32}.vector" in names(path)


def test_a_kill_at_any_step_leaves_one_whole_entry_and_no_file_too_many(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.actors.journal_crashes", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT)
    steps = sorted(int(folder.name) for folder in tmp_path.iterdir())
    found: list[int] = []
    for step in steps:
        path = tmp_path / str(step) / "journal.sqlite"
        last = read(path)
        assert is_entry(last, 1) or is_entry(last, 2), step
        found.append(int(last.seconds))
        # What nobody names is gone after the start, and what is named is there.
        assert len(names(path)) == 3, step
        with closing(opened(path)) as journal:
            journal.record(entry(3))
        assert is_entry(read(path), 3), step
        forget(path)
        assert not names(path)
    # Both outcomes were met, in this order; the last process was not killed.
    assert found == sorted(found)
    assert found.count(1) > 20
    assert found.count(2) > 3


@pytest.mark.parametrize("harm", ["changed", "cut", "gone"])
def test_a_changed_file_is_found_before_the_run_goes_on(path: Path, harm: str) -> None:
    with closing(begun(path)) as journal:
        journal.record(entry(1))
    file = path.with_suffix(".vectors") / min(names(path))
    if harm == "gone":
        file.unlink()
    elif harm == "cut":
        os.truncate(file, 100)
    else:
        raw = bytearray(file.read_bytes())
        raw[-1] ^= 1
        file.write_bytes(raw)
    with pytest.raises(FedfairError) as refusal:
        read(path)
    assert str(file) in refusal.value.message
    assert "backup" in refusal.value.remedy
    assert "--fresh" in refusal.value.remedy


def test_an_entry_that_cannot_be_written_leaves_the_one_before_and_its_files(path: Path) -> None:
    with closing(begun(path)) as journal:
        journal.record(entry(1))
        unwritable = replace(entry(2), training_run=replace(entry(2).training_run, state={"no JSON": object()}))
        with pytest.raises(TypeError):
            journal.record(unwritable)
        assert is_entry(journal.latest(), 1)
    assert is_entry(read(path), 1)
    assert len(names(path)) == 3


def test_a_journal_with_files_waits_for_the_disk_and_a_short_one_does_not(path: Path) -> None:
    def waits(journal: Journal) -> bool:
        connection: sqlite3.Connection = journal._database.connection
        return connection.execute("PRAGMA synchronous").fetchone() == (2,)

    with closing(begun(path)) as journal:
        journal.record(JournalEntry(replace(entry(1).training_run, vectors={"model": np.arange(5.0)}), 1.0))
        assert not waits(journal)
        journal.record(entry(2))
        assert waits(journal)


def test_what_was_appended_and_replaced_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "clinic-a.secagg"
    log = WriteAheadLog(path)
    assert log.read() == b""
    log.append([b"one", bytearray(b" two")])
    log.close()
    again = WriteAheadLog(path)
    assert again.read() == b"one two"
    again.replace([b"th", bytearray(b"ree")])
    again.append([b" four"])
    assert again.read() == b"three four"
    again.close()
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}


def test_a_second_process_may_not_write_the_same_log(tmp_path: Path) -> None:
    first = WriteAheadLog(tmp_path / "a.secagg")
    with pytest.raises(FedfairError, match="this site already runs here"):
        WriteAheadLog(tmp_path / "a.secagg")
    first.close()
    WriteAheadLog(tmp_path / "a.secagg").close()


# ---- every file that a site writes names itself when the disk is full, and is as it was

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
        (_append, "a.secagg"), (_replace, "a.secagg"), (_answered, "a.answered"),
        (_witness, "a.ledger-seen"), (_note, "a_notes.log"), (_refusal, "a_refusals.jsonl"),
    ],
)  # fmt: skip
def test_a_full_disk_is_told_with_file_and_remedy(
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


# ---- a stop that is asked for while the disk is full: it happens, although it cannot be noted


def full_disk(update: StatusUpdate) -> None:
    del update
    raise OSError(errno.EFBIG, "File too large")


async def forever() -> Finished:
    asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
    await asyncio.Event().wait()
    raise AssertionError


async def stopped() -> BaseException | None:
    leaving = asyncio.create_task(_until_stopped(forever(), full_disk))
    done, _ = await asyncio.wait({leaving}, timeout=PATIENCE)
    assert done, "the signal was lost with the note about it"
    return leaving.exception()


def test_a_site_stops_although_its_note_of_it_cannot_be_written() -> None:
    assert isinstance(asyncio.run(stopped()), StoppedError)
