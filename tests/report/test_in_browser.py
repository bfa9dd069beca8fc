"""Pages in a headless Chromium: nothing is complained of, nothing is requested, everything fits on a phone."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from markupsafe import Markup

from fedfair.report.html import PageSection, page
from fedfair.report.run_page import run_page
from fedfair.report.svg import PALETTE
from fedfair.results.reading import parse_result
from tests.browser import PHONE_WIDTH, Browser
from tests.result_files import complete, oldest

LONG = "a-name-that-goes-on-" * 20
HOSTILE = "</svg></p><script>document.title='taken'</script><img src='x' onerror='document.title=1'>"

MIN_LETTERS = """Math.min(...[...document.querySelectorAll('svg.chart text')].map(
    text => parseFloat(getComputedStyle(text).fontSize) * text.getCTM().a))"""
COLOUR = "getComputedStyle(document.querySelector('#group-sizes [style*=\"stroke: var(--series-1\"]')).stroke"
IDS = "[...document.querySelectorAll('section, svg')].map(each => each.id)"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of a sweep with long and hostile names, written once."""
    results = {f"{LONG}{number}": complete(tradeoff=number / 10, worst=0.5 + number / 9) for number in range(8)}
    results |= {HOSTILE: complete() | {"algorithm": HOSTILE}, LONG: oldest(LONG), "old": oldest("fedavg")}
    results[HOSTILE]["plan"] |= {"federation": LONG, "summary": [[HOSTILE, LONG], ["federation", HOSTILE]]}
    documents = {place: parse_result(json.dumps(result), place) for place, result in results.items()}
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(run_page(documents), encoding="utf-8")
    return path.as_uri()


def rgb(colour: str) -> str:
    return f"rgb({int(colour[1:3], 16)}, {int(colour[3:5], 16)}, {int(colour[5:7], 16)})"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [PHONE_WIDTH, 1280])
def test_a_run_page_fits_and_asks_for_nothing(browser: Browser, address: str, width: int, dark: bool) -> None:
    seen = browser.look(address, IDS, COLOUR, MIN_LETTERS, "document.title", width=width, dark=dark)
    assert seen.complaints == []
    assert seen.requests == [address]
    assert seen.widest == width
    ids, colour, letters, title = seen.answers
    sections = {"summary", "groups", "trade-off", "training", "plan", "privacy", "cost", "limits", "files"}
    assert sections | {"group-sizes", "risk", "threshold", "seconds"} <= set(ids)
    light, (_, other) = next((own, names) for own, names in PALETTE.items() if names[0] == "series-1")
    assert colour == rgb(other if dark else light)
    assert letters >= 9.0  # pixels; printed footnotes have about as many
    assert title.endswith("who is served how well")


@pytest.fixture
def requested() -> Iterator[tuple[str, list[str]]]:
    """Return the address of a server on this machine, and the list of what it is asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False  # a browser opens connections that it may never use

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()
        thread.join()


def loads(place: str) -> Markup:
    return Markup(
        '<img src="{0}/image"><link rel="stylesheet" href="{0}/style"><iframe src="{0}/frame"></iframe>'
        "<script>document.title = 'taken'</script><script src='{0}/script'></script><p onclick='x'>{0}</p>"
    ).format(place)


def test_even_broken_pages_run_nothing(browser: Browser, tmp_path: Path, requested: tuple[str, list[str]]) -> None:
    place, paths = requested
    path = tmp_path / "page.html"
    path.write_text(page("mine", [PageSection("a", "a", loads(place))]), encoding="utf-8")
    seen = browser.look(path.as_uri(), "document.title")
    assert seen.answers == ["mine"]
    assert paths == []
    assert seen.complaints != []


def test_the_browser_would_notice(browser: Browser, tmp_path: Path, requested: tuple[str, list[str]]) -> None:
    # The same page without its policy, and with something that is too wide for a phone.
    place, paths = requested
    path = tmp_path / "page.html"
    wide = Markup("<p style='width: 800px'>wide</p><script>console.error('oh')</script>")
    text = page("mine", [PageSection("a", "a", loads(place) + wide)])
    path.write_text(text.replace("Content-Security-Policy", "nothing"), encoding="utf-8")
    seen = browser.look(path.as_uri(), "document.title")
    assert seen.answers == ["taken"]
    assert {"/image", "/style", "/frame", "/script"} <= set(paths)
    assert f"{place}/image" in seen.requests
    assert any("oh" in complaint for complaint in seen.complaints)
    assert seen.widest > PHONE_WIDTH
