"""Faults in a federation that stands: a hub and five sites as real processes, and studies that come and go.

Studies are submitted, approved by two people at each site, refused at two, or withdrawn by one while they run.
Meanwhile, at random instants: SIGKILL and SIGTERM of the hub, of a site's service, of a study's
process and of the process that computes for it, each with what a service manager would do; a full disk of a
site's service (RLIMIT_FSIZE) for a while; a site's certificate that is revoked and issued anew; a new list of
members.

Four counts must be 0. Wrong sums: a site that took part to the end has another model than the hub. Lost studies:
one that all have approved does not finish, or one that was refused does not end so. Tracebacks, in any output.
Hands needed: something does not go on by itself within `--patience` seconds after the last fault.

    python benchmarks/standing_chaos.py --studies 20 --faults 300

The idle part measures the processor time of a service that has nothing to do.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil
import yaml
from safetensors import safe_open

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fedfair.consent.decisions import Choice
from fedfair.identity.authority import CERTIFICATE_DAYS
from fedfair.identity.authority_store import issue, load_authority, load_register, revoke
from fedfair.identity.bundle import install_bundle, make_bundle, parse_bundle
from fedfair.identity.register import latest_of
from fedfair.identity.request import parse_request
from fedfair.identity.store import load_trust, renew_site
from tests.standing.standing_kit import FIVE, StandingFederation, small

PAUSE_SECONDS = 0.6
"""Between two faults, at most."""
IDLE_SECONDS = 30.0
AT_ONCE = 3
OVER = frozenset({"ended", "withdrawn", "refused"})
"""The phases in which a site has nothing more to do about a study."""
FULL_BYTES = 1 << 10


@dataclass
class Found:
    """What must be 0, and what was done."""

    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    hands: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)


class Chaos:
    """One federation and what happens to it.

    Args:
        folder: where its hosts are.
        dice: decides every fault.
        patience: seconds without a fault after which a person would be needed.
    """

    def __init__(self, folder: Path, dice: random.Random, patience: float) -> None:
        self.federation = StandingFederation(folder)
        self.dice, self.patience = dice, patience
        self.found = Found()
        self.expected: dict[str, str] = {}
        self.begun = time.monotonic()

    def found_federation(self) -> None:
        """Make the folders; every site lets several studies run at once and goes on with four of five."""
        self.federation.founded()
        (self.federation.host("hub") / "hub.yaml").write_text(f"at_once: {AT_ONCE + 1}\n")
        for site in FIVE:
            home = self.federation.host(site)
            (home / "site.yaml").write_text(f"at_once: {AT_ONCE}\nyield_after_minutes: 0.5\n")
            with (home / "collaborator.yaml").open("a") as target:
                target.write("  min_collaborators: 4\n")

    def submit(self, number: int) -> None:
        """Submit one study, and have people decide about it."""
        name = f"study-{number}"
        kind = {3: "refused", 5: "withdrawn"}.get(number % 7, "finished")
        self.federation.submit(name, _plan(number))
        self.expected[name] = kind
        refusing = {"clinic-b": "jonas", "clinic-c": "amina"} if kind == "refused" else {}
        for site in FIVE:
            if site not in refusing:
                self.federation.decide(site, name)
        # The last: once two have refused, it ends, and need not arrive anywhere any more.
        for site, person in refusing.items():
            self.federation.decide(site, name, Choice.REFUSE, (person,))

    # -------------------------------------------------------------- faults

    def fault(self) -> None:
        """Let one fault happen."""
        kinds: Mapping[str, tuple[int, Callable[[], bool]]] = {
            "hub": (3, lambda: self._ended_and_started("hub")),
            "service": (5, lambda: self._ended_and_started(self.dice.choice(FIVE))),
            "study": (6, lambda: self._killed("--study")),
            "worker": (6, lambda: self._killed("collaborator.computing")),
            "full disk": (2, self._full_disk),
            "certificate": (1, self._new_certificate),
            "members": (1, self._new_members),
        }
        names, weights = list(kinds), [weight for weight, _ in kinds.values()]
        self._look()
        name = self.dice.choices(names, weights)[0]
        if kinds[name][1]():
            self.found.faults[name] += 1

    def _look(self) -> None:
        """Find processes that have ended by themselves, count them, and start them again."""
        for host, process in tuple(self.federation.processes.items()):
            if process.poll() is not None:
                status = self.federation.end(host)
                self.found.hands.append(f"{host} has ended with status {status}")
                print(f"{host}: {self.federation.logs[host].read_text()[-1500:]}", file=sys.stderr, flush=True)
                self.federation.start(host)

    def _ended_and_started(self, host: str) -> bool:
        self.federation.end(host, self.dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
        self.federation.start(host)
        return True

    def _killed(self, word: str) -> bool:
        found = [process for process in _within(self.federation.folder) if word in " ".join(_words(process))]
        if not found:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            self.dice.choice(found).kill()
        return True

    def _full_disk(self) -> bool:
        pid = self.federation.processes[self.dice.choice(FIVE)].pid
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (FULL_BYTES, resource.RLIM_INFINITY))
        time.sleep(2 * PAUSE_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return True

    def _new_certificate(self) -> bool:
        """Issue a site's certificate anew, and revoke the one before."""
        site, now, home = self.dice.choice(FIVE), datetime.now(UTC), self.federation.host("hub") / "cert"
        authority = load_authority(home, now, None)
        before = latest_of(load_register(home), site)
        own = self.federation.host(site) / "cert"
        asked = parse_request(renew_site(own, site))
        signed = issue(home, authority, asked, hosts=[], now=now, days=CERTIFICATE_DAYS)
        if before is not None:
            revoke(home, authority, frozenset([before.serial]), now)
        install_bundle(own, parse_bundle(make_bundle(signed, load_trust(home, now)), site), now)
        return True

    def _new_members(self) -> bool:
        hub = self.federation.host("hub")
        values = yaml.safe_load((hub / "members.yaml").read_text())
        values["number"] += 1
        (hub / "members.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        self.federation.run("hub", "hub", "members", "members.yaml", "--name", "anna")
        return True

    # -------------------------------------------------------------- the end

    def settle(self) -> None:
        """Wait until every study has ended; then compare what everybody has."""
        deadline = time.monotonic() + self.patience
        while (open_ := self._open()) and time.monotonic() < deadline:
            time.sleep(0.5)
        self.found.hands += [f"{name} is {phase}" for name, phase in open_.items()]
        for name, expected in self.expected.items():
            study = self.federation.at_hub(name)
            phase = "nowhere" if study is None else study.phase.value
            self.found.ends[phase] += 1
            if name in open_:
                continue
            if phase != expected and not (expected == "withdrawn" and phase == "finished"):
                self.found.lost.append(f"{name} is {phase}, expected {expected}")
            elif phase == "finished":
                self._compare(name)

    def _open(self) -> dict[str, str]:
        found = {name: self.federation.at_hub(name) for name in self.expected}
        return {name: "nowhere" if one is None else one.phase.value for name, one in found.items()
                if one is None or not one.phase.is_over}  # fmt: skip

    def _compare(self, name: str) -> None:
        hub = self.federation.host("hub") / "studies" / name / "save" / "last.safetensors"
        if not hub.exists():
            self.found.wrong.append(f"{name}: the hub has no model")
            return
        plan, vector = _plan_and_model(hub)
        models = {vector}
        for site in FIVE:
            phase = self._settled(site, name)
            if phase not in OVER:
                self.found.hands.append(f"{name} is {phase} at {site}")
            if phase != "ended":
                continue  # it has withdrawn, and its copy stands where it left
            for path in (self.federation.host(site) / "runs" / site).glob("*/save/last.safetensors"):
                of_plan, own = _plan_and_model(path)
                models |= {own} if of_plan == plan else set()
        if len(models) != 1:
            self.found.wrong.append(f"{name}: {len(models)} models at the hub and its sites")

    def _settled(self, site: str, name: str) -> str:
        """Return where a study that is over stands at a site, once that is told there too."""
        deadline = time.monotonic() + self.patience
        while (phase := self.federation.phase(site, name)) not in OVER and time.monotonic() < deadline:
            time.sleep(0.5)
        return phase

    def tracebacks(self) -> int:
        """Count tracebacks in everything that was printed."""
        logs = [*self.federation.logs.values(), *self.federation.folder.rglob("process.log*")]
        return sum(path.read_text(errors="replace").count("Traceback") for path in logs)


def _plan(number: int) -> dict[str, object]:
    """Return the plan of a study: masked, with a seed of its own, that goes on with four of five sites."""
    plan = small(FIVE, rounds=20 + 5 * (number % 4))
    federation: dict[str, object] = {**plan["federation"], "min_collaborators": 4}  # type: ignore[dict-item]
    task = {**plan["task"], "standardize": "none", "model": {"name": "linear"}}  # type: ignore[dict-item]
    training = {**plan["training"], "seed": number}  # type: ignore[dict-item]
    return {**plan, "federation": federation, "task": task, "training": training}


def _plan_and_model(path: Path) -> tuple[str, bytes]:
    """Return the plan that a saved model is of, and the digest of its values."""
    with safe_open(path, "np") as source:
        values = b"".join(source.get_tensor(key).tobytes() for key in sorted(source.keys()))
        return str(source.metadata()["plan_digest"]), hashlib.sha256(values).digest()


def _within(folder: Path) -> list[psutil.Process]:
    """Return the processes that work in this federation's folder, and in no other's."""
    own = folder.resolve()
    return [process for process in psutil.process_iter() if Path(_home(process)).is_relative_to(own)]


def _home(process: psutil.Process) -> str:
    try:
        return process.cwd()
    except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError):
        return ""


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def idle_seconds_an_hour(chaos: Chaos, seconds: float) -> float:
    """Return the processor seconds that a service without work takes in an hour, measured for some seconds."""
    process = psutil.Process(chaos.federation.processes["clinic-a"].pid)
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, took = process.cpu_times(), time.monotonic() - began
    return (after.user + after.system - before.user - before.system) * 3600 / took


def main() -> int:
    """Run the federation and print the counts; the exit status is 1 where one is not 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no further study after so long")
    parser.add_argument("--patience", type=float, default=300.0)
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="measure an idle service so long; 0: not")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedfair-standing-") as folder:
        return report(play(Path(folder), given), given)


def play(folder: Path, given: argparse.Namespace) -> Chaos:
    """Let studies and faults happen until there were enough."""
    dice = random.Random(given.seed)  # noqa: S311 - faults, no secrets
    chaos = Chaos(folder, dice, given.patience)
    chaos.found_federation()
    with chaos.federation.standing():
        if given.idle:
            print(f"idle service: {idle_seconds_an_hour(chaos, given.idle):.0f} CPU seconds an hour", flush=True)
        each = given.faults / given.studies
        for number in range(given.studies):
            if time.monotonic() - chaos.begun > given.seconds:
                break
            chaos.submit(number)
            if chaos.expected[f"study-{number}"] == "withdrawn":
                chaos.federation.until_hub(f"study-{number}", "running", "finished")
                with contextlib.suppress(Exception):
                    chaos.federation.decide("clinic-c", f"study-{number}", Choice.WITHDRAW, ("amina",))
            while sum(chaos.found.faults.values()) < each * (number + 1):
                time.sleep(dice.uniform(0.0, PAUSE_SECONDS))
                chaos.fault()
            print(f"study {number + 1} of {given.studies}, {sum(chaos.found.faults.values())} faults", flush=True)
        chaos.settle()
        chaos.found.ends["tracebacks"] = chaos.tracebacks()
        if chaos.found.hands or chaos.found.lost:
            print(chaos.federation.said()[-20_000:], file=sys.stderr)
    return chaos


def report(chaos: Chaos, given: argparse.Namespace) -> int:
    """Print what was found."""
    found, tracebacks = chaos.found, chaos.found.ends.pop("tracebacks")
    seconds = time.monotonic() - chaos.begun
    print(
        f"{len(chaos.expected)} studies, {sum(found.faults.values())} faults in {seconds:.0f} s, seed {given.seed}"
    )
    print(f"faults: {dict(found.faults)}; studies: {dict(found.ends)}")
    counts = {"wrong sums": found.wrong, "lost studies": found.lost, "hands needed": found.hands}
    for words, which in counts.items():
        print(f"{words}: {len(which)} {which or ''}")
    print(f"tracebacks: {tracebacks}")
    return int(bool(tracebacks or found.wrong or found.lost or found.hands))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
