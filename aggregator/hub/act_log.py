"""The hub's side of the record: each act is checked, signed, written and waited for, one after the other."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.consortium.acts import MAX_WORDS, Act, ActKind, StudyOutcome, sign_act
from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.consortium.record import parse_entry, sign_entry
from fedfair.consortium.record_file import RecordFile
from fedfair.consortium.studies import ConsortiumStudy
from fedfair.errors import StateError
from fedfair.ids import AGGREGATOR
from fedfair.wire.frames import showable
from fedfair.wire.hub import MAX_ENTRIES_BYTES


def _now() -> datetime:
    return datetime.now(UTC)


class ActLog:
    """The record that this hub writes; belongs to one event loop.

    Args:
        kept: the file of the record.
        signing_key: the hub's.
        clock: returns an aware time.

    Raises:
        FedfairError: the file cannot be read, or is not a record of this hub.

    Attributes:
        record: all acts so far.
    """

    def __init__(
        self, kept: RecordFile, signing_key: Ed25519PrivateKey, clock: Callable[[], datetime] = _now
    ) -> None:
        self._kept, self._key, self._clock = kept, signing_key, clock
        self.record = kept.load()
        if not self.record.number:
            raise StateError(f"{kept.path} has no entry yet", "`fedfair hub create` in this folder")
        if self.record.consortium.hub.public_key != signing_key.public_key():
            raise StateError(
                "the signing key in cert/aggregator is not the hub's key in the list of members",
                "restore that key, or have the lead sign a list with the new one: `fedfair hub members`",
            )
        self._entries = list(kept.lines())
        self._by_act = {_digest(parse_entry(entry).act_bytes): entry for entry in self._entries}
        self._lock, self._news = asyncio.Lock(), asyncio.Event()
        self._is_closed = False

    def has(self, act: bytes) -> bool:
        """Return whether an act is in the record."""
        return _digest(act) in self._by_act

    async def post(self, act: bytes) -> bytes:
        """Write an act and return its entry; the same one again where it is in the record already.

        Raises:
            ConsortiumError: a check refuses it.
            FedfairError: it cannot be written.
        """
        async with self._lock:
            known = self._by_act.get(_digest(act))
            if known is not None:
                return known
            self.record.check_act(act)
            number, previous = self.record.head
            entry = sign_entry(number + 1, previous, act, self.record.consortium.federation, self._key)
            await asyncio.to_thread(self._kept.append, self.record, [entry])
            self._entries.append(entry)
            self._by_act[_digest(act)] = entry
            self._news.set()
            self._news = asyncio.Event()
            return entry

    async def started(self, study: ConsortiumStudy) -> None:
        """Write that a study begins to run.

        Raises:
            FedfairError: it cannot be written.
        """
        await self.post(self._own(ActKind.STARTED, study, "all sites have decided, and there is room"))

    async def ended(
        self, study: ConsortiumStudy, outcome: StudyOutcome, words: str, result: tuple[bytes, int] = (b"", 0)
    ) -> None:
        """Write how a study ended.

        Args:
            study: which.
            outcome: finished or aborted.
            words: for people.
            result: SHA-256 and length of the archive of its result; empty where there is none.

        Raises:
            FedfairError: it cannot be written.
        """
        await self.post(self._own(ActKind.ENDED, study, words, outcome, result))

    def after(self, number: int) -> tuple[bytes, ...]:
        """Return the next entries, as many as one reply holds.

        Args:
            number: how many entries the caller has.

        Raises:
            ConsortiumError: it has more than there are.
        """
        if number > self.record.number:
            raise ConsortiumError(
                RecordCheck.PAST,
                f"you have {number} entries of the record, this hub has {self.record.number}",
                "the hub was restored from an older copy, or set up anew: ask the lead before you go on",
            )
        found: list[bytes] = []
        room = MAX_ENTRIES_BYTES
        for entry in self._entries[number:]:
            room -= len(entry)
            if found and room < 0:
                break
            found.append(entry)
        return tuple(found)

    def close(self) -> None:
        """Let nobody wait for news any more: the hub ends."""
        self._is_closed = True
        self._news.set()

    async def changed(self, number: int, seconds: float | None = None) -> None:
        """Wait until the record has more than `number` entries, or until so many seconds are over."""
        news = self._news
        if self.record.number > number or self._is_closed:
            return
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            return

    def _own(
        self,
        kind: ActKind,
        study: ConsortiumStudy,
        words: str,
        outcome: StudyOutcome | None = None,
        result: tuple[bytes, int] = (b"", 0),
    ) -> bytes:
        act = Act(
            kind,
            self.record.consortium.federation,
            AGGREGATOR,
            self._clock().isoformat(timespec="seconds"),
            self.record.head,
            study=study.name,
            plan_digest=study.submitted.plan_digest,
            words=showable(words, MAX_WORDS),
            outcome=outcome,
            result_digest=result[0],
            result_bytes=result[1],
        )
        return sign_act(act, self._key)


def _digest(act: bytes) -> bytes:
    return hashlib.sha256(act).digest()
