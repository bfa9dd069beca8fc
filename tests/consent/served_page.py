"""The page of a site's inbox, served from a thread; examinations are what a test says they are."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlencode

import uvicorn

from collaborator.consent_page.app import ConsentPage
from collaborator.consent_page.deciding import Deciding
from collaborator.consent_page.examinations import Examinations
from collaborator.consent_page.place import names_of
from collaborator.consent_page.serving import page_settings
from collaborator.consent_page.sessions import PageSessions
from collaborator.study_review.examination import Examination
from fedfair.watching.place import StatusPlace
from tests.consent.people import WHEN

PLACE = StatusPlace("127.0.0.1", 0)


@dataclass
class Answer:
    """One answer of the page."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class Visitor:
    """A browser that keeps its cookie, and has no other wits."""

    port: int
    cookie: str = ""
    token: str = ""
    more: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        stated = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        return self.ask("POST", path, urlencode(form), stated)

    def ask(self, method: str, path: str, body: str = "", headers: Mapping[str, str] | None = None) -> Answer:
        with closing(HTTPConnection("127.0.0.1", self.port)) as connection:
            stated = {"Cookie": self.cookie} if self.cookie else {}
            connection.request(method, path, body.encode(), {**stated, **self.more, **(headers or {})})
            found: HTTPResponse = connection.getresponse()
            text = found.read().decode()
        if "set-cookie" in found.headers:
            self.cookie = found.headers["set-cookie"].partition(";")[0]
        if 'name="token" value="' in text:
            self.token = text.partition('name="token" value="')[2].partition('"')[0]
        return Answer(found.status, dict(found.headers.items()), text)


@dataclass
class ServedPage:
    """The page, and what its terminal shows."""

    port: int
    links: list[str]
    clock: list[float]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def visitor(self) -> Visitor:
        """Return somebody who has logged in."""
        found = Visitor(self.port)
        assert found.post(f"/login/{self.links[-1]}", {}).status == 303
        found.get("/")
        return found


@contextmanager
def served(home: Path, examine: Callable[[Path, Path], Examination]) -> Iterator[ServedPage]:
    """Serve the page of a site on a port of its own."""
    links: list[str] = []
    clock = [0.0]
    sessions = PageSessions(lambda: clock[0], links.append)
    config = home / "collaborator.yaml"
    with closing(Examinations(config, examine)) as examinations, closing(PLACE.listener()) as listener:
        deciding = Deciding(sessions, lambda: WHEN)
        page = ConsentPage(config, sessions, examinations, deciding, names_of(PLACE), "http")
        sessions.new_link()
        server = uvicorn.Server(page_settings(page, PLACE))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.005)
            yield ServedPage(listener.getsockname()[1], links, clock)
        finally:
            server.should_exit = True
            thread.join()
