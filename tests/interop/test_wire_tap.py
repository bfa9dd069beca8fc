"""Every byte that leaves a collaborator, seen from outside, against its own record of what it sent."""

import asyncio
import hashlib
import json
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collaborator.link import Link
from collaborator.preflight import check_site
from fedfair.cli.audit import app
from fedfair.cli.loopback import prepare
from fedfair.errors import FedfairError
from fedfair.statistics.table import Purpose
from fedfair.wire.calling import Address
from fedfair.wire.codec import encode_collaborator_frame
from fedfair.wire.frames import CollaboratorFrame, SecaggMessage, SumStart
from tests.interop.federation_kit import Federation, play
from tests.interop.processes import Started, ended, until_line
from tests.interop.wire_bytes import PREFACE, Apart, taken_apart
from tests.interop.wire_tap import Tap, tapped, taps
from tests.plans import small_plan
from tests.site_reading import read_site

TWO = ("clinic-a", "clinic-b")
MASKED = {"mode": "malicious", "most_records": 512}
Told = tuple[int, str]


def recorded(path: Path) -> list[Told]:
    """Return length and SHA-256 of every message that a record tells of."""
    entries = map(json.loads, path.read_text().splitlines())
    return [(entry["bytes"], entry["sha256"]) for entry in entries if entry["kind"] == "message"]


def seen(connections: list[Apart]) -> list[Told]:
    """Return length and SHA-256 of every message that was on the wire."""
    messages = [message for connection in connections for message in connection.messages]
    return [(len(message), hashlib.sha256(message).hexdigest()) for message in messages]


def taken(tap: Tap) -> list[Apart]:
    return [taken_apart(bytes(connection)) for connection in tap.connections]


def verified(folder: Path, name: str) -> dict[str, object]:
    words = ["verify", f"{folder}/egress/{name}.jsonl", "--mirror", f"{folder}/received/{name}.jsonl"]
    outcome = CliRunner().invoke(
        app, [*words, "--cert-folder", f"{folder}/cert", "--json"], catch_exceptions=False
    )
    assert outcome.exit_code == 0
    found: dict[str, object] = json.loads(outcome.stdout)
    return found


def test_every_byte_that_leaves_real_processes_is_on_their_records(tmp_path: Path, started: Started) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=3, protection=MASKED, names=TWO))
    aggregator = started.aggregator()
    with taps(tmp_path / "cert", TWO, started.port) as tapped_sites:
        started.port = tapped_sites["clinic-a"].port
        site = read_site("clinic-a", tmp_path / "clinic-a.yaml", started.workspace.plan, None)
        assert all(
            item.passed for item in check_site(site, lambda: Address("localhost", started.port), tmp_path / "logs")
        )
        processes = [aggregator]
        for name in TWO:
            started.port = tapped_sites[name].port
            processes.append(started.collaborator(name))
        for process in processes:
            status, words = ended(process)
            assert status == 0, words
    for name, tap in tapped_sites.items():
        connections = taken(tap)
        assert seen(connections) == recorded(tmp_path / "egress" / f"{name}.jsonl")
        # The connection that looks at the aggregator first carries no byte of the site's.
        assert tap.connections[0] == b""
        # What is not a message is what HTTP/2 and gRPC need: a preface and a few hundred bytes of settings and
        # headers for each connection, 5 bytes for each message, 9 for each frame, up to 8 in a ping or a window.
        for connection in connections:
            frames, messages = connection.frames.total(), len(connection.messages)
            assert connection.other_bytes <= len(PREFACE) + 600 + 5 * messages + 17 * frames
        found = verified(tmp_path, name)
        assert found["mirror"] == {
            **_agreed(recorded(tmp_path / "egress" / f"{name}.jsonl")),
            "plans": _plans(found),
        }


@pytest.mark.slow
def test_a_site_that_is_killed_has_on_its_record_whatever_left_it(tmp_path: Path, started: Started) -> None:
    federation = {"min_collaborators": 2, "reconnect_grace_seconds": 600}
    started.workspace = prepare(
        tmp_path, small_plan(rounds=30, federation=federation, protection=MASKED, names=TWO)
    )
    aggregator = started.aggregator()
    upstream = started.port
    with taps(tmp_path / "cert", TWO[:1], upstream) as tapped_sites:
        started.port = tapped_sites["clinic-a"].port
        victim = started.collaborator("clinic-a")
        started.port = upstream
        other = started.collaborator("clinic-b")
        until_line(victim, "round 5 of 30 evaluated")
        victim.send_signal(signal.SIGKILL)
        ended(victim)
        killed_at = len(recorded(tmp_path / "egress" / "clinic-a.jsonl"))
        started.port = tapped_sites["clinic-a"].port
        back = started.collaborator("clinic-a")
        for process in (aggregator, back, other):
            status, words = ended(process)
            assert status == 0, words
    left: list[Told] = []
    told = recorded(tmp_path / "egress" / "clinic-a.jsonl")
    for connection in tapped_sites["clinic-a"].connections:
        left += seen([taken_apart(bytes(connection), cut=True)])
    # An entry stands before its message leaves, so the killed process may have entries over for what never left;
    # never the other way round, and the process that shut down cleanly has none.
    for one in told[::-1]:
        if one not in left:
            assert told.index(one) < killed_at
            continue
        left.remove(one)
    assert left == []
    assert verified(tmp_path, "clinic-a")["interruptions"] == []


def test_a_message_that_is_not_on_the_record_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the tests above: a site whose software says something in secret."""
    send, secret = Link.send, b"37.5 0.8 1.2"

    async def leaking(self: Link, frame: CollaboratorFrame) -> None:
        await send(self, frame)
        in_training = isinstance(frame, SecaggMessage) and self._occasion.purpose is Purpose.TRAINING
        if in_training and self._address.port in leaking_ports:
            await self._call.write(encode_collaborator_frame(SecaggMessage(secret)))

    asked: list[SumStart] = []
    leaking_ports: set[int] = set()
    answer = Link.answer

    def noting(self: Link, start: SumStart) -> None:
        asked.append(start)
        answer(self, start)

    monkeypatch.setattr(Link, "send", leaking)
    monkeypatch.setattr(Link, "answer", noting)
    workspace = prepare(tmp_path, small_plan(rounds=1, protection=MASKED, names=TWO))

    async def scenario(federation: Federation) -> None:
        async with tapped(tmp_path / "cert", "clinic-a", federation.port) as tap:
            leaking_ports.add(tap.port)
            honest, federation.port = federation.port, tap.port
            leaks = asyncio.create_task(federation.take_part("clinic-a"))
            await federation.watching.until_said("clinic-a connected")
            federation.port = honest
            other = asyncio.create_task(federation.take_part("clinic-b"))
            await asyncio.wait({leaks, other, federation.serving}, return_when=asyncio.FIRST_COMPLETED)
            for task in (leaks, other):
                task.cancel()
            await asyncio.gather(leaks, other, return_exceptions=True)
            found.append(tap)
        federation.serving.cancel()

    found: list[Tap] = []
    with pytest.raises((asyncio.CancelledError, FedfairError)):
        play(workspace, scenario)
    (tap,) = found
    on_record = recorded(tmp_path / "egress" / "clinic-a.jsonl")
    messages = [message for connection in taken(tap) for message in connection.messages]
    unrecorded = [
        message for message, told in zip(messages, seen(taken(tap)), strict=True) if told not in on_record
    ]
    assert unrecorded
    assert all(secret in message for message in unrecorded)


def _agreed(messages: list[Told]) -> dict[str, object]:
    nothing = {"messages": 0, "bytes": 0}
    return {
        "agreed": {"messages": len(messages), "bytes": sum(length for length, _ in messages)},
        "lost": nothing,
        "foreign": nothing,
    }


def _plans(found: dict[str, object]) -> object:
    mirror = found["mirror"]
    assert isinstance(mirror, dict)
    return mirror["plans"]
