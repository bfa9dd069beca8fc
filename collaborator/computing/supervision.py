"""Keeps a computing process alive: asks it, ends it where it does not answer as it must, and starts it again.

The same question is asked again of the next process, and has the same answer, since what is drawn follows from
the question. Before it, the next process hears everything that the first one was told. What own code may do at
worst is to have no answer: then this site leaves the sum, and the service goes on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from collaborator.computing import messages
from collaborator.computing.carrier import Channel, EndedError
from collaborator.computing.codec import MAX_WORDS, decode, encode
from fedfair.errors import (
    DataError,
    FedfairError,
    MissingExtraError,
    PlanError,
    PrivacyError,
    RemoteProtocolError,
    StateError,
    TrainingError,
)
from fedfair.news.event import News
from fedfair.news.site import ComputingEnded
from fedfair.privacy.releases import Record, Release

WAITS = (0.0, 1.0, 4.0)
"""Seconds before each process that is tried with one question: memory that was short may be free again."""

MAX_NOTICES = 100

Answer = TypeVar("Answer")

_FAULTS: dict[str, type[FedfairError]] = {
    kind.__name__: kind for kind in (DataError, MissingExtraError, PlanError, StateError)
}
"""The faults that a worker may name while it begins; any other is one of training."""


@dataclass(frozen=True, slots=True)
class Briefing:
    """Something that every process is told before it is asked.

    Attributes:
        question: from a start to what is said.
        limit: the most bytes of the answer.
        accept: takes the answer of the first process, and of every later one; raises a FedfairError where it is
            not what it must be.
    """

    question: Callable[[Running], object]
    limit: int
    accept: Callable[[object], None]


@dataclass
class Releases:
    """What may be released with one answer: one release at most, which is in the ledger before noise is drawn.

    Attributes:
        expected: the one that the plan makes; None where it makes none.
        write: writes it down; raises PrivacyError where it must not happen.
    """

    expected: Release | None = None
    write: Record | None = None
    _is_written: bool = field(default=False, init=False)
    _denied: PrivacyError | None = field(default=None, init=False)

    def take(self, release: Release) -> messages.ReleaseWritten | messages.ReleaseDenied:
        """Return what is said to a worker that is about to make a release; a second process may make the same.

        Raises:
            RemoteProtocolError: the plan makes no such release here.
        """
        if release != self.expected:
            raise RemoteProtocolError("a release that the plan does not make in this sum")
        try:
            self._write_down()
        except PrivacyError as fault:
            self._denied = fault
            return messages.ReleaseDenied(fault.message[:MAX_WORDS])
        return messages.ReleaseWritten()

    def finish(self, *, is_made: bool) -> None:
        """Hold an answer to the ledger: what own code has not announced is written down before anything is sent.

        Args:
            is_made: whether anything of these records is in the answer.

        Raises:
            PrivacyError: the release must not happen.
        """
        if self._denied is not None:
            raise self._denied
        if is_made and self.expected is not None:
            self._write_down()

    def _write_down(self) -> None:
        if not self._is_written and self.write is not None and self.expected is not None:
            self.write(self.expected)
            self._is_written = True


class Running(Protocol):
    """A computing process that was started: `launching.ProcessStart`.

    Attributes:
        channel: to it.
        code: the folder of the copy of the plan's code.
        scratch: the folder that it writes to.
    """

    channel: Channel
    code: Path
    scratch: Path

    @property
    def is_over(self) -> bool:
        """Return whether somebody has ended it."""

    @property
    def how_it_ended(self) -> str:
        """Return in words how it ended."""

    def end(self) -> None:
        """End it; whoever waits for an answer is woken."""


class Supervision:
    """The computing process of one site; one thread asks it at a time, and any may close it.

    Args:
        start: starts one; raises EndedError where it does not begin, and FedfairError where it cannot be started.
        log: the file of what it says, for the operator.
        waits: seconds before each process that is tried with one question.
    """

    def __init__(self, start: Callable[[], Running], log: Path, waits: tuple[float, ...] = WAITS) -> None:
        self._start, self._log, self._waits = start, log, waits
        self._steps: dict[str, Briefing] = {}
        self._running: Running | None = None
        self._told: set[str] = set()
        self._closed = threading.Event()
        self._notices: deque[News] = deque(maxlen=MAX_NOTICES)

    def take_notices(self) -> list[News]:
        """Return what there is to say of processes that ended, once."""
        taken = list(self._notices)
        self._notices.clear()
        return taken

    def tell(self, name: str, step: Briefing) -> None:
        """Have every process be told something before it is asked again, in place of what had this name."""
        self._steps[name] = step
        self._told.discard(name)

    def settle(self) -> None:
        """Tell the present process now what it has not been told.

        Raises:
            FedfairError: it cannot be started, or says what is wrong.
        """
        self._with_a_process(lambda _: None)

    def ask(
        self,
        question: object,
        limit: int,
        accept: Callable[[object], Answer],
        releases: Releases | None = None,
    ) -> Answer:
        """Return the answer to a question.

        Args:
            question: what is asked.
            limit: the most bytes of the answer.
            accept: from what was said to the answer; raises RemoteProtocolError where it cannot be one.
            releases: what may be released with it.

        Raises:
            TrainingError: no process has answered, or it says that it cannot.
            PrivacyError: the release must not happen.
            FedfairError: a process cannot be started.
        """
        made = releases or Releases()

        def asked(running: Running) -> Answer:
            said = _answer(running, question, limit, made)
            made.finish(is_made=not isinstance(said, messages.Failed | messages.NoChange))
            if isinstance(said, messages.Failed):
                raise TrainingError(said.words, said.remedy)
            return accept(said)

        return self._with_a_process(asked)

    def close(self) -> None:
        """End the process; what is asked now fails, and what is asked later starts another one."""
        self._closed.set()
        running = self._running
        if running is not None:
            running.end()

    def _with_a_process(self, work: Callable[[Running], Answer]) -> Answer:
        self._closed.clear()
        fault: FedfairError = EndedError("")
        for seconds in self._waits:
            if self._closed.wait(seconds):
                break
            try:
                return work(self._prepared())
            except (EndedError, RemoteProtocolError) as broken:
                fault = broken
                self._lose(broken)
        if self._closed.is_set():
            raise TrainingError("this site stops, and its computing process with it")
        raise TrainingError(
            f"the computing process has failed {len(self._waits)} times over one question: {fault.message}",
            f"read {self._log}",
        )

    def _prepared(self) -> Running:
        """Return a process that was told everything."""
        if self._running is not None and self._running.is_over:
            self._running = None
        if self._running is None:
            self._running, self._told = self._start(), set()
        running = self._running
        for name, step in list(self._steps.items()):
            if name not in self._told:
                said = _answer(running, step.question(running), step.limit, Releases())
                if isinstance(said, messages.Failed):
                    raise _FAULTS.get(said.kind, TrainingError)(said.words, said.remedy)
                step.accept(said)
                self._told.add(name)
        return running

    def _lose(self, fault: FedfairError) -> None:
        running, self._running = self._running, None
        how = fault.message
        if running is not None:
            how = running.how_it_ended if isinstance(fault, EndedError) else f"it said what is no answer: {how}"
            running.end()
        if not self._closed.is_set():
            self._notices.append(ComputingEnded(how, self._log))


def _answer(running: Running, question: object, limit: int, releases: Releases) -> object:
    """Return what is answered in the end; before that, releases are written down."""
    channel = running.channel
    channel.send(encode(question))
    while True:
        said = decode(channel.receive(limit), messages.ANSWERED)
        if not isinstance(said, messages.Releasing):
            return said
        channel.send(encode(releases.take(said.release)))
