"""The pages: what is generated has not drifted, and the site builds strictly and loads nothing from elsewhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs.generate import BLOCKS, DOCS, WHOLE, written
from tests import browser
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE

START, HOW_TO, ARCHITECTURE = "index.html", "how-to/own-data.html", "develop/architecture.html"
REFERENCE, NOTEBOOK = "reference/python/fedfair.plan.html", "notebooks/csv-to-federation.html"


@pytest.mark.parametrize("page", [*WHOLE, *BLOCKS])
def test_a_generated_page_has_not_drifted(page: str) -> None:
    assert written(page) == (DOCS / page).read_text(encoding="utf-8"), "run: make docs"


def test_a_block_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "explain").mkdir()
    (tmp_path / "explain" / "rounds.md").write_text("# How a run goes\n")
    monkeypatch.setattr("docs.generate.DOCS", tmp_path)
    with pytest.raises(ValueError, match=r"docs/explain/rounds\.md has 0 blocks <!-- phases -->"):
        written("explain/rounds.md")


class Loads(HTMLParser):
    """Collects what a browser fetches for a page by itself; a link that somebody may click is not fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        named = "href" if tag == "link" and given.get("rel") != "canonical" else "src"
        if (address := given.get(named)) is not None:
            self.found.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=PATIENCE,
        # Signatures stay on one line: each that is broken into more is a start of a formatter, a thousand in all.
        # The index of the search is loaded when somebody types; to make it, all pages are read once more.
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": "", "SIGNATURE_WIDTH": "9999", "SEARCH_INDEX": "false"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly_and_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    built = {page.relative_to(site).as_posix() for page in pages}
    assert {START, HOW_TO, ARCHITECTURE, REFERENCE, NOTEBOOK} <= built
    foreign = {
        f"{page.relative_to(site)}: {address}"
        for page in pages
        for address in _loads(page.read_text(encoding="utf-8"))
        if re.match(r"(https?:)?//", address)
    }
    assert foreign == set()
    loaded = re.compile(r"(@import|url\()\s*[\"']?(https?:)?//")
    assert [path for path in site.rglob("*.css") if loaded.search(path.read_text())] == []


def _loads(text: str) -> Iterator[str]:
    reader = Loads()
    reader.feed(text)
    yield from reader.found


@pytest.mark.slow
@pytest.mark.skipif(browser.installed() is None, reason="no Chromium here; `make browser` installs one")
def test_the_pages_of_the_site_ask_nobody_else_and_fit_a_phone(site: Path, tmp_path: Path) -> None:
    program = browser.installed()
    assert program is not None
    with browser.started(program, tmp_path) as running:
        for page in (START, HOW_TO, ARCHITECTURE, REFERENCE, NOTEBOOK):
            seen = running.look((site / page).as_uri())
            assert [one for one in seen.requests if not one.startswith((site.as_uri(), "data:", "blob:"))] == []
            assert seen.widest <= browser.PHONE_WIDTH, page
