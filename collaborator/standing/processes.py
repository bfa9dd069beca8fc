"""The running studies of a site: what is remembered of each in this process, their starts, stops and ends.

Which one starts or stops is decided by `schedule.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from collaborator.standing.child import StudyChild, StudyProcess, start_child
from collaborator.standing.schedule import RunningStudy, SiteSaid, StudyStep, after_failure
from collaborator.standing.site import StandingSite
from fedfair.news import standing as news
from fedfair.news.event import News

RESTART_SECONDS: Final = 60.0
"""A process that has lived so long and fails has not failed again, but anew."""
STOP_SECONDS: Final = 60.0
"""How long a study that was asked to stop may take, before it is killed."""
NEEDS_HANDS: Final = 10
"""What only a person can mend is tried again all the same, as after so many failures: it may have been mended."""


@dataclass(slots=True)
class StudyPlace:
    """What this process remembers of one study.

    Attributes:
        child: its process; None where none runs.
        gpu: of the process.
        unfit: why this site cannot take it; empty where it can.
        failures: how often its process ended by a fault, in a row.
        resumes: when it is started again; None for at once.
        gave_way: whether it was stopped for an older study.
        is_done: whether its process has done its work.
        words: why it does not run; for its status.
        told: what the hub has acknowledged of this site, which the record may not show yet.
        ignored: decisions that count nothing, which the operator was told of.
    """

    child: StudyChild | None = None
    gpu: int | None = None
    unfit: str = ""
    failures: int = 0
    resumes: datetime | None = None
    gave_way: bool = False
    is_done: bool = False
    words: str = ""
    told: SiteSaid = SiteSaid.NOTHING
    ignored: set[tuple[str, str]] = field(default_factory=set)


class StudyProcesses:
    """The processes of all studies at one site.

    Args:
        site: its files.
        publish: takes the news.
        changed: called whenever a process has ended or may be started again.
        interpreter: the Python that studies run in.
    """

    def __init__(
        self,
        site: StandingSite,
        publish: Callable[[News], None],
        changed: Callable[[], None],
        interpreter: str,
    ) -> None:
        self._site, self._publish, self._changed = site, publish, changed
        self._interpreter = interpreter
        self._places: dict[str, StudyPlace] = {}
        self._watching: set[asyncio.Task[None]] = set()

    def place(self, name: str) -> StudyPlace:
        """Return what is remembered of a study."""
        return self._places.setdefault(name, StudyPlace())

    def running(self, name: str) -> RunningStudy | None:
        """Return what runs of a study; None where nothing does."""
        place = self.place(name)
        if place.child is None:
            return None
        metrics = self._site.study_folder(name).logs / f"{self._site.name}_metrics.jsonl"
        moved = place.child.started
        with suppress(OSError):
            moved = max(moved, datetime.fromtimestamp(metrics.stat().st_mtime, UTC))
        return RunningStudy(place.gpu, moved, place.child.is_stopping)

    async def start(self, step: StudyStep, aggregator: str) -> None:
        """Start the process of a study.

        Args:
            step: names it, and its GPU.
            aggregator: HOST:PORT of the hub.

        Raises:
            FedfairError: it cannot be started.
        """
        settings, place = self._site.settings(), self.place(step.study)
        child = await start_child(
            StudyProcess(
                self._site.folder,
                settings.site_file(step.study),
                self._site.name,
                self._site.study_folder(step.study),
                aggregator,
                step.gpu,
                settings.memory_gib,
                self._site.passphrase or b"",
                self._interpreter,
            )
        )
        place.child, place.gpu, place.gave_way, place.words = child, step.gpu, False, ""
        self._publish(news.StudyStarted(step.study, child.pid))
        task = asyncio.create_task(self._watch(step.study, child))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    def stop(self, step: StudyStep) -> None:
        """Ask the process of a study to stop; it is killed if it takes too long."""
        place = self.place(step.study)
        if place.child is None:
            return
        place.gave_way, place.words = step.gives_way, step.why
        place.child.stop()
        self._publish(news.StudyStopped(step.study, step.why))
        asyncio.get_running_loop().call_later(STOP_SECONDS, place.child.kill)

    async def end_all(self) -> None:
        """Ask every process to stop, and wait for all; what takes too long is killed."""
        children = [place.child for place in self._places.values() if place.child is not None]
        for child in children:
            child.stop()
        endings = [asyncio.create_task(child.gone()) for child in children]
        if endings:
            await asyncio.wait(endings, timeout=STOP_SECONDS)
            for child in children:
                child.kill()
            await asyncio.gather(*endings)
        await asyncio.gather(*self._watching)

    async def _watch(self, name: str, child: StudyChild) -> None:
        """Wait for the end of a process, and decide when it is started again."""
        ended, place = await child.ended(), self.place(name)
        place.child, place.gpu, seconds = None, None, 0.0
        place.is_done = ended.is_done
        if not child.is_stopping:
            if not ended.is_done:
                seconds = self._rest(place, child, needs_hands=ended.needs_hands)
                place.words = ended.words
            words = "" if ended.is_done else ended.words
            self._publish(news.StudyProcessEnded(name, ended.status, words, seconds))
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._changed)
        self._changed()

    def _rest(self, place: StudyPlace, child: StudyChild, *, needs_hands: bool) -> float:
        now = datetime.now(UTC)
        lived = (now - child.started).total_seconds()
        place.failures = 1 if lived > RESTART_SECONDS else place.failures + 1
        place.resumes = after_failure(NEEDS_HANDS if needs_hands else place.failures, now)
        return (place.resumes - now).total_seconds()
