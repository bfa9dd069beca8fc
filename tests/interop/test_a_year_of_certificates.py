"""A year in a minute: real processes whose clock libfaketime moves, while their certificates end and are renewed.

The processes read the wall clock from libfaketime, also inside gRPC's own TLS library; clocks that only measure
spans continue as they are, so that no timeout of a round passes with a year.
"""

import functools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from fedfair.cli.loopback import prepare
from fedfair.identity.authority_store import load_authority, revoke
from fedfair.identity.files import read_certificate, read_list
from fedfair.identity.revocation import list_number
from tests.fork_server import ENVIRONMENT, Server
from tests.interop.own_folders import renew, with_own_folders
from tests.interop.processes import Started, ended, until_line
from tests.patience import PATIENCE
from tests.plans import NAMES, small_plan

pytestmark = pytest.mark.slow
MASKED = {"mode": "malicious", "most_records": 512}
EVERY = 5
"""Rounds between two evaluations of the plan, each of which has a line of the aggregator."""

UNHURRIED = """
import select
from torch import nn

class Unhurried(nn.Linear):
    def forward(self, features):
        select.select([], [], [], 0.25)
        return super().forward(features)

def build(schema):
    return Unhurried(*schema.input_shape, schema.classes)
"""
"""A model whose rounds take a while and no work: what is waited for here is the calendar, not the training."""


@functools.cache
def faketime() -> Path | None:
    """Return the library that moves a process's clock; None where it is not installed."""
    places = ("/usr/lib", "/usr/lib64")
    return next((path for place in places for path in sorted(Path(place).rglob("libfaketime.so.1"))), None)


class Calendar:
    """The date that every process of a test believes in."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.days = 0
        self.turn(0)

    def turn(self, days: int) -> datetime:
        """Advance to so many days after the beginning."""
        self.days = days
        beside = self._file.with_suffix(".next")
        beside.write_text(f"+{days}d\n")
        beside.replace(self._file)
        return self.now

    @property
    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(days=self.days)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to believe in it: a look at the file every second, and unmoved spans."""
        return {
            **ENVIRONMENT,
            "LD_PRELOAD": str(faketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }


@pytest.fixture
def calendar(tmp_path: Path) -> Calendar:
    if faketime() is None:
        pytest.skip("libfaketime is not installed: make faketime")
    return Calendar(tmp_path / "calendar")


@pytest.fixture
def believers(calendar: Calendar) -> Iterator[Server]:
    """Return a server whose forks believe in the calendar, as an interpreter does that is started with it."""
    server = Server(calendar.environment)
    yield server
    server.end()


def believed(calendar: Calendar, program: str) -> str:
    ran = subprocess.run(
        [shutil.which("python3") or "python3", "-c", program],
        env=calendar.environment, check=True, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    return ran.stdout.strip()


def test_the_processes_believe_in_the_calendar(calendar: Calendar) -> None:
    calendar.turn(400)
    year = believed(calendar, "import datetime; print(datetime.datetime.now().date())")
    assert year == f"{calendar.now:%Y-%m-%d}"


def test_a_run_outlives_every_certificate_of_its_federation(
    tmp_path: Path, calendar: Calendar, believers: Server, started: Started
) -> None:
    plan = small_plan(rounds=100_000, protection=MASKED)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "unhurried.py").write_text(UNHURRIED)
    plan["task"] = {**plan["task"], "model": "unhurried:build"}  # type: ignore[dict-item]
    workspace = started.workspace = prepare(tmp_path, plan)
    for name in NAMES:
        site = workspace.folder / f"{name}.yaml"
        own = yaml.safe_load(site.read_text())
        own["policy"]["allow_module_code"] = True
        site.write_text(yaml.safe_dump(own))
    folders, lead = with_own_folders(workspace), workspace.folder / "cert"
    started.environment, started.server = calendar.environment, believers
    aggregator = started.aggregator()
    sites = {name: started.collaborator(name) for name in NAMES}
    for site in sites.values():
        until_line(site, "connected; run")

    for days, left in ((336, "28 days"), (359, "5 days"), (364, "less than a day")):
        calendar.turn(days)
        until_line(aggregator, f"this host's certificate expires on {end_of(lead / 'aggregator')}, in {left}")
        for name, site in sites.items():
            until_line(site, f"this host's certificate expires on {end_of(folders[name] / name)}, in {left}")

    # The lead renews first, then the sites; the revocation list gets another year as well.
    now = calendar.now
    renew(lead, lead, "aggregator", now)
    until_line(aggregator, "new connections are shown the renewed certificate")
    for site in sites.values():
        until_line(site, "reconnecting: the aggregator has a renewed certificate")
        until_line(site, "connected; run")
    for name, site in sites.items():
        renew(lead, folders[name], name, now)
        until_line(site, "reconnecting: this site has a renewed certificate")
        until_line(site, "connected; run")
    revoke(lead, load_authority(lead, now, None), frozenset(), now)
    for site in sites.values():
        until_line(site, "revocation list 2 of the authority was taken over")

    # Two months later everything that the run began with has ended, the first list too.
    calendar.turn(430)
    later = (rounds_of(tmp_path) // EVERY + 3) * EVERY
    until_line(aggregator, f"round {later} of ")
    contributors = [line["contributors"] for line in lines(tmp_path) if line["purpose"] == "training"]
    assert contributors == [3] * len(contributors)
    notes = (tmp_path / "logs" / "aggregator_notes.log").read_text()
    for words in ("is lost", "expired on", "dropped", "may be lying"):
        assert words not in notes
    assert {list_number(read_list(folder / "revoked.crl")) for folder in folders.values()} == {2}
    # Who comes anew is let in with the new certificate, which shows that the old ones have really ended.
    sites["clinic-a"].send_signal(signal.SIGTERM)
    assert ended(sites["clinic-a"])[0] == 4
    sites["clinic-a"] = started.collaborator("clinic-a")
    until_line(sites["clinic-a"], "connected; run")

    os.kill(aggregator.pid, signal.SIGTERM)
    status, said = ended(aggregator)
    assert status == 4, said


def lines(folder: Path) -> list[dict[str, object]]:
    text = (folder / "logs" / "aggregator_metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def rounds_of(folder: Path) -> int:
    return sum(line["purpose"] == "training" for line in lines(folder))


def end_of(folder: Path) -> str:
    return f"{read_certificate(folder / 'tls.crt', 'it').not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
