"""The last words of a command that failed: one message, whatever names it has to quote."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.patience import PATIENCE


def test_a_name_that_would_steer_the_terminal_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    steering = "record\x1b[31m\x07\u202e.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "fedfair.cli", "audit", "verify", steering], cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "record\N{REPLACEMENT CHARACTER}[31m" in done.stderr
    assert {letter for letter in done.stderr if not letter.isprintable()} == {"\n"}
