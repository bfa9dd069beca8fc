"""A masked federation over very many tiny rounds: what a round costs at the beginning, and what at the end.

    python benchmarks/endurance.py [--rounds 100000] [--every 10000] [--evaluate 100] [--folder DIR]

One aggregator and three sites, real processes over mutual TLS on loopback, train a linear model of 62 numbers on
the breast-cancer records under `mode: malicious`. After every block of rounds one line tells the rate of the
block, the CPU time of each process for a round, its resident memory, and the bytes of each folder. A run that is
interrupted with Ctrl-C reports what it has seen so far.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from machine import processor_seconds, report

from fedfair.cli.loopback import Processes, Workspace, prepare

NAMES = ("site-1", "site-2", "site-3")
WHO = ("aggregator", *NAMES)


def plan(rounds: int, evaluate: int) -> dict[str, object]:
    return {
        "federation": {"name": "endurance", "collaborators": list(NAMES)},
        "task": {"data": "breast-cancer", "partition": {"scheme": "random"}, "model": {"name": "linear"}},
        "objective": {"measure": "loss"},
        "training": {"rounds": rounds, "batch_size": 16},
        "secure_aggregation": {"mode": "malicious"},
        "evaluation": {"every": evaluate},
    }


def resident_bytes(process: int) -> int:
    """Return the resident memory of a process, or 0 where it has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)
    return 0


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process, or 0 where it has ended."""
    with contextlib.suppress(OSError):
        return processor_seconds(process)
    return 0.0


def folder_bytes(workspace: Workspace) -> dict[str, int]:
    """Return the bytes of every folder that a run writes to."""
    folders = ("save", "received", "egress", "state", "logs", "runs")
    return {
        name: sum(path.stat().st_size for path in (workspace.folder / name).rglob("*") if path.is_file())
        for name in folders
    }


def blocks(workspace: Workspace, processes: Processes, every: int) -> Iterator[Mapping[str, object]]:
    """Yield the figures of one block of rounds after the other."""
    began, cpu, last = time.monotonic(), {name: cpu_seconds(processes.pid(name)) for name in WHO}, 0
    for told in processes.progress():
        number = told.get("round")
        if not isinstance(number, int) or number <= last or number % every:
            continue
        now, spent = time.monotonic(), {name: cpu_seconds(processes.pid(name)) for name in WHO}
        done, last = number - last, number
        yield {
            "round": number,
            "rounds_per_second": round(done / (now - began), 2),
            "cpu_ms_a_round": {name: round(1e3 * (spent[name] - cpu[name]) / done, 2) for name in WHO},
            "resident_mb": {name: round(resident_bytes(processes.pid(name)) / 1e6, 1) for name in WHO},
            "bytes": folder_bytes(workspace),
        }
        began, cpu = now, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=10_000, help="rounds in a block")
    parser.add_argument("--evaluate", type=int, default=100, help="rounds between two evaluations")
    parser.add_argument("--folder", type=Path, help="on the disk that is to be written to")
    options = parser.parse_args()
    found: list[Mapping[str, object]] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name, contextlib.suppress(KeyboardInterrupt):
        workspace = prepare(Path(name), plan(options.rounds, options.evaluate))
        with Processes(workspace) as processes:
            for block in blocks(workspace, processes, options.every):
                found.append(block)
                print(block, flush=True)
    report("endurance", rounds=options.rounds, evaluate_every=options.evaluate, blocks=found)


if __name__ == "__main__":
    main()
