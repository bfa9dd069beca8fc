"""What it costs a site, in files and memory, to remember all its masked rounds: after one, and after very many.

    python benchmarks/masked_history.py [--folder DIR] [--rounds 1 1000 20000 100000]

A site remembers as many rounds as stated, through its real write-ahead log and its real history in DIR, without
training or masking anything. Then it continues for 200 rounds, each with an upload of 2 kB and an answer. Reported
are the median and the mean of a round's time, all writing and waiting for the disk included; the longest of them;
the bytes of both files; the memory that the site's memory takes; and how long a start takes.
"""

from __future__ import annotations

import argparse
import hashlib
import secrets
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path

from machine import report

from collaborator.write_ahead import WriteAheadLog
from fedfair.secagg.history import History
from fedfair.secagg.log import Record, entries, frame, history_record, read_history

MEASURED = 200
UPLOAD, ANSWER = secrets.token_bytes(2000), secrets.token_bytes(300)


def subject(number: int, what: bytes) -> bytes:
    return hashlib.sha256(what + number.to_bytes(8)).digest()


def live(history: History, log: WriteAheadLog, number: int) -> None:
    """Remember one round, and settle where that is due."""
    history.entered("training", subject(number, b"model"))
    if history.is_due:
        log.history.write(history.settle())
    history.sent(subject(number, b"update"), whole=False)


def write(history: History, log: WriteAheadLog, number: int) -> None:
    """Remember one round as a deployed site does, with every write of the round's own records."""
    live(history, log, number)
    log.replace((history_record(history), frame(Record.UPLOAD, UPLOAD)))
    history.answered(subject(number, b"update"), subject(number, b"sum"), (1, 2, 3))
    log.append((frame(Record.ANSWER, ANSWER),))


def measured(folder: Path, rounds: int) -> dict[str, float]:
    path = folder / "site.secagg"
    log = WriteAheadLog(path)
    tracemalloc.start()
    history = History(log.history)
    for number in range(rounds):
        live(history, log, number)
        history.answered(subject(number, b"update"), subject(number, b"sum"), (1, 2, 3))
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    times = []
    for number in range(rounds, rounds + MEASURED):
        began = time.perf_counter()
        write(history, log, number)
        times.append(time.perf_counter() - began)
    log.close()
    began = time.perf_counter()
    log = WriteAheadLog(path)
    read_history(next(entries(log.read())).fields, log.history)
    start = time.perf_counter() - began
    log.close()
    sizes = {name: path.with_suffix(name).stat().st_size for name in (".secagg", ".history")}
    return {
        "median_ms": 1e3 * statistics.median(times),
        "mean_ms": 1e3 * statistics.mean(times),
        "longest_ms": 1e3 * max(times),
        "log_bytes": sizes[".secagg"],
        "history_bytes": sizes[".history"],
        "memory_bytes": memory,
        "start_ms": 1e3 * start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="on the disk that would hold the site's state")
    parser.add_argument("--rounds", type=int, nargs="+", default=[1, 1000, 20_000, 100_000])
    options = parser.parse_args()
    found: dict[str, float | int] = {}
    for rounds in options.rounds:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            for what, value in measured(Path(name), rounds).items():
                found[f"after_{rounds}_{what}"] = round(value, 3)
    report("masked_history", **found)


if __name__ == "__main__":
    main()
