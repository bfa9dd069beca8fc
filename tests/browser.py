"""A headless Chromium, spoken to over two pipes: the DevTools protocol, as JSON with a NUL after each message.

Chromium reads commands from file descriptor 3 and writes answers and events to 4; no port is opened and no driver
is needed. What a page does is seen as events: messages on the console, faults, requests.
"""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE

FLAGS = (
    "--headless",
    "--no-sandbox",  # tests may run as root, where Chromium refuses to start otherwise
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
COMPLAINTS = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
PHONE_WIDTH = 390

Message = dict[str, Any]


def installed() -> str | None:
    """Return the browser of this machine, if there is one."""
    found = (shutil.which(name) for name in ("chromium", "google-chrome", "chromium-browser"))
    return next(filter(None, found), None)


@dataclass
class Seen:
    """What a page did while it was loaded, what the questions came to, and what it looks like."""

    complaints: list[str]
    requests: list[str]
    widest: float
    answers: list[Any]


@dataclass
class Browser:
    """One running browser: the pipe to it, the pipe back, and what has arrived."""

    to: int
    back: int
    unread: bytes = b""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    events: list[Message] = field(default_factory=list)

    def look(
        self,
        address: str,
        *questions: str,
        width: int = PHONE_WIDTH,
        dark: bool = False,
        picture: Path | None = None,
    ) -> Seen:
        """Open a page in a tab of its own.

        Args:
            address: of the page.
            questions: JavaScript, which may be a promise.
            width: of the tab, in pixels.
            dark: the scheme that the page is asked for.
            picture: where a PNG of the whole page goes.
        """
        tab = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable", session)
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width <= PHONE_WIDTH}
        self.ask("Emulation.setDeviceMetricsOverride", session, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", session, features=[scheme])
        self.ask("Page.setLifecycleEventsEnabled", session, enabled=True)
        self.events.clear()
        loader = self.ask("Page.navigate", session, url=address)["loaderId"]
        while not any(_is_loaded(event, loader) for event in self.events):
            self.events.append(self._next())
        asked = ("document.documentElement.scrollWidth", *questions)
        widest, *answers = (self._evaluate(question, session) for question in asked)
        if picture is not None:
            shot = self.ask("Page.captureScreenshot", session, captureBeyondViewport=True)
            picture.write_bytes(base64.b64decode(shot["data"]))
        self.ask("Target.closeTarget", targetId=tab)
        complaints = [json.dumps(event["params"]) for event in self.events if event.get("method") in COMPLAINTS]
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return Seen(complaints, [params["request"]["url"] for params in sent], widest, answers)

    def _evaluate(self, question: str, session: str) -> Any:  # noqa: ANN401 - JavaScript has every type
        how = {"returnByValue": True, "awaitPromise": True}
        found = self.ask("Runtime.evaluate", session, expression=question, **how)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def ask(self, method: str, session: str = "", **params: object) -> Message:
        """Send one command and return its result; events that arrive meanwhile are kept."""
        number = next(self.numbers)
        words: Message = {"id": number, "method": method, "params": params}
        if session:
            words["sessionId"] = session
        raw = json.dumps(words).encode() + b"\0"
        assert os.write(self.to, raw) == len(raw)
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        result: Message = answer["result"]
        return result

    def _next(self) -> Message:
        ends = time.monotonic() + PATIENCE
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.back], [], [], max(ends - time.monotonic(), 0.0))
            assert ready, f"the browser has said nothing for {PATIENCE:.0f} s"
            more = os.read(self.back, 1 << 20)
            assert more, "the browser has ended"
            self.unread += more
        raw, _, self.unread = self.unread.partition(b"\0")
        message: Message = json.loads(raw)
        return message


def _is_loaded(event: Message, loader: str) -> bool:
    """Return whether an event says that this very document is there: the empty tab has been loaded before it."""
    told = event.get("params", {})
    return event.get("method") == "Page.lifecycleEvent" and told["name"] == "load" and told["loaderId"] == loader


@contextmanager
def started(program: str, folder: Path) -> Iterator[Browser]:
    """Run a browser with its profile in `folder`; it is gone at the end of the block."""
    heard, to = _pipe()
    back, said = _pipe()
    nothing = os.open(os.devnull, os.O_RDWR)
    ends = [(nothing, 0), (nothing, 1), (nothing, 2), (heard, 3), (said, 4)]
    process = os.posix_spawn(
        program,
        [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
        dict(os.environ),
        file_actions=[(os.POSIX_SPAWN_DUP2, *end) for end in ends],
        setpgroup=0,
    )
    for end in (heard, said, nothing):
        os.close(end)
    try:
        yield Browser(to, back)
    finally:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(to)
        os.close(back)


def _pipe() -> tuple[int, int]:
    """Return a pipe with ends beyond the descriptors that the browser is given."""
    ends = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 16) for end in ends)
    for end in ends:
        os.close(end)
    return read, write
