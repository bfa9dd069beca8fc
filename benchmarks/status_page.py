"""Latency of the status of a run that is under way, and the rounds per second beside readers of every kind.

One masked federation of real processes runs all the time, and segments alternate: nobody reads; ten readers, each
of whom asks for the page every two seconds; 200 connections that ask for nothing; eight clients that ask for the
metrics as often as they can. So a busy machine disturbs all kinds alike. This process is nice to the federation:
what a flood costs its sender is not counted. Latency is measured in the second kind, from connecting to the last
byte.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import psutil
from deployed_rounds import plan
from machine import report

from fedfair.cli.loopback import Workspace, prepare

PORT = 19473
ADDRESSES = ("/", "/now", "/healthz", "/metrics")
Latencies = dict[str, list[float]]


async def asked(path: str) -> float:
    """Ask once, and return the seconds that it took."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    with contextlib.closing(writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = await reader.read()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(answer[:80])
    return time.perf_counter() - began


async def reading(number: int, latencies: Latencies) -> None:
    await asyncio.sleep(0.2 * number)
    while True:
        for path in ADDRESSES:
            latencies[path].append(await asked(path))
            await asyncio.sleep(2.0)


async def silent() -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
            with contextlib.closing(writer):
                await reader.read()


async def flooding() -> None:
    while True:
        with contextlib.suppress(OSError, RuntimeError):
            await asked("/metrics")


def segments(latencies: Latencies) -> dict[str, Callable[[], list[Coroutine[None, None, None]]]]:
    return {
        "nobody": list,
        "ten readers": lambda: [reading(number, latencies) for number in range(10)],
        "200 silent connections": lambda: [silent() for _ in range(200)],
        "a flood of requests": lambda: [flooding() for _ in range(8)],
    }


@contextlib.asynccontextmanager
async def going_on(work: list[Coroutine[None, None, None]]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class Segment:
    """A while with readers of one kind: its seconds, its rounds, and the processor time of the aggregator."""

    seconds: float
    rounds: int
    processor_seconds: float


def processor_seconds(process: int) -> float:
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)


def cost(segments: list[Segment], idle: list[Segment]) -> dict[str, float]:
    """Return the rate, and the processor time a second that rounds do not explain."""
    a_round = sum(each.processor_seconds for each in idle) / max(1, sum(each.rounds for each in idle))
    seconds, rounds = sum(each.seconds for each in segments), sum(each.rounds for each in segments)
    used = sum(each.processor_seconds for each in segments)
    return {
        "rounds_per_second": round(rounds / seconds, 3),
        "processor_milliseconds_a_round": round(1e3 * used / max(1, rounds), 2),
        "processor_milliseconds_a_second_beside_rounds": round(1e3 * (used - rounds * a_round) / seconds, 2),
    }


def rounds_between(workspace: Workspace, began: float, ended: float) -> int:
    lines = (json.loads(line) for line in workspace.metrics.read_text().splitlines() if line.endswith("}"))
    times = (datetime.fromisoformat(line["time"]).timestamp() for line in lines if line["purpose"] == "training")
    return sum(began <= at < ended for at in times)


async def measured(
    workspace: Workspace, aggregator: int, seconds: float, cycles: int
) -> tuple[dict[str, list[Segment]], Latencies]:
    latencies: Latencies = {path: [] for path in ADDRESSES}
    found: dict[str, list[Segment]] = {}
    for cycle in range(cycles):
        kinds = list(segments(latencies).items())
        # Each kind comes at each place, for a machine that others use gets slower and faster.
        for name, work in kinds[cycle % len(kinds) :] + kinds[: cycle % len(kinds)]:
            async with going_on(work()):
                await asyncio.sleep(6.0)  # the burst is over by then
                began, before = time.time(), processor_seconds(aggregator)
                await asyncio.sleep(seconds)
                ended, used = time.time(), processor_seconds(aggregator) - before
            rounds = rounds_between(workspace, began, ended)
            found.setdefault(name, []).append(Segment(ended - began, rounds, used))
    return found, latencies


@contextlib.contextmanager
def federation(workspace: Workspace) -> Iterator[int]:
    """Run every process of it; yield the number of the aggregator's."""
    sites = [["collaborator", "start", "-n", name, "-c", f"{name}.yaml"] for name in workspace.collaborators]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=workspace.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for words in (["aggregator", "start", "--status", f"localhost:{PORT}"], *sites)
    ]
    try:
        yield started[0].pid
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def wait_for_rounds(workspace: Workspace) -> None:
    while not (workspace.metrics.exists() and rounds_between(workspace, 0.0, time.time()) >= 5):
        time.sleep(0.5)


def milliseconds(found: list[float]) -> dict[str, float]:
    ordered = sorted(found)
    last = len(ordered) - 1
    return {
        "count": len(ordered),
        **{f"p{part}": round(1e3 * ordered[round(last * part / 100)], 2) for part in (50, 90, 99)},
        "longest": round(1e3 * ordered[-1], 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--cycles", type=int, default=4)
    parser.add_argument("--collaborators", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=120)
    arguments = parser.parse_args()
    arguments.rounds = 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        workspace = prepare(Path(folder), plan(arguments, "malicious"))
        with federation(workspace) as aggregator:
            os.nice(10)
            wait_for_rounds(workspace)
            found, latencies = asyncio.run(measured(workspace, aggregator, arguments.seconds, arguments.cycles))
    report(
        "status_page",
        collaborators=arguments.collaborators,
        segment_seconds=arguments.seconds,
        milliseconds={path: milliseconds(seconds) for path, seconds in latencies.items()},
        load={name: cost(each, found["nobody"]) for name, each in found.items()},
        segments={name: [asdict(one) for one in each] for name, each in found.items()},
    )
