"""Points on the processors of this machine: a few processes, each on one thread, each given one point at a time.

One thread each is faster than many threads on one small model, and makes a result independent of how many workers
there are. A worker that dies (killed, out of memory) takes down only the point that it was running; the parent
reports it and hires another. A parent that dies, however, ends its workers: they watch it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from fedfair.studies.sweep.events import Event, Failure, Said
from fedfair.studies.sweep.grid import Point
from fedfair.studies.sweep.runner import PointRunner

REPORT_SECONDS = 0.25
"""How often a worker tells how far it is; nobody reads faster."""


def run_locally(points: Sequence[Point], root: Path, workers: int) -> Generator[Event, None, None]:
    """Run points in processes of this machine; an engine.

    Args:
        points: what to run.
        root: the workspace of the plan.
        workers: how many at a time, at least 1.
    """
    runner = PointRunner(root)
    waiting = deque(points)
    crew: list[_Worker] = []
    try:
        while waiting and len(crew) < workers:
            crew.append(_Worker(runner, waiting.popleft()))
        while crew:
            ready = wait([worker.pipe for worker in crew])
            for worker in [worker for worker in crew if worker.pipe in ready]:
                event = worker.hear()
                if event.ends:
                    _occupy(worker, crew, waiting, runner)
                yield event
    finally:
        for worker in crew:
            worker.dismiss()


def _occupy(worker: _Worker, crew: list[_Worker], waiting: deque[Point], runner: PointRunner) -> None:
    """Give a worker that has ended its point the next one, or another worker in its place where it died."""
    if waiting and not worker.died:
        worker.give(waiting.popleft())
        return
    crew.remove(worker)
    worker.dismiss()
    if waiting:
        crew.append(_Worker(runner, waiting.popleft()))


class _Worker:
    """A process and the point that it is running."""

    def __init__(self, runner: PointRunner, point: Point) -> None:
        # Spawned and not forked: torch's threads do not survive a fork.
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.died = False
        self._process = context.Process(target=_serve, args=(theirs, runner), daemon=True)
        with _interrupts_ignored():
            self._process.start()
        theirs.close()
        self.give(point)

    def give(self, point: Point) -> None:
        """Let it run a point."""
        self._point = point
        # A worker that has just died is noticed when it is heard.
        with contextlib.suppress(BrokenPipeError):
            self.pipe.send(point.plan)

    def hear(self) -> Event:
        """Return what it says next, or that it died."""
        try:
            said: Said = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            self.died = True
            said = _death(self._process.exitcode or 0)
        return Event(self._point, said)

    def dismiss(self) -> None:
        """End it, whatever it is doing."""
        self._process.terminate()
        self._process.join()
        self.pipe.close()


def _death(status: int) -> Failure:
    how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"
    return Failure(f"its process ended {how}", "if memory ran out, use fewer --workers")


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Let a process that starts now ignore Ctrl-C, which a terminal sends to workers too: the parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(pipe: Connection, runner: PointRunner) -> None:
    """Be a worker: run every plan that comes, until no more can come."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(runner.attempt(pipe.recv(), _reporter(pipe)))


def _reporter(pipe: Connection) -> Callable[[int], None]:
    last = time.monotonic()

    def report(rounds: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= REPORT_SECONDS:
            last = now
            pipe.send(rounds)

    return report


def _end_with_parent() -> None:
    """End this process when its parent is gone, in the middle of a point too: nobody would hear its result."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
