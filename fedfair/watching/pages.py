"""The addresses that are served of a status: the page and its part, the metrics, and the document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

from fedfair.watching import metrics, page
from fedfair.watching.document import status_text
from fedfair.watching.http_server import NOTHING, ServedPage, serving
from fedfair.watching.place import StatusPlace
from fedfair.watching.run_status import RunStatus


def status_pages(status: Callable[[], RunStatus], clock: Callable[[], datetime]) -> Mapping[str, ServedPage]:
    """Return every address that is answered.

    Args:
        status: returns the present status; called on the loop.
        clock: the time, with a time zone.
    """

    def served(kind: str, make: Callable[[RunStatus, datetime], bytes], policy: str = NOTHING) -> ServedPage:
        return ServedPage(kind, lambda: partial(make, status(), clock()), policy)

    return {
        "/": served(page.CONTENT_TYPE, page.status_page, page.content_policy()),
        "/now": served(page.CONTENT_TYPE, page.status_part),
        "/healthz": served("application/json", status_text),
        "/metrics": served(metrics.CONTENT_TYPE, metrics.metrics_text),
    }


@asynccontextmanager
async def watched(
    place: StatusPlace | None,
    status: Callable[[], RunStatus],
    clock: Callable[[], datetime],
    announce: Callable[[str], None],
) -> AsyncIterator[None]:
    """Serve the status for as long as the block runs.

    Args:
        place: where; None for nowhere.
        status: returns the present status; called on the loop.
        clock: the time, with a time zone.
        announce: called with the address, once it is served.

    Raises:
        FedfairError: the address is taken, or the certificate cannot be used.
    """
    if place is None:
        yield
        return
    async with serving(place, status_pages(status, clock)) as port:
        host = f"[{place.host}]" if ":" in place.host else place.host
        announce(f"{place.scheme}://{host}:{port}/")
        yield
