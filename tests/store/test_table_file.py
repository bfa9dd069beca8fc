"""A table on a site's disk: what was written is there after a kill, and only its owner reads it."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from collaborator.site_history import ANSWERED
from collaborator.write_ahead import HISTORY, WriteAheadLog
from fedfair.errors import FedfairError, StateError
from fedfair.store.table_file import Content, TableFile
from tests.patience import PATIENCE

KEYS = [bytes([value]) * 32 for value in range(3)]


def test_rows_are_there_after_a_restart_and_the_newest_value_counts(tmp_path: Path) -> None:
    table = TableFile(tmp_path / "a.history", HISTORY)
    assert table.get(KEYS[0]) is None
    table.write([(KEYS[0], b"one"), (KEYS[1], b"two")])
    assert [table.get(key) for key in KEYS] == [b"one", b"two", None]
    table.write([(KEYS[0], b"three")])
    assert [table.get(key) for key in KEYS] == [b"three", b"two", None]
    table.close()
    again = TableFile(tmp_path / "a.history", HISTORY)
    assert [again.get(key) for key in KEYS] == [b"three", b"two", None]
    again.close()
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_rows_outlive_a_process_that_kills_itself_after_writing_them(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from collaborator.write_ahead import WriteAheadLog\n"
        "log = WriteAheadLog(Path(sys.argv[1]))\n"
        "log.history.write([(bytes(32), b'kept')])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "a.secagg"
    ended = subprocess.run(
        [sys.executable, "-c", program, str(path)], check=False, env=os.environ, timeout=PATIENCE
    )
    assert ended.returncode == -signal.SIGKILL
    log = WriteAheadLog(path)
    assert log.history.get(bytes(32)) == b"kept"
    log.close()


def test_reading_many_rows_keeps_few_in_memory_and_finds_each(tmp_path: Path) -> None:
    table = TableFile(tmp_path / "a.history", HISTORY)
    keys = [number.to_bytes(32) for number in range(200)]
    table.write([(key, key[-1:]) for key in keys[::2]])
    for _ in range(2):
        assert [table.get(key) for key in keys] == [None if key[-1] % 2 else key[-1:] for key in keys]
    assert len(table._recent) <= 64
    table.close()


def test_rows_are_written_all_or_none(tmp_path: Path) -> None:
    table = TableFile(tmp_path / "a.history", HISTORY)
    refuse = "BEFORE INSERT ON remembered WHEN new.value = x'00' BEGIN SELECT raise(ABORT, 'refused'); END"
    table._connection.execute(f"CREATE TRIGGER refuse {refuse}")
    rows = [(KEYS[0], b"one"), (KEYS[1], b"\0")]
    with pytest.raises(FedfairError, match="cannot be used as this site's history") as fault:
        table.write(rows)
    assert str(tmp_path / "a.history") in fault.value.message
    assert table.get(KEYS[0]) is None
    table.write([(KEYS[1], b"two")])
    assert table.get(KEYS[1]) == b"two"
    table.close()


def test_a_file_that_is_no_table_is_named_with_a_remedy_and_the_log_is_free_again(tmp_path: Path) -> None:
    (tmp_path / "a.history").write_bytes(b"no database at all" * 100)
    for _ in range(2):
        with pytest.raises(FedfairError, match=r"a\.history cannot be used") as fault:
            WriteAheadLog(tmp_path / "a.secagg")
        assert "backup" in fault.value.remedy
    (tmp_path / "a.history").unlink()
    WriteAheadLog(tmp_path / "a.secagg").close()


def test_reading_takes_no_more_steps_after_many_rows(tmp_path: Path) -> None:
    table = TableFile(tmp_path / "a.history", HISTORY)
    for start in range(0, 3000, 100):
        table.write([(value.to_bytes(32), b"x" * 33) for value in range(start, start + 100)])
    (plan,) = table._connection.execute("EXPLAIN QUERY PLAN SELECT value FROM remembered WHERE key = ?", (b"",))
    assert "SEARCH remembered USING PRIMARY KEY" in plan[-1]
    table.close()
    with sqlite3.connect(tmp_path / "a.history") as connection:
        assert connection.execute("SELECT COUNT(*) FROM remembered").fetchone() == (3000,)


def test_a_second_user_of_a_table_is_refused_at_once_until_the_first_has_closed_it(tmp_path: Path) -> None:
    first = TableFile(tmp_path / "a.history", HISTORY)
    with pytest.raises(FedfairError, match=r"this site already runs here: another process uses .*a\.history"):
        TableFile(tmp_path / "a.history", HISTORY)
    first.close()
    TableFile(tmp_path / "a.history", HISTORY).close()


def test_a_table_of_other_columns_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.history") as connection:
        connection.execute("CREATE TABLE remembered (name TEXT)")
    connection.close()
    with pytest.raises(FedfairError, match=r"a\.history cannot be used as .*: no such column: value"):
        TableFile(tmp_path / "a.history", HISTORY)


@pytest.mark.parametrize("content", [HISTORY, ANSWERED], ids=["history", "answered"])
@pytest.mark.parametrize("column", ["key", "value", "checksum"])
def test_a_row_of_which_something_has_changed_is_refused_with_its_file_and_what_to_do(
    tmp_path: Path, content: Content, column: str
) -> None:
    path = tmp_path / "a.table"
    table = TableFile(path, content)
    table.write([(KEYS[0], b"one"), (KEYS[1], b"two")])
    table.close()
    with sqlite3.connect(path) as connection:
        row = connection.execute(
            "SELECT key, value, checksum FROM remembered WHERE key = ?", (KEYS[0],)
        ).fetchone()
        changed = dict(zip(("key", "value", "checksum"), row, strict=True))
        changed[column] = {"key": KEYS[2], "value": b"ond", "checksum": bytes(16)}[column]
        connection.execute("INSERT OR REPLACE INTO remembered VALUES (:key, :value, :checksum)", changed)
    connection.close()
    again = TableFile(path, content)
    with pytest.raises(
        StateError, match=r"a\.table cannot be used as this site's .*: the row .* is damaged"
    ) as fault:
        again.get(KEYS[2] if column == "key" else KEYS[0])
    assert fault.value.remedy == content.remedy
    assert again.get(KEYS[1]) == b"two"
    again.close()
