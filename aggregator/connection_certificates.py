"""The certificates that open streams rest on, the sites' and the aggregator's own, and the revocation list.

Looked at before every sum and every second, so that a revocation ends a stream and a renewed certificate is shown
within seconds. A list that cannot be relied upon stops no stream that an earlier one let in, but no new stream is
let in either, and the operator gets a notice. A certificate on the disk that cannot be used replaces none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from aggregator.admission import Admission
from aggregator.connection import Connection
from fedfair.errors import IdentityError
from fedfair.identity.bundle import carried_list
from fedfair.identity.certificate import fingerprint
from fedfair.identity.expiry import ExpiryWatch, ends_of
from fedfair.identity.identity_watch import IdentityWatch, TrustWatch
from fedfair.identity.revocation import list_number, revoked_serials
from fedfair.identity.store import SiteIdentity
from fedfair.identity.tls import RenewableCertificate, peer_certificate
from fedfair.ids import ParticipantId
from fedfair.news.processors import Processor
from fedfair.news.run import (
    CertificateEnding,
    CertificateRenewed,
    CertificateUnusable,
    OlderTrustKept,
    RevocationListChanged,
)
from fedfair.wire.frames import TrustUpdate
from fedfair.wire.limits import MAX_LIST_BYTES


class ConnectionCertificates:
    """The certificates of one run.

    Args:
        admission: the rules.
        identity: the aggregator's own, as it was loaded at the start.
        shown: what new connections are shown.
        publish: takes news of them.
        passphrase: of the aggregator's encrypted keys; None where they are not encrypted.
        clock: returns an aware time.
    """

    def __init__(
        self,
        admission: Admission,
        identity: SiteIdentity,
        shown: RenewableCertificate,
        publish: Processor,
        passphrase: bytes | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._admission = admission
        self._publish = publish
        self._clock = clock
        self._shown = shown
        self._watch = TrustWatch(admission.cert_folder)
        self._own = IdentityWatch(identity, passphrase)
        self._trust = identity.trust
        self._expiry = ExpiryWatch()
        # The start has reported these in its own way.
        tuple(self._expiry.due(ends_of(identity.certificate, identity.trust), clock()))

    @property
    def update(self) -> TrustUpdate:
        """The present list, and which certificate is shown from now on, for connected sites."""
        carried = carried_list(self._trust)
        shown = fingerprint(self._own.present.certificate)
        return TrustUpdate(carried if len(carried) <= MAX_LIST_BYTES else b"", shown)

    def renew(self) -> None:
        """Show a renewed certificate of the aggregator from now on, where one has been installed."""
        try:
            renewed = self._own.renewed(self._clock())
        except IdentityError as fault:
            self._publish(CertificateUnusable(fault.message))
            return
        if renewed is not None:
            self._shown.replace(renewed)
            self._publish(CertificateRenewed(renewed.certificate.not_valid_after_utc))

    def lost(self, connections: Iterable[Connection]) -> dict[ParticipantId, IdentityError]:
        """Return who may not take part any more, and why; looks only where the list may say something new."""
        now = self._clock()
        try:
            trust = self._watch.renewed(now)
        except IdentityError as fault:
            self._publish(OlderTrustKept(fault.message))
            return {}
        if trust is None:
            return {}
        if list_number(trust.crl) != list_number(self._trust.crl):
            self._publish(RevocationListChanged(list_number(trust.crl), len(revoked_serials(trust.crl))))
        self._trust = trust
        found = {}
        ends = ends_of(self._own.present.certificate, trust)
        for connection in connections:
            try:
                self._admission.authenticate(connection.auth_context, trust)
            except IdentityError as fault:
                found[connection.participant] = fault
                continue
            certificate = peer_certificate(connection.auth_context)
            ends[f"the certificate of {connection.participant}"] = certificate.not_valid_after_utc
        for ending in self._expiry.due(ends, now):
            self._publish(CertificateEnding(ending))
        return found
