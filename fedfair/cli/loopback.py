"""A whole federation on this machine: the workspace, the certificates and every process.

Prepares a folder exactly as a consortium would over several hosts (authority, plan with pinned keys, one signed
approval and one `collaborator.yaml` per site), starts one aggregator and one process per collaborator, and stops
them all, whatever happens. The demonstration, the benchmarks and the tests of real processes use it; nothing
here exists for production.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from aggregator.address import free_port
from fedfair.cli.approving import write_approval
from fedfair.cli.interrupts import interrupts_deferred
from fedfair.errors import AbortedError
from fedfair.identity.development import issue_all
from fedfair.identity.store import load_signing_key
from fedfair.ids import parse_participant_id
from fedfair.plan.derived import PrivacyLevel, is_masked, needs_every_site, privacy_level, quorum
from fedfair.plan.digest import beginning_digest, format_digest
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.policy.disclosures import of_run
from fedfair.policy.site_config import SitePolicy
from fedfair.training.freezing import freeze_from, freeze_plan

PIPE_BYTES = 1 << 16
"""The most that is read from a pipe at a time."""

NO_FILES: Mapping[str, str] = {}

STOP_SECONDS = 10.0
"""How long a process may take to stop cleanly before it is killed."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The files of a prepared federation, all under `folder`."""

    folder: Path
    collaborators: tuple[str, ...]

    @property
    def plan(self) -> Path:
        """Where the plan is."""
        return self.folder / "plan" / "plan.yaml"

    @property
    def metrics(self) -> Path:
        """Where the aggregator writes one JSON line per sum."""
        return self.folder / "logs" / "aggregator_metrics.jsonl"

    @property
    def result(self) -> Path:
        """Where the aggregator writes the result."""
        return self.folder / "result.json"


def prepare(
    folder: Path, plan: Mapping[str, Any], files: Mapping[str, str] = NO_FILES, weights: Path | None = None
) -> Workspace:
    """Write everything that a federation on this machine needs.

    Args:
        folder: an empty folder.
        plan: the plan's mapping; the roster and the aggregator's address are filled in here.
        files: each collaborator's own file by its name, from `folder`, where the plan's data are files.
        weights: a file of weights that the run begins with; None for the plan's seed.

    Returns:
        The workspace, ready for `Processes`.
    """
    federation = plan["federation"]
    names = tuple(federation["collaborators"])
    roster = issue_all(folder / "cert", federation["name"], names, ["localhost"], datetime.now(UTC))
    return prepare_with(folder, plan, roster, free_port("localhost"), files, weights)


def prepare_with(
    folder: Path,
    plan: Mapping[str, Any],
    roster: Mapping[str, str],
    port: int,
    files: Mapping[str, str] = NO_FILES,
    weights: Path | None = None,
) -> Workspace:
    """Write what `prepare` writes, for sites whose identities lie in the folder's `cert` already.

    Args:
        folder: with nothing but `cert`.
        plan: as for `prepare`.
        roster: the public signing key of every collaborator, by its name.
        port: of the aggregator, or the hub.
        files: as for `prepare`.
        weights: as for `prepare`.
    """
    federation = dict(plan["federation"])
    names = tuple(federation["collaborators"])
    federation["roster"] = {name: roster[name] for name in names}
    federation["aggregator"] = {"host": "localhost", "port": port}
    workspace = Workspace(folder, names)
    workspace.plan.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump({**plan, "federation": federation}, sort_keys=False)
    workspace.plan.write_text(text, encoding="utf-8")
    if weights is not None:
        freeze_from(workspace.plan, weights)
    _approve_everywhere(workspace, files)
    return workspace


def _approve_everywhere(workspace: Workspace, files: Mapping[str, str]) -> None:
    plan = load_plan(workspace.plan)
    digest = freeze_plan(workspace.plan).digest
    approvals = workspace.folder / "approvals"
    for name in workspace.collaborators:
        key = load_signing_key(workspace.folder / "cert", name)
        write_approval(approvals / f"{name}.json", plan, digest, parse_participant_id(name), key)
        site: dict[str, object] = {
            "collaborator": name,
            "device": "cpu",
            "threads": 1,
            "policy": _policy(plan),
            "approval": f"approvals/{name}.json",
        }
        if name in files:
            site["data"] = {"train": files[name]}
        if privacy_level(plan) in {PrivacyLevel.RECORDS, PrivacyLevel.STATISTICS}:
            # All sites of this machine share one folder, and a ledger is one site's.
            site["ledger"] = f"state/{name}.ledger.sqlite"
        (workspace.folder / f"{name}.yaml").write_text(yaml.safe_dump(site, sort_keys=False), encoding="utf-8")


def _policy(plan: Plan) -> dict[str, object]:
    """Return the terms that let a site of this machine take part, and nothing beyond."""
    mode = plan.secure_aggregation.mode
    terms: dict[str, object] = {"mode": mode} if is_masked(plan) else {"allow_plain_sums": True}
    # A rehearsal has the records of all sites, and they may be few.
    terms["min_records"] = 1
    if plan.training.initial is not None:
        terms["initial_weights"] = [format_digest(beginning_digest(plan.training.initial))]
    if is_masked(plan) and not needs_every_site(plan):
        terms["min_collaborators"] = quorum(plan)
    usual = SitePolicy().reveals
    more = [kind for kind in of_run(plan) if kind not in usual]
    terms |= {"reveals": [*usual, *more]} if more else {}
    terms |= {"max_bins": plan.evaluation.bins} if plan.evaluation.bins > SitePolicy().max_bins else {}
    return terms | ({"publish_site_means": True} if plan.evaluation.site_means else {})


class Processes:
    """The running processes of one federation; a context manager that leaves none behind."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._pipes = selectors.DefaultSelector()
        self._incomplete = b""

    def __enter__(self) -> Self:
        """Start the aggregator and every collaborator; they find each other by themselves."""
        plan = str(self._workspace.plan)
        try:
            self._start("aggregator", "aggregator", "start", "-p", plan, "--quiet", tells="--progress-pipe")
            for name in self._workspace.collaborators:
                site = str(self._workspace.folder / f"{name}.yaml")
                self._start(name, "collaborator", "start", "-n", name, "-c", site, "-p", plan, "--quiet")
        except BaseException:
            # An interrupt may come between two starts, and then __exit__ is not called.
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ask every process to stop, then make it."""
        self._stop()

    def _stop(self) -> None:
        # A second Ctrl-C, of somebody who is impatient, must not leave the rest running.
        with interrupts_deferred():
            self._stop_each()
            for key in tuple(self._pipes.get_map().values()):
                self._let_go(key)
            self._pipes.close()

    def _stop_each(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for process in self._running.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str, module: str, *arguments: str, tells: str = "") -> None:
        """Start a process with a pipe of its own, whose end tells that the process has ended.

        Args:
            name: of the participant.
            module: what it runs.
            arguments: on its command line.
            tells: the option by which it takes the number of the pipe to write to; empty where it writes nothing.
        """
        log = self._workspace.folder / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        with interrupts_deferred(), log.open("wb") as output:
            reading, writing = os.pipe()
            self._pipes.register(reading, selectors.EVENT_READ, name)
            try:
                self._running[name] = subprocess.Popen(  # noqa: S603 - our own interpreter and modules
                    [sys.executable, "-m", module, *arguments, *((tells, str(writing)) if tells else ())],
                    cwd=self._workspace.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(writing,),
                    # Ctrl-C reaches only the parent, which then stops its children cleanly.
                    start_new_session=True,
                )
            finally:
                os.close(writing)

    def pid(self, name: str) -> int:
        """Return the process number of a participant."""
        return self._running[name].pid

    def progress(self) -> Iterator[Mapping[str, object]]:
        """Yield the aggregator's report of each sum as it arrives, until the run has finished.

        Raises:
            AbortedError: a process ended with an error, and the message ends with its last words; or the run was
                stopped.
        """
        while self._is_running("aggregator"):
            for key, _ in self._pipes.select():
                words = os.read(key.fd, PIPE_BYTES)
                if not words:
                    self._let_go(key)
                    self._running[key.data].wait()
                    self._check_alive()
                *lines, self._incomplete = (self._incomplete + words).split(b"\n")
                yield from map(json.loads, lines)
        self._check_finished()

    def _is_running(self, name: str) -> bool:
        return any(key.data == name for key in self._pipes.get_map().values())

    def _let_go(self, key: selectors.SelectorKey) -> None:
        self._pipes.unregister(key.fd)
        os.close(key.fd)

    def wait(self) -> None:
        """Wait for the end of the run.

        Raises:
            AbortedError: a process ended with an error.
        """
        for _ in self.progress():
            pass
        for process in self._running.values():
            process.wait()
        self._check_alive()

    def _check_alive(self) -> None:
        for name, process in self._running.items():
            if process.poll() not in (None, 0):
                log = self._workspace.folder / "logs" / f"{name}.log"
                words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
                raise AbortedError(f"{name} ended with status {process.returncode}: " + "\n".join(words))

    def _check_finished(self) -> None:
        # An aggregator that is asked to stop ends well, and so may a run that has not ended.
        state = json.loads(self._workspace.result.read_text(encoding="utf-8"))["state"]
        if state != "finished":
            raise AbortedError(f"the run was {state} before its end")
