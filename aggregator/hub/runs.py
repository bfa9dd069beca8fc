"""The runs of a hub: each study a task of the one event loop, with its own folder, journal and limits.

What is to run follows from the record alone, so a hub that was killed resumes every running study by its journal.
A study whose files cannot be written, or whose run was lost, is tried again after a while that grows; the others
notice nothing of it. After so many failures without a round between them it ends as aborted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aggregator.assembly import DrivenRun, EndTerms, assembled, unnotified
from aggregator.deadlines import StartTimer, clock_timer
from aggregator.hub.act_log import ActLog
from aggregator.hub.archives import PLAN_FILE
from aggregator.hub.folder import HubFolder
from aggregator.hub.results import pack_result
from aggregator.outcome import Ending, EndState, write_result
from aggregator.preparation import Run, Start, prepare
from aggregator.token_bucket import PEER_LIMITS, PeerLimits
from fedfair.consortium.acts import StudyOutcome
from fedfair.consortium.studies import ConsortiumStudy, StudyPhase
from fedfair.errors import FedfairError
from fedfair.identity.tls import RenewableCertificate
from fedfair.ids import ParticipantId
from fedfair.news.processors import Processor, in_turn, text_lines
from fedfair.rounds.exit_reasons import ExitReason
from fedfair.workspace.archive import read_archive, unpack

MAX_FAILURES = 8
"""Failures in a row, without a round between them, after which a study is given up. A full disk is none, nor are
sites that do not come: who waits for them in vain withdraws the study."""


@dataclass(frozen=True, slots=True)
class RunTerms:
    """The terms on which a hub drives its studies.

    Attributes:
        folder: of the hub.
        log: the record.
        shown: the certificate that new connections are shown.
        say: takes lines for the operator.
        passphrase: of the hub's encrypted keys; None where they are not encrypted.
        limits: on what one certificate may begin, in each study.
        start_timer: starts the timer of a deadline.
        retry_seconds: the first and the longest wait before a study is tried again.
    """

    folder: HubFolder
    log: ActLog
    shown: RenewableCertificate
    say: Callable[[str], None]
    passphrase: bytes | None = field(default=None, repr=False)
    limits: PeerLimits = PEER_LIMITS
    start_timer: StartTimer = clock_timer
    retry_seconds: tuple[float, float] = (5.0, 600.0)


class StudyRun:
    """One study that runs, or whose end is still told.

    Args:
        name: of the study.
        terms: of the hub.

    Attributes:
        opened: set while collaborators are served, and once that is over for good.
    """

    def __init__(self, name: str, terms: RunTerms) -> None:
        self._name, self._terms = name, terms
        self._driven: DrivenRun | None = None
        self._stopped = ""
        self._rounds = -1
        self._dismissed: set[str] = set()
        self.opened = asyncio.Event()

    @property
    def driven(self) -> DrivenRun | None:
        """The run while collaborators are served; None before and after."""
        return self._driven

    @property
    def _study(self) -> ConsortiumStudy:
        return self._terms.log.record.studies[self._name]

    def stop(self, words: str) -> None:
        """End it in order; its journal keeps what was done."""
        if not self._stopped:
            self._stopped = words
            if self._driven is not None:
                self._driven.driver.stop(words)

    def dismiss_absent(self) -> None:
        """Go on without the sites that have refused or withdrawn, each told to the run once."""
        if self._driven is None:
            return
        for site in self._study.submitted.sites:
            if site not in self._study.taking_part and site not in self._dismissed:
                self._dismissed.add(site)
                self._driven.driver.dismiss(ParticipantId(site), f"it takes no part in the study {self._name}")

    async def carry(self) -> None:
        """Drive the study to its end, through every failure that passes."""
        wait, longest = self._terms.retry_seconds
        failures = 0
        try:
            while not self._stopped:
                before = self._rounds
                # The fault of one study is none of the others'.
                (found,) = await asyncio.gather(self._attempt(), return_exceptions=True)
                words, counts = _failure(found) if isinstance(found, BaseException) else found
                if not words:
                    return
                if self._rounds > before:
                    failures, wait = 0, self._terms.retry_seconds[0]
                failures += counts
                self._say(f"{words}; tried again in {wait:g} s")
                if failures >= MAX_FAILURES:
                    await self._end(StudyOutcome.ABORTED, words)
                    return
                await asyncio.sleep(wait)
                wait = min(2 * wait, longest)
        finally:
            self.opened.set()

    async def _attempt(self) -> tuple[str, bool]:
        """Drive the run once.

        Returns:
            Why it has to be tried again, empty where not; and whether that counts as a failure.
        """
        terms, folder = self._terms, self._terms.folder.study(self._name)
        await asyncio.to_thread(self._unpacked, folder / "workspace")
        plan = folder / "workspace" / PLAN_FILE
        start = Start(plan, folder, terms.folder.certificates, passphrase=terms.passphrase)
        lines = text_lines(self._say)
        run = await asyncio.to_thread(prepare, start, lines)
        try:
            ending = await self._driven_to_its_end(run, in_turn(lines, text_lines(run.records.append_note)))
            self._rounds = int(run.training_run.rounds_done)
            if self._study.phase is not StudyPhase.FINISHED:
                await asyncio.to_thread(write_result, run, ending)
        finally:
            self._driven = None
            run.records.close()
        return await self._concluded(ending)

    def _unpacked(self, workspace: Path) -> None:
        if not (workspace / PLAN_FILE).is_file():
            unpack(read_archive(self._terms.folder.archive(self._study.submitted.archive_digest)), workspace)

    async def _driven_to_its_end(self, run: Run, publish: Processor) -> Ending:
        if run.training_run.next_sum() is None and not unnotified(run):
            return Ending(EndState.FINISHED, ExitReason.FINISHED, "all rounds are done")
        telling: list[asyncio.Task[object]] = []

        def finished(ending: Ending) -> None:
            # The result waits for nobody who is away.
            write_result(run, ending)
            telling.append(asyncio.create_task(self._concluded(ending)))

        terms = self._terms
        farewell = EndTerms(finished=finished)
        with assembled(run, terms.shown, publish, terms.limits, terms.start_timer, farewell) as driven:
            self._driven = driven
            self._dismissed.clear()
            self.dismiss_absent()
            self.opened.set()
            if self._stopped:
                driven.driver.stop(self._stopped)
            ending = await driven.driver.run()
        await asyncio.gather(*telling)
        return ending

    async def _concluded(self, ending: Ending) -> tuple[str, bool]:
        """Write the end of a run into the record, where it is one; else return why it is tried again."""
        if self._study.phase is not StudyPhase.RUNNING or self._stopped:
            return "", False
        if ending.state is EndState.FINISHED:
            await self._end(StudyOutcome.FINISHED, ending.words)
            return "", False
        if ending.why is ExitReason.RESTORED:
            await self._end(StudyOutcome.ABORTED, ending.words)
            return "", False
        return ending.words, ending.why not in {ExitReason.UNWRITABLE, ExitReason.QUORUM_MISSING}

    async def _end(self, outcome: StudyOutcome, words: str) -> None:
        result = await asyncio.to_thread(pack_result, self._terms.folder, self._name)
        if self._study.phase is StudyPhase.RUNNING:
            await self._terms.log.ended(self._study, outcome, words, result)
            self._say(f"{outcome.value}: {words}")

    def _say(self, line: str) -> None:
        self._terms.say(f"{self._name}: {line}")


def _failure(fault: BaseException) -> tuple[str, bool]:
    """Return a fault in words, and whether it counts as a failure; raise what is none of a study's."""
    if not isinstance(fault, Exception):
        raise fault
    if isinstance(fault, FedfairError):
        return fault.message, True
    return f"{type(fault).__name__}: {fault}", not isinstance(fault, OSError)


class StudyRuns:
    """All runs of a hub.

    Args:
        terms: of the hub.
        at_once: how many studies run at the same time.
    """

    def __init__(self, terms: RunTerms, at_once: int) -> None:
        self._terms, self._at_once = terms, at_once
        self._runs: dict[str, tuple[StudyRun, asyncio.Task[None]]] = {}
        self._freed = asyncio.Event()
        self._closing = False

    @property
    def is_closing(self) -> bool:
        """Whether the hub is being stopped."""
        return self._closing

    async def keep(self) -> None:
        """Start, end and resume studies as the record says, until it is cancelled."""
        while True:
            number = self._terms.log.record.number
            await self._follow()
            await self._terms.log.changed(number)

    async def close(self, words: str) -> None:
        """End all runs in order; the next start of the hub resumes them."""
        self._closing = True
        for run, _ in self._runs.values():
            run.stop(words)
        await asyncio.gather(*(task for _, task in self._runs.values()), return_exceptions=True)

    async def run_of(self, study: ConsortiumStudy) -> DrivenRun | None:
        """Return the run of a study for a collaborator that calls; a finished one is told once more.

        Args:
            study: running or finished.
        """
        if study.name not in self._runs and not self._closing:
            self._begin(study.name)
        found = self._runs.get(study.name)
        if found is None:
            return None
        await found[0].opened.wait()
        return found[0].driven

    async def _follow(self) -> None:
        studies = self._terms.log.record.studies.values()
        for study in studies:
            found = self._runs.get(study.name)
            if study.phase is StudyPhase.RUNNING:
                if found is None:
                    self._begin(study.name)
                else:
                    found[0].dismiss_absent()
            elif found is not None and study.phase in {StudyPhase.WITHDRAWN, StudyPhase.ABORTED}:
                found[0].stop(study.words)
        running = sum(study.phase is StudyPhase.RUNNING for study in studies)
        ready = [study for study in studies if study.phase is StudyPhase.READY]
        for study in ready[: max(0, self._at_once - running)]:
            try:
                await self._terms.log.started(study)
            except FedfairError as fault:
                # A withdrawal that came first, or a full disk: the next look decides again.
                self._terms.say(f"{study.name}: {fault.message}")
                continue
            self._begin(study.name)

    def _begin(self, name: str) -> None:
        run = StudyRun(name, self._terms)
        task = asyncio.create_task(run.carry())
        self._runs[name] = run, task
        task.add_done_callback(lambda _: self._runs.pop(name, None))
