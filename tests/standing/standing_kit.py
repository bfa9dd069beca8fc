"""A federation that stands on one machine: a folder for each host, real processes, and people who decide.

Every process is the ordinary program, forked from one that has imported it. Whoever waits, waits for a file or for
the end of a process.
"""

import contextlib
import functools
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator.address import free_port
from fedfair.consent.approvers import load_approvers
from fedfair.consent.decisions import Choice, StudySubject, decide
from fedfair.consent.inbox import StudyFolder, read_status, write_decision
from fedfair.consortium.acts import parse_act
from fedfair.consortium.members import read_consortium
from fedfair.consortium.record_file import RecordFile
from fedfair.consortium.studies import ConsortiumStudy
from fedfair.identity.authority import CERTIFICATE_DAYS, Authority
from fedfair.identity.authority_store import found_authority, issue
from fedfair.identity.bundle import install_bundle, make_bundle, parse_bundle
from fedfair.identity.certificate import parse_participant
from fedfair.identity.request import parse_request
from fedfair.identity.signing import format_signing_key
from fedfair.identity.store import create_site, install_certificate, load_trust
from fedfair.ids import AGGREGATOR, FederationName
from fedfair.plan.digest import format_digest
from tests.fork_server import ENVIRONMENT, Process, interpreter, started
from tests.patience import PATIENCE
from tests.plans import small_plan

HEART = FederationName("heart")
FIVE = ("clinic-a", "clinic-b", "clinic-c", "clinic-d", "clinic-e")
PEOPLE = ("amina", "jonas")
LOOK_SECONDS = 0.05


class NeverError(AssertionError):
    """What a test waits for has not happened; the message holds what the processes said."""


@functools.cache
def key_of(person: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(person.encode().ljust(32, b"."))


@dataclass
class StandingFederation:
    """The hosts of a federation, one folder each: `hub`, the sites, and the researcher `bert`."""

    folder: Path
    sites: tuple[str, ...] = FIVE
    processes: dict[str, Process] = field(default_factory=dict)
    logs: dict[str, Path] = field(default_factory=dict)
    threads: dict[str, threading.Thread] = field(default_factory=dict)

    def host(self, name: str) -> Path:
        return self.folder / name

    # -------------------------------------------------------------- once

    def joined(self, plan: Mapping[str, object] | None = None) -> "StandingFederation":
        """Make the folders of the lead and every site as a federation of one plan has left them."""
        now, hub = datetime.now(UTC), self.host("hub")
        self.port = free_port("localhost")
        hub.mkdir(parents=True)
        authority = found_authority(hub / "cert", HEART, now, None)
        self.keys = {name: self._identity(authority, name, now) for name in (AGGREGATOR, *self.sites)}
        (hub / "plan").mkdir()
        stated = self._plan(plan or small(self.sites), self.keys)
        (hub / "plan" / "plan.yaml").write_text(yaml.safe_dump(stated, sort_keys=False))
        for name in self.sites:
            site = {"collaborator": name, "device": "cpu", "threads": 1, "policy": {"min_records": 1}}
            (self.host(name) / "collaborator.yaml").write_text(yaml.safe_dump(site, sort_keys=False))
        self.authority = authority
        return self

    def founded(self, needed: int = 2, people: tuple[str, ...] = PEOPLE) -> "StandingFederation":
        """Make every folder, with a researcher and an observer, and let all stand."""
        self.joined()
        now, hub = datetime.now(UTC), self.host("hub")
        keys = self.keys | {name: self._identity(self.authority, name, now) for name in ("bert", "dora")}
        self.run("hub", "stand", "--lead", "anna")
        draft = yaml.safe_load((hub / "members.yaml").read_text())
        for name, role in (("bert", "researcher"), ("dora", "observer")):
            draft["members"][name] = {"role": role, "key": keys[name]}
        self.keys, self.draft = keys, draft
        for file in ("consortium.yaml", "members.act"):
            (hub / file).unlink()
        shutil.rmtree(hub / "record")
        (hub / "members.yaml").write_text(yaml.safe_dump(draft, sort_keys=False))
        self.run("hub", "hub", "members", "members.yaml", "--name", "anna")
        self.run("hub", "hub", "create")
        for name in self.sites:
            self._site(name, needed, people)
        shutil.copy(hub / "consortium.yaml", self.host("bert"))
        return self

    def _identity(self, authority: Authority, name: str, now: datetime) -> str:
        """Make the keys of a participant in its own folder, and install what the authority signs."""
        home = self.host("hub" if name == AGGREGATOR else name)
        home.mkdir(exist_ok=True)
        asked = parse_request(create_site(home / "cert", parse_participant(HEART, name)))
        hosts = ["localhost"] if name == AGGREGATOR else []
        signed = issue(self.host("hub") / "cert", authority, asked, hosts=hosts, now=now, days=CERTIFICATE_DAYS)
        if name == AGGREGATOR:
            install_certificate(home / "cert", signed)
        else:
            bundle = make_bundle(signed, load_trust(self.host("hub") / "cert", now))
            install_bundle(home / "cert", parse_bundle(bundle, name), now)
        return format_signing_key(asked.signing_public_key)

    def _site(self, name: str, needed: int, people: tuple[str, ...]) -> None:
        home = self.host(name)
        shutil.copy(self.host("hub") / "consortium.yaml", home / "sent.yaml")
        self.run(name, "stand", "sent.yaml", "--lead-key", "shown")
        keys = {person: {"key": format_signing_key(key_of(person).public_key())} for person in people}
        (home / "approvers.yaml").write_text(yaml.safe_dump({"needed": needed, "people": keys}))

    def _plan(self, plan: Mapping[str, object], keys: Mapping[str, str]) -> dict[str, object]:
        federation = {
            **plan["federation"],  # type: ignore[dict-item]
            "name": str(HEART),
            "aggregator": {"host": "localhost", "port": self.port},
            "roster": {name: keys[name] for name in self.sites},
        }
        return {**plan, "federation": federation}

    # -------------------------------------------------------------- commands and processes

    def run(self, host: str, *words: str) -> str:
        """Run one command of `fedfair` in a host's folder; return what it printed."""
        process = started(("-m", "fedfair", *words), self.host(host), ENVIRONMENT)
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, f"{host}$ fedfair {' '.join(words)}\n{said}"
        assert "Traceback" not in said, said
        return said

    def start(self, host: str) -> Process:
        """Start what stands at a host: the hub, or the service of a site."""
        words = ("hub", "start") if host == "hub" else ("collaborator", "serve")
        log = self.folder / f"{host}.log"
        with log.open("a") as output:
            output.write("-- started\n")
        process = started(("-m", "fedfair", *words), self.host(host), {**ENVIRONMENT, **interpreter(self.folder)})
        self.processes[host], self.logs[host] = process, log
        self.threads[host] = _drain(process, log)
        return process

    def end(self, host: str, number: int = signal.SIGTERM) -> int:
        """End what stands at a host, and return its exit status."""
        process = self.processes.pop(host)
        process.send_signal(number)
        status = process.wait(PATIENCE)
        self.threads.pop(host).join(PATIENCE)
        return status

    @contextlib.contextmanager
    def standing(self) -> Iterator["StandingFederation"]:
        """Let the hub and every site stand while the block runs."""
        try:
            for host in ("hub", *self.sites):
                self.start(host)
            yield self
        finally:
            for host in tuple(self.processes):
                self.end(host, signal.SIGKILL)

    # -------------------------------------------------------------- studies and people

    def submit(self, study: str, plan: Mapping[str, object]) -> None:
        """Let the researcher submit a plan as a study."""
        workspace = self.host("bert") / study
        (workspace / "plan").mkdir(parents=True)
        values = self._plan(plan, self.keys)
        (workspace / "plan" / "plan.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        self.run("bert", "study", "submit", f"{study}/plan/plan.yaml", "--study", study)

    def study(self, site: str, study: str) -> StudyFolder:
        return StudyFolder(self.host(site) / "studies" / study)

    def decide(
        self, site: str, study: str, choice: Choice = Choice.APPROVE, people: tuple[str, ...] = PEOPLE
    ) -> None:
        """Let people of a site decide, once the study has arrived there."""
        self.until(lambda: self.phase(site, study) != "arriving", f"{study} arrives at {site}")
        folder, approvers = self.study(site, study), load_approvers(self.host(site) / "approvers.yaml")
        act = parse_act(folder.proposal.read_bytes())
        subject = StudySubject(str(HEART), site, study, format_digest(act.plan_digest))
        for person in people:
            made = decide(subject, person, choice, key_of(person).sign, at="2027-01-01T00:00:00+00:00", words="so")
            write_decision(folder, made, approvers)

    def phase(self, site: str, study: str) -> str:
        """Return where a study stands at a site."""
        folder = self.study(site, study)
        return read_status(folder).phase.value if folder.status.exists() else "arriving"

    def at_hub(self, study: str) -> ConsortiumStudy | None:
        """Return a study by the hub's own record; None before it was submitted."""
        record = RecordFile(self.host("hub") / "record" / "acts.jsonl")
        return record.load(read_consortium(self.host("hub") / "consortium.yaml")).studies.get(study)

    def until_hub(self, study: str, *phases: str) -> ConsortiumStudy:
        """Wait until a study is in a phase, by the hub's own record."""

        def there() -> bool:
            found = self.at_hub(study)
            return found is not None and found.phase.value in phases

        self.until(there, f"{study} is {' or '.join(phases)} at the hub")
        found = self.at_hub(study)
        assert found is not None
        return found

    def until(self, condition: Callable[[], bool], words: str) -> None:
        """Wait for something; a test that waits in vain shows what every process has said."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise NeverError(f"{words}: never\n{self.said()}")
            time.sleep(LOOK_SECONDS)

    def said(self) -> str:
        """Return the last words of every process."""
        logs = [*self.logs.values(), *self.folder.glob("*/studies/*/logs/process.log")]
        return "\n".join(f"{log}:\n{log.read_text()[-3000:]}" for log in logs)


def _drain(process: Process, log: Path) -> threading.Thread:
    """Write what a process prints into a log, in a thread of its own."""

    def write() -> None:
        assert process.stdout is not None
        with log.open("a") as target:
            for line in process.stdout:
                target.write(line)
                target.flush()
        process.stdout.close()

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def small(sites: tuple[str, ...], rounds: int = 4, **sections: object) -> dict[str, object]:
    """Return a masked plan that real processes finish in seconds."""
    plan = small_plan(rounds=rounds, names=sites, protection={"mode": "malicious"})
    return {**plan, **sections}


def result(federation: StandingFederation, study: str) -> dict[str, object]:
    """Return the result of a study as the hub has it."""
    found: dict[str, object] = json.loads((federation.host("hub") / "studies" / study / "result.json").read_text())
    return found
