import asyncio
import os
import signal
import subprocess
import sys

from fedfair.process.stopping import SAME_REQUEST_SECONDS, StopRequests, stopping
from tests.patience import PATIENCE

LEAVING = """
import asyncio, os, signal
from fedfair.process.stopping import stopping

async def main():
    now = iter([0.0, 10.0])
    with stopping(lambda name: print(name, flush=True), clock=lambda: next(now)):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        while True:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)

asyncio.run(main())
"""


def test_the_first_signal_stops_in_order_and_a_later_one_at_once() -> None:
    times = iter([5.0, 5.0 + SAME_REQUEST_SECONDS])
    asked: list[str] = []
    requests = StopRequests(asked.append, lambda: next(times))
    assert requests.take("SIGINT") is False
    assert requests.take("SIGTERM") is True
    assert asked == ["SIGINT"]


def test_signals_that_follow_each_other_closely_are_one_request() -> None:
    # Ctrl-C reaches all processes at the terminal, and `timeout` or a script may pass its own on a moment later.
    times = iter([5.0, 5.001, 5.9, 6.5])
    asked: list[str] = []
    requests = StopRequests(asked.append, lambda: next(times))
    assert [requests.take(name) for name in ("SIGINT", "SIGINT", "SIGTERM")] == [False, False, False]
    assert asked == ["SIGINT"]
    assert requests.take("SIGINT") is True


def test_two_real_signals_at_once_let_the_process_end_in_order() -> None:
    asked: list[str] = []

    async def run() -> None:
        stopped = asyncio.Event()

        def stop(name: str) -> None:
            asked.append(name)
            stopped.set()

        with stopping(stop):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            await stopped.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)

    asyncio.run(run())
    assert asked == ["SIGTERM"]


def test_a_real_second_signal_ends_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEAVING], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "SIGTERM\n", "")
