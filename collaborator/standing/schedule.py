"""Decides what a standing site does next, from what it knows of every study: no clock, disk or network.

A study runs only while the hub says that its run is open and this site's own people stand by their approval. The
hub starts studies in one order, the same for all. A site may prefer another, but a study that does not move gives
its place after a while to the oldest one that waits, and the oldest one never gives its place away. So all sites
come to run the oldest one together, and no two of them wait for each other in two studies for ever.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fedfair.consent.decisions import ConsentState
from fedfair.policy.site_settings import SiteSettings

END_TIME: Final = timedelta(minutes=2)
"""How long a process may take to end by itself, after its last sum, once the study is over."""


class HubPhase(enum.Enum):
    """How far the hub says that a study is."""

    PROPOSED = "proposed"
    OPEN = "open"
    OVER = "over"


class SiteSaid(enum.Enum):
    """What this site's last act about a study in the record is."""

    NOTHING = "nothing"
    APPROVED = "approved"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class RunningStudy:
    """A study whose process runs at this site.

    Attributes:
        gpu: the number of its GPU; None where none is dealt out.
        moved: when it last moved: its start, or the last sum it has taken part in.
        stopping: whether it was asked to stop.
    """

    gpu: int | None
    moved: datetime
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class StudyFacts:
    """Everything the schedule depends on, for one study.

    Attributes:
        name: the study's.
        hub: how far it is.
        order: number of the act that opened it; of its proposal before that.
        is_here: whether its archive is here and was checked.
        is_refused_here: whether this site cannot take it, whatever people say: not its study, too large, unsound.
        consent: what this site's people have decided.
        said: what this site has told the hub.
        running: its process; None where none runs.
        resumes: not before this time is its process started again; None for at once.
        gave_way: whether it was stopped because an older study waited; until it is started again.
        is_done: whether its process has ended for good: finished, or only a person can help.
        is_tidied: whether what needs no keeping has been removed.
    """

    name: str
    hub: HubPhase
    order: int
    is_here: bool = False
    is_refused_here: bool = False
    consent: ConsentState = ConsentState.WAITING
    said: SiteSaid = SiteSaid.NOTHING
    running: RunningStudy | None = None
    resumes: datetime | None = None
    gave_way: bool = False
    is_done: bool = False
    is_tidied: bool = False


class StepKind(enum.Enum):
    """One thing to do about a study."""

    FETCH = "fetch"
    APPROVE = "approve"
    REFUSE = "refuse"
    WITHDRAW = "withdraw"
    START = "start"
    STOP = "stop"
    TIDY = "tidy"


@dataclass(frozen=True, slots=True)
class StudyStep:
    """One thing to do, and with what.

    Attributes:
        act: what.
        study: about which study.
        gpu: the GPU of a start; None where none is dealt out.
        why: of a stop, in words.
        gives_way: whether a stop is for an older study that waits.
    """

    act: StepKind
    study: str
    gpu: int | None = None
    why: str = ""
    gives_way: bool = False


def next_steps(
    studies: Iterable[StudyFacts], settings: SiteSettings, now: datetime, *, has_room: bool = True
) -> tuple[StudyStep, ...]:
    """Return what is to be done now.

    Args:
        studies: all that the record names, in any order.
        settings: of this site.
        now: with a time zone; its time of day is the site's own.
        has_room: whether studies/ is below its limit; above it nothing is fetched, and what is over is tidied.
    """
    known = sorted(studies, key=lambda study: study.order)
    steps = [step for study in known for step in _consent_steps(study, has_room=has_room)]
    return (*steps, *_running_steps(known, settings, now), *(() if has_room else _tidying(known)))


def _consent_steps(study: StudyFacts, *, has_room: bool) -> Iterator[StudyStep]:
    if study.hub is HubPhase.OVER:
        return
    if study.is_refused_here:
        if study.said is SiteSaid.NOTHING:
            yield StudyStep(StepKind.REFUSE, study.name)
        return
    if not study.is_here:
        if has_room:
            yield StudyStep(StepKind.FETCH, study.name)
        return
    match study.consent, study.said:
        case ConsentState.APPROVED, SiteSaid.NOTHING:
            yield StudyStep(StepKind.APPROVE, study.name)
        case ((ConsentState.REFUSED | ConsentState.WITHDRAWN), SiteSaid.NOTHING):
            yield StudyStep(StepKind.REFUSE, study.name)
        case ((ConsentState.REFUSED | ConsentState.WITHDRAWN), SiteSaid.APPROVED):
            yield StudyStep(StepKind.WITHDRAW, study.name)


def _may_run(study: StudyFacts) -> bool:
    stands = study.consent is ConsentState.APPROVED and study.said is SiteSaid.APPROVED
    return study.hub is HubPhase.OPEN and study.is_here and stands and not study.is_refused_here


def _running_steps(known: Sequence[StudyFacts], settings: SiteSettings, now: datetime) -> Iterator[StudyStep]:
    """Yield stops first, then the starts for which there is a place afterwards."""
    hours, stays = settings.hours, []
    in_hours = hours is None or hours.include(now.time())
    for study in known:
        if study.running is None:
            continue
        outside = hours is not None and hours.outside == "stop" and not in_hours
        why = _why_to_stop(study, now, is_outside=outside)
        if why and not study.running.stopping:
            yield StudyStep(StepKind.STOP, study.name, why=why)
        # A process that was asked to stop keeps its place and its GPU until it has ended.
        stays.append(study)
    if not in_hours:
        return
    waiting = [study for study in known if _waits(study, now)]
    oldest = min((study.order for study in waiting), default=0)
    if not any(study.gave_way for study in waiting):
        waiting.sort(key=lambda study: _place(study.name, settings.first))
    free = [number for number in settings.gpus if number not in _gpus(stays)]
    places = settings.at_once - len(stays)
    for index, study in enumerate(waiting[: max(places, 0)]):
        yield StudyStep(StepKind.START, study.name, free[index] if index < len(free) else None)
    if len(waiting) > max(places, 0):
        yield from _yielded(stays, oldest, settings, now)


def _why_to_stop(study: StudyFacts, now: datetime, *, is_outside: bool) -> str:
    if study.consent in (ConsentState.REFUSED, ConsentState.WITHDRAWN):
        return "this site's people have withdrawn their approval"
    if study.hub is HubPhase.OVER:
        # The process hears the end from the hub itself, and writes down what it has come to.
        still = study.running is not None and now - study.running.moved >= END_TIME
        return "the study is over" if still else ""
    if not _may_run(study):
        return "this site takes no part in it any more"
    return "outside the hours of site.yaml" if is_outside else ""


def _waits(study: StudyFacts, now: datetime) -> bool:
    rests = study.resumes is not None and now < study.resumes
    return study.running is None and _may_run(study) and not study.is_done and not rests


def _place(name: str, first: Sequence[str]) -> int:
    return first.index(name) if name in first else len(first)


def _gpus(running: Iterable[StudyFacts]) -> set[int]:
    return {study.running.gpu for study in running if study.running is not None and study.running.gpu is not None}


def _yielded(
    stays: Sequence[StudyFacts], oldest: int, settings: SiteSettings, now: datetime
) -> Iterator[StudyStep]:
    """Yield the stop of the study that has stood still longest, where that is too long and an older one waits."""
    if any(study.running is not None and study.running.stopping for study in stays):
        return
    still = timedelta(minutes=settings.yield_after_minutes)
    idle = [
        (study.running.moved, study.name)
        for study in stays
        if study.running is not None and study.order > oldest and now - study.running.moved >= still
    ]
    if idle:
        yield StudyStep(
            StepKind.STOP, min(idle)[1], why="it does not move, and an older study waits", gives_way=True
        )


def _tidying(known: Sequence[StudyFacts]) -> Iterator[StudyStep]:
    """Yield the one study that is over whose files go first: one that was never approved here, then the oldest."""
    over = [
        study for study in known if study.hub is HubPhase.OVER and study.running is None and not study.is_tidied
    ]
    over.sort(key=lambda study: study.said in (SiteSaid.APPROVED, SiteSaid.WITHDRAWN))
    yield from (StudyStep(StepKind.TIDY, study.name) for study in over[:1])


def after_failure(failures: int, now: datetime) -> datetime:
    """Return when a study's process is started again that has ended by a fault.

    Args:
        failures: how often it has done so in a row, at least 1.
        now: when it ended.
    """
    return now + timedelta(seconds=min(2.0 ** (failures - 1), 300.0))
