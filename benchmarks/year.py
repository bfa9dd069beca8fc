"""A restart after a year at a round a minute: how long each side takes, beside a restart after the first rounds.

    python benchmarks/year.py [--rounds 525600] [--evaluate 10] [--others 1.0] [--folder DIR] [--audit]

Five masked sites and their aggregator, real processes over mutual TLS on loopback, do their first rounds and stop.
Both sides are started again, one alone, and timed: the aggregator until it listens, a site until it has sent its
introduction. On a machine with other work the CPU time, with that of a process's children, says more than the
clock. Then the files get the history of a year: the mirror of every site and the egress record of site-1
(as the keepers write them, signed, file after file), the journal with the cost of every sum and the evaluations,
every site's own copy of the run, and site-1's records of what it has answered and masked. Both sides are timed
again, and the federation continues until its next sum. With `--audit` the record of site-1 is verified too.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from endurance import folder_bytes, resident_bytes
from machine import report

from aggregator.journal import Journal, JournalEntry
from aggregator.preparation import initial_binding
from collaborator.run_store import RunStore
from fedfair.audit.chain import START, next_chain, sign_chain
from fedfair.audit.entry import Entry, Opened, RecordContinued, Signed, body_of, line_of
from fedfair.audit.keeper import Ownership
from fedfair.audit.reader import RecordReader
from fedfair.audit.segments import USUAL, earlier_path, read_record
from fedfair.cli.loopback import Processes, Workspace, prepare
from fedfair.identity.store import load_signing_key
from fedfair.ids import AGGREGATOR, RoundNumber
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import load_plan
from fedfair.results.costs import SumCost
from fedfair.run.history_digest import history_digest
from fedfair.run.training_run import TrainingRun
from fedfair.statistics.table import Purpose
from fedfair.store.table_file import Content, TableFile

NAMES = tuple(f"site-{number}" for number in range(1, 6))
FIRST = NAMES[0]
FIRST_ROUNDS, ROWS_A_ROUND, BLOCK = 30, 4, 20_000
MESSAGES = ("sealed shares", "masked vector", "mask shares")
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def plan(rounds: int, evaluate: int) -> dict[str, object]:
    return {
        "federation": {"name": "year", "collaborators": list(NAMES)},
        "task": {"data": "breast-cancer", "partition": {"scheme": "random"}, "model": {"name": "linear"}},
        "objective": {"measure": "loss"},
        "training": {"rounds": rounds, "batch_size": 16},
        "secure_aggregation": {"mode": "malicious"},
        "evaluation": {"every": evaluate},
    }


# ------------------------------------------------------------------ the history of a year


class Record:
    """A record as a keeper writes it, with its files, but in seconds instead of a year."""

    def __init__(self, path: Path, owner: Ownership, digest: str) -> None:
        self._path, self._owner, self._plan = path, owner, digest.encode()
        self._federation, self._participant, self._keeper = owner.names
        self._entries, self._chain, self._messages, self._bytes, self._segment = 0, START, 0, 0, 1
        self._file = path.open("wb", buffering=1 << 20)
        none = hashlib.sha256(b"").hexdigest()
        opened = Opened(
            entry=1,
            time=BEGINNING,
            federation=self._federation,
            participant=self._participant,
            keeper=self._keeper,
            key=owner.public_key,
            torn_bytes=0,
            torn_sha256=none,
        )
        self._append(opened)

    def round(self, number: int, at: datetime) -> None:
        """Write the messages of a round, and sign them."""
        said = at.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
        for what in MESSAGES:
            self._entries += 1
            digest = hashlib.sha256(b"%d %s" % (number, what.encode())).hexdigest().encode()
            body = (
                b'{"entry":%d,"kind":"message","time":"%s","plan":"%s","purpose":"training","round":%d,"attempt":1,'
                b'"what":"%s","bytes":600,"sha256":"%s"}'
            ) % (self._entries, said, self._plan, number, what.encode(), digest)
            self._chain = next_chain(self._chain, body)
            self._file.write(line_of(body, self._chain, None))
        self._messages, self._bytes = self._messages + len(MESSAGES), self._bytes + 600 * len(MESSAGES)
        self._sign(at, closing=False)
        if self._file.tell() >= USUAL.max_bytes:
            self._continue(at)

    def close(self, at: datetime) -> None:
        """Sign the end."""
        self._sign(at, closing=True)
        self._file.close()

    def _sign(self, at: datetime, *, closing: bool) -> None:
        entry = self._entries + 1
        self._append(Signed(entry=entry, time=at, closing=closing, messages=self._messages, bytes=self._bytes))

    def _continue(self, at: datetime) -> None:
        length = self._file.tell()
        self._file.close()
        self._path.rename(earlier_path(self._path, self._segment))
        self._file = self._path.open("wb", buffering=1 << 20)
        self._segment += 1
        continued = RecordContinued(
            entry=self._entries + 1,
            time=at,
            federation=self._federation,
            participant=self._participant,
            keeper=self._keeper,
            key=self._owner.public_key,
            segment=self._segment,
            before=self._chain.hex(),
            before_bytes=length,
            messages=self._messages,
            bytes=self._bytes,
        )
        self._append(continued)

    def _append(self, entry: Entry) -> None:
        body = body_of(entry)
        self._chain, self._entries = next_chain(self._chain, body), entry.entry
        is_signed = isinstance(entry, Signed | RecordContinued)
        signature = sign_chain(self._owner.key, self._owner.names, self._chain) if is_signed else None
        self._file.write(line_of(body, self._chain, signature))


def write_record(path: Path, owner: Ownership, digest: str, rounds: int) -> None:
    """Write the record of so many rounds, one a minute."""
    record = Record(path, owner, digest)
    for number in range(1, rounds + 1):
        record.round(number, BEGINNING + timedelta(minutes=number))
    record.close(BEGINNING + timedelta(minutes=rounds + 1))


def age_runs(workspace: Workspace, rounds: int, evaluate: int) -> None:
    """Put the journal and every site's copy of the run so many rounds on."""
    bound, known = initial_binding(workspace.plan), load_plan(workspace.plan)
    run = TrainingRun(known, bound.layout, bound.schema, bound.vector)
    journal = Journal.open(workspace.folder / "save" / "journal.sqlite", bound.plan_digest, "", time.time())
    entry = journal.latest()
    if entry is None:
        raise SystemExit("the first rounds left no journal")
    run.restore(entry.training_run)
    one = run.history[-1]
    # As many as a run of a year has by then: see `fedfair.run.history`.
    stride = evaluate
    while rounds // stride >= 10_000:
        stride *= 2
    later = (replace(one, round=RoundNumber(number)) for number in range(stride, rounds, stride))
    history = (run.history[0], *later)
    run.state = replace(
        run.state, rounds_done=RoundNumber(rounds - 1), history=history, history_digest=history_digest(history)
    )
    costs = tuple(SumCost(Purpose.TRAINING, number, 0.05, len(NAMES), 9000, 9000) for number in range(rounds))
    journal.record(JournalEntry(run.brief_snapshot(), 60.0 * rounds, costs, entry.opened, run.history))
    run_id = journal.run_id
    journal.close()
    for name in NAMES:
        stem = f"{name}-{bound.plan_digest.hex()[:16]}"
        RunStore(workspace.folder / "state" / f"{stem}.run", lambda _: False).keep(run_id, run.state)


def age_tables(workspace: Workspace, rounds: int) -> None:
    """Give the first site's tables as many rows as so many rounds leave, under keys that nobody asks for."""
    for path in (workspace.folder / "state").glob(f"{FIRST}-*"):
        if path.suffix in {".answered", ".history"}:
            table = TableFile(path, Content("a table", "none"))
            for number in range(256):
                keys = sorted(
                    bytes([number]) + secrets.token_bytes(32) for _ in range(ROWS_A_ROUND * rounds // 256)
                )
                table.write((key, secrets.token_bytes(40)) for key in keys)
            table.close()


def age(workspace: Workspace, rounds: int, evaluate: int, others: float) -> None:
    """Give a federation that has stopped the files of so many rounds, the other sites' mirrors a share of them."""
    folder, digest = workspace.folder, format_digest(initial_binding(workspace.plan).plan_digest)
    own = Ownership("year", FIRST, FIRST, load_signing_key(folder / "cert", FIRST))
    (folder / "state" / f"{FIRST}.egress-head").unlink()
    write_record(folder / "egress" / f"{FIRST}.jsonl", own, digest, rounds)
    key = load_signing_key(folder / "cert", AGGREGATOR)
    for name in NAMES:
        count = rounds if name == FIRST else round(others * rounds)
        owner = Ownership("year", name, AGGREGATOR, key)
        write_record(folder / "received" / f"{name}.jsonl", owner, digest, count)
    age_runs(workspace, rounds, evaluate)
    age_tables(workspace, rounds)


# ------------------------------------------------------------------ restarts


class Started:
    """One process of the federation, stopped at the end."""

    def __init__(self, workspace: Workspace, *arguments: str) -> None:
        self.began = time.monotonic()
        command = [sys.executable, "-m", *arguments, "-p", str(workspace.plan), "--quiet"]
        with (workspace.folder / "logs" / "year.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=workspace.folder, stdout=log, stderr=log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()

    def seconds_until(self, reached: Callable[[], bool]) -> float:
        """Return how long after its start something was reached."""
        while not reached():
            if self._process.poll() is not None:
                raise SystemExit(f"a process ended with status {self._process.returncode}")
            time.sleep(0.01)
        return time.monotonic() - self.began

    @property
    def cpu_seconds(self) -> float:
        """Return its CPU time, and that of its children that have ended."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident_bytes(self) -> int:
        """Return its memory."""
        return resident_bytes(self._process.pid)


def restarts(workspace: Workspace) -> dict[str, float]:
    """Return how long a start of each side takes, one process at a time, and its memory then."""
    port = load_plan(workspace.plan).federation.aggregator.port
    record = workspace.folder / "egress" / f"{FIRST}.jsonl"
    length = record.stat().st_size

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("localhost", port)) == 0

    def has_introduced_itself() -> bool:
        with record.open("rb") as source:
            source.seek(length)
            return b'"introduction"' in source.read()

    found: dict[str, float] = {}
    with Started(workspace, "aggregator", "start") as aggregator:
        found["aggregator_seconds"] = round(aggregator.seconds_until(listens), 2)
        found["aggregator_cpu_seconds"] = round(aggregator.cpu_seconds, 2)
        found["aggregator_mb"] = round(aggregator.resident_bytes / 1e6, 1)
        site = (f"{FIRST}.yaml", "-n", FIRST)
        with Started(workspace, "collaborator", "start", "-c", *site) as collaborator:
            found["site_seconds"] = round(collaborator.seconds_until(has_introduced_itself), 2)
            found["site_cpu_seconds"] = round(collaborator.cpu_seconds, 2)
            found["site_mb"] = round(collaborator.resident_bytes / 1e6, 1)
    return found


def rounds_of(workspace: Workspace, count: int) -> Iterator[int]:
    """Yield the numbers of the next rounds, then stop the federation."""
    with Processes(workspace) as processes:
        for told in processes.progress():
            if told["purpose"] == Purpose.TRAINING.value:
                yield int(str(told["round"]))
                count -= 1
            if count <= 0:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=525_600)
    parser.add_argument("--evaluate", type=int, default=10)
    parser.add_argument("--others", type=float, default=1.0, help="share of a year in the other sites' mirrors")
    parser.add_argument("--folder", type=Path, help="on the disk that is to be written to; 8 GB for a year")
    parser.add_argument("--audit", action="store_true", help="verify the record of a year too")
    options = parser.parse_args()
    found: dict[str, object] = {"rounds": options.rounds, "share_of_other_mirrors": options.others}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        workspace = prepare(Path(name), plan(options.rounds, options.evaluate))
        for _ in rounds_of(workspace, FIRST_ROUNDS):
            pass
        found["after_the_first_rounds"] = restarts(workspace)
        age(workspace, options.rounds, options.evaluate, options.others)
        os.sync()
        found["bytes"] = folder_bytes(workspace)
        found["files_of_a_record"] = len(list((workspace.folder / "egress").glob(f"{FIRST}.jsonl*"))) - 1
        found["after_a_year"] = restarts(workspace)
        found["next_round"] = next(rounds_of(workspace, 1))
        if options.audit:
            began, reader = time.monotonic(), RecordReader(by_sum=False, by_message=False)
            read_record(workspace.folder / "egress" / f"{FIRST}.jsonl", reader)
            found["audit_seconds"], found["audited_entries"] = round(time.monotonic() - began, 1), reader.entries
    report("year", **found)


if __name__ == "__main__":
    main()
