"""Remembers a site's facts beyond sessions, for ever and at a flat cost, so that a new session evades no limit.

Every fact is one row: a key of 32 bytes, which its kind and its subject are hashed into, and a short value. No row
is ever forgotten, because an aggregator may repeat a question of any age. Rows that changed lately are *pending*:
they are part of the write-ahead log, which is written in every round. Many pending rows are *settled*: written, in
one transaction, into a table on the disk that finds a row by its key. So a round writes what is new, memory holds
`MAX_PENDING_ROWS` rows and those of one round, and neither grows with the rounds before.

A new kind of fact is a label here, with a method that reads it and one that notes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from fedfair.errors import LocalProtocolError
from fedfair.secagg.transcript import DIGEST_BYTES, digest, u16, u32, u64

MAX_PENDING_ROWS = 128
"""Rows in the write-ahead log before they are settled: about 9 kB in a round, and a settling every 60 rounds."""

SETTLED_KEY = bytes(32)
"""The key of the row that counts settlings; no digest is equal to it."""

REOPENED_KEY = bytes(31) + b"\x02"
"""The key of the row that counts sums that were opened for a second set of sites."""

MASKS_KEY = bytes(31) + b"\x03"
"""The key of the row that opens the masks in the write-ahead log; it is overwritten once they are not needed."""

DRAWN_KEY = bytes(31) + b"\x04"
"""The key of the row that counts the sparse graphs that this site has helped to draw."""

LOGGED_KEY = bytes(31) + b"\x01"
"""The key of the row that says that a write-ahead log exists; no digest is equal to it either."""

Rows = tuple[tuple[bytes, bytes], ...]


class SettledRows(Protocol):
    """A table on the disk; a dict has this interface too."""

    def get(self, key: bytes, /) -> bytes | None:
        """Return the value of a key; None where there is none."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """The possible fate of an update that left this site.

    Attributes:
        whole: every round that it was sent in is opened for its whole cohort or not at all.
        answered: `set_digest` of the one set that a sum with it may be open for; empty where there is none.
    """

    whole: bool
    answered: bytes = b""

    def allows(self, cohort: tuple[int, ...]) -> bool:
        """Return whether it may be sent again in a round that opens for the whole of `cohort` or not at all.

        Then the only sums with it that can ever be open are over one and the same set, and are equal.
        """
        return self.whole and self.answered in (b"", set_digest(cohort))


@lru_cache(maxsize=16)
def set_digest(members: tuple[int, ...]) -> bytes:
    """Return 32 bytes that stand for a set of members, in increasing order."""
    return digest("set", *map(u16, members))


def fingerprint(purpose: str, state_digest: bytes, draws: bytes) -> bytes:
    """Return 32 bytes that stand for what a site computes for a sum; they never leave the site.

    No value is part of it, so that what becomes of an update tells nothing of the records that it was made from. A
    site without records has the fingerprint of one with records.

    Args:
        purpose: of the sum.
        state_digest: 32 bytes, of the state of the run that it is about.
        draws: 32 bytes, equal where the site draws the same batches and the same noise, whatever comes of them.

    Raises:
        LocalProtocolError: the draws are not named by 32 bytes.
    """
    if len(draws) != DIGEST_BYTES:
        raise LocalProtocolError(f"draws named by {len(draws)} bytes, expected {DIGEST_BYTES}")
    return digest("computed", purpose.encode("ascii"), state_digest, draws)


class History:
    """The facts of one site under one plan.

    Args:
        settled: the table of settled rows; read here, written by the driver, which carries out `Remember`.
        pending: rows that are newer than the table.
        settlings: how often rows were settled when `pending` was written.

    Raises:
        LocalProtocolError: the table is older than the pending rows, or newer by more than what a crash between
            writing it and the log leaves.
    """

    def __init__(
        self, settled: SettledRows, pending: Mapping[bytes, bytes] | None = None, settlings: int = 0
    ) -> None:
        self._settled = settled
        found = int.from_bytes(settled.get(SETTLED_KEY) or b"")
        if found < settlings:
            raise LocalProtocolError(
                f"this site's history was written {found} times, its write-ahead log knows of {settlings}: "
                "an older copy of the history was put back, or it was removed",
                "copy both files back from one backup; without the history a site cannot know what it has sent",
            )
        if found > settlings + 1:
            raise LocalProtocolError(
                f"this site's history was written {found} times, its write-ahead log knows of {settlings}: an "
                "older copy of the log was put back",
                "copy both files back from one backup; without the log a site cannot know what it has sent",
            )
        # What a crash kept from leaving the log has been settled.
        self._pending = dict(pending or {}) if found == settlings else {}
        # The rows settled last. The driver writes them to the table after the step that settles them.
        self._given: dict[bytes, bytes] = {}
        self.settlings = found

    @classmethod
    def without_log(cls, settled: SettledRows) -> History:
        """Return the history of a site that has no write-ahead log.

        Raises:
            LocalProtocolError: the table says that there was one.
        """
        if settled.get(LOGGED_KEY) or settled.get(SETTLED_KEY):
            raise LocalProtocolError(
                "the write-ahead log is empty or missing, but the .history file "
                "beside it records one: what this site sent last cannot be read",
                "copy both files back from one backup; or remove both, and this site joins with a new session and "
                "without that memory",
            )
        return cls(settled)

    @property
    def log_is_known(self) -> bool:
        """Return whether the table says that there is a write-ahead log."""
        return bool(self._settled.get(LOGGED_KEY))

    @property
    def pending(self) -> Mapping[bytes, bytes]:
        """Return the rows that are not settled."""
        return self._pending

    @property
    def is_due(self) -> bool:
        """Return whether the pending rows are to be settled."""
        return len(self._pending) >= MAX_PENDING_ROWS

    def settle(self) -> Rows:
        """Return the rows that must be on the disk, all or none, before anything else is written or sent."""
        self.settlings += 1
        self._given, self._pending = self._pending, {}
        return (*self._given.items(), (SETTLED_KEY, u64(self.settlings)))

    # -------------------------------------------------------------- rounds entered about one model

    def attempts(self, purpose: str, state_digest: bytes) -> int:
        """Return how many rounds were entered so far about a model."""
        return int.from_bytes(self._get(_attempts_key(purpose, state_digest)))

    def entered(self, purpose: str, state_digest: bytes) -> None:
        """Note that a round about a model is entered."""
        attempts = self.attempts(purpose, state_digest) + 1
        self._pending[_attempts_key(purpose, state_digest)] = u32(attempts)

    # -------------------------------------------------------------- sparse graphs

    @property
    def drawn_graphs(self) -> int:
        """Return how many graphs this site has helped to draw, over all sessions and attempts."""
        return int.from_bytes(self._get(DRAWN_KEY))

    def drew_graph(self) -> None:
        """Note that this site reveals what one more graph depends on."""
        self._pending[DRAWN_KEY] = u32(self.drawn_graphs + 1)

    # -------------------------------------------------------------- updates that left the site

    def exposure(self, fingerprint: bytes) -> Exposure | None:
        """Return what may have become of an update; None where it never left this site."""
        row = self._get(_update_key(fingerprint))
        return Exposure(row[:1] == b"\x01", row[1:]) if row else None

    def sent(self, fingerprint: bytes, *, whole: bool) -> None:
        """Note that an update leaves this site, in a round that is opened whole (for all its cohort) or not."""
        known = self.exposure(fingerprint) or Exposure(whole=True)
        self._expose(fingerprint, Exposure(known.whole and whole, known.answered))

    def exposed(self, fingerprint: bytes, members: tuple[int, ...]) -> None:
        """Note that a sum over `members` with this update in it may be open from now on."""
        known = self.exposure(fingerprint) or Exposure(whole=False)
        self._expose(fingerprint, Exposure(known.whole, set_digest(members)))

    def answered(self, fingerprint: bytes, computed: bytes, survivors: tuple[int, ...]) -> None:
        """Note that this site helps to open a sum over `survivors` with this update in it."""
        self.exposed(fingerprint, survivors)
        if self.opened_for(computed) not in (b"", set_digest(survivors)):
            self._pending[REOPENED_KEY] = u32(self.reopened + 1)
        self._pending[_sum_key(computed)] = set_digest(survivors)

    # -------------------------------------------------------------- sums that this site helped to open

    def opened_for(self, computed: bytes) -> bytes:
        """Return `set_digest` of the sites in a sum that this site helped to open; empty where it did not."""
        return self._get(_sum_key(computed))

    @property
    def reopened(self) -> int:
        """Return for how many sums this site has helped to open another set of sites than before."""
        return int.from_bytes(self._get(REOPENED_KEY))

    def may_reopen(self, computed: bytes, members: tuple[int, ...], most: int) -> bool:
        """Return whether a sum that was opened for other sites may be opened for these, as one of `most`."""
        known = self.opened_for(computed)
        return bool(known) and known != set_digest(members) and self.reopened < most

    def _expose(self, fingerprint: bytes, exposure: Exposure) -> None:
        self._pending[_update_key(fingerprint)] = bytes([exposure.whole]) + exposure.answered

    def _get(self, key: bytes) -> bytes:
        """Return the newest value of a row; empty where there is none."""
        return self._pending.get(key) or self._given.get(key) or self._settled.get(key) or b""


def _attempts_key(purpose: str, state_digest: bytes) -> bytes:
    return digest("history-attempts", purpose.encode("ascii"), state_digest)


def _sum_key(computed: bytes) -> bytes:
    return digest("history-sum", computed)


def _update_key(fingerprint: bytes) -> bytes:
    return digest("history-update", fingerprint)
