"""What the record of everything that is sent costs: an entry, a megabyte, a signature, and reading it again.

A message of 1 MiB is one chunk of a long vector; its cost is held beside SHA-256 alone, which no record can do
without. `upload_milliseconds` is what the record adds to one masked upload of 11.2 million parameters. Every
figure is the median of runs that alternate with bare SHA-256, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from machine import report

from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import Keeper, Occasion, Ownership
from fedfair.audit.reader import RecordReader, bounded_lines
from fedfair.statistics.table import Purpose

CHUNK = os.urandom((1 << 20) + 9)
SHORT = os.urandom(400)
UPLOAD_BYTES = 4 * 11_200_000
MESSAGES = 2_000


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def record(keeper: Keeper, raw: bytes, count: int, rounds: int) -> None:
    """Record so many messages, evenly over so many rounds."""
    for number in range(count):
        keeper.message(raw, MessageKind.MASKED_VECTOR, Occasion(Purpose.TRAINING, number * rounds // count + 1, 1))


def hashed(raw: bytes, count: int) -> None:
    for _ in range(count):
        hashlib.sha256(raw).hexdigest()


def one_run(folder: Path, number: int) -> dict[str, float]:
    owner = Ownership("speed", "site-1", "site-1", Ed25519PrivateKey.generate())
    path = folder / f"{number}.jsonl"
    keeper = Keeper(path, owner, "sha256:" + "0" * 64, lambda: datetime.now(UTC))
    chunks = -(-UPLOAD_BYTES // (1 << 20))
    found = {
        "sha256_chunk": seconds(lambda: hashed(CHUNK, chunks)) / chunks,
        "chunk": seconds(lambda: record(keeper, CHUNK, chunks, 1)) / chunks,
        "entry": seconds(lambda: record(keeper, SHORT, MESSAGES, 1)) / MESSAGES,
        "signed_entry": seconds(lambda: record(keeper, SHORT, MESSAGES, MESSAGES)) / MESSAGES,
        "sync": seconds(keeper.sync),
    }
    keeper.close()
    reader = RecordReader()
    with path.open("rb") as source:
        found["reading"] = seconds(lambda: reader.read(bounded_lines(source))) / reader.entries
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        runs = [one_run(Path(name), number) for number in range(arguments.runs)]
    median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    over = statistics.median(run["chunk"] / run["sha256_chunk"] for run in runs)
    report(
        "egress_record",
        chunk_milliseconds=1e3 * median["chunk"],
        chunk_over_sha256_alone=over,
        upload_milliseconds=1e3 * median["chunk"] * -(-UPLOAD_BYTES // (1 << 20)),
        entry_microseconds=1e6 * median["entry"],
        entry_in_a_round_of_its_own_microseconds=1e6 * median["signed_entry"],
        sync_milliseconds=1e3 * median["sync"],
        reading_microseconds_an_entry=1e6 * median["reading"],
        runs=runs,
    )
