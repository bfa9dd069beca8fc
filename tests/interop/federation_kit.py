"""A whole federation inside one test: real sockets and certificates, one event loop, no child process."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from aggregator.address import Listen
from aggregator.deadlines import clock_timer
from aggregator.outcome import Ending, write_result
from aggregator.preparation import Run, Start, prepare
from aggregator.server import serve
from aggregator.token_bucket import PEER_LIMITS, PeerLimits
from collaborator.egress import EgressRecord
from collaborator.link import Link
from collaborator.masked_worker import MaskedWorker
from collaborator.participation import ParticipationTerms, dial, driver_of, worker_of
from collaborator.plain_worker import PlainWorker
from collaborator.preparation import Readiness, make_ready
from collaborator.records import SiteLogs
from collaborator.run_store import RunStore
from collaborator.worker import Worker
from fedfair.aggregation.evaluation_file import parse_evaluation
from fedfair.aggregation.model_file import load
from fedfair.aggregation.requests import vector_sha256
from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import Occasion
from fedfair.audit.reader import RecordReader, bounded_lines
from fedfair.cli import loopback
from fedfair.news.event import News, StatusUpdate
from fedfair.news.processors import ignore
from fedfair.news.sums import SumApplied
from fedfair.plan.derived import is_masked
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.results.document import JsonObject, to_json
from fedfair.rounds.events import DeadlineKind, DeadlineToken
from fedfair.run.initial_model import InitialModel
from fedfair.run.training_run import Progress, TrainingRun
from fedfair.simulation.simulate import SimulationOutcome, simulate
from fedfair.training.binding import plan_binding
from fedfair.wire.calling import Address
from fedfair.wire.frames import CollaboratorFrame, Finished, Hello
from fedfair.wire.receiving import ForWorker
from tests.patience import PATIENCE
from tests.site_reading import read_site

NAMES = ("clinic-a", "clinic-b", "clinic-c")
FIVE = ("clinic-a", "clinic-b", "clinic-c", "clinic-d", "clinic-e")


class HeldDeadlines:
    """Deadlines that pass when a test says so, and never by a clock; one of no seconds passes at once."""

    def __init__(self) -> None:
        self._running: dict[DeadlineToken, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}
        self._passing: set[DeadlineKind] = set()

    def start(self, token: DeadlineToken, seconds: float, passed: Callable[[], None]) -> asyncio.TimerHandle:
        """Start a deadline, as `aggregator.deadlines.StartTimer` says."""
        if seconds == 0.0 or token.kind in self._passing:
            return clock_timer(token, 0.0, passed)
        handle = clock_timer(token, 10.0 * PATIENCE, passed)
        self._running[token] = handle, passed
        return handle

    @contextmanager
    def passing(self, kind: DeadlineKind) -> Iterator[None]:
        """Let every deadline of this kind pass at once, those that run already too."""
        self._passing.add(kind)
        self.pass_running(kind)
        yield
        self._passing.remove(kind)

    def pass_running(self, kind: DeadlineKind) -> None:
        """Let the running deadline of this kind pass, if there is one."""
        running = [
            passed
            for token, (handle, passed) in self._running.items()
            if token.kind is kind and not handle.cancelled()
        ]
        for passed in running:
            passed()


class Watching:
    """Lets a test wait until something has been said or a round is done."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.progress: list[Progress] = []
        self._waiting: list[tuple[Callable[[], bool], asyncio.Event]] = []

    def __call__(self, update: StatusUpdate) -> None:
        if isinstance(update, SumApplied):
            self.progress.append(update.progress)
        elif isinstance(update, News) and update.is_notice:
            self.notes.append(update.sentence)
        self._look()

    async def until(self, condition: Callable[[], bool]) -> None:
        event = asyncio.Event()
        self._waiting.append((condition, event))
        self._look()
        await event.wait()

    async def until_round(self, number: int) -> None:
        await self.until(lambda: bool(self.progress) and self.progress[-1].round >= number)

    async def until_said(self, words: str, times: int = 1) -> None:
        await self.until(lambda: sum(words in note for note in self.notes) >= times)

    def _look(self) -> None:
        for condition, event in self._waiting:
            if condition():
                event.set()


class Remembered:
    """What a test sends that speaks for itself, in the order in which it was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, MessageKind, Occasion]] = []

    def sending(self, raw: bytes, what: MessageKind, occasion: Occasion, sha256: bytes = b"") -> None:  # noqa: ARG002 - as the protocol has it
        self.sent.append((raw, what, occasion))


class WatchedWorker(Worker):
    """A worker before whose answers a test waits for something, or ends the site."""

    def __init__(self, worker: Worker, before: Callable[[ForWorker], Awaitable[None]]) -> None:
        self._follower, self._worker, self.sums = worker._follower, worker._worker, worker.sums
        self._watched, self._before = worker, before

    @property
    def session(self) -> bytes:
        return self._watched.session

    async def frames(self, said: ForWorker) -> Iterable[CollaboratorFrame]:
        await self._before(said)
        return await self._watched.frames(said)

    def close(self) -> None:
        self._watched.close()


@dataclass
class Federation:
    """One aggregator on a free port, and whoever a test sends to it."""

    workspace: loopback.Workspace
    port: int
    watching: Watching
    serving: asyncio.Task[Ending]
    deadlines: HeldDeadlines = field(default_factory=HeldDeadlines)
    sites: dict[str, Readiness] = field(default_factory=dict)

    def ready(self, name: str) -> Readiness:
        if name not in self.sites:
            folder = self.workspace.folder
            self.sites[name] = make_ready(read_site(name, folder / f"{name}.yaml", self.workspace.plan, None))
        return self.sites[name]

    async def take_part(
        self, name: str, record: Path | None = None, around: Callable[[Worker], Worker] = lambda worker: worker
    ) -> Finished:
        """Play an honest collaborator to the end; it may keep its record where another machine would.

        Args:
            name: of the collaborator.
            record: where it keeps its record of what it sends; None for where its configuration says.
            around: from its worker to the one that answers in its place.
        """
        ready = self.ready(name)
        if record is not None:
            # Another machine has a record and a state of its own.
            ready = replace(ready, site=replace(ready.site, egress=record, state=record.with_suffix(".state")))
        site = ready.site
        folder = self.workspace.folder / "logs"
        answers, records = worker_of(ready, folder), SiteLogs(folder, name)
        terms = ParticipationTerms(Address("localhost", self.port), folder)
        try:
            with closing(EgressRecord(site, ready.binding.digest)) as egress:
                return await driver_of(ready, around(answers), terms, records, egress, ignore).run()
        finally:
            answers.close()
            records.close()
            # As at the end of a process: what the worker does is over, and a log is free again.
            assert isinstance(answers, PlainWorker | MaskedWorker)
            await asyncio.to_thread(answers._worker.shutdown)

    async def everybody(self) -> None:
        """Play all collaborators of the workspace to the end."""
        await asyncio.gather(*(self.take_part(name) for name in self.workspace.collaborators))

    async def until_connected(self, *names: str, times: int = 1) -> None:
        """Wait until the aggregator has heard each of these sites so many times."""
        for name in names:
            await self.watching.until_said(f"{name} connected", times)

    async def begin_with(self, *names: str) -> None:
        """Let the run begin once these sites are connected, unless it has begun with more of them."""
        await self.until_connected(*names)
        self.deadlines.pass_running(DeadlineKind.JOIN)

    def held(self, rounds: int, absent: str, times: int = 1) -> Callable[[Worker], Worker]:
        """Return what makes a collaborator wait after so many rounds until an absent one has connected."""

        async def before(_: ForWorker) -> None:
            if self.watching.progress and self.watching.progress[-1].round >= rounds:
                await self.until_connected(absent, times=times)

        return lambda worker: WatchedWorker(worker, before)

    async def without(self, name: str, rounds: int) -> list[asyncio.Task[Finished]]:
        """Play all collaborators, end one once so many rounds are done, and return the others.

        They play twice as many rounds, and wait there until the one that left has connected again.
        """
        around = self.held(2 * rounds, name, times=2)
        others = [
            asyncio.create_task(self.take_part(each, around=around))
            for each in self.workspace.collaborators
            if each != name
        ]
        leaving = asyncio.create_task(self.take_part(name))
        await self.watching.until_round(rounds)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        return others

    def dial(self, name: str) -> AbstractAsyncContextManager[tuple[Link, Hello]]:
        """Open a stream as `name` for a test that speaks for itself."""
        return dial(self.ready(name), Address("localhost", self.port), Remembered())


def in_process_binding(plan: Path) -> InitialModel:
    made = plan_binding(load_plan(plan), workspace_of(plan))
    return InitialModel(made.layout, made.vector, made.schema, made.digest, made.carried)


def prepared(
    workspace: loopback.Workspace,
    *,
    fresh: bool = False,
    model: Path | None = None,
    binding: Callable[[Path], InitialModel] = in_process_binding,
) -> Run:
    folder = workspace.folder if model is None else workspace.folder / "evaluation"
    start = Start(workspace.plan, folder, workspace.folder / "cert", fresh=fresh, model=model)
    return prepare(start, lambda _: None, binding)


def play(
    workspace: loopback.Workspace,
    scenario: Callable[[Federation], Awaitable[None]],
    *,
    fresh: bool = False,
    model: Path | None = None,
    binding: Callable[[Path], InitialModel] = in_process_binding,
    limits: PeerLimits = PEER_LIMITS,
) -> Ending:
    """Start an aggregator, let the scenario happen, and return how the run ended.

    Args:
        workspace: the federation.
        scenario: what the sites do; the run is over after it or continues to its end.
        fresh: forget the journal.
        model: a saved model that is evaluated in place of a run.
        binding: how the first model and its layout are made; a lie of the aggregator where a test wants one.
        limits: on what one certificate may begin.
    """

    torch.set_num_threads(1)

    async def playing() -> Ending:
        run = prepared(workspace, fresh=fresh, model=model, binding=binding)
        watching = Watching()
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        deadlines = HeldDeadlines()
        served = serve(
            run, Listen("localhost", 0), watching, port.set_result, limits=limits, start_timer=deadlines.start
        )
        serving = asyncio.create_task(served)
        try:
            async with asyncio.timeout(PATIENCE):
                either: set[asyncio.Future[Any]] = {serving, port}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not port.done():
                    return await serving
                await unless_it_ends(
                    serving, scenario(Federation(workspace, port.result(), watching, serving, deadlines))
                )
                ending = await serving
            write_result(run, ending)
            return ending
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            run.records.close()

    return asyncio.run(playing())


async def one_returns(federation: Federation) -> None:
    """Let a site leave in round 2 and come back after round 4 by a worker of its own, as after a restart."""
    others = await federation.without("clinic-a", 2)
    await federation.watching.until_round(4)
    # It has nothing but what is on the disk.
    back = asyncio.create_task(federation.take_part("clinic-a"))
    await asyncio.gather(*others, back)


async def unless_it_ends(
    serving: asyncio.Task[Ending], scenario: Awaitable[None], seconds: float = PATIENCE
) -> None:
    """Let a scenario happen, unless the aggregator ends before it and leaves it waiting.

    Args:
        serving: the aggregator.
        scenario: what the sites do.
        seconds: how long they may go on once it has ended by itself.

    Raises:
        BaseException: the fault of the aggregator, or that of the scenario.
        AssertionError: the run has ended, and the scenario still waits for something.
    """
    acting = asyncio.ensure_future(scenario)
    try:
        await asyncio.wait({serving, acting}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done() and not serving.cancelled():
            ending = serving.result()
            await asyncio.wait({acting}, timeout=seconds)
            assert acting.done(), f"the run has ended, and the scenario still waits: {ending}"
        await acting
    finally:
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)


def model_files_agree(
    workspace: loopback.Workspace, tolerance: float, simulated: SimulationOutcome | None = None
) -> tuple[JsonObject, JsonObject]:
    """Assert that the deployed run's last model and threshold are those of the simulation; return both results."""
    plan = load_plan(workspace.plan)
    simulated = simulated or simulate(plan, workspace.folder)
    _, vector, metadata = load(workspace.folder / "save" / "last.safetensors")
    assert float(abs(vector - simulated.model.vector).max()) <= tolerance
    assert abs(float(metadata["threshold"]) - simulated.model.threshold) <= tolerance
    result = json.loads(workspace.result.read_text())
    assert metadata["round"] == str(result["model"]["round"])
    assert result["model"]["round"] == (simulated.result.model and simulated.result.model.round)
    assert result["state"] == "finished"
    assert result["plan_digest"] == metadata["plan_digest"] == simulated.result.plan_digest
    kept = parse_evaluation((workspace.folder / "save" / "evaluation.json").read_bytes(), "evaluation.json")
    assert kept.model_digest == f"sha256:{vector_sha256(vector).hex()}"
    assert kept.splits["train"].n == simulated.evaluation.splits["train"].n
    assert kept.masked == is_masked(plan)
    return result, to_json(simulated.result)


def states_agree(workspace: loopback.Workspace) -> None:
    """Assert that every site's own copy of the run, on its disk, is the very state of the aggregator's journal."""
    plan = load_plan(workspace.plan)
    binding = plan_binding(plan, workspace.folder)
    initial = TrainingRun(plan, binding.layout, binding.schema, binding.vector).initial
    run = prepared(workspace)
    run.records.close()
    found = {"aggregator": (run.records.run_id, run.training_run.state.digest(binding.digest))}
    for name in workspace.collaborators:
        store = RunStore(workspace.folder / "state" / f"{name}-{binding.digest.hex()[:16]}.run", lambda _: False)
        kept = store.load(initial)
        assert kept is not None, name
        found[name] = kept[0], kept[1].digest(binding.digest)
    assert len(set(found.values())) == 1, found


def read_record(path: Path) -> RecordReader:
    """Read a record of what left, or of what arrived, which must hold together."""
    found = RecordReader()
    with path.open("rb") as source:
        found.read(bounded_lines(source))
    return found


def metrics(workspace: loopback.Workspace) -> list[dict[str, object]]:
    return [json.loads(line) for line in workspace.metrics.read_text().splitlines()]
