"""What the fault injector knows of a process is read from lines that the process may have been cut off in."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

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
