"""This site's own record of everything that it sends: opened before the first byte, closed after the last.

Decides when the record reaches the disk. Every entry is with the operating system before its message is sent, so
a process that is killed loses none. After each sum a background thread flushes the record while the next request
is answered, so a machine that loses its power may lose the entries of the last sum or two.
What an entry says is `fedfair.audit`'s business.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime

from collaborator.preparation import PreparedSite
from fedfair.audit.head import Head, head_path, present_boot
from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import Keeper, Occasion, Ownership
from fedfair.plan.digest import format_digest


class EgressRecord:
    """The record of one process; `close` it at the end.

    Args:
        site: whose record it is.
        plan_digest: of the plan that the messages belong to.

    Raises:
        AuditError: it cannot be used, another process writes it, or it was changed or cut off meanwhile.
        IdentityError: the site's signing key cannot be read.
    """

    def __init__(self, site: PreparedSite, plan_digest: bytes) -> None:
        owner = Ownership(site.federation, site.participant, site.participant, site.identity().signing_key)
        head = Head(head_path(site.state, site.writer), site.egress, present_boot())
        try:
            self._keeper = Keeper(site.egress, owner, format_digest(plan_digest), lambda: datetime.now(UTC), head)
        except BaseException:
            head.close()
            raise
        self._disk = ThreadPoolExecutor(1, "egress")
        self._syncing: Future[None] | None = None

    def sending(self, raw: bytes, what: MessageKind, occasion: Occasion, sha256: bytes = b"") -> None:
        """Record a message that is about to be sent.

        Args:
            raw: the message as gRPC gets it.
            what: what it is.
            occasion: what it belongs to.
            sha256: its SHA-256, where it is known; empty to have it computed.

        Raises:
            AuditError: it cannot be recorded, so it must not be sent.
        """
        if self._keeper.message(raw, what, occasion, sha256):
            self._sync_soon()

    def close(self) -> None:
        """Sign the end and wait for the disk.

        Raises:
            AuditError: the disk fails.
        """
        self._disk.shutdown()
        self._keeper.close()

    def _sync_soon(self) -> None:
        if self._syncing is not None:
            if not self._syncing.done():
                # The disk is slower than the rounds; the next sum will ask again.
                return
            self._syncing.result()
        self._syncing = self._disk.submit(self._keeper.sync)
