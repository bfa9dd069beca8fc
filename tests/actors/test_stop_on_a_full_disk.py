"""A stop that is asked for while the disk is full: it happens, although it cannot be noted."""

from __future__ import annotations

import asyncio
import errno
import signal

from collaborator.participation import _until_stopped
from fedfair.errors import StoppedError
from fedfair.news.event import StatusUpdate
from fedfair.wire.frames import Finished
from tests.patience import PATIENCE


def full_disk(update: StatusUpdate) -> None:
    del update
    raise OSError(errno.EFBIG, "File too large")


async def forever() -> Finished:
    asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
    await asyncio.Event().wait()
    raise AssertionError


async def stopped() -> BaseException | None:
    leaving = asyncio.create_task(_until_stopped(forever(), full_disk))
    done, _ = await asyncio.wait({leaving}, timeout=PATIENCE)
    assert done, "the signal was lost with the note about it"
    return leaving.exception()


def test_a_site_stops_although_its_note_of_it_cannot_be_written() -> None:
    assert isinstance(asyncio.run(stopped()), StoppedError)
