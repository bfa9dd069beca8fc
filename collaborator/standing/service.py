"""The standing service of a site: follows the record, carries out the schedule, watches what it has started.

Three loops share one event: whoever learns something sets it, and the steps are decided anew from all facts. A
step that fails is said and tried again; it stops no other one. Decisions of people are files that other commands
write, so the folder is looked at every `LOOK_SECONDS`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from collaborator.calls import Backoff
from collaborator.standing.act_egress import record_act
from collaborator.standing.fetching import UnfitStudyError, fetch_study, unpack_study
from collaborator.standing.processes import StudyPlace, StudyProcesses
from collaborator.standing.schedule import SiteSaid, StepKind, StudyFacts, StudyStep, next_steps
from collaborator.standing.site import StandingSite, facts_of, note_status, phase_of, tidy
from fedfair.consent.decisions import DecisionFault
from fedfair.consortium import acts
from fedfair.consortium.faults import ConsortiumError
from fedfair.consortium.record import parse_entry
from fedfair.consortium.studies import ConsortiumStudy
from fedfair.errors import FedfairError, UnreachableError
from fedfair.news import standing as news
from fedfair.news.event import News
from fedfair.plan.approval import approve
from fedfair.policy.proxy import choose_route
from fedfair.process.stopping import stopping
from fedfair.store.atomic_file import replace_file
from fedfair.store.disk import writing
from fedfair.version import __version__, installed_version
from fedfair.wire.calling import Address
from fedfair.wire.hub_client import HubClient

LOOK_SECONDS: Final = 2.0
"""Between two looks at the inbox: how long a withdrawal may take to have its effect."""
WAIT_SECONDS: Final = 50
"""How long the hub waits for news before it answers that there are none."""
MEASURE_SECONDS: Final = 300.0
"""Between two looks at how much the disk holds, and which version is installed."""

_TOLD = {
    StepKind.APPROVE: SiteSaid.APPROVED,
    StepKind.REFUSE: SiteSaid.REFUSED,
    StepKind.WITHDRAW: SiteSaid.WITHDRAWN,
}
_KINDS = {
    StepKind.APPROVE: acts.ActKind.APPROVED,
    StepKind.REFUSE: acts.ActKind.REFUSED,
    StepKind.WITHDRAW: acts.ActKind.WITHDRAWN,
}


class StandingService:
    """The service of one site.

    Args:
        site: its files.
        publish: takes the news.
        interpreter: the Python that studies run in.
        hub: HOST and port of the hub; None for what the members' list says.

    Attributes:
        changed: set by whoever learns something.
        is_outdated: whether fedfair was upgraded while it ran, and nothing of it runs any more.
    """

    def __init__(
        self,
        site: StandingSite,
        publish: Callable[[News], None],
        interpreter: str,
        hub: tuple[str, int] | None = None,
    ) -> None:
        self._site, self._publish, self._hub = site, publish, hub
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._telling = asyncio.Lock()
        self._used, self._measured, self._upgraded = 0.0, -MEASURE_SECONDS, False
        self.changed = asyncio.Event()
        self.is_outdated = False
        self._processes = StudyProcesses(site, publish, self.changed.set, interpreter)

    async def run(self) -> None:
        """Serve until the operator stops it; every process that it has started ends before it returns.

        It ends by itself where fedfair was upgraded and no study runs: `is_outdated`.

        Raises:
            ConsortiumError: the hub shows another past, or leaves out what it has acknowledged.
        """
        stopped = asyncio.Event()

        def stop(_: str) -> None:
            stopped.set()

        self._publish(news.ServiceStarted(self._site.name, str(self._address()), self._site.known.record.number))
        with stopping(stop):
            async with HubClient(self._address(), self._site.identity) as client:
                following, failed = partial(self._follow, client), self._failed
                loops = (_lasting(following, failed), _lasting(self._decide, failed), self._look())
                running = [asyncio.create_task(loop) for loop in loops]
                waiting = asyncio.create_task(stopped.wait())
                try:
                    await asyncio.wait([*running, waiting], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (*running, waiting, *self._tasks.values()):
                        task.cancel()
                    await asyncio.gather(*running, waiting, *self._tasks.values(), return_exceptions=True)
                    await self._processes.end_all()
        for task in running:
            if not task.cancelled() and (fault := task.exception()) is not None:
                raise fault

    def _address(self) -> Address:
        consortium = self._site.known.record.consortium
        host, port = self._hub or (consortium.host, consortium.port)
        return Address(host, port, choose_route(host, port, self._site.config.network.proxy, os.environ))

    # -------------------------------------------------------------- the three loops

    async def _follow(self, client: HubClient) -> None:
        """Follow the record for ever; a hub that does not answer is asked again, later and later."""
        known, backoff = self._site.known, Backoff(secrets.SystemRandom().random)
        while True:
            try:
                entries = await client.acts(known.record.number, WAIT_SECONDS)
            except FedfairError as fault:
                seconds = backoff.next()
                if backoff.fruitless in (1, 5) or backoff.fruitless % 20 == 0:
                    self._publish(unfollowed(fault, seconds))
                await asyncio.sleep(seconds)
                continue
            backoff.reset()
            if entries:
                known.extend(entries)
                newest = parse_entry(entries[-1]).act
                self._publish(news.RecordExtended(known.record.number, _words(newest)))
                self.changed.set()

    async def _look(self) -> None:
        """Have everything looked at again after a while: people decide in files."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.changed.set()

    async def _decide(self) -> None:
        while True:
            await self.changed.wait()
            self.changed.clear()
            facts = self._facts()
            settings = self._site.settings()
            has_room = self._used_gib() < settings.disk.limit_gib
            steps = next_steps(facts.values(), settings, _now().astimezone(), has_room=has_room)
            # What stops a study waits for nothing, and for no hub that does not answer.
            for step in sorted(steps, key=lambda step: step.act is not StepKind.STOP):
                await self._carry_out(step)
            facts = {name: self._with_process(known) for name, known in facts.items()}
            self._note(facts)
            if self._upgraded and not any(known.running for known in facts.values()):
                self.is_outdated = True
                return

    # -------------------------------------------------------------- facts

    def _facts(self) -> dict[str, StudyFacts]:
        approvers = self._site.approvers()
        found = {}
        for name, study in self._site.studies().items():
            place = self._processes.place(name)
            consent, faults = self._site.consent(study, approvers)
            self._tell_ignored(name, faults, place)
            known = facts_of(self._site, study, consent.state, is_unfit=bool(place.unfit))
            found[name] = self._with_process(known)
        return found

    def _with_process(self, known: StudyFacts) -> StudyFacts:
        """Return what is known of a study with what this process does about it now."""
        place = self._processes.place(known.name)
        return replace(
            known,
            said=known.said if place.told is SiteSaid.NOTHING else place.told,
            running=self._processes.running(known.name),
            resumes=place.resumes,
            gave_way=place.gave_way,
            is_done=place.is_done,
        )

    def _tell_ignored(self, study: str, faults: Iterable[DecisionFault], place: StudyPlace) -> None:
        for fault in faults:
            if (fault.name, fault.words) not in place.ignored:
                place.ignored.add((fault.name, fault.words))
                self._publish(news.DecisionIgnored(study, fault.name, fault.words))

    def _note(self, facts: dict[str, StudyFacts]) -> None:
        for name, study in self._site.studies().items():
            place = self._processes.place(name)
            note_status(
                self._site.study_folder(name), *phase_of(study, facts[name], place.unfit or place.words), _now()
            )

    def _used_gib(self) -> float:
        now = asyncio.get_running_loop().time()
        if now - self._measured >= MEASURE_SECONDS:
            self._used, self._measured = self._site.used_gib(), now
            self._upgraded = installed_version() != __version__
        return self._used

    # -------------------------------------------------------------- steps

    async def _carry_out(self, step: StudyStep) -> None:
        """Do one step, or begin it; what goes wrong with it is said and stops no other."""
        study = self._site.studies()[step.study]
        try:
            match step.act:
                case StepKind.FETCH:
                    self._begin("fetch", self._fetch(study))
                case StepKind.APPROVE | StepKind.REFUSE | StepKind.WITHDRAW:
                    self._begin(f"tell {study.name}", self._tell(step.act, study))
                case StepKind.START:
                    await self._processes.start(step, str(self._address()))
                case StepKind.STOP:
                    self._processes.stop(step)
                case StepKind.TIDY:
                    words = tidy(self._site.study_folder(study.name), approved=self._site.name in study.approved)
                    self._measured -= MEASURE_SECONDS
                    self._publish(news.DiskTidied(study.name, words))
        except (FedfairError, OSError) as fault:
            self._failed(f"{step.act.value} {step.study}", fault)

    def _failed(self, what: str, fault: FedfairError | OSError) -> None:
        words = fault.message if isinstance(fault, FedfairError) else f"{fault.strerror} {fault.filename or ''}"
        if not isinstance(fault, UnreachableError):  # which the loop that follows the record tells
            self._publish(news.ServiceFault(what, words))

    def _begin(self, what: str, work: Coroutine[object, object, None]) -> None:
        """Begin something beside everything else: one archive at a time, and one act about each study."""
        if what in self._tasks:
            work.close()
            return
        self._tasks[what] = asyncio.create_task(work)
        self._tasks[what].add_done_callback(lambda _: self._tasks.pop(what, None))

    async def _fetch(self, study: ConsortiumStudy) -> None:
        act, folder = study.submitted, self._site.study_folder(study.name)
        try:
            async with HubClient(self._address(), self._site.identity) as client:
                most = self._site.settings().disk.archive_mib
                await fetch_study(client, act, self._site.known.act(study.number), folder, most)
            await asyncio.to_thread(unpack_study, act, folder, self._site.name)
            self._measured -= MEASURE_SECONDS
            self._publish(news.StudyArrived(study.name, act.by))
        except UnfitStudyError as fault:
            self._processes.place(study.name).unfit = fault.message
            self._publish(news.StudyUnfit(study.name, fault.message))
        except (FedfairError, OSError) as fault:
            self._failed(f"fetch {study.name}", fault)
            await asyncio.sleep(LOOK_SECONDS)
        finally:
            self.changed.set()

    async def _tell(self, act: StepKind, study: ConsortiumStudy) -> None:
        try:
            async with self._telling:
                await self._say(act, study)
        except (FedfairError, OSError) as fault:
            self._failed(f"{act.value} {study.name}", fault)
            await asyncio.sleep(LOOK_SECONDS)
        finally:
            self.changed.set()

    async def _say(self, act: StepKind, study: ConsortiumStudy) -> None:
        """Tell the hub what this site's people have decided, without their names; the approval is the site's."""
        site, digest = self._site, study.submitted.plan_digest
        identity, folder = site.identity(), site.study_folder(study.name)
        at, payload = _now().isoformat(timespec="seconds"), b""
        if act is StepKind.APPROVE:
            if not folder.approval.exists():
                federation = study.submitted.federation
                made = approve(digest, federation, site.name, identity.signing_key, approved_at=at)
                with writing(folder.approval):
                    replace_file(folder.approval, [made])
            payload = folder.approval.read_bytes()
        elif folder.approval.exists():
            # Nobody at this site starts the study by hand any more.
            folder.approval.replace(folder.approval.with_name("approval.withdrawn.json"))
        said = acts.Act(
            _KINDS[act],
            study.submitted.federation,
            site.name,
            at,
            site.known.record.head,
            study.name,
            digest,
            words="" if act is StepKind.APPROVE else self._processes.place(study.name).unfit or site.words(study),
            payload=payload,
        )
        async with HubClient(self._address(), site.identity, partial(record_act, site)) as client:
            site.known.acknowledge(await client.post(acts.sign_act(said, identity.signing_key)))
        self._processes.place(study.name).told = _TOLD[act]
        self._publish(news.StudyDecided(study.name, _TOLD[act].value))


async def _lasting(
    loop: Callable[[], Coroutine[object, object, None]], failed: Callable[[str, FedfairError | OSError], None]
) -> None:
    """Run a loop, and again where a full disk or a file of somebody else has ended it."""
    while True:
        try:
            return await loop()
        except ConsortiumError:
            raise
        except (FedfairError, OSError) as fault:
            failed("the service", fault)
            await asyncio.sleep(LOOK_SECONDS)


def _now() -> datetime:
    return datetime.now(UTC)


def _words(act: acts.Act) -> str:
    return f"{act.by}: {act.kind.value} {act.study}".strip()


def unfollowed(fault: FedfairError, seconds: float) -> news.HubUnreachable | news.RecordRefused:
    """Return what is said where the record cannot be followed: nobody answers, or the hub or this site refuses.

    Args:
        fault: why.
        seconds: until it is tried again.
    """
    if isinstance(fault, UnreachableError):
        return news.HubUnreachable(fault.message, seconds)
    return news.RecordRefused(fault.message, fault.remedy or "ask the lead", seconds)
