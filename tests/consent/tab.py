"""One tab of a browser in which somebody goes from page to page, types and presses buttons."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.browser import COMPLAINTS, PHONE_WIDTH, Browser


class Tab:
    """An open tab."""

    def __init__(self, browser: Browser, width: int = 1280, *, dark: bool = False) -> None:
        self._browser = browser
        self._target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.ask("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            browser.ask(f"{domain}.enable", self._session)
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width <= PHONE_WIDTH}
        browser.ask("Emulation.setDeviceMetricsOverride", self._session, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.ask("Emulation.setEmulatedMedia", self._session, features=[scheme])
        browser.ask("Page.setLifecycleEventsEnabled", self._session, enabled=True)
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def go(self, address: str) -> None:
        """Open an address, and wait until it is there."""
        self._loaded(lambda: self._browser.ask("Page.navigate", self._session, url=address))

    def press(self, selector: str) -> None:
        """Press a button or a link, and wait for the page that comes."""
        pressed = f"setTimeout(() => document.querySelector({json.dumps(selector)}).click(), 0)"
        self._loaded(lambda: self.ask(pressed))

    def type(self, selector: str, text: str) -> None:
        """Put a text into a field."""
        self.ask(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(text)}")

    def ask(self, question: str) -> Any:  # noqa: ANN401 - JavaScript has every type
        """Return what JavaScript comes to, asked from outside of the page."""
        found = self._browser.ask("Runtime.evaluate", self._session, expression=question, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self) -> str:
        """Return what the page says."""
        return str(self.ask("document.body.innerText"))

    def picture(self, path: Path) -> None:
        """Write a PNG of the whole page."""
        shot = self._browser.ask("Page.captureScreenshot", self._session, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """Close it."""
        self._browser.ask("Target.closeTarget", targetId=self._target)

    def _loaded(self, begin: Callable[[], object]) -> None:
        events = self._browser.events
        events.clear()
        begin()
        while not any(self._is_load(event) for event in events):
            events.append(self._browser._next())
        for event in events:
            if event.get("method") == "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
            elif event.get("method") in COMPLAINTS:
                self.complaints.append(json.dumps(event["params"]))

    def _is_load(self, event: dict[str, Any]) -> bool:
        own = event.get("sessionId") == self._session
        return own and event.get("method") == "Page.lifecycleEvent" and event["params"]["name"] == "load"
