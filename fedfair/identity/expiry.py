"""How long a certificate is good, and when its operator is warned: 30, 7 and 1 days ahead, and once it has ended.

Decides when a warning is due, and that each is given once. Time comes from outside, so that a year takes no time
in a test. The actors decide who is notified, and how.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509

from fedfair.identity.store import Trust

WARNING_DAYS = (30, 7, 1)
"""How many days before an end its operator is warned, longest first."""

ENDED = 0
"""The stage of what has ended."""

OWN_CERTIFICATE = "this host's certificate"
AUTHORITY_CERTIFICATE = "the authority's certificate"
LIST = "the revocation list"

_RENEW = "`fedfair certs renew`, have the request signed, and install the bundle; nothing needs a restart"
_REMEDY: Mapping[str, str] = {
    AUTHORITY_CERTIFICATE: "a new authority has to sign every certificate of the federation again; plan it now",
    LIST: "on the authority's host: `fedfair certs revoke --refresh`; the aggregator then hands the new list on",
}


@dataclass(frozen=True, slots=True)
class Expiry:
    """Something that will end soon, or has ended.

    Attributes:
        what: in words, such as "this host's certificate".
        until: its end, aware.
        days_left: whole days until then, rounded down; negative once it has ended.
        remedy: what its operator does about it.
    """

    what: str
    until: datetime
    days_left: int
    remedy: str

    @property
    def words(self) -> str:
        """The sentence for its operator."""
        date = f"{self.until:%Y-%m-%d %H:%M} UTC"
        if self.days_left < 0:
            return f"{self.what} expired on {date} -> {self.remedy}"
        days = f"{self.days_left} day{'' if self.days_left == 1 else 's'}" if self.days_left else "less than a day"
        return f"{self.what} expires on {date}, in {days} -> {self.remedy}"


def days_until(end: datetime, now: datetime) -> int:
    """Return the whole days from `now` to `end`, both aware, rounded down; negative once it has passed."""
    return (end - now) // timedelta(days=1)


def warning_stage(end: datetime, now: datetime) -> int | None:
    """Return the last warning that is due: 30, 7 or 1 for at most so many days, 0 after the end, None before all.

    Args:
        end: of a certificate or a list, aware.
        now: an aware time.
    """
    if now > end:
        return ENDED
    due = [days for days in WARNING_DAYS if end - now <= timedelta(days=days)]
    return min(due, default=None)


def ends_of(certificate: x509.Certificate, trust: Trust) -> dict[str, datetime]:
    """Return until when a participant's certificate, its authority and its list are good, by name in words."""
    ends = {OWN_CERTIFICATE: certificate.not_valid_after_utc, AUTHORITY_CERTIFICATE: trust.ca.not_valid_after_utc}
    if trust.crl.next_update_utc is not None:
        ends[LIST] = trust.crl.next_update_utc
    return ends


class ExpiryWatch:
    """Gives each warning once for each end; a renewed certificate has a new end."""

    def __init__(self) -> None:
        self._reported: dict[str, tuple[datetime, int]] = {}

    def due(self, ends: Mapping[str, datetime], now: datetime) -> Iterator[Expiry]:
        """Yield what is to be said now.

        Args:
            ends: until when something is good, by its name in words.
            now: an aware time.
        """
        for what, end in ends.items():
            stage = warning_stage(end, now)
            if stage is None or self._reported.get(what) == (end, stage):
                continue
            self._reported[what] = end, stage
            yield Expiry(what, end, days_until(end, now), _REMEDY.get(what, _RENEW))
