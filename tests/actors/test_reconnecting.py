import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from collaborator import driver
from collaborator.calls import LIVED_SECONDS, Patience
from collaborator.driver import LOOK_SECONDS, SiteDriver
from collaborator.link import Link
from collaborator.plain_worker import PlainWorker
from collaborator.records import SiteLogs
from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import Occasion
from fedfair.errors import AbortedError, FedfairError, IdentityError, RenewableIdentityError, UnreachableError
from fedfair.ids import SumNumber
from fedfair.news.event import News, StatusUpdate
from fedfair.news.processors import Processor, ignore
from fedfair.policy.refusal import Refusal
from fedfair.run.progress import FinalStage
from fedfair.wire.calling import Address
from fedfair.wire.codec import decode_collaborator_frame, encode_aggregator_frame
from fedfair.wire.frames import (
    Accepted,
    AggregatorFrame,
    Finished,
    Hello,
    Refused,
    TrustUpdate,
    UploadStart,
    Welcome,
)
from fedfair.wire.receiving import Shapes
from tests.actors.counted_backoff import CountedBackoff
from tests.actors.followed_run import (
    ROUNDS,
    FollowedRun,
    NoCertificates,
    layout_of,
    plan_of,
    run_before_round_1,
    start_of,
)
from tests.actors.test_masked_worker import CountingTask
from tests.patience import PATIENCE

SHAPES = Shapes(1 << 20, 1 << 20, ROUNDS)
HELLO = Hello(1, "0", bytes(32), b"{}", bytes(64))
WELCOME = Welcome("0" * 32, 0, SHAPES.rounds)
FIRST_ACCEPTED = Accepted(SumNumber(1))
QUESTION, ANOTHER = (start_of(run_before_round_1(plan_of(), layout_of(2)), number) for number in (1, 2))


class ScriptedCall:
    """A stream on which the aggregator says these frames and is gone."""

    def __init__(self, frames: tuple[AggregatorFrame, ...]) -> None:
        self._frames = frames
        self._uploaded = asyncio.Event()

    async def write(self, raw: bytes) -> None:
        if isinstance(decode_collaborator_frame(raw), UploadStart):
            self._uploaded.set()

    def add_done_callback(self, callback: object) -> None:
        """Forget it: nobody cancels this call."""

    async def done_writing(self) -> None:
        self._frames = ()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for frame in self._frames:
            if frame == FIRST_ACCEPTED:
                await self._uploaded.wait()
            yield encode_aggregator_frame(frame)
            if isinstance(frame, TrustUpdate):
                await asyncio.Event().wait()  # The site has to end this stream.


class Unrecorded:
    """The record of a site whose messages nobody wants to read."""

    def sending(self, raw: bytes, what: MessageKind, occasion: Occasion, sha256: bytes = b"") -> None:
        pass


class Read:
    """Keeps what the operator reads."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def __call__(self, update: StatusUpdate) -> None:
        if isinstance(update, News):
            self.notes.append(update.sentence)


def waits_between(
    folder: Path,
    *streams: tuple[AggregatorFrame, ...] | UnreachableError | RenewableIdentityError,
    give_up_after_seconds: float | None = None,
    publish: Processor = ignore,
    certificates: NoCertificates | None = None,
    clock: Callable[[], float] = time.monotonic,
    has_ended: bool = False,
) -> list[float]:
    """Play a site over these streams, one after the other, and return the waits between them."""
    script = iter(streams)

    @asynccontextmanager
    async def dial() -> AsyncIterator[tuple[Link, Hello]]:
        frames = next(script)
        if isinstance(frames, FedfairError):
            raise frames
        yield Link(ScriptedCall(frames), Address("localhost", 1), Unrecorded()), HELLO

    async def scenario() -> list[float]:
        backoff, records = CountedBackoff(), SiteLogs(folder, "clinic-a")
        task, said = CountingTask(), iter([1])
        run = FollowedRun(folder / "run", task, layout=layout_of(2))
        if has_ended:
            run.move(replace(run.follower.replica.state, stage=FinalStage.FINISHED))
        answers = PlainWorker(task, run.specs, lambda _: next(said, Refusal("not here")), run.follower)
        try:
            patience = Patience(backoff, give_up_after_seconds, clock, ended_seconds=0.0)
            await SiteDriver(
                dial, SHAPES, answers, records, publish, patience, lambda _: None, certificates or NoCertificates()
            ).run()
        finally:
            answers.close()
            records.close()
        return backoff.waits

    return asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_streams_that_break_right_after_the_greeting_are_opened_less_and_less_often(tmp_path: Path) -> None:
    broken = (WELCOME,)
    waits = waits_between(tmp_path, broken, broken, broken, broken, (WELCOME, Finished(9, "done")))
    # Each wait is the lower half of a bound that doubles from a quarter of a second.
    assert waits == [0.125, 0.25, 0.5, 1.0]


@pytest.mark.parametrize(
    ("limit", "words"), [(None, "or sooner until it answers"), (86_400.0, " UTC, then giving up")]
)
def test_one_reason_for_waiting_is_read_once_with_its_end(tmp_path: Path, limit: float | None, words: str) -> None:
    away, lost, read = UnreachableError("nothing listens"), UnreachableError("the line is dead"), Read()
    over = (WELCOME, Finished(9, "done"))
    waits_between(
        tmp_path, away, away, lost, lost, (WELCOME,), lost, over, give_up_after_seconds=limit, publish=read
    )
    waiting = [note for note in read.notes if "trying again in" in note]
    reasons = [note.partition(";")[0] for note in waiting]
    # After the greeting the same reason is news again.
    assert (reasons[:2], reasons[-1]) == (["nothing listens", "the line is dead"], "the line is dead")
    assert len(reasons) == 4
    assert all(words in note for note in waiting)


def test_a_site_waits_for_a_renewed_certificate_and_says_so(tmp_path: Path) -> None:
    expired, read = RenewableIdentityError("the certificate of clinic-a expired", "renew it"), Read()
    over = (WELCOME, Finished(9, "done"))
    assert waits_between(tmp_path, (WELCOME,), expired, expired, over, publish=read) == [0.125, 0.25, 0.5]
    assert sum("the certificate of clinic-a expired; trying again in" in note for note in read.notes) == 1


class Followed(NoCertificates):
    """Follows whatever certificate the aggregator announces; a fault is raised in place of that."""

    def __init__(self, fault: IdentityError | None = None) -> None:
        self.reconnection = ""
        self._fault = fault

    def take(self, update: TrustUpdate) -> None:
        if self._fault is not None:
            raise self._fault
        self.reconnection = f"it is {update.certificate[0]} now"


@pytest.mark.parametrize("fault", [None, IdentityError("the aggregator was revoked")], ids=["renewed", "revoked"])
def test_who_announces_certificates_is_called_less_and_less(tmp_path: Path, fault: IdentityError | None) -> None:
    announced = [(WELCOME, TrustUpdate(b"", bytes([number]) * 32)) for number in range(3)]
    over = (WELCOME, Finished(9, "done"))
    assert waits_between(tmp_path, *announced, over, certificates=Followed(fault)) == [0.125, 0.25, 0.5]


class CountedLooks(NoCertificates):
    """Counts the looks at the certificates."""

    def __init__(self) -> None:
        self.looks = 0

    def look(self) -> None:
        self.looks += 1


@pytest.mark.parametrize(("between", "looks"), [(0.5, 1), (LOOK_SECONDS, 2), (3600.0, 2), (-60.0, 2)])
def test_certificates_are_looked_at_before_a_sum_where_the_last_look_is_a_second_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: float, looks: int
) -> None:
    times, standing = iter([0.0, 0.0, between, between]), CountedLooks()
    monkeypatch.setattr(driver, "time", SimpleNamespace(time=times.__next__, monotonic=time.monotonic))
    waits_between(tmp_path, (WELCOME, QUESTION, ANOTHER, Finished(9, "done")), certificates=standing)
    assert standing.looks == looks


def test_an_accepted_answer_brings_the_short_waits_back(tmp_path: Path) -> None:
    broken, useful = (WELCOME,), (WELCOME, QUESTION, FIRST_ACCEPTED)
    waits = waits_between(tmp_path, broken, broken, useful, broken, (WELCOME, Finished(9, "done")))
    assert waits == [0.125, 0.25, 0.125, 0.25]


def test_an_acceptance_of_what_was_never_sent_brings_no_short_wait_back(tmp_path: Path) -> None:
    useful, lying = (WELCOME, QUESTION, FIRST_ACCEPTED), (WELCOME, ANOTHER, Accepted(SumNumber(2)))
    broken = (WELCOME,)
    waits = waits_between(tmp_path, useful, broken, lying, broken, (WELCOME, Finished(9, "done")))
    assert waits == [0.125, 0.25, 0.5, 1.0]


def test_a_refusal_is_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(FedfairError, match="announces 3 rounds"):
        waits_between(tmp_path, (Welcome("0" * 32, 0, 3),), (WELCOME, Finished(9, "done")))


def test_a_site_comes_back_to_an_aggregator_that_can_be_mended(tmp_path: Path) -> None:
    aborted = (WELCOME, Refused("the run was aborted: the disk is full", "make room", try_again=True))
    assert waits_between(tmp_path, aborted, aborted, (WELCOME, Finished(9, "done"))) == [0.125, 0.25]


def test_a_site_whose_patience_ends_says_what_it_was_told(tmp_path: Path) -> None:
    aborted = (WELCOME, Refused("the run was aborted: the disk is full", "make room", try_again=True))
    with pytest.raises(AbortedError, match="whose last words were: the run was aborted: the disk is full"):
        waits_between(tmp_path, aborted, give_up_after_seconds=0.0)


def test_a_stream_that_lived_for_a_while_is_followed_by_a_short_wait(tmp_path: Path) -> None:
    broken = UnreachableError("nobody answers")
    streams = (broken, broken, broken, (WELCOME,), broken, (WELCOME, Finished(1, "done")))
    assert waits_between(tmp_path / "short", *streams) == [0.125, 0.25, 0.5, 1.0, 2.0]
    times = iter([0.0, LIVED_SECONDS, 100.0])
    waits = waits_between(tmp_path / "lived", *streams, clock=lambda: next(times))
    assert waits == [0.125, 0.25, 0.5, 0.125, 0.25]


def test_a_site_that_has_the_run_to_its_end_stops_calling_an_aggregator_that_is_gone(tmp_path: Path) -> None:
    away = UnreachableError("nothing listens")
    # It needs nobody any more: that is the end of the run, and no fault.
    assert waits_between(tmp_path, away, has_ended=True) == []
    with pytest.raises(AbortedError, match="gave up after"):
        waits_between(tmp_path, away, give_up_after_seconds=0.0)
