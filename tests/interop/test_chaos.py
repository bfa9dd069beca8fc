"""A few faults in real masked federations; `benchmarks/chaos.py` injects a thousand."""

import re
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

COUNTS = ("wrong sums", "double messages", "rounds out of order", "tracebacks", "hands needed")


def chaos(*words: str) -> tuple[int, dict[str, int], str]:
    """Run the harness; return its exit status, its counts, and everything that it wrote."""
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "chaos.py"), *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    rows = [line.strip().partition("  ") for line in ran.stdout.splitlines()]
    counts = {words: int(count) for count, _, words in rows if words in COUNTS}
    return ran.returncode, counts, ran.stdout + ran.stderr


def test_a_few_faults_leave_no_wrong_sum_no_double_message_no_traceback_and_no_work_for_an_operator() -> None:
    status, counts, words = chaos(
        "--faults", "10", "--per-federation", "5", "--seed", "33547", "--patience", "300", "--rounds", "80",
        "--pause", "0.25",
    )  # fmt: skip
    assert (status, counts) == (0, dict.fromkeys(COUNTS, 0)), words
    assert "10  faults in 2 federations, 1 of them with full batches" in words
    # This seed has each kind once: kills, orders to stop, a torn log, a full disk, and what lines do.
    assert len(re.findall("^ +1  [a-z' -]+$", words, re.MULTILINE)) >= 9, words


def test_what_is_broken_on_purpose_is_counted() -> None:
    status, counts, words = chaos(
        "--faults", "2", "--per-federation", "1", "--seed", "4", "--patience", "300", "--rounds", "14",
        "--sabotage", "wrong-sum,second-message,skipped-round,traceback", "hang",
    )  # fmt: skip
    assert status == 1, words
    assert all(count > 0 for count in counts.values()), words
    assert "hands needed: federation 1: not finished: " in words
