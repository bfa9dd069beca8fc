"""The end of a run, site by site: who knows that it is over, and how long this side stays for the others.

A site knows once it has said so itself (`Ended`), with the digest of its copy of the run, which is on its disk
then. That something was written to it proves nothing: its process may be gone. A site whose copy is another one
has heard the end and lacks the last sums; it is served again whenever it asks, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.news.run import AbsentSitesAwaited, EndMissed

if TYPE_CHECKING:
    from aggregator.records import RunRecords
    from fedfair.ids import ParticipantId
    from fedfair.news.processors import Processor


@dataclass(frozen=True, slots=True)
class Farewell:
    """The collaborators still to be notified that the run is over, and how long to wait for them.

    Attributes:
        seconds: how long to listen for those who are away.
        names: who is waited for, besides those who took part in this process.
    """

    seconds: float
    names: frozenset[ParticipantId] = frozenset()


NO_FAREWELL = Farewell(0.0)


class EndOfRun:
    """Keeps account of one run's end.

    Args:
        terms: who is to know of it.
        records: remember who knows.
        publish: takes who is waited for.
    """

    def __init__(self, terms: Farewell, records: RunRecords, publish: Processor) -> None:
        self._seconds = terms.seconds
        self._records = records
        self._publish = publish
        self._untold = set(terms.names)
        self._over = asyncio.Event()

    def came(self, who: ParticipantId) -> None:
        """Note that a site takes part, so that it is to know of the end."""
        self._untold.add(who)

    def left(self, who: ParticipantId) -> None:
        """Note that a site need not be waited for at the end."""
        self._untold.discard(who)

    def ended(self, who: ParticipantId, *, in_step: bool) -> None:
        """Note that a site has heard of the end; `in_step` says whether it has the run to its end on its disk."""
        if in_step:
            self._records.append_notified(who)
        else:
            self._publish(EndMissed(who))
        self._untold.discard(who)
        if not self._untold:
            self._over.set()

    def hurry(self) -> None:
        """Stop waiting: the operator says so."""
        self._over.set()

    async def wait(self, before: Callable[[], None], quiet: Callable[[], Awaitable[object]]) -> None:
        """Stay reachable for a while, so that a site that lost its connection at the end learns of it.

        Args:
            before: called once before the wait, where there is one.
            quiet: done when no stream is open.
        """
        self._untold -= self._records.informed()
        if not self._untold or not self._seconds or self._over.is_set():
            return
        before()
        self._publish(AbsentSitesAwaited(self._seconds, tuple(sorted(self._untold))))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._over.wait()
        await quiet()
