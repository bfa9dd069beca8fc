"""The fault injector reads lines that a process was cut off in, and leaves in a log only what a crash can."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fedfair.secagg.log import Record, entries, frame
from tests.conftest import REPOSITORY

FULL = 100
"""Bytes after which the disk is full: in the middle of the second line."""

WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from chaos import append_line, lines_of
tap = Path(sys.argv[2])
for number in map(int, sys.argv[3:]):
    append_line(tap, {"number": number, "body": "x" * 40})
print([line["number"] for line in lines_of(tap)])
"""


def written(tap: Path, *numbers: int, limit: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WRITER, str(REPOSITORY / "benchmarks"), str(tap), *map(str, numbers)],
        capture_output=True, text=True, check=False, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip


def test_a_line_that_a_full_disk_has_cut_does_not_take_the_next_one_with_it(tmp_path: Path) -> None:
    tap = tmp_path / "site.tap"
    assert "File too large" in written(tap, 1, 2, limit=FULL).stderr
    assert tap.stat().st_size == FULL
    assert written(tap, 3).stdout.strip() == "[1, 3]"


def test_a_log_that_is_torn_twice_before_it_is_read_ends_in_one_unfinished_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    from chaos import UnfinishedRecords

    records = frame(Record.HISTORY, b"rows" * 30) + frame(Record.VOTE, b"vote" * 30)
    log, unfinished = tmp_path / "site.secagg", UnfinishedRecords()
    log.write_bytes(records)
    for length in (18, 31, 34):
        unfinished.leave(log, records[:length])
    assert log.read_bytes() == records + records[:34]
    assert [entry.record for entry in entries(log.read_bytes())] == [Record.HISTORY, Record.VOTE]

    log.write_bytes(records + frame(Record.ANSWER, b"answer" * 30))
    unfinished.leave(log, records[:20])
    assert [entry.record for entry in entries(log.read_bytes())][-1] is Record.ANSWER
