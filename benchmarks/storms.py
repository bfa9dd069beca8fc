"""Rounds per second of a masked federation under four storms, beside its rounds per second without them.

Five sites and an aggregator run as real processes over mutual TLS on loopback; four sites are enough for a sum.
Every site is reached through a proxy of this process. One federation goes through all storms. Each alternates with
quiet times of the same length (`--pairs`). The ratio is that of the rates over both, because the machine is seldom
idle. A storm's time begins with its first moment, so what it costs until it is noticed counts.

    checks      a site asks preflight questions of 2 MB, over one connection, as fast as they are refused
    cuts        every site has a fault every six seconds: its connections are cut
    faults      the same, and every second fault lets the present connections stand still for good
    slow        one site takes three times the round's deadline for each contribution
    reconnects  one site, which has its certificate and a signed approval, connects up to 65 times a second

`--storms` takes some of them. The deadline is short here (`--deadline`), so that a version that waits for it in
every round can be measured at all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from faulty_proxy import Proxy
from machine import report
from paper_steps import BATCH, LEARNING_RATE, SMOOTHING, constant_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from fedfair.identity.store import SiteIdentity
    from fedfair.secagg.effects import SiteEffect
    from fedfair.secagg.masking import Update
    from fedfair.secagg.participant import Participant

NAMES = tuple(f"site-{number}" for number in range(1, 6))
GUILTY = NAMES[-1]
STORMS = ("checks", "cuts", "faults", "slow", "reconnects")
FAULT_SECONDS = 6.0
RECONNECTS_PER_SECOND = 65
QUESTION_BYTES = 2 << 20
START_SECONDS = 300.0
"""How long the processes may take until the first round."""


def plan(deadline: int) -> dict[str, object]:
    return {
        "federation": {
            "name": "storms",
            "collaborators": list(NAMES),
            "min_collaborators": len(NAMES) - 1,
            "round_deadline_seconds": deadline,
            "max_attempts": 100,
        },
        "task": {
            "data": "digits",
            "partition": {"scheme": "random"},
            "model": {"name": "mlp", "hidden": [120]},
        },
        "objective": {"measure": "loss", "smoothing": SMOOTHING},
        "training": {
            "rounds": 1_000_000,
            "batch_size": BATCH,
            "learning_rate": LEARNING_RATE,
            "output": "last",
            **constant_steps(),
        },
        "evaluation": {"every": 1_000_000},
    }


# ------------------------------------------------------------------ the storms' own processes


def attack(words: argparse.Namespace) -> None:
    """Play the guilty site for some seconds; print what became of its attempts."""
    attempts = asyncio.run(checks(words) if words.attack == "checks" else reconnects(words))
    # What the storm itself takes of this machine, it would take of another one.
    print(json.dumps({**attempts, "own cpu milliseconds": round(1000 * time.process_time())}))


def channel_of(words: argparse.Namespace) -> tuple[SiteIdentity, Callable[[], grpc.aio.Channel]]:
    """Return the guilty site's identity, and what opens a channel as it."""
    from fedfair.identity.preflight import preflight
    from fedfair.identity.store import load_site_identity
    from fedfair.identity.tls import channel_credentials

    now = datetime.now(UTC)
    identity = load_site_identity(words.folder / "cert", GUILTY, now)
    server = preflight("localhost", words.port, identity, now)
    credentials = channel_credentials(identity, server)
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
    return identity, lambda: grpc.aio.secure_channel(f"localhost:{words.port}", credentials, options=options)


async def checks(words: argparse.Namespace) -> dict[str, int]:
    from fedfair.wire.service import CHECK

    _, opened = channel_of(words)
    question, found = b"\xff" * QUESTION_BYTES, Counter[str]()

    async def ask(channel: grpc.aio.Channel) -> None:
        while time.monotonic() < end:
            try:
                await channel.unary_unary(CHECK, bytes, bytes)(question, timeout=30.0)
            except grpc.aio.AioRpcError as refused:
                found[refused.code().name] += 1

    end = time.monotonic() + words.seconds
    async with opened() as channel:
        await asyncio.gather(*(ask(channel) for _ in range(4)))
    return dict(found)


async def reconnects(words: argparse.Namespace) -> dict[str, int]:
    from fedfair import __version__
    from fedfair.identity.certificate import fingerprint
    from fedfair.identity.roster import bind_certificate
    from fedfair.ids import parse_federation_name, parse_participant_id
    from fedfair.wire.codec import encode_collaborator_frame
    from fedfair.wire.frames import Hello
    from fedfair.wire.limits import PROTOCOL_VERSION
    from fedfair.wire.service import PARTICIPATE

    identity, opened = channel_of(words)
    federation, name = parse_federation_name("storms"), parse_participant_id(GUILTY)
    binding = bind_certificate(identity.signing_key, fingerprint(identity.certificate), federation, name)
    approval = (words.folder / "approvals" / f"{GUILTY}.json").read_bytes()
    hello = Hello(PROTOCOL_VERSION, __version__, bytes.fromhex(words.digest), approval, binding)
    raw, found = encode_collaborator_frame(hello), Counter[str]()

    async def connect() -> None:
        try:
            async with opened() as channel:
                call = channel.stream_stream(PARTICIPATE, bytes, bytes)(None)
                async with asyncio.timeout(5.0):
                    await call.write(raw)
                    first = await call.read()
                found["let in" if isinstance(first, bytes) else "sent away"] += 1
                call.cancel()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError, asyncio.CancelledError):
            found["sent away"] += 1

    end, running = time.monotonic() + words.seconds, set[asyncio.Task[None]]()
    due = time.monotonic()
    while (now := time.monotonic()) < end:
        if now >= due and len(running) < 2 * RECONNECTS_PER_SECOND:
            task = asyncio.create_task(connect())
            running.add(task)
            task.add_done_callback(running.discard)
            due = max(due + 1 / RECONNECTS_PER_SECOND, now - 0.1)
        await asyncio.sleep(max(0.0, min(due - time.monotonic(), 0.1)))
    await asyncio.gather(*running)
    return dict(found)


def slow_site(words: argparse.Namespace) -> None:
    """Be a site that computes slowly for as long as a file is there."""
    from collaborator.commands import app
    from fedfair.process.launch import launch
    from fedfair.secagg.participant import Participant

    contribute, flag = Participant.contribute, words.folder / "slow"

    def slowly(
        self: Participant, update: Update, draws: bytes, encoded: NDArray[np.uint32] | None = None
    ) -> list[SiteEffect]:
        if flag.exists():
            time.sleep(float(flag.read_text()))
        return contribute(self, update, draws, encoded)

    Participant.contribute = slowly  # type: ignore[method-assign]  # this process is the experiment
    sys.argv = ["collaborator", *words.rest]
    launch(lambda: app)


# ------------------------------------------------------------------ the federation


@dataclass
class Window:
    """A time in which rounds are counted."""

    name: str
    start: float
    end: float = 0.0
    found: dict[str, int] = field(default_factory=dict)
    megabytes: float = 0.0
    cpu_seconds: float = 0.0

    def rate(self, instants: list[float]) -> float:
        return sum(self.start <= at < self.end for at in instants) / (self.end - self.start)


class Federation:
    """The processes, their proxies, and what was measured of them."""

    def __init__(self, folder: Path, words: argparse.Namespace) -> None:
        import yaml

        from fedfair.cli.loopback import prepare
        from fedfair.plan.loading import load_plan
        from fedfair.training.binding import plan_binding

        self._words = words
        self.workspace = prepare(folder, plan(words.deadline))
        for name in NAMES:
            site = folder / f"{name}.yaml"
            terms = yaml.safe_load(site.read_text())
            terms["policy"] = {**terms["policy"], "max_attempts": 100}
            site.write_text(yaml.safe_dump(terms))
        read = load_plan(self.workspace.plan)
        self._port = int(read.federation.aggregator.port)
        self._digest = plan_binding(read, folder).digest.hex()
        self._proxies = {name: Proxy(self._port) for name in NAMES}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.windows: list[Window] = []

    def _start(self, name: str, *arguments: str) -> None:
        log = self.workspace.folder / f"{name}.output"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GRPC_VERBOSITY": "NONE"}
        with log.open("ab") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.workspace.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    async def start(self) -> None:
        self._start("aggregator", "-m", "aggregator", "start", "-p", str(self.workspace.plan), "--quiet")
        for name, proxy in self._proxies.items():
            await proxy.start()
            place = ("-a", f"localhost:{proxy.port}", "-p", str(self.workspace.plan), "--quiet")
            words = ("start", "-n", name, "-c", str(self.workspace.folder / f"{name}.yaml"), *place)
            slow = (__file__, "--site", "--folder", str(self.workspace.folder))
            self._start(name, *((*slow, *words) if name == GUILTY else ("-m", "collaborator", *words)))
        deadline = time.monotonic() + START_SECONDS
        while len(self.instants()) < 5:
            if time.monotonic() > deadline or any(one.poll() is not None for one in self._running.values()):
                raise RuntimeError("no rounds: " + self.last_words())
            await asyncio.sleep(0.2)

    def last_words(self) -> str:
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-400:]}"
            for path in sorted(self.workspace.folder.glob("*.output"))
        )

    def instants(self) -> list[float]:
        """Return when each training round closed, in seconds since 1970."""
        if not self.workspace.metrics.exists():
            return []
        found = map(json.loads, self.workspace.metrics.read_text().split("\n")[:-1])
        closed = [line["time"] for line in found if line["purpose"] == "training"]
        return [datetime.fromisoformat(instant).timestamp() for instant in closed]

    async def measure(self, name: str, seconds: float) -> None:
        before = cpu_seconds(self._running["aggregator"].pid)
        window = Window(name, time.time())
        self.windows.append(window)
        if name in ("checks", "reconnects"):
            window.found = await self._attack(name, seconds)
        elif name in ("cuts", "faults"):
            window.found = await self._faults(seconds, half_open=name == "faults")
        else:
            flag = self.workspace.folder / "slow"
            if name == "slow":
                flag.write_text(str(3.0 * self._words.deadline))
            await asyncio.sleep(seconds)
            flag.unlink(missing_ok=True)
        window.end = time.time()
        window.cpu_seconds = cpu_seconds(self._running["aggregator"].pid) - before
        window.megabytes = resident_megabytes(self._running["aggregator"].pid)

    async def _attack(self, name: str, seconds: float) -> dict[str, int]:
        """Have the guilty site's identity used by another process; its own has ended, if it is to reconnect."""
        words = ("--attack", name, "--folder", str(self.workspace.folder), "--port", str(self._port))
        more = ("--digest", self._digest, "--seconds", str(seconds))
        attacker = await asyncio.create_subprocess_exec(
            sys.executable, __file__, *words, *more, stdout=subprocess.PIPE
        )
        said, _ = await attacker.communicate()
        return json.loads(said)  # type: ignore[no-any-return]

    async def _faults(self, seconds: float, *, half_open: bool) -> dict[str, int]:
        """Give each site its faults, evenly over the sites; every second one is a line that stands still."""
        found, end = Counter[str](), time.monotonic() + seconds
        sites = [name for name in NAMES if self._running[name].poll() is None]
        number = 0
        while time.monotonic() < end:
            turn, which = divmod(number, len(sites))
            if half_open and (turn + which) % 2:
                self._proxies[sites[which]].half_open()
                found["stopped"] += 1
            else:
                self._proxies[sites[which]].cut()
                found["cut"] += 1
            number += 1
            await asyncio.sleep(FAULT_SECONDS / len(sites))
        return dict(found)

    async def end_guilty(self) -> None:
        """End the process whose identity the storm of connections takes."""
        self._running[GUILTY].send_signal(signal.SIGTERM)
        await asyncio.to_thread(self._running[GUILTY].wait, 60)

    def stop(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def figures(self) -> dict[str, object]:
        instants, figures = self.instants(), dict[str, object]()
        for name in dict.fromkeys(window.name for window in self.windows if window.name in STORMS):
            stormy = [at for at, window in enumerate(self.windows) if window.name == name]
            # A quiet time stands before the first storm of a kind, and one after each.
            calm = sorted({at + step for at in stormy for step in (-1, 1)})
            quiet, storm = ([self.windows[at] for at in places] for places in (calm, stormy))
            without, with_storm = rate(quiet, instants), rate(storm, instants)
            attempts = sum((Counter(window.found) for window in storm), Counter[str]())
            figures[name] = {
                "rounds_per_second_without": round(without, 2),
                "rounds_per_second_with": round(with_storm, 2),
                "left": round(with_storm / without, 3) if without else None,
                "left_of_each": [
                    round(
                        self.windows[at].rate(instants)
                        / rate([self.windows[at - 1], self.windows[at + 1]], instants),
                        2,
                    )
                    for at in stormy
                ],
                "attempts": dict(attempts),
                "seconds": round(sum(window.end - window.start for window in storm), 1),
                "aggregator_cpu_a_second_without": round(cpu_a_second(quiet), 3),
                "aggregator_cpu_a_second_with": round(cpu_a_second(storm), 3),
                "aggregator_megabytes_before": round(quiet[0].megabytes),
                "aggregator_megabytes_after_each": [round(window.megabytes) for window in storm],
                "aggregator_megabytes_at_the_end": round(quiet[-1].megabytes),
            }
        return figures


def rate(windows: list[Window], instants: list[float]) -> float:
    """Return rounds per second over all these times; never 0, which nothing can be divided by."""
    found = sum(window.rate(instants) * (window.end - window.start) for window in windows)
    return found / sum(window.end - window.start for window in windows) or 1e-9


def cpu_a_second(windows: list[Window]) -> float:
    """Return the seconds of processor time of the aggregator for each second of these times."""
    return sum(one.cpu_seconds for one in windows) / sum(one.end - one.start for one in windows)


def resident_megabytes(pid: int) -> float:
    """Return the memory that a process of this machine occupies."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process of this machine has used; other processes hardly disturb it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def storms(words: argparse.Namespace, folder: Path) -> dict[str, object]:
    federation = Federation(folder, words)
    try:
        await federation.start()
        for storm in (storm for storm in STORMS if storm in words.storms):
            if storm == "reconnects":
                await federation.end_guilty()
            await asyncio.sleep(words.settle)
            await federation.measure("quiet", words.seconds)
            for _ in range(words.pairs):
                await federation.measure(storm, words.seconds)
                # What the storm has left is not counted as quiet.
                await asyncio.sleep(words.settle)
                await federation.measure("quiet", words.seconds)
        return federation.figures()
    finally:
        federation.stop()
        if words.keep:
            print(federation.last_words(), file=sys.stderr)
            notes = federation.workspace.folder / "logs" / "aggregator_notes.log"
            print(notes.read_text() if notes.exists() else "", file=sys.stderr)


if __name__ == "__main__":
    __file__ = str(Path(__file__).resolve())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storms", nargs="+", choices=STORMS, default=list(STORMS))
    parser.add_argument("--seconds", type=float, default=30.0, help="of each storm and of each quiet time")
    parser.add_argument("--pairs", type=int, default=3, help="how often a storm and a quiet time alternate")
    parser.add_argument("--settle", type=float, default=10.0, help="seconds after a storm that are not counted")
    parser.add_argument("--deadline", type=int, default=20, help="round_deadline_seconds of the plan")
    parser.add_argument("--keep", action="store_true", help="print what the processes said to standard error")
    parser.add_argument("--attack", choices=("checks", "reconnects"), help=argparse.SUPPRESS)
    parser.add_argument("--site", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--digest", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        attack(arguments)
    elif arguments.site:
        slow_site(arguments)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            found = asyncio.run(storms(arguments, Path(temporary)))
        report("storms", sites=len(NAMES), needed=len(NAMES) - 1, deadline_seconds=arguments.deadline, **found)
