"""Reads broken examples of one kind and finds every outcome that is neither acceptance nor one clear error.

Findings: an exception that is not the product's own, an error without words or of many lines, a call that takes
longer than `HANG_SECONDS` of processor time, and memory that grows by more than `MAX_GROWTH_BYTES` in one kind.
One place of the code is one finding.
"""

import hashlib
import random
import resource
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from fedfair.errors import FedfairError
from tests.fuzz.kinds import FuzzedKind

HANG_SECONDS = 20.0
"""Of processor time; a reader takes milliseconds. A busy machine makes no reader hang."""
STILL_FACTOR = 10
"""A call that stands still takes no processor time: it has so many times as long, by the clock."""
MAX_GROWTH_BYTES = 512 << 20
MAX_WORDS = 20_000


class Hung(BaseException):
    """A reader has taken too long."""


@dataclass(slots=True)
class Campaign:
    """What came of one kind.

    Attributes:
        kind: which.
        outcomes: how many were accepted, and how many refused by which error.
        findings: by place, the words and the bytes of the first.
        seconds: on the clock.
    """

    kind: FuzzedKind
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    seconds: float = 0.0

    def line(self) -> str:
        """Return the outcome in one line."""
        told = ", ".join(f"{count} {name}" for name, count in self.outcomes.most_common())
        return (
            f"{self.kind.name:<18} {self.outcomes.total():>8} read in {self.seconds:7.1f} s: {told}; "
            f"{len(self.findings)} finding(s)"
        )


def run_kind(kind: FuzzedKind, count: int, seed: int, seconds: float) -> Campaign:
    """Read so many broken examples, or as many as the time allows; the same for the same seed."""
    draw = random.Random(f"{seed} {kind.name}")  # noqa: S311 - which byte breaks, not a key
    came, examples = Campaign(kind), kind.examples()
    began, memory = time.monotonic(), _peak_bytes()
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - its own folder there
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=place) as folder, warnings.catch_warnings(), _watched():
        warnings.simplefilter("error")
        for number in range(count):
            if time.monotonic() - began >= seconds:
                break
            # Every example first comes as it is: what once broke a reader is read in every run.
            raw = (
                examples[number] if number < len(examples) else kind.mutate(draw, draw.choice(examples), examples)
            )
            _read(came, raw, Path(folder))
    came.seconds = time.monotonic() - began
    grown = _peak_bytes() - memory
    if grown > MAX_GROWTH_BYTES:
        came.findings["memory"] = (f"memory grew by {grown >> 20} MiB", b"")
    return came


def _read(came: Campaign, raw: bytes, folder: Path) -> None:
    _limit(HANG_SECONDS)
    try:
        came.kind.read(raw, folder)
        outcome = "accepted"
    except FedfairError as refused:
        outcome = type(refused).__name__
        words = refused.diagnostics()
        if not refused.message.strip() or len(words) > MAX_WORDS or "Traceback" in words:
            came.findings.setdefault(f"words of {outcome}", (words[:2000], raw))
    except (Exception, Hung) as fault:  # noqa: BLE001 - what nobody foresaw is what is looked for
        outcome = f"FINDING {type(fault).__name__}"
        frames = traceback.extract_tb(fault.__traceback__)
        ours = [one for one in frames if "/tests/" not in one.filename and "site-packages" not in one.filename]
        last = (ours or frames)[-1]
        where = f"{type(fault).__name__} at {Path(last.filename).name}:{last.lineno}"
        came.findings.setdefault(where, ("".join(traceback.format_exception(fault))[-3000:], raw))
    finally:
        _limit(0.0)
    came.outcomes[outcome] += 1


def _limit(seconds: float) -> None:
    """Let so many seconds pass, from now on, until a call hangs; 0 for no limit."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, STILL_FACTOR * seconds)


@contextmanager
def _watched() -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise Hung

    before = {number: signal.signal(number, end) for number in (signal.SIGALRM, signal.SIGPROF)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def save(came: Campaign, folder: Path) -> list[Path]:
    """Write the bytes of every finding for the corpus, and return the files."""
    written = []
    for _, raw in came.findings.values():
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{came.kind.name}-{hashlib.sha256(raw).hexdigest()[:16]}"
        path.write_bytes(raw)
        written.append(path)
    return written
