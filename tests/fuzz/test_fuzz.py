"""Every reader of messages and files bears what the fuzzer has broken; `make fuzz` does so at length."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedfair.errors import DataError
from tests.conftest import REPOSITORY
from tests.fuzz import campaign
from tests.fuzz.campaign import run_kind, save
from tests.fuzz.kinds import CORPUS, KINDS, FuzzedKind
from tests.patience import PATIENCE

NAMES = [kind.name for kind in KINDS]


def test_every_kind_has_examples_and_every_folder_a_kind() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(NAMES)
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_an_example_that_the_product_made_is_accepted(kind: FuzzedKind, tmp_path: Path) -> None:
    for path in sorted((CORPUS / kind.name).glob("example-*")):
        kind.read(path.read_bytes(), tmp_path)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_a_kind_is_broken_in_the_same_ways_for_the_same_seed(kind: FuzzedKind) -> None:
    examples = kind.examples()
    once, again = (
        [kind.mutate(draw, draw.choice(examples), examples) for _ in range(20)]
        for draw in (random.Random(3), random.Random(3))  # noqa: S311 - which byte breaks
    )
    assert once == again
    assert any(raw not in examples for raw in once)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_what_is_broken_is_accepted_or_refused_in_clear_words(kind: FuzzedKind) -> None:
    came = run_kind(kind, 20_000 if kind.is_message else 400, seed=4, seconds=30.0)
    assert came.findings == {}, came.findings
    assert came.outcomes.total() > 20


def lazily(raw: bytes, _: Path) -> object:
    """Read as nobody should: every byte decides on another fault."""
    match raw[0] % 6:
        case 0:
            raise KeyError(raw)
        case 1:
            raise DataError("")
        case 2:
            hangs(signal.ITIMER_PROF, signal.SIGPROF)
        case 3:
            raise DataError("the file begins with 3", "let it begin with 4")
        case 5:
            hangs(signal.ITIMER_REAL, signal.SIGALRM)
    return raw


def hangs(timer: int, number: signal.Signals) -> None:
    """Do what a timer does to a reader that takes too long, without the wait; it must have been set."""
    assert signal.getitimer(timer)[0] > 0.0
    signal.raise_signal(number)
    raise AssertionError("the signal of the timer ended nothing")


def test_a_fault_of_a_reader_is_found_whatever_it_is(tmp_path: Path) -> None:
    def next_byte(draw: random.Random, raw: bytes, others: object) -> bytes:
        del others
        return bytes([draw.randrange(6)]) + raw

    sloppy = FuzzedKind("approval", lazily, next_byte)
    came = run_kind(sloppy, 40, seed=1, seconds=60.0)
    assert {where.split(" at ")[0] for where in came.findings} == {"KeyError", "Hung", "words of DataError"}
    assert {"accepted", "DataError", "FINDING KeyError", "FINDING Hung"} == set(came.outcomes)
    kept = save(came, tmp_path)
    # Both clocks end a reader in one place of the code, which is one finding.
    assert {path.read_bytes()[0] % 6 for path in kept} in ({0, 1, 2}, {0, 1, 5})


def test_memory_that_a_reader_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter((100 << 20, 700 << 20))
    monkeypatch.setattr(campaign, "_peak_bytes", lambda: next(peaks))
    came = run_kind(KINDS[0], 20, seed=1, seconds=60.0)
    assert came.findings == {"memory": ("memory grew by 600 MiB", b"")}


def test_time_ends_a_run_whatever_was_asked_for() -> None:
    came = run_kind(KINDS[0], 10**9, seed=1, seconds=0.05)
    assert 0 < came.outcomes.total() < 10**9


def test_the_command_tells_every_kind_and_its_status_says_whether_something_was_found() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--messages", "50", "--files", "5", "--seed", "9",
         "--only", "to-a-site", "approval"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["to-a-site", "approval", "55"]
    assert lines[-1] == "55 read, 0 finding(s), seed 9"
