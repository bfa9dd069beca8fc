"""Checks the certificate of each connection again before every sum.

A list that cannot be relied upon stops no stream that an earlier one let in, but no new stream is let in either,
and the operator gets a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from aggregator.admission import Admission
from aggregator.connection import Connection
from aggregator.notices import OlderTrustKept
from fedfair.errors import IdentityError
from fedfair.identity.trust_watch import TrustWatch
from fedfair.ids import ParticipantId


class ConnectionStanding:
    """The check of one run.

    Args:
        admission: the rules.
        notice: tells the operator.
    """

    def __init__(self, admission: Admission, notice: Callable[[OlderTrustKept], None]) -> None:
        self._admission = admission
        self._notice = notice
        self._watch = TrustWatch(admission.cert_folder)

    def lost(self, connections: Iterable[Connection]) -> dict[ParticipantId, IdentityError]:
        """Return who may not take part any more, and why; looks only where the list may say something new."""
        now = datetime.now(UTC)
        try:
            trust = self._watch.renewed(now)
        except IdentityError as fault:
            self._notice(OlderTrustKept(fault.message))
            return {}
        found = {}
        for connection in connections if trust is not None else ():
            try:
                self._admission.authenticate(connection.auth_context, trust)
            except IdentityError as fault:
                found[connection.participant] = fault
        return found
