"""A status that is served from a thread, for tests whose reader blocks."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fedfair.watching.http_server import ServedPage, serving
from fedfair.watching.place import StatusPlace

PLACE = StatusPlace("127.0.0.1", 0)


@contextmanager
def served(pages: Mapping[str, ServedPage], place: StatusPlace = PLACE) -> Iterator[str]:
    """Serve pages from a thread with a loop of its own; yield the address."""
    ready, ended, found = threading.Event(), asyncio.Event(), list[tuple[int, asyncio.AbstractEventLoop]]()

    async def serve() -> None:
        async with serving(place, pages) as port:
            found.append((port, asyncio.get_running_loop()))
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    port, loop = found[0]
    try:
        yield f"{place.scheme}://{place.host}:{port}/"
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
