"""The certificates that a site's stream rests on, its own and the aggregator's, and the revocation list.

Looked at every second, and before a sum where the last look is older. Decides when the stream must end at once,
because the aggregator's certificate is not good any more, and when it should be opened again between two sums,
because one side has a renewed certificate. Nothing that the aggregator says of certificates is believed: a list
counts because the authority has signed it, and a new connection is checked from the beginning
(`fedfair.identity.preflight`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from collaborator.preparation import PreparedSite
from fedfair.errors import IdentityError
from fedfair.identity.bundle import keep_list, newer_list
from fedfair.identity.certificate import decode_certificate, fingerprint
from fedfair.identity.expiry import ExpiryWatch, ends_of
from fedfair.identity.identity_watch import IdentityWatch, TrustWatch
from fedfair.identity.preflight import ServerIdentity
from fedfair.identity.revocation import list_number, revoked_serials
from fedfair.identity.store import REVOCATION_LIST, SiteIdentity, Trust, check_certificate
from fedfair.news import site as news
from fedfair.news.processors import Processor
from fedfair.wire.frames import TrustUpdate


class SiteCertificates:
    """The certificates of one site, over all its streams.

    Args:
        site: whose files are looked at.
        publish: takes news of them.
        clock: returns an aware time.

    Attributes:
        reconnection: why the stream should end and another begin, between sums; empty where it may stay.
    """

    def __init__(
        self, site: PreparedSite, publish: Processor, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._site = site
        self._publish = publish
        self._clock = clock
        self._watch = TrustWatch(site.cert_folder)
        self._own: IdentityWatch | None = None
        self._leaf: bytes = b""
        self._expiry = ExpiryWatch()
        self._followed: set[bytes] = set()
        self._refused = ""
        self.reconnection = ""

    def met(self, identity: SiteIdentity, server: ServerIdentity) -> None:
        """Begin a stream.

        Args:
            identity: of this site, as the stream shows it.
            server: the aggregator, as it was checked.
        """
        if self._own is None:
            # The start has reported these in its own way.
            tuple(self._expiry.due(ends_of(identity.certificate, identity.trust), self._clock()))
        self._own = IdentityWatch(identity, self._site.passphrase)
        self._leaf, self.reconnection = server.leaf_pem, ""

    def look(self) -> None:
        """Hold the stream against the files that are there now.

        Raises:
            IdentityError: the aggregator's certificate was revoked, or has expired, since the stream was opened;
                or the list is good no longer.
        """
        if self._own is None:
            return
        now = self._clock()
        trust = self._watch.renewed(now)
        self._look_at_own(self._own, now)
        if trust is None:
            return
        for ending in self._expiry.due(ends_of(self._own.present.certificate, trust), now):
            self._publish(news.SiteCertificateEnding(ending))
        self._check_server(trust, now)

    def take(self, update: TrustUpdate) -> None:
        """Take a revocation list that the aggregator carries, and hear of its renewed certificate.

        Raises:
            IdentityError: by the new list, the aggregator's own certificate is not good any more.
        """
        if update.revocation_list:
            self._take_list(update.revocation_list)
        met = fingerprint(decode_certificate(self._leaf, "the aggregator's certificate"))
        # Each is followed once, so that an aggregator which shows another certificate than it says costs little.
        if update.certificate != met and update.certificate not in self._followed:
            self._followed.add(update.certificate)
            self.reconnection = "the aggregator has a renewed certificate"

    def _look_at_own(self, own: IdentityWatch, now: datetime) -> None:
        try:
            renewed = own.renewed(now)
        except IdentityError as fault:
            self._publish(news.SiteCertificateUnusable(fault.message))
            return
        if renewed is not None:
            self._publish(news.SiteCertificateRenewed(renewed.certificate.not_valid_after_utc))
            self.reconnection = "this site has a renewed certificate"

    def _take_list(self, content: bytes) -> None:
        now = self._clock()
        try:
            trust = newer_list(self._site.cert_folder, content, now)
        except IdentityError as fault:
            self._refuse(fault.message)
            return
        if trust is None:
            return
        try:
            keep_list(self._site.cert_folder, trust.crl)
        except IdentityError as fault:
            self._refuse(fault.message)
            return
        except OSError as fault:
            self._publish(news.RevocationListUnwritten(self._site.cert_folder / REVOCATION_LIST, str(fault)))
        else:
            self._publish(news.RevocationListTaken(list_number(trust.crl), len(revoked_serials(trust.crl))))
        self._check_server(trust, now)

    def _refuse(self, reason: str) -> None:
        """Tell the operator once why a list is not taken: it may be offered on every stream."""
        if reason != self._refused:
            self._refused = reason
            self._publish(news.RevocationListRefused(reason))

    def _check_server(self, trust: Trust, now: datetime) -> None:
        check_certificate(decode_certificate(self._leaf, "the aggregator's certificate"), trust, now)
