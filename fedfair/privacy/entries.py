"""One line of a site's ledger: what was released, under which plan, when, and of whose records.

Decides how a release is spelt, and how each entry vouches for all before it. Where the lines are kept is
`collaborator.ledger`'s business, what they are worth together `spending.py`'s. No torch, no accountant: a ledger
can be written and read without either.

    chain(0) = 32 zero bytes
    chain(n) = SHA-256(label "fedfair/ledger-entry/v1", chain(n-1), the entry's fields as JSON)

A line that is changed, removed or slipped in does not fit those around it. It takes no key to recompute the chain:
it finds accidents and clumsy hands, not somebody who means to deceive himself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypeAlias

from fedfair.errors import PrivacyError
from fedfair.privacy.releases import GaussianRelease, Release, SharedNoiseRelease, SkellamRelease, Unprotected
from fedfair.signed_message import labelled_message

ENTRY_LABEL = "fedfair/ledger-entry/v1"
START = bytes(32)
"""The chain value before the first entry."""

Written: TypeAlias = Release | Unprotected
"""The two subjects of a line."""

_KINDS: Mapping[str, type[Written]] = {
    "gaussian": GaussianRelease,
    "shared": SharedNoiseRelease,
    "skellam": SkellamRelease,
    "unprotected": Unprotected,
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The participant and the plan of a release.

    Attributes:
        participant: the site's name in the plan.
        federation: the federation's name.
        plan_digest: "sha256:" and 64 hexadecimal digits.
        data_set: the name that the site gives these records; None where it gives none, and they may be anybody's.
    """

    participant: str
    federation: str
    plan_digest: str
    data_set: str | None

    def may_share_records(self, other: Origin) -> bool:
        """Return whether anybody's record may be in both: what has no name may be anybody's."""
        return self.data_set is None or other.data_set is None or self.data_set == other.data_set


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One release as it stands in a ledger.

    Attributes:
        at: when it was written down, in UTC, such as "2031-05-04T10:11:12+00:00".
        origin: who released it, and of whom.
        release: what was released.
    """

    at: str
    origin: Origin
    release: Written

    @property
    def kind(self) -> str:
        """Return the word for the kind of release."""
        return next(kind for kind, release in _KINDS.items() if isinstance(self.release, release))

    @property
    def parameters(self) -> str:
        """Return the release's own numbers as JSON."""
        return json.dumps(asdict(self.release), sort_keys=True)

    def chained(self, before: bytes) -> bytes:
        """Return the chain value of this entry after one whose value is `before`; 32 bytes."""
        origin = self.origin
        words = [self.at, origin.participant, origin.federation, origin.plan_digest, origin.data_set]
        body = json.dumps([*words, self.kind, self.parameters]).encode()
        return hashlib.sha256(labelled_message(ENTRY_LABEL, [before, body])).digest()


def parse_release(kind: str, parameters: str) -> Written:
    """Return the release that was spelt this way.

    Raises:
        PrivacyError: it is of a kind that this version does not know, or its numbers are not such a release's.
    """
    known = _KINDS.get(kind)
    if known is None:
        raise PrivacyError(
            f"an entry is of the kind {kind!r}, this version knows {', '.join(_KINDS)}",
            "use the version of fedfair that wrote it, or a newer one",
        )
    try:
        return known(**json.loads(parameters))
    except (ValueError, TypeError, RecursionError) as error:
        raise PrivacyError(
            f"an entry of the kind {kind!r} cannot be read: {error}", "copy it from a backup"
        ) from error
