"""Rounds per second of a hub's study: alone, as a plain aggregator's run, and with a second study beside it.

The hub and every site are processes on this machine, over mutual TLS. The sites of a study train an MLP 64-120-10
on scikit-learn's digits, one step of batch 64 a round, masked. The rate is that of a study's own result. In each
run the same plan is driven by `aggregator start`, by a hub alone, and by a hub with a second study of other sites.

The two studies share the processors: with fewer processors than processes, the second one takes its part of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from machine import report
from paper_steps import BATCH, LEARNING_RATE, SMOOTHING, constant_steps

from aggregator.address import free_port
from aggregator.hub.folder import HubFolder
from fedfair.cli.loopback import Processes, Workspace, prepare, prepare_with
from fedfair.consortium.acts import Act, ActKind, sign_act
from fedfair.consortium.members import FILE, sign_consortium
from fedfair.consortium.record import sign_entry
from fedfair.consortium.record_file import RecordFile
from fedfair.consortium.studies import StudyPhase
from fedfair.identity.development import issue_all
from fedfair.identity.store import SiteIdentity, load_signing_key, load_site_identity
from fedfair.ids import FederationName
from fedfair.plan.derived import quorum
from fedfair.plan.loading import load_plan
from fedfair.run.initial_model import read_initial_model
from fedfair.wire.member_line import MemberFolder, MemberLine
from fedfair.workspace.archive import pack

FEDERATION = FederationName("speed")
LEAD = "lead"


def plan(names: tuple[str, ...], rounds: int, seed: int) -> dict[str, object]:
    return {
        "federation": {"name": FEDERATION, "collaborators": list(names)},
        "task": {
            "data": "digits",
            "partition": {"scheme": "random"},
            "model": {"name": "mlp", "hidden": [120]},
        },
        "objective": {"measure": "loss", "smoothing": SMOOTHING},
        "training": {
            "rounds": rounds,
            "seed": seed,
            "batch_size": BATCH,
            "learning_rate": LEARNING_RATE,
            "output": "last",
            **constant_steps(),
        },
        "evaluation": {"every": rounds},
    }


class Bench:
    """A hub in a folder, and studies of sites of their own."""

    def __init__(self, folder: Path, studies: int, sites: int) -> None:
        self.folder, self.hub, self.port = folder, HubFolder(folder / "hub"), free_port("localhost")
        self.sites = [tuple(f"site-{study}-{site}" for site in range(sites)) for study in range(studies)]
        names = [LEAD, *(name for each in self.sites for name in each)]
        now = datetime.now(UTC)
        self.keys = dict(issue_all(self.hub.certificates, FEDERATION, names, ["localhost"], now))
        key = load_signing_key(self.hub.certificates, LEAD)
        hub_key = (self.hub.certificates / "aggregator" / "signing.pub").read_text(encoding="ascii").strip()
        raw = sign_consortium(
            {
                "format": "fedfair/consortium/1",
                "federation": FEDERATION,
                "number": 1,
                "hub": {"host": "localhost", "port": self.port, "key": hub_key},
                "members": {
                    name: {"role": "lead" if name == LEAD else "site", "key": self.keys[name]} for name in names
                },
            },
            key,
        )
        first = sign_act(Act(ActKind.MEMBERS, FEDERATION, LEAD, now.isoformat(), payload=raw), key)
        own = load_signing_key(self.hub.certificates, "aggregator")
        kept = RecordFile(self.hub.record)
        kept.append(kept.load(), [sign_entry(1, bytes(32), first, FEDERATION, own)])
        for name in names:
            (folder / name).mkdir()
            (folder / name / FILE).write_bytes(raw)

    def identity(self, name: str) -> SiteIdentity:
        return load_site_identity(self.hub.certificates, name, datetime.now(UTC))

    def line(self, name: str) -> MemberLine:
        return MemberLine(MemberFolder(self.folder / name, name), lambda: self.identity(name))

    def workspace(self, study: int, rounds: int) -> Workspace:
        folder = self.folder / f"study-{study}"
        folder.mkdir()
        (folder / "cert").symlink_to(self.hub.certificates)
        return prepare_with(folder, plan(self.sites[study], rounds, study), self.keys, self.port)

    async def propose(self, name: str, workspace: Workspace) -> None:
        """Submit a study, and have all its sites approve it."""
        stated = load_plan(workspace.plan)
        digest, raw = read_initial_model(workspace.plan, stated).plan_digest, pack(workspace.folder)
        about = {"study": name, "plan_digest": digest, "words": ""}
        async with self.line(LEAD) as line:
            found = {"archive_digest": await line.client.bring(raw), "archive_bytes": len(raw)}
            sites = {"sites": tuple(workspace.collaborators), "needed": quorum(stated)}
            await line.act(ActKind.SUBMITTED, **about, **found, **sites)
        for site in workspace.collaborators:
            async with self.line(site) as line:
                payload = (workspace.folder / "approvals" / f"{site}.json").read_bytes()
                await line.act(ActKind.APPROVED, payload=payload, **about)

    async def until(self, names: list[str], phase: StudyPhase) -> None:
        async with self.line(LEAD) as line:
            await line.follow()
            while any(line.record.studies[name].phase is not phase for name in names):
                await line.follow(wait_seconds=30)


def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)


def by_hub(arguments: argparse.Namespace, studies: int) -> list[float]:
    """Return the rounds per second of studies that one hub drives at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), studies, arguments.collaborators)
        ready = bench.folder / "ready.json"
        words = ("--folder", str(bench.hub.path), "--ready-file", str(ready), "--quiet")
        hub = start(bench.folder, "fedfair.cli", "hub", "start", *words)
        while not ready.exists():
            time.sleep(0.05)
        workspaces = {f"study-{study}": bench.workspace(study, arguments.rounds) for study in range(studies)}
        for name, workspace in workspaces.items():
            asyncio.run(bench.propose(name, workspace))
        asyncio.run(bench.until([*workspaces], StudyPhase.RUNNING))
        sites = [
            start(each.folder, "collaborator", "start", "-n", name, "-c", f"{name}.yaml", "--quiet")
            for each in workspaces.values()
            for name in each.collaborators
        ]
        asyncio.run(bench.until([*workspaces], StudyPhase.FINISHED))
        for site in sites:
            site.wait()
        hub.terminate()
        hub.wait()
        results = [bench.hub.study(name) / "result.json" for name in workspaces]
        return [float(json.loads(each.read_text())["timing"]["rounds_per_second"]) for each in results]


def by_aggregator(arguments: argparse.Namespace) -> float:
    """Return the rounds per second of the same plan under `aggregator start`."""
    names = tuple(f"site-0-{site}" for site in range(arguments.collaborators))
    with tempfile.TemporaryDirectory() as folder:
        workspace = prepare(Path(folder), plan(names, arguments.rounds, 0))
        with Processes(workspace) as processes:
            processes.wait()
        return float(json.loads(workspace.result.read_text())["timing"]["rounds_per_second"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--collaborators", type=int, default=3)
    arguments = parser.parse_args()
    runs = [
        {
            "aggregator": by_aggregator(arguments),
            "hub_alone": by_hub(arguments, 1)[0],
            "hub_two": by_hub(arguments, 2),
        }
        for _ in range(arguments.runs)
    ]
    alone = {name: statistics.median(run[name] for run in runs) for name in ("aggregator", "hub_alone")}  # type: ignore[type-var]
    report(
        "hub_rounds",
        collaborators=arguments.collaborators,
        rounds=arguments.rounds,
        rounds_per_second={
            **alone,
            "first_of_two": statistics.median(run["hub_two"][0] for run in runs),  # type: ignore[index]
            "second_of_two": statistics.median(run["hub_two"][1] for run in runs),  # type: ignore[index]
        },
        runs=runs,
    )
