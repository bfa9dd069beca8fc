"""What every request passes before it is answered, and what every answer carries.

A request calls the page by one of its names, and one that changes something comes from the page itself. An answer
is kept nowhere, shown in no frame, and can load and run nothing but the page's own style.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from collaborator.consent_page.pages import content_policy
from collaborator.consent_page.place import is_named
from fedfair.watching.http_server import SECURITY_HEADERS

MAX_BODY_BYTES = 16 << 10
SAFE = frozenset({"GET", "HEAD"})


class Guard:
    """Stands before the page.

    Args:
        app: answers what passes.
        names: by which a request may call the page.
        scheme: http or https.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str], scheme: str) -> None:
        self._app = app
        self._names = names
        self._scheme = scheme

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it before the page sees it."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS:
                    headers[name] = value
                # With none at all, a browser hides from the page that its own form is its own.
                headers["Referrer-Policy"] = "same-origin"
                headers["Content-Security-Policy"] = content_policy()
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                if self._scheme == "https":
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        status, words = self._refusal(scope["method"], Headers(scope=scope))
        if status:
            await PlainTextResponse(words, status)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str]:
        """Return the status and the words of a refusal; 0 where there is none."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not is_named(self._names, hosts[0]):
            return 421, "This is not the page's name."
        if method in SAFE:
            return 0, ""
        if method != "POST":
            return 405, "Only GET and POST are answered."
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return 413, "A form is shorter than that."
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if origin not in {None, f"{self._scheme}://{hosts[0]}"} or site != "same-origin":
            return 403, "A form comes from this page alone."
        return 0, ""
