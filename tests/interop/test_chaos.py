"""A few faults in real masked federations; `benchmarks/chaos.py` injects a thousand."""

from __future__ import annotations

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
        "--faults", "10", "--per-federation", "5", "--seed", "4", "--patience", "300", "--rounds", "100"
    )  # fmt: skip
    assert (status, counts) == (0, dict.fromkeys(COUNTS, 0)), words
    assert "10  faults in " in words


@pytest.mark.parametrize(
    ("sabotage", "found"),
    [
        ("wrong-sum", "wrong sums"),
        ("second-message", "double messages"),
        ("skipped-round", "rounds out of order"),
        ("traceback", "tracebacks"),
        ("hang", "hands needed"),
    ],
)
def test_what_is_broken_on_purpose_is_counted(sabotage: str, found: str) -> None:
    # What hangs is known by the end of the patience; all else is found before, however busy the machine is.
    patience = "20" if sabotage == "hang" else "300"
    status, counts, words = chaos(
        "--faults", "1", "--seed", "1", "--patience", patience, "--rounds", "30", "--sabotage", sabotage
    )  # fmt: skip
    assert status == 1, words
    assert counts[found] > 0, words
