"""Lists of exact versions with the hashes of their files, in the form that pip reads.

pip takes hashes only from lists that are installed (`-r`), never from constraints (`-c`). So there is a whole list
for every way to install, and no list without hashes beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DISTRIBUTION = "fedsrcvar"
"""The name of fedfair's own wheel: on the package index `fedfair` is another project."""
ROOT = Path(__file__).resolve().parent.parent
DEVELOPMENT = ROOT / "constraints.txt"
"""Everything: both programs, every extra, and what tests, pages and checks need."""
BASE = ROOT / "requirements" / "base.txt"
"""What the aggregator, audits, certificates, reports and plans need, and no more."""
RUN = ROOT / "requirements" / "run.txt"
"""What a site and a simulation need, the aggregator among it, and no more."""
CUDA = ROOT / "requirements" / "cuda.txt"
"""Libraries that only a CUDA build of torch needs."""
CPU = ROOT / "requirements" / "cpu.txt"
"""The CPU build of torch, which the package index does not have."""

_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]*?))?\s*(?:--hash|$)"
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pin:
    """One version of one distribution.

    Attributes:
        name: normalised, as `normal` returns it.
        version: the only one that is installed.
        marker: where it is installed, as in PEP 508; empty for everywhere.
        hashes: SHA-256 of each file of this version that may be installed, sorted; 64 hexadecimal digits each.
    """

    name: str
    version: str
    marker: str = ""
    hashes: tuple[str, ...] = ()

    def line(self) -> str:
        """Return the lines that pip reads."""
        head = f"{self.name}=={self.version}{f' ; {self.marker}' if self.marker else ''}"
        return " \\\n    ".join((head, *(f"--hash=sha256:{one}" for one in self.hashes)))


def normal(name: str) -> str:
    """Return the normalised name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(text: str) -> dict[str, Pin]:
    """Return the pins of a list by name.

    Raises:
        ValueError: a line states no exact version, or a name is there twice.
    """
    pins: dict[str, Pin] = {}
    for line in text.replace("\\\n", " ").splitlines():
        words = line.split(" #")[0].strip()
        if not words or words.startswith("#"):
            continue
        found = _LINE.match(words)
        if found is None:
            raise ValueError(f"{words[:80]!r} states no exact version; write NAME==VERSION")
        name = normal(found["name"])
        if name in pins:
            raise ValueError(f"{name} is there twice")
        hashes = tuple(sorted(set(_HASH.findall(words))))
        pins[name] = Pin(name, found["version"], (found["marker"] or "").strip(), hashes)
    return pins


def read(path: Path) -> dict[str, Pin]:
    """Return the pins of a file by name; none where there is no file.

    Raises:
        ValueError: a line states no exact version, or a name is there twice.
    """
    return parse(path.read_text(encoding="utf-8")) if path.exists() else {}


def text_of(heading: Iterable[str], pins: Iterable[Pin]) -> str:
    """Return the text of a list, sorted by name, under a heading of comments."""
    return "\n".join((*(f"# {line}" for line in heading), *(pin.line() for pin in sorted(pins, key=_name)), ""))


def _name(pin: Pin) -> str:
    return pin.name
