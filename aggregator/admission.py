"""Admits peers: checks every connection before the round rules see it.

In this order: the certificate of the connection (`identity.tls`), then what the first frame brings: the protocol
version, the plan's digest, the site's binding of its certificate to the key that the plan pins, and its approval
of exactly this plan, signed with that key. A site that refuses to take part has no approval; it shows version and
binding (`identify`). `check` runs the same list for the preflight, without stopping at the first fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedfair.errors import ApprovalError, FedfairError, IdentityError, RemoteProtocolError
from fedfair.identity.roster import Roster, verify_binding
from fedfair.identity.store import Trust, load_trust
from fedfair.identity.tls import AuthenticatedPeer, authenticate
from fedfair.ids import FederationName
from fedfair.plan.approval import verify_approval
from fedfair.plan.public_keys import UNPINNED_REMEDY
from fedfair.wire.frames import CheckItem, CheckReply, CheckRequest, Hello
from fedfair.wire.limits import PROTOCOL_VERSION

CLOCK_SECONDS = 300.0
"""Clocks further apart than this make certificates and lists look expired or not yet valid."""

AuthContext = Mapping[str, Sequence[bytes]]


class TrustUnreadableError(IdentityError):
    """The aggregator's own authority or list of revocations cannot be used; its operator can mend that."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The rules of one run.

    Attributes:
        federation: its name.
        plan_digest: 32 bytes, of the plan that this aggregator runs.
        roster: the pinned signing keys.
        cert_folder: read again for each connection, so that a revocation takes effect without a restart.
    """

    federation: FederationName
    plan_digest: bytes
    roster: Roster
    cert_folder: Path

    def authenticate(self, auth_context: AuthContext, trust: Trust | None = None) -> AuthenticatedPeer:
        """Return whose connection this is, by its certificate alone.

        Args:
            auth_context: of the connection.
            trust: the authority and its list, where they were just read; otherwise they are read now.

        Raises:
            TrustUnreadableError: the aggregator's own files do not say whom to trust.
            IdentityError: the certificate is not good for this federation.
        """
        now = datetime.now(UTC)
        try:
            trust = load_trust(self.cert_folder, now) if trust is None else trust
        except FedfairError as fault:
            raise TrustUnreadableError(fault.message, fault.remedy) from fault
        return authenticate(
            auth_context, federation=self.federation, roster=self.roster, ca=trust.ca, crl=trust.crl, now=now
        )

    def admit(self, peer: AuthenticatedPeer, hello: Hello) -> None:
        """Let an authenticated peer take part.

        Raises:
            FedfairError: the first thing that is wrong with its introduction.
        """
        for _, check in self._checks(peer, hello):
            check()

    def identify(self, peer: AuthenticatedPeer, hello: Hello) -> None:
        """Make sure that an authenticated peer has the key that the plan pins, and of nothing else.

        Raises:
            FedfairError: another protocol version, or the certificate is not bound to the key.
        """
        self._check_version(hello)
        self._check_binding(peer, hello)

    def check(self, peer: AuthenticatedPeer, request: CheckRequest) -> CheckReply:
        """Return what `admit` would say, item by item, and how far the clocks are apart."""
        items = [CheckItem("certificate", True, f"{peer.name} of {self.federation}")]
        items += [_item(name, check) for name, check in self._checks(peer, request)]
        apart = abs(datetime.now(UTC).timestamp() - request.clock_seconds)
        items.append(CheckItem("clock", apart <= CLOCK_SECONDS, f"the clocks are {apart:.1f} s apart"))
        return CheckReply(tuple(items))

    def _checks(
        self, peer: AuthenticatedPeer, introduction: Hello | CheckRequest
    ) -> tuple[tuple[str, Callable[[], None]], ...]:
        return (
            ("version", lambda: self._check_version(introduction)),
            ("plan", lambda: self._check_plan(peer, introduction)),
            ("binding", lambda: self._check_binding(peer, introduction)),
            ("approval", lambda: self._check_approval(peer, introduction)),
        )

    def _check_version(self, introduction: Hello | CheckRequest) -> None:
        if introduction.protocol_version != PROTOCOL_VERSION:
            raise RemoteProtocolError(
                f"the collaborator speaks protocol {introduction.protocol_version} (fedfair "
                f"{introduction.software_version}), the aggregator {PROTOCOL_VERSION}",
                "install the same version of fedfair on both sides",
            )

    def _check_plan(self, peer: AuthenticatedPeer, introduction: Hello | CheckRequest) -> None:
        if introduction.plan_digest != self.plan_digest:
            raise ApprovalError(
                f"{peer.name} has plan sha256:{introduction.plan_digest.hex()}, "
                f"the aggregator runs sha256:{self.plan_digest.hex()}",
                "use the same plan, roster and versions on both sides; compare with `fedfair plan digest`",
            )

    def _check_binding(self, peer: AuthenticatedPeer, introduction: Hello | CheckRequest) -> None:
        verify_binding(
            introduction.certificate_binding,
            public_key=self.roster[peer.name],
            certificate_fingerprint=peer.certificate_fingerprint,
            federation=self.federation,
            name=peer.name,
        )

    def _check_approval(self, peer: AuthenticatedPeer, introduction: Hello | CheckRequest) -> None:
        verify_approval(
            introduction.approval,
            plan_digest=self.plan_digest,
            federation=self.federation,
            participant=peer.name,
            public_key=self.roster[peer.name],
        )


def _item(name: str, check: Callable[[], None]) -> CheckItem:
    try:
        check()
    except FedfairError as fault:
        return CheckItem(name, False, fault.diagnostics())
    return CheckItem(name, True, "as it should be")


def check_roster_complete(roster: Roster, collaborators: Sequence[str]) -> None:
    """Refuse to start where a collaborator could never be let in.

    Raises:
        IdentityError: the roster lacks somebody's key.
    """
    missing = [name for name in collaborators if name not in roster]
    if missing:
        raise IdentityError(
            f"the roster of the plan has no signing key for {', '.join(missing)}",
            UNPINNED_REMEDY,
        )
