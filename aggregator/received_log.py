"""Mirrors every collaborator's record: what each has sent, as it arrived here.

    received/<name>.jsonl    one record per collaborator, by the certificate of its connection

Decides when an arrival is recorded: before it is looked at, and also when it is no frame at all. Payloads are not
kept, only their length, their SHA-256 and what they are, in words. A run whose mirror cannot be written is
stopped: later, nobody could say what had arrived. What an entry says is `fedfair.audit`'s business. The disk is
waited for at the end only, as with the journal: a machine that loses its power may lose the last entries.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime

from aggregator.preparation import Run
from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import Keeper, Occasion, Ownership
from fedfair.errors import AuditError
from fedfair.ids import AGGREGATOR, ParticipantId
from fedfair.plan.digest import format_digest


class ReceivedLog:
    """The records of one run; `close` it at the end.

    Args:
        run: whose messages arrive.
        stop: has the run stopped, for a reason in words.

    Raises:
        AuditError: a record cannot be used, or was changed since it was written.
    """

    def __init__(self, run: Run, stop: Callable[[str], None]) -> None:
        self._stop: Callable[[str], None] | None = stop
        names = run.admission.roster
        with ExitStack() as opened:
            self._keepers = {name: opened.enter_context(closing(_keeper(run, name))) for name in names}
            self._open = opened.pop_all()

    def received(
        self, name: ParticipantId, raw: bytes, what: MessageKind, occasion: Occasion, sha256: bytes = b""
    ) -> None:
        """Record one message of a collaborator; where that fails, have the run stopped.

        Args:
            name: who sent it, by its certificate.
            raw: the message as it came out of gRPC.
            what: what it is.
            occasion: what had been asked for on its stream.
            sha256: its SHA-256, where it is known; empty to have it computed.
        """
        try:
            self._keepers[name].message(raw, what, occasion, sha256)
        except AuditError as fault:
            stop, self._stop = self._stop, None
            if stop is not None:
                stop(fault.message)

    def close(self) -> None:
        """Sign the end of every record, and wait for the disk."""
        self._open.close()


def _keeper(run: Run, name: ParticipantId) -> Keeper:
    path = run.records.received / f"{name}.jsonl"
    owner = Ownership(run.admission.federation, name, AGGREGATOR, run.identity.signing_key)
    return Keeper(path, owner, format_digest(run.plan_digest), lambda: datetime.now(UTC))
