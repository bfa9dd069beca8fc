"""Faults in real masked federations: one aggregator and 3 to 5 collaborators over mutual TLS on loopback.

Federations follow one another until `--faults` faults have been injected at random instants. In every second one
local steps take all records (`batch_size: full`). Faults: SIGKILL and SIGTERM with a restart, of a site or of the
aggregator; SIGSTOP and SIGCONT; a site's TCP connections cut, cut in the middle of a frame, held still, delayed,
throttled, or left half-open, by a proxy in between; an unfinished record at the end of each log after a kill; a
full disk (RLIMIT_FSIZE). A sum needs every collaborator.

Five counts must be 0. Wrong sums: what was opened is not what the sites put in within the clips of the round, as
each process wrote it down. Double messages: one site sent two different ones under one transcript. Rounds out of
order: a training round was opened that is neither the next nor the last one again, or a finished run lacks one.
Tracebacks, in any output. Hands needed: a process ended although nothing had happened to it, or with a failure
where it was asked to stop, or a federation did not finish by itself within `--patience` seconds after its last
fault. A process that a fault has ended is started again, as a service manager would.

A process is forked from one that has imported everything, and runs the ordinary command line. 1000 faults take
about a quarter of an hour on two idle cores. `--seconds` begins no further federation after so long, and ends with
status 0 if nothing was found until then. The longest time without a sum after the last fault of a federation is
told. With `--last-sums` one site of each federation is killed besides, in the instant in which it takes the last
opened sum; every site must end with the aggregator's model, or hands are needed. `--sabotage` breaks something on
purpose, each list of its values in a federation of its own: the counts must not be 0.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib
import json
import math
import os
import pkgutil
import random
import re
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from faulty_proxy import Proxy
from numpy.typing import NDArray

from fedfair.process.exit_status import ExitStatus
from fedfair.process.launch import launch

if TYPE_CHECKING:
    import io
    from collections.abc import Collection

    import typer

    from collaborator.egress import EgressRecord
    from fedfair.aggregation.running_sum import Totals
    from fedfair.audit.items import MessageKind
    from fedfair.audit.keeper import Occasion
    from fedfair.run.training_run import Progress, TrainingRun
    from fedfair.secagg.effects import SiteEffect
    from fedfair.secagg.fixedpoint import BodyCode
    from fedfair.secagg.masking import Update
    from fedfair.secagg.opened_sum import OpenedSum
    from fedfair.secagg.participant import Participant
    from fedfair.secagg.recovery import Announcement, KeepBody
    from fedfair.secagg.transcript import RoundSubject
    from fedfair.statistics.table import Purpose

ROUNDS = 150
LAST_SUM = "kill a site at the last sum"
FULL_DISK_BYTES = 4096
ROUND_DEADLINE_SECONDS, JOIN_DEADLINE_SECONDS = 60, 120
PATIENCE_SECONDS = 2.0 * ROUND_DEADLINE_SECONDS + JOIN_DEADLINE_SECONDS + 60.0
"""A fault may cost a sum both of its deadlines, and the next sum the wait for those who are away."""
SUM_TOLERANCE = 1e-4
"""Of a training sum, beside its largest value: masks work on rounded numbers."""

KINDS = {
    "kill a site": 5,
    "kill the aggregator": 3,
    "stop a site in order": 2,
    "stop the aggregator in order": 2,
    "suspend a site": 2,
    "suspend the aggregator": 1,
    "cut connections": 5,
    "cut in the middle of a frame": 3,
    "hold connections": 2,
    "delay connections": 2,
    "throttle connections": 2,
    "leave connections half-open": 2,
    "tear a log": 3,
    "fill a site's disk": 1,
    "fill the aggregator's disk": 1,
}
"""Each kind of fault, and how often it comes beside the others."""

TRACES = ("wrong sums", "double messages", "rounds out of order", "tracebacks", "hands needed")

"""Of every piece, each way."""

SABOTAGES = ("wrong-sum", "second-message", "skipped-round", "traceback", "hang")
"""Can be broken on purpose, one for each count: by the aggregator the sum and the round, else by `SABOTEUR`."""

HANGING_SECONDS = 15.0
"""For so long a federation is waited for that hangs on purpose."""

LAST_WORDS = 600
"""Characters of a process's output that a finding quotes."""

STOPPED_IN_ORDER = (ExitStatus.STOPPED, ExitStatus.DONE, -signal.SIGTERM)
STOPPED_AT_ONCE = (*STOPPED_IN_ORDER, ExitStatus.INTERRUPTED)
"""A service that is asked a second time, while it still ends, leaves at once."""
"""How a process ends that SIGTERM stops: by itself, or, before its command line has begun, by the system."""

SABOTEUR = "site-b"
SABOTAGED_ROUND = 12


# ------------------------------------------------------------------ the processes: forked, and tapped


def everything() -> dict[str, typer.Typer]:
    """Import all that a process runs, so that no fork does it again; return the command line of each program."""
    import aggregator
    import collaborator
    import fedfair

    for package in (fedfair, aggregator, collaborator):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                with contextlib.suppress(ImportError):  # an optional library that is not installed here
                    importlib.import_module(module.name)
    importlib.import_module("sklearn.datasets")  # the records of `plan_of`
    from aggregator import commands as aggregator_commands
    from collaborator import commands as collaborator_commands

    # The collector of garbage would write to all of it in each fork, which would copy it.
    gc.collect()
    gc.freeze()
    return {"aggregator": aggregator_commands.app, "collaborator": collaborator_commands.app}


def zygote(applications: Mapping[str, typer.Typer]) -> None:
    """Fork a process for each line that asks for one; tell which have ended."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    requests, loop = sys.stdin.fileno(), b""
    import select

    while True:
        ready, _, _ = select.select([requests, reading], [], [])
        if reading in ready:
            os.read(reading, 1 << 16)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    _tell({"ended": ended[0], "status": os.waitstatus_to_exitcode(ended[1])})
        if requests not in ready:
            continue
        arrived = os.read(requests, 1 << 16)
        if not arrived:
            return
        *lines, loop = (loop + arrived).split(b"\n")
        for line in lines:
            words = json.loads(line)
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _become(words, applications[words["program"]])
            _tell({"started": child})


def _tell(words: dict[str, object]) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def _become(words: dict[str, Any], application: typer.Typer) -> None:
    """Run the command line in this fork, and never return."""
    status = 70
    try:
        os.setsid()
        output = os.open(words["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        for stream in (sys.stdout, sys.stderr):
            cast("io.TextIOWrapper", stream).reconfigure(write_through=True)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(words["folder"])
        # A console remembers the stream that it was made with; the descriptors beneath are new.
        _tap(Path(words["tap"]), words["name"], skips="skipped-round" in words["sabotage"])
        if words["dies"]:
            _die_at_the_last_sum(Path(words["dies"]), words["rounds"])
        for what in words["sabotage"]:
            _sabotage(what, words["name"])
        sys.argv = [words["program"], *words["arguments"]]
        launch(lambda: application)
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:  # noqa: BLE001 - what nobody caught is what is looked for
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _tap(path: Path, name: str, *, skips: bool = False) -> None:
    """Have this process write down what it contributes, sends under a transcript, and opens.

    With `skips` it lies about the round, from one round on, so that the order of rounds is seen to be checked.
    """
    from collaborator.egress import EgressRecord
    from fedfair.run.training_run import TrainingRun
    from fedfair.secagg.client import Contributing
    from fedfair.secagg.effects import Send
    from fedfair.secagg.messages import Kind, kind_of
    from fedfair.secagg.participant import Participant
    from fedfair.secagg.recovery import RoundState
    from fedfair.secagg.round_messages import ConsistencyCheck, PairMasks, UnmaskShares, Upload
    from fedfair.wire.codec import decode_collaborator_frame
    from fedfair.wire.frames import SecaggMessage

    decoders: dict[Kind, Callable[[bytes], Upload | PairMasks | ConsistencyCheck | UnmaskShares]] = {
        Kind.UPLOAD: Upload.decode,
        Kind.PAIR_MASKS: PairMasks.decode,
        Kind.CONSISTENCY_CHECK: ConsistencyCheck.decode,
        Kind.UNMASK_SHARES: UnmaskShares.decode,
    }

    def write(**line: object) -> None:
        append_line(path, {"name": name, **line})

    sending, contribute = EgressRecord.sending, Participant.contribute
    opening, apply_aggregate = RoundState.open, TrainingRun.apply_aggregate
    opened = b""  # the transcript of the sum that was opened last

    def tapped_sending(
        self: EgressRecord, raw: bytes, what: MessageKind, occasion: Occasion, sha256: bytes = b""
    ) -> None:
        sending(self, raw, what, occasion, sha256)
        frame = decode_collaborator_frame(raw) if what.value != "preflight question" else None
        if not isinstance(frame, SecaggMessage) or kind_of(frame.message) not in decoders:
            return
        kind = kind_of(frame.message)
        said: dict[str, object] = {"kind": kind.name, "message": frame.message.hex()}
        said["transcript"] = decoders[kind](frame.message).transcript.hex()
        write(**said)

    def tapped_contribute(
        self: Participant, update: Update, draws: bytes, encoded: NDArray[np.uint32] | None = None
    ) -> list[SiteEffect]:
        body = within_clips(update, self._phase.code) if isinstance(self._phase, Contributing) else []
        effects = contribute(self, update, draws, encoded)
        # Before it is sent, or even logged: a process that comes back sends it from its log.
        for effect in effects:
            if isinstance(effect, Send) and kind_of(effect.message) is Kind.UPLOAD:
                transcript = Upload.decode(effect.message).transcript.hex()
                write(kind="PUT IN", transcript=transcript, header=float(update.header.sum()), body=body)
        return effects

    def tapped_opening(
        self: RoundState, dtype: np.dtype[np.floating], threads: int, keep: KeepBody | None = None
    ) -> tuple[OpenedSum, Announcement]:
        nonlocal opened
        opened = self.transcript
        return opening(self, dtype, threads, keep)

    def tapped_absorb(self: TrainingRun, totals: Totals, members: Collection[str] = ()) -> Progress:
        request = self.next_sum()
        # Applied, the memory of the body may have become the model.
        body, header = totals.body.astype(np.float64).tolist(), float(totals.header.sum())
        progress = apply_aggregate(self, totals, members)
        place = None if request is None else [request.purpose.value, request.round, request.attempt]
        if skips and place is not None and place[0] == "training" and int(place[1]) >= SABOTAGED_ROUND:
            place[1] = int(place[1]) + 1
        write(
            kind="OPENED",
            at=time.time(),
            place=place,
            transcript=opened.hex(),
            members=list(members),
            header=header,
            body=body,
        )
        return progress

    EgressRecord.sending = tapped_sending  # type: ignore[method-assign]  # this process is the experiment
    Participant.contribute = tapped_contribute  # type: ignore[method-assign]
    RoundState.open = tapped_opening  # type: ignore[method-assign]
    TrainingRun.apply_aggregate = tapped_absorb  # type: ignore[method-assign]


def _die_at_the_last_sum(mark: Path, rounds: int) -> None:
    """Have this process killed, once, when it is told the last sum of the run and has not taken it yet."""
    from collaborator.run_follower import RunFollower

    apply = RunFollower.apply

    def fatally_applied(self: RunFollower, totals: Totals, members: tuple[str, ...]) -> Purpose:
        due = self.replica.rules.next_request(self.replica.state)
        if due is not None and (due.purpose.value, due.round) == ("evaluation", rounds):
            with contextlib.suppress(FileExistsError):
                mark.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return apply(self, totals, members)

    RunFollower.apply = fatally_applied  # type: ignore[method-assign]  # this process is the experiment


def within_clips(update: Update, code: BodyCode) -> list[float]:
    """Return what an update adds to the sum's body: each number within its clip, times the weight."""
    body = np.array(update.body, np.float64)
    for first, last, clip in code.parts(0, body.size):
        body[first:last] = body[first:last].clip(-clip, clip)
    added: list[float] = (body * update.weight).tolist()
    return added


def _sabotage(what: str, name: str) -> None:
    """Break one thing in this process, so that a detector has something to find."""
    from fedfair.aggregation.masked_encoding import MaskedTotals
    from fedfair.secagg.effects import Send
    from fedfair.secagg.messages import Kind, kind_of
    from fedfair.secagg.participant import Participant

    totals, receive, contribute = MaskedTotals.of, Participant.receive, Participant.contribute
    calls = 0

    def wrong_totals(self: MaskedTotals, opened: OpenedSum) -> Totals:
        return totals(self, replace(opened, body=opened.body * 1.01))

    def two_answers(
        self: Participant,
        raw: bytes,
        subject: RoundSubject,
        computed: bytes = b"",
        vector: bytes | bytearray | memoryview = b"",
    ) -> list[SiteEffect]:
        effects = receive(self, raw, subject, computed, vector)
        if kind_of(raw) is Kind.UNMASK_REQUEST:
            sent = [effect.message for effect in effects if isinstance(effect, Send)]
            effects += [Send(message[:-1] + bytes([message[-1] ^ 1])) for message in sent]
        return effects

    def no_update(
        self: Participant, update: Update, draws: bytes, encoded: NDArray[np.uint32] | None = None
    ) -> list[SiteEffect]:
        nonlocal calls
        calls += 1
        if calls == SABOTAGED_ROUND:
            if what == "traceback":
                raise RuntimeError("this is sabotage")
            threading.Event().wait()
        return contribute(self, update, draws, encoded)

    if what == "wrong-sum":
        MaskedTotals.of = wrong_totals  # type: ignore[method-assign]
    elif name == SABOTEUR and what == "second-message":
        Participant.receive = two_answers  # type: ignore[method-assign]
    elif name == SABOTEUR and what != "skipped-round":
        Participant.contribute = no_update  # type: ignore[method-assign]


# ------------------------------------------------------------------ the harness's side of the processes


class Forks:
    """The process that forks, itself a fork that has imported everything, and what became of its children."""

    def __init__(self) -> None:
        os.environ.update(OMP_NUM_THREADS="1", GRPC_VERBOSITY="NONE")
        applications = everything()
        asked, self._requests = os.pipe()
        answers, telling = os.pipe()
        self._process = os.fork()
        if not self._process:
            for ours in (self._requests, answers):
                os.close(ours)
            for number, pipe in enumerate((asked, telling)):
                os.dup2(pipe, number)
            zygote(applications)
            os._exit(0)
        os.close(asked)
        os.close(telling)
        self._answers = os.fdopen(answers, "rb")
        self.statuses: dict[int, int] = {}
        self._started: asyncio.Queue[int] = asyncio.Queue()

    async def listen(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._answers)
        while line := await reader.readline():
            words = json.loads(line)
            if "started" in words:
                # The system gives a process the number of one that ended long ago.
                self.statuses.pop(words["started"], None)
                self._started.put_nowait(words["started"])
            else:
                self.statuses[words["ended"]] = words["status"]

    async def start(self, **words: object) -> int:
        os.write(self._requests, json.dumps(words).encode() + b"\n")
        return await self._started.get()

    def close(self) -> None:
        os.close(self._requests)
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


@dataclass
class Findings:
    """What was injected, and what was found."""

    faults: Counter[str] = field(default_factory=Counter)
    traces: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    federations: int = 0
    with_full_batches: int = 0
    sums: int = 0
    messages: int = 0
    longest_without_sum: float = 0.0

    def note(self, trace: str, words: str) -> None:
        self.traces[trace] += 1
        self.notes.append(f"{trace}: {words}")


def plan_of(number: int, draw: random.Random, rounds: int) -> dict[str, Any]:
    names = [f"site-{letter}" for letter in "abcde"[: draw.choice((3, 4, 5))]]
    return {
        "federation": {
            "name": "chaos",
            "collaborators": names,
            "reconnect_grace_seconds": 30,
            "round_deadline_seconds": ROUND_DEADLINE_SECONDS,
            "join_deadline_seconds": JOIN_DEADLINE_SECONDS,
            "max_attempts": 100,
        },
        "task": {
            "data": "breast-cancer",
            "partition": {"scheme": "random"},
            "standardize": "secure",
            "model": {"name": "linear", "init": "zeros"},
        },
        "objective": {"name": "rcvar", "measure": "loss", "worst_group_size": 0.3, "tradeoff": 0.1},
        "training": {
            "algorithm": "fedsrcvar",
            "rounds": rounds,
            "local_steps": 1 if number % 2 else 2,
            "batch_size": "full" if number % 2 else 16,
            "learning_rate": 0.01,
            "precision": "fp64",
        },
        "secure_aggregation": {"mode": "malicious", "most_records": 512},
        "evaluation": {"every": 10, "bins": 16},
    }


class Federation:
    """One federation, from its files to its end."""

    def __init__(
        self,
        folder: Path,
        number: int,
        forks: Forks,
        draw: random.Random,
        found: Findings,
        sabotage: Sequence[str] = (),
        *,
        rounds: int = ROUNDS,
        last_sums: bool = False,
    ) -> None:
        import yaml

        from fedfair.cli.loopback import prepare

        self._draw, self._forks, self._found, self._sabotage = draw, forks, found, sabotage
        self._rounds = rounds
        plan = plan_of(number, draw, rounds)
        self._workspace = prepare(folder, plan)
        found.with_full_batches += plan["training"]["batch_size"] == "full"
        self._folder = folder
        self._mark = folder / "killed-at-the-last-sum"
        self._doomed = draw.choice(self._workspace.collaborators) if last_sums else ""
        for name in self._workspace.collaborators:
            site = folder / f"{name}.yaml"
            words = yaml.safe_load(site.read_text())
            words["policy"] = {**words["policy"], "max_attempts": 100}
            site.write_text(yaml.safe_dump(words))
        port = yaml.safe_load(self._workspace.plan.read_text())["federation"]["aggregator"]["port"]
        self._proxies = {name: Proxy(port) for name in self._workspace.collaborators}
        self._pids: dict[str, int] = {}
        self._expected: set[int] = set()
        self._ordered: dict[int, tuple[int, ...]] = {}
        """The statuses that a process may end with to which nothing has happened but SIGTERM."""
        self._held: set[str] = set()
        self._unfinished = UnfinishedRecords()
        self._finished: set[str] = set()
        self._last_fault = 0.0
        self._label = f"federation {number}"

    async def run(self, faults: int, pause_seconds: float, patience_seconds: float) -> None:
        """Start every site, inject up to so many faults, and wait for the end."""
        for proxy in self._proxies.values():
            await proxy.start()
        everybody = ("aggregator", *self._workspace.collaborators)
        for name in everybody:
            await self._start(name)
        keeper = asyncio.create_task(self._keep())
        try:
            await self._until(self._workspace.metrics.exists, patience_seconds)
            for _ in range(faults):
                await asyncio.sleep(self._draw.expovariate(1 / pause_seconds))
                if "aggregator" in self._finished:
                    break
                await self._inject()
            if not await self._until(lambda: len(self._finished) == len(everybody), patience_seconds):
                waiting = [name for name in everybody if name not in self._finished]
                states = "".join(f"\n    {name}: {self._state_of(name)}" for name in waiting)
                self._found.note("hands needed", f"{self._label}: not finished: {', '.join(waiting)}{states}")
            if keeper.done():
                keeper.result()
        finally:
            keeper.cancel()
            for pid in self._pids.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for proxy in self._proxies.values():
                proxy.close()
        self._judge()

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        # What is waited for is a file or a process of somebody else: nobody tells.
        while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return condition()

    async def _start(self, name: str) -> None:
        folder = self._folder
        if name == "aggregator":
            words = ["start", "--quiet", "--tell-for", str(PATIENCE_SECONDS)]
        else:
            place = f"localhost:{self._proxies[name].port}"
            words = ["start", "-n", name, "-c", f"{name}.yaml", "-a", place]
        self._pids[name] = await self._forks.start(
            program="aggregator" if name == "aggregator" else "collaborator",
            name=name,
            arguments=words,
            folder=str(folder),
            output=str(folder / f"{name}.output"),
            tap=str(folder / f"{name}.tap"),
            sabotage=self._sabotage,
            dies=str(self._mark) if name == self._doomed else "",
            rounds=self._rounds,
        )
        self._expected.discard(self._pids[name])
        self._ordered.pop(self._pids[name], None)

    async def _keep(self) -> None:
        """Start again whatever a fault has ended; what ended otherwise is finished, or needs a hand."""
        while True:
            await asyncio.sleep(0.02)
            for name, pid in tuple(self._pids.items()):
                status = self._forks.statuses.get(pid)
                if status is None or name in self._finished or name in self._held:
                    continue
                if status == 0 and pid not in self._expected:
                    self._finished.add(name)
                    continue
                if pid not in self._expected and name == self._doomed and status == -signal.SIGKILL:
                    self._doomed = ""
                    self._found.faults[LAST_SUM] += 1
                elif pid not in self._expected:
                    last = (self._folder / f"{name}.output").read_text(errors="replace")[-LAST_WORDS:]
                    words = f"{self._label}: {name} ended with {status}: {last!r}"
                    self._found.note("hands needed", words)
                elif status == 0 and self._over():
                    self._finished.add(name)
                    continue
                elif status not in self._ordered.get(pid, (status,)):
                    last = (self._folder / f"{name}.output").read_text(errors="replace")[-LAST_WORDS:]
                    words = f"{self._label}: {name} was asked to stop and ended with {status}: {last!r}"
                    self._found.note("hands needed", words)
                await self._start(name)

    def _state_of(self, name: str) -> str:
        """Return whether a process runs, and the end of what it has told its operator."""
        status = self._forks.statuses.get(self._pids[name])
        told = (self._folder / f"{name}.output").read_text(errors="replace")[-LAST_WORDS:]
        return f"{'runs' if status is None else f'ended with {status}'}; {told!r}"

    def _over(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return bool(json.loads(self._workspace.result.read_text())["state"] == "finished")
        return False

    # ---------------------------------------------------------- faults

    async def _inject(self) -> None:  # noqa: C901, PLR0912 - one case per fault
        kind = self._draw.choices(list(KINDS), list(KINDS.values()))[0]
        sites = [name for name in self._workspace.collaborators if name not in self._finished]
        if not sites:
            return
        site = self._draw.choice(sites)
        seconds = self._draw.uniform(0.1, 1.0)
        match kind:
            case "kill a site":
                self._end(site, signal.SIGKILL)
            case "kill the aggregator":
                self._end("aggregator", signal.SIGKILL)
            case "stop a site in order":
                self._end(site, signal.SIGTERM)
            case "stop the aggregator in order":
                self._end("aggregator", signal.SIGTERM)
            case "suspend a site":
                await self._suspend(site, seconds)
            case "suspend the aggregator":
                await self._suspend("aggregator", seconds)
            case "cut connections":
                self._proxies[site].cut()
            case "cut in the middle of a frame":
                self._proxies[site].cut_next(self._draw.random())
            case "hold connections":
                await self._proxies[site].hold(seconds)
            case "delay connections":
                await self._proxies[site].delay(2 * seconds)
            case "throttle connections":
                await self._proxies[site].throttle(2 * seconds)
            case "leave connections half-open":
                self._proxies[site].half_open()
            case "tear a log":
                await self._tear(site)
            case "fill a site's disk":
                self._fill(site)
            case "fill the aggregator's disk":
                self._fill("aggregator")
        self._found.faults[kind] += 1
        self._last_fault = time.time()

    def _end(self, name: str, number: signal.Signals) -> None:
        pid = self._pids[name]
        if number is not signal.SIGTERM:
            self._ordered.pop(pid, None)
        elif pid in self._ordered:
            self._ordered[pid] = STOPPED_AT_ONCE
        elif pid not in self._expected:
            self._ordered[pid] = STOPPED_IN_ORDER
        self._expected.add(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    async def _suspend(self, name: str, seconds: float) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pids[name], signal.SIGSTOP)
            await asyncio.sleep(seconds)
            os.kill(self._pids[name], signal.SIGCONT)

    async def _tear(self, site: str) -> None:
        """Kill a site, and leave the beginning of a further record at the end of each of its logs."""
        pid = self._pids[site]
        self._held.add(site)
        self._end(site, signal.SIGKILL)
        await self._until(lambda: pid in self._forks.statuses, 10)
        state = self._folder / "state"
        egress = self._folder / "egress" / f"{site}.jsonl"
        if egress.exists():
            with egress.open("ab") as target:
                target.write(egress.read_bytes().rsplit(b"\n", 2)[-2][: self._draw.randrange(1, 40)])
        for log in (*state.glob(f"{site}-*.secagg"), *state.glob(f"{site}-*.answered-wal")):
            self._unfinished.leave(log, log.read_bytes()[: self._draw.randrange(1, 40)])
        self._held.discard(site)

    def _fill(self, name: str) -> None:
        """Let no file of this process grow any more; a new process finds room again."""
        self._expected.add(self._pids[name])
        self._ordered.pop(self._pids[name], None)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self._pids[name], resource.RLIMIT_FSIZE, (FULL_DISK_BYTES, FULL_DISK_BYTES))

    # ---------------------------------------------------------- what is found

    def _judge(self) -> None:
        self._found.federations += 1
        for output in self._folder.glob("*.output"):
            words = output.read_text(errors="replace")
            for place in re.finditer(re.escape("Traceback (most recent call last)"), words):
                part = words[max(0, place.start() - 200) : place.end() + 3000]
                self._found.note("tracebacks", f"{self._label}: {output.stem}: {part!r}")
        self._compare_models()
        put_in = self._messages()
        opened = [line for line in lines_of(self._folder / "aggregator.tap") if line["kind"] == "OPENED"]
        for words in out_of_order([line["place"] for line in opened], self._rounds if self._over() else None):
            self._found.note("rounds out of order", f"{self._label}: {words}")
        instants = [self._last_fault, *(line["at"] for line in opened if line["at"] > self._last_fault)]
        gaps = (later - earlier for earlier, later in pairwise(instants))
        self._found.longest_without_sum = max(self._found.longest_without_sum, *gaps, 0.0)
        for line in opened:
            self._found.sums += 1
            given = put_in[line["transcript"]]
            if not set(line["members"]) <= set(given):
                self._found.note("wrong sums", f"{self._label}: {line['place']}: nobody put in what was opened")
            elif not _agrees(line, [given[name] for name in line["members"]]):
                self._found.note("wrong sums", f"{self._label}: {line['place']}: another sum than what was put in")

    def _compare_models(self) -> None:
        """Look whether every site has ended with the model of the aggregator."""
        from fedfair.aggregation.model_file import load

        if not self._over():
            return
        wanted = load(self._folder / "save" / "last.safetensors")[1].tobytes()
        for name in self._workspace.collaborators:
            kept = list((self._folder / "runs" / name).glob("*/save/last.safetensors"))
            if [load(path)[1].tobytes() for path in kept] != [wanted]:
                self._found.note("hands needed", f"{self._label}: {name} has not the final model")

    def _messages(self) -> dict[str, dict[str, Any]]:
        """Look at what each site sent; return what each put into the sum of each transcript."""
        put_in: dict[str, dict[str, Any]] = defaultdict(dict)
        for name in self._workspace.collaborators:
            said: dict[tuple[str, str], set[str]] = defaultdict(set)
            for line in lines_of(self._folder / f"{name}.tap"):
                if line["kind"] == "PUT IN":
                    put_in[line["transcript"]][name] = line
                else:
                    said[line["kind"], line["transcript"]].add(line["message"])
            self._found.messages += sum(map(len, said.values()))
            for (kind, transcript), messages in said.items():
                if len(messages) > 1:
                    words = f"{self._label}: {name}: {len(messages)} {kind} under {transcript[:16]}"
                    self._found.note("double messages", words)
        return put_in


def _agrees(opened: dict[str, Any], given: list[dict[str, Any]]) -> bool:
    if opened["place"][0] != "training":
        # Counts, and integers with their rests: the order in which a header holds them does not matter here.
        return bool(np.isclose(opened["header"], sum(line["header"] for line in given), rtol=1e-6, atol=1e-3))
    wanted = np.sum([line["body"] for line in given], axis=0)
    return bool(np.abs(np.array(opened["body"]) - wanted).max() <= SUM_TOLERANCE * (1 + np.abs(wanted).max()))


def out_of_order(places: Iterable[Sequence[Any]], rounds: int | None) -> Iterator[str]:
    """Yield what is wrong with the order in which training rounds were opened.

    Args:
        places: purpose, round and attempt of every opened sum, in order.
        rounds: how many a finished run has; None where it did not finish.
    """
    last = 0
    for purpose, number, _ in places:
        if purpose != "training":
            continue
        # An aggregator that is killed before its journal has a sum opens that one again, and no earlier one.
        if number not in {last, last + 1} or number < 1:
            yield f"round {number} was opened after round {last}"
        last = number
    if rounds is not None and last != rounds:
        yield f"the run is finished, and the last round that was opened is {last} of {rounds}"


def append_line(path: Path, line: dict[str, object]) -> None:
    """Append a line of its own, whatever is left of one that a full disk or a kill has cut before it."""
    with path.open("a") as target:
        target.write("\n" + json.dumps(line) + "\n")


class UnfinishedRecords:
    """Leaves the beginning of a record at the end of a log, as a crash does.

    A site removes what it finds of an unfinished record before it appends another one. So a log ends in one at
    most, also where a site is killed again before it has read its log.
    """

    def __init__(self) -> None:
        self._left: dict[Path, tuple[bytes, bytes]] = {}

    def leave(self, log: Path, beginning: bytes) -> None:
        """Put the beginning of a record at the end of a log, in the place of one that still stands there."""
        records = log.read_bytes()
        before, unfinished = self._left.get(log, (records, b""))
        if records == before + unfinished:
            records = before
        log.write_bytes(records + beginning)
        self._left[log] = (records, beginning)


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a file; a process that could not write a line to its end has not acted on it."""
    if path.exists():
        for line in path.read_text().splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def sabotages(words: str) -> list[str]:
    """Return what is broken in one federation; raises ValueError for something that cannot be."""
    found = words.split(",")
    if unknown := set(found) - set(SABOTAGES):
        raise ValueError(f"{', '.join(sorted(unknown))} cannot be broken on purpose")
    return found


async def chaos(arguments: argparse.Namespace, forks: Forks, progress: IO[str]) -> Findings:
    draw, found = random.Random(arguments.seed), Findings()  # noqa: S311 - instants, not keys
    listening = asyncio.create_task(forks.listen())
    started, told = time.monotonic(), 0
    try:
        while found.faults.total() < arguments.faults and time.monotonic() - started < arguments.seconds:
            left = min(arguments.faults - found.faults.total(), arguments.per_federation)
            with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
                broken = arguments.sabotage[found.federations % len(arguments.sabotage)]
                about = (Path(folder), found.federations, forks, draw, found, broken)
                federation = Federation(*about, rounds=arguments.rounds, last_sums=arguments.last_sums)
                patience = HANGING_SECONDS if "hang" in broken else arguments.patience
                await federation.run(left, arguments.pause, patience)
            seconds = time.monotonic() - started
            counts = ", ".join(f"{found.traces[trace]} {trace}" for trace in TRACES)
            words = f"{found.federations} federations, {found.faults.total()} faults, {seconds:.0f} s: {counts}"
            print(words, *found.notes[told:], sep="\n  ", file=progress, flush=True)
            told = len(found.notes)
    finally:
        listening.cancel()
        forks.close()
    return found


def table(found: Findings) -> str:
    rows = [f"{count:7d}  {kind}" for kind, count in sorted(found.faults.items())]
    words = f"faults in {found.federations} federations, {found.with_full_batches} of them with full batches"
    rows += [f"{found.faults.total():7d}  {words}"]
    rows += [f"{found.longest_without_sum:7.1f}  seconds at most without a sum after the faults of a federation"]
    rows += [f"{found.sums:7d}  sums opened", f"{found.messages:7d}  messages under a transcript"]
    return "\n".join([*rows, *(f"{found.traces[trace]:7d}  {trace}" for trace in TRACES)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no further federation after so long"
    )
    parser.add_argument("--per-federation", type=int, default=25, help="faults in one federation, at most")
    parser.add_argument("--pause", type=float, default=0.4, help="mean seconds between two faults")
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, help="to finish after the last fault")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="training rounds of a federation")
    parser.add_argument("--last-sums", action="store_true", help="kill a site of each at the last sum, too")
    parser.add_argument(
        "--sabotage", nargs="+", type=sabotages, default=[()], metavar="LIST",
        help=f"break something in each federation, as traceback,wrong-sum: {', '.join(SABOTAGES)}",
    )  # fmt: skip
    arguments = parser.parse_args()
    outcome = asyncio.run(chaos(arguments, Forks(), sys.stderr))
    print(table(outcome))
    for note in outcome.notes:
        print(f"  {note}")
    sys.exit(1 if outcome.traces.total() else 0)
