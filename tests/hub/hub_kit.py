"""A hub with its members inside one test: real sockets and certificates, one event loop, no child process."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import torch

from aggregator.address import Listen, free_port
from aggregator.hub.folder import HubFolder
from aggregator.hub.server import serve_hub
from aggregator.token_bucket import PeerLimits
from fedfair.cli import loopback
from fedfair.cli.loopback import Workspace
from fedfair.consortium.acts import Act, ActKind, sign_act
from fedfair.consortium.members import sign_consortium
from fedfair.consortium.record import sign_entry
from fedfair.consortium.record_file import RecordFile
from fedfair.consortium.studies import ConsortiumStudy, StudyPhase
from fedfair.identity.development import issue_all
from fedfair.identity.store import SiteIdentity, load_signing_key, load_site_identity
from fedfair.ids import FederationName
from fedfair.plan.derived import quorum
from fedfair.plan.loading import load_plan
from fedfair.rounds.events import DeadlineKind
from fedfair.run.initial_model import read_initial_model
from fedfair.wire.member_line import MemberFolder, MemberLine
from fedfair.workspace.archive import pack
from tests.interop.federation_kit import Federation, HeldDeadlines, Watching
from tests.patience import PATIENCE

ROLES = {
    "anna": "lead",
    "bert": "researcher",
    "carl": "researcher",
    "dora": "observer",
    "clinic-a": "site",
    "clinic-b": "site",
    "clinic-c": "site",
}
SITES = ("clinic-a", "clinic-b", "clinic-c")
HEART = FederationName("heart")
QUICK = PeerLimits(burst=1000, refusal_seconds=0.0)


@dataclass
class Consortium:
    """The folders of a hub and its members, on one machine."""

    folder: Path
    port: int = 0
    workspaces: dict[str, Workspace] = field(default_factory=dict)

    @property
    def hub(self) -> HubFolder:
        return HubFolder(self.folder / "hub")

    @property
    def certificates(self) -> Path:
        return self.folder / "hub" / "cert"

    @functools.cached_property
    def keys(self) -> dict[str, str]:
        names = (*ROLES, "stranger")
        return dict(issue_all(self.certificates, HEART, names, ["localhost"], datetime.now(UTC)))

    def made(self, at_once: int = 4) -> "Consortium":
        self.port = free_port("localhost")
        keys = self.keys
        hub_key = (self.certificates / "aggregator" / "signing.pub").read_text().strip()
        values = {
            "format": "fedfair/consortium/1",
            "federation": HEART,
            "number": 1,
            "hub": {"host": "localhost", "port": self.port, "key": hub_key},
            "members": {name: {"role": role, "key": keys[name]} for name, role in ROLES.items()},
        }
        raw = sign_consortium(values, load_signing_key(self.certificates, "anna"))
        self.first = sign_act(
            Act(ActKind.MEMBERS, HEART, "anna", "2026-01-01", payload=raw),
            load_signing_key(self.certificates, "anna"),
        )
        (self.hub.path / "consortium.yaml").write_bytes(raw)
        self.hub.settings_file.write_text(f"at_once: {at_once}\n")
        kept = RecordFile(self.hub.record)
        key = load_signing_key(self.certificates, "aggregator")
        kept.append(kept.load(), [sign_entry(1, bytes(32), self.first, HEART, key)])
        for name in ROLES:
            (self.folder / name).mkdir()
            (self.folder / name / "consortium.yaml").write_bytes(raw)
        return self

    def identity(self, name: str) -> SiteIdentity:
        return load_site_identity(self.certificates, name, datetime.now(UTC))

    def line(self, name: str) -> MemberLine:
        return MemberLine(MemberFolder(self.folder / name, name), lambda: self.identity(name))

    def workspace(self, study: str, plan: dict[str, object]) -> Workspace:
        """Write the workspace of a study, as its researcher and its sites have it."""
        folder = self.folder / "workspaces" / study
        folder.mkdir(parents=True)
        (folder / "cert").symlink_to(self.certificates)
        found = loopback.prepare_with(folder, plan, self.keys, self.port)
        self.workspaces[study] = found
        return found


class Said(list[str]):
    """What a hub says, and a wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[tuple[str, asyncio.Event]] = []

    def append(self, line: str) -> None:
        super().append(line)
        for words, event in self._waiting:
            if words in line:
                event.set()

    async def until(self, words: str) -> None:
        event = asyncio.Event()
        self._waiting.append((words, event))
        if not any(words in line for line in self):
            await event.wait()


@dataclass
class PlayedHub:
    """A hub that serves, and lines of its members."""

    consortium: Consortium
    serving: asyncio.Task[str]
    said: Said
    deadlines: HeldDeadlines = field(default_factory=HeldDeadlines)

    async def submit(self, study: str, by: str = "bert", **changes: object) -> None:
        workspace = self.consortium.workspaces[study]
        plan = load_plan(workspace.plan)
        raw = pack(workspace.folder)
        async with self.consortium.line(by) as line:
            archive = await line.client.bring(raw)
            told = {
                "study": study,
                "plan_digest": read_initial_model(workspace.plan, plan).plan_digest,
                "archive_digest": archive,
                "archive_bytes": len(raw),
                "sites": tuple(plan.federation.collaborators),
                "needed": quorum(plan),
                "words": "a question",
            }
            await line.act(ActKind.SUBMITTED, **{**told, **changes})

    async def act(self, by: str, kind: ActKind, study: str, words: str = "") -> None:
        async with self.consortium.line(by) as line:
            await line.follow()
            fields: dict[str, object] = {"words": words}
            if kind is ActKind.APPROVED:
                folder = self.consortium.workspaces[study].folder
                fields["payload"] = (folder / "approvals" / f"{by}.json").read_bytes()
            plan_digest = line.record.studies[study].submitted.plan_digest
            await line.act(kind, study=study, plan_digest=plan_digest, **fields)

    async def approve(self, study: str, *names: str) -> None:
        for name in names or self.consortium.workspaces[study].collaborators:
            await self.act(name, ActKind.APPROVED, study)

    async def until(self, study: str, *phases: StudyPhase, who: str = "anna") -> ConsortiumStudy:
        async with self.consortium.line(who) as line:
            await line.follow()
            while study not in line.record.studies or line.record.studies[study].phase not in phases:
                await line.follow(wait_seconds=30)
            return line.record.studies[study]

    def federation(self, study: str) -> Federation:
        return Federation(
            self.consortium.workspaces[study],
            self.consortium.port,
            Watching(),
            self.serving,  # type: ignore[arg-type]
        )

    async def carried_out(self, study: str) -> ConsortiumStudy:
        """Submit, approve and run a study to its end, all sites taking part."""
        await self.submit(study)
        await self.approve(study)
        await self.until(study, StudyPhase.RUNNING, StudyPhase.FINISHED)
        await self.federation(study).everybody()
        return await self.until(study, StudyPhase.FINISHED)

    async def begun_with(self, study: str, *names: str) -> None:
        """Let some of the sites of a study take part to its end; it begins once they are connected."""
        federation = self.federation(study)
        sites = [asyncio.create_task(federation.take_part(name)) for name in names]
        for name in names:
            await self.said.until(f"{name} connected")
        self.deadlines.pass_running(DeadlineKind.JOIN)
        await asyncio.gather(*sites)


def play(
    consortium: Consortium,
    scenario: Callable[[PlayedHub], Awaitable[None]],
    limits: PeerLimits = QUICK,
    retry_seconds: tuple[float, float] = (0.05, 0.2),
) -> list[str]:
    """Start a hub, let the scenario happen, end the hub, and return what it said."""
    torch.set_num_threads(1)
    said = Said()

    async def playing() -> None:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        listen = Listen("localhost", consortium.port)
        deadlines = HeldDeadlines()
        terms = (None, limits, retry_seconds, deadlines.start)
        serving = asyncio.create_task(serve_hub(consortium.hub, listen, ready.set_result, said.append, *terms))
        happening = asyncio.create_task(_after(ready, scenario, PlayedHub(consortium, serving, said, deadlines)))
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.wait({serving, happening}, return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    await serving
                await happening
        finally:
            happening.cancel()
            serving.cancel()
            await asyncio.gather(serving, happening, return_exceptions=True)

    asyncio.run(playing())
    return said


async def _after(
    ready: asyncio.Future[int], scenario: Callable[[PlayedHub], Awaitable[None]], hub: PlayedHub
) -> None:
    await ready
    await scenario(hub)
