"""A run that is watched while a site dies: page, metrics and `fedfair status`; and a run with hostile readers."""

import asyncio
import contextlib
import json
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from aggregator.address import free_port
from aggregator.outcome import EndState
from fedfair.cli.loopback import prepare
from fedfair.watching.http_server import BURST, MAX_ACCEPTED_PER_SECOND, serving
from fedfair.watching.pages import status_pages
from fedfair.watching.place import StatusPlace, utc_now
from fedfair.watching.run_status import RunStatus
from tests.browser import PHONE_WIDTH, Browser
from tests.fork_server import ENVIRONMENT
from tests.fork_server import started as start
from tests.interop.federation_kit import NAMES, Federation, metrics, play
from tests.interop.processes import Started, ended
from tests.patience import PATIENCE
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512}
DYING = str(Path(__file__).with_name("dying_site.py"))
FATAL_ROUND, ROUNDS = 7, 9
"""The last evaluation before the death is that of round 5, in which sites differ."""


def shown(condition: str) -> str:
    """Return JavaScript that waits until the page has come to fulfil a condition, and returns its text."""
    return f"""new Promise(done => {{
        const main = document.querySelector('main');
        const look = () => {condition} ? done(main.innerText) : setTimeout(look, 100);
        look();
    }})"""


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:  # noqa: S310 - our own server
        text: str = answer.read().decode()
        return text


@pytest.mark.slow
def test_a_run_with_a_dying_site_is_watched_in_a_browser(
    tmp_path: Path, started: Started, browser: Browser
) -> None:
    victim, other, third = NAMES
    plan = small_plan(rounds=ROUNDS, federation={"reconnect_grace_seconds": 600}, protection=MASKED)
    started.workspace = prepare(tmp_path, plan)
    place, site_place = (f"localhost:{free_port('localhost')}" for _ in range(2))
    aggregator = started.aggregator("--status", place)
    words = ["start", "-n", victim, "-c", f"{victim}.yaml", "-a", f"localhost:{started.port}"]
    dying = started.start(DYING, "before-upload", str(FATAL_ROUND), *words)
    sites = [started.collaborator(other, "--status", site_place), started.collaborator(third)]
    with contextlib.ExitStack() as opened:
        for _ in range(8):  # readers who never ask for anything
            host, port = place.split(":")
            opened.enter_context(socket.create_connection((host, int(port))))

        # The page was opened before or after the death: either way it comes to show it by itself.
        gone = shown(f"[...document.querySelectorAll('.people .away b')].some(b => b.innerText === '{victim}')"
                     " && document.querySelector('#losses table') !== null")  # fmt: skip
        seen = browser.look(f"http://{place}/", gone, "document.querySelector('#unreached').hidden")
        text, is_reached = seen.answers
        assert is_reached
        assert seen.complaints == []
        assert {address.removeprefix(f"http://{place}") for address in seen.requests} <= {"/", "/now"}
        assert seen.widest == PHONE_WIDTH
        assert "2 of 3 sites are connected" in text
        assert f"Round {FATAL_ROUND - 1} of {ROUNDS} is done" in text
        assert f"Waiting for {victim}, until" in text
        assert f"{victim} disconnected" in text

        lines = fetched(f"http://{place}/metrics").splitlines()
        assert f'fedfair_site_connected{{site="{victim}"}} 0.0' in lines
        assert f"fedfair_rounds_total {FATAL_ROUND - 1}.0" in lines
        assert any(line.startswith("fedfair_awaited_deadline_timestamp_seconds ") for line in lines)

        document = json.loads(fetched(f"http://{place}/healthz"))
        told = started.command("fedfair.cli", "status", place, "--json")
        assert told.returncode == 0, told.stdout
        for status in (document, json.loads(told.stdout)):
            assert (status["connected"], status["awaited"]) == ([other, third], [victim])
            assert status["sum"] == {"purpose": "training", "round": FATAL_ROUND, "attempt": 1, "phase": "uploads"}
        table = started.command("fedfair.cli", "status", place)
        assert table.returncode == 0, table.stdout
        assert f"waiting for {victim} until" in table.stdout

        site = started.command("fedfair.cli", "status", site_place)
        assert f"{other}: round {FATAL_ROUND - 1} of {ROUNDS}" in site.stdout
        _check_own_figures_stay(tmp_path, other, site_place, browser)

    # Somebody starts it again, and the run continues to its end.
    ended(dying)
    returned = started.collaborator(victim)
    for process in (aggregator, returned, *sites):
        status, output = ended(process)
        assert status == 0, output
    notes = (tmp_path / "logs" / "aggregator_notes.log").read_text()
    assert f"the status of the run is at http://{place}/" in notes
    over = started.command("fedfair.cli", "status", place)
    assert over.returncode == 1
    assert f"no status is served at {place}" in over.stdout


def _check_own_figures_stay(folder: Path, name: str, place: str, browser: Browser) -> None:
    """See that a site's page has all sites' losses, and that nothing it serves has its own."""
    lines = (folder / "logs" / f"{name}_own_figures.jsonl").read_text().splitlines()
    figures = json.loads(lines[-1])
    own, everybody = (figures[whose]["train"]["mean"] for whose in ("own", "everybody"))
    seen = browser.look(f"http://{place}/", "document.querySelector('main').innerText", width=1280)
    assert (seen.complaints, seen.widest) == ([], 1280)
    assert f"{everybody:.4f}" in seen.answers[0]
    everything = seen.answers[0] + fetched(f"http://{place}/metrics") + fetched(f"http://{place}/healthz")
    for digits in (f"{own:.4f}", str(own)):
        assert digits not in everything


@pytest.mark.parametrize("module", ["aggregator", "collaborator"])
def test_a_place_that_others_reach_is_refused_before_anything_starts(tmp_path: Path, module: str) -> None:
    process = start(("-m", module, "start", "--status", "[::]:9464"), tmp_path, ENVIRONMENT)
    status, told = ended(process)
    assert status == 2, told
    said = " ".join(told.split())
    assert "--status [::]:9464 can be reached by other machines" in said
    assert "listen on localhost, or give --status-certificate and --status-key" in said
    assert list(tmp_path.iterdir()) == []


class Hostile:
    """Readers that do their worst, in one event loop: they ask for nothing, or as often as they can."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answers = 0

    async def silent(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                with contextlib.closing(writer):
                    await reader.read()

    async def flood(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                with contextlib.closing(writer):
                    self.answers += bool(await reader.read())


def test_a_run_ends_as_ever_while_hostile_readers_do_their_worst(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=ROUNDS, protection=MASKED))
    watched = RunStatus("aggregator", "aggregator", "heart", ROUNDS, 0.1, NAMES, utc_now())
    pages = status_pages(lambda: watched, utc_now)

    async def scene(federation: Federation) -> None:
        async with serving(StatusPlace("127.0.0.1", 0), pages) as port:
            hostile, began = Hostile(port), time.monotonic()
            readers = [hostile.silent() for _ in range(40)] + [hostile.flood() for _ in range(8)]
            tasks = [asyncio.create_task(reader) for reader in readers]
            await asyncio.gather(*(federation.take_part(name) for name in NAMES))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # However long it took, no more than that were let in.
            most = BURST + MAX_ACCEPTED_PER_SECOND * (time.monotonic() - began)
            assert 0 < hostile.answers <= most

    assert play(workspace, scene).state is EndState.FINISHED
    rounds = [line["round"] for line in metrics(workspace) if line["purpose"] == "training"]
    assert rounds == [*range(1, ROUNDS + 1)]
