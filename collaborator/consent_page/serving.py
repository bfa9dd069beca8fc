"""Runs the page until somebody stops it: uvicorn carries it, on a socket that is checked before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import uvicorn

from collaborator.consent_page.app import ConsentPage
from collaborator.consent_page.deciding import Deciding
from collaborator.consent_page.examinations import Examinations
from collaborator.consent_page.place import names_of
from collaborator.consent_page.sessions import PageSessions
from collaborator.study_review.examination import examined
from collaborator.study_review.listing import site_inbox
from fedfair.watching.place import StatusPlace

MAX_REQUESTS = 32


def serve_page(config_file: Path, place: StatusPlace, say: Callable[[str], None]) -> None:
    """Serve the page; returns once it is stopped.

    Args:
        config_file: the site's `collaborator.yaml`.
        place: where.
        say: told each link.

    Raises:
        FedfairError: a file of the site is wrong, the address is taken, or the certificate cannot be used.
    """
    site_inbox(config_file)
    names, _ = names_of(place), place.tls_context()
    with closing(place.listener()) as listener:
        port = listener.getsockname()[1]
        host = f"[{place.host}]" if ":" in place.host else place.host

        def announce(secret: str) -> None:
            say(f"log in once with {place.scheme}://{host}:{port}/login/{secret}")

        sessions = PageSessions(time.monotonic, announce)
        with closing(Examinations(config_file, examined)) as examinations:
            deciding = Deciding(sessions, lambda: datetime.now(UTC).isoformat(timespec="seconds"))
            page = ConsentPage(config_file, sessions, examinations, deciding, names, place.scheme)
            server = uvicorn.Server(page_settings(page, place))
            sessions.new_link()
            asyncio.run(server.serve(sockets=[listener]))


def page_settings(page: ConsentPage, place: StatusPlace) -> uvicorn.Config:
    """Return how uvicorn serves the page: without logs of requests, and with bounds."""
    return uvicorn.Config(
        page.app(),
        ssl_certfile=place.certificate,
        ssl_keyfile=place.key,
        http="h11",
        ws="none",
        lifespan="off",
        # Links and names of studies are in the addresses, so no request is logged.
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_REQUESTS,
        h11_max_incomplete_event_size=16 << 10,
        timeout_graceful_shutdown=1,
    )
