"""Mutual TLS for gRPC: the credentials of both sides, and who a connected collaborator is.

gRPC itself checks that a client's certificate comes from the authority and is valid; it can check neither the
revocation list nor the roster, and it would talk TLS 1.2. `authenticate` does, for every connection, from the
authentication context that gRPC made during the handshake; nothing that a message says has a part in it. There is
no insecure mode. What the collaborator checks about the aggregator is in `preflight.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import grpc
from cryptography import x509

from fedfair.errors import IdentityError
from fedfair.identity.certificate import Role, decode_certificate, fingerprint, participant_of
from fedfair.identity.files import certificate_pem, private_pem
from fedfair.identity.preflight import ServerIdentity
from fedfair.identity.roster import Roster
from fedfair.identity.store import SiteIdentity, Trust, check_certificate
from fedfair.ids import FederationName, ParticipantId

TLS_VERSION = "TLSv1.3"


@dataclass(frozen=True, slots=True)
class AuthenticatedPeer:
    """A collaborator whose connection was authenticated; `roster.verify_binding` has still to follow.

    Attributes:
        name: the collaborator, a member of the roster.
        certificate_fingerprint: SHA-256 of the certificate it connected with, 32 bytes.
    """

    name: ParticipantId
    certificate_fingerprint: bytes


class RenewableCertificate:
    """The certificate that the aggregator shows on new connections; it can be replaced while connections are open.

    Args:
        identity: whose certificate is shown first.
    """

    def __init__(self, identity: SiteIdentity) -> None:
        self._present = _configuration(identity)

    def credentials(self) -> grpc.ServerCredentials:
        """Return what one address listens with; every address needs credentials of its own."""
        shown = self._present

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            # gRPC asks for every handshake, in threads of its own; None stands for what it has already.
            nonlocal shown
            if shown is self._present:
                return None
            shown = self._present
            return shown

        return grpc.dynamic_ssl_server_credentials(
            shown,
            renewed,  # type: ignore[arg-type] # the stub forgets None, which the documentation of gRPC has
            require_client_authentication=True,
        )

    def replace(self, identity: SiteIdentity) -> None:
        """Show another certificate from the next handshake on."""
        self._present = _configuration(identity)


def _configuration(identity: SiteIdentity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(private_pem(identity.tls_key), certificate_pem(identity.certificate))],
        root_certificates=certificate_pem(identity.trust.ca),
    )


def channel_credentials(identity: SiteIdentity, server: ServerIdentity) -> grpc.ChannelCredentials:
    """Return what a collaborator connects with.

    The channel trusts exactly the server certificate that `preflight` has checked, not the authority: gRPC cannot
    show a client which certificate it met, so it could not check that one's name, role and revocation itself.
    BoringSSL accepts a leaf as a trust anchor and still compares host name and validity; a test holds it to that.
    """
    return grpc.ssl_channel_credentials(
        root_certificates=server.leaf_pem,
        private_key=private_pem(identity.tls_key),
        certificate_chain=certificate_pem(identity.certificate),
    )


def authenticate(
    auth_context: Mapping[str, Sequence[bytes]],
    *,
    federation: FederationName,
    roster: Roster,
    ca: x509.Certificate,
    crl: x509.CertificateRevocationList,
    now: datetime,
    listed: str = "the roster of the plan",
) -> AuthenticatedPeer:
    """Return who is at the other end of a connection to the aggregator.

    Args:
        auth_context: of the call, `context.auth_context()`.
        federation: the plan's.
        roster: the plan's, read by `parse_roster`.
        ca: the authority.
        crl: its present revocation list.
        now: an aware time.
        listed: where the roster stands, for the message.

    Raises:
        IdentityError: TLS below 1.3, no or an unusable certificate, another authority or federation, expired,
            revoked, not a collaborator's, or not in the roster.
    """
    _check_version(auth_context)
    certificate = peer_certificate(auth_context)
    participant = check_certificate(certificate, Trust(ca, crl), now)
    if participant.federation != federation:
        raise IdentityError(
            f"{participant.uri} is of the federation '{participant.federation}', this one is '{federation}'",
            "connect to the aggregator of your own federation",
        )
    if participant.role is not Role.COLLABORATOR:
        raise IdentityError(
            f"{participant.uri} is the {participant.role.value}'s certificate; only collaborators may connect",
            "connect with the certificate of a collaborator",
        )
    if participant.name not in roster:
        raise IdentityError(
            f"{participant.name} has a certificate of this federation but is not in {listed}",
            "the lead adds its signing key; where it is a plan's roster, every site approves the plan again",
        )
    return AuthenticatedPeer(participant.name, fingerprint(certificate))


@lru_cache(maxsize=1024)
def _name_in(certificate: bytes) -> str:
    try:
        return participant_of(decode_certificate(certificate, "the certificate of the connection")).uri
    except IdentityError:
        return ""


def shown_name(auth_context: Mapping[str, Sequence[bytes]]) -> str:
    """Return whom the certificate of a connection names, as a URI; empty where it names none.

    Costs next to nothing for a certificate that was seen before, and decides nothing: gRPC has made sure that the
    authority signed it, but it was not yet checked whether it was revoked, or is in the roster.
    """
    certificates = auth_context.get("x509_pem_cert", ())
    return _name_in(certificates[0]) if len(certificates) == 1 else ""


def shown_certificate(auth_context: Mapping[str, Sequence[bytes]]) -> bytes:
    """Return the SHA-256 of the certificates of a connection as they are written, unchecked as in `shown_name`."""
    return hashlib.sha256(b"".join(auth_context.get("x509_pem_cert", ()))).digest()


def _check_version(auth_context: Mapping[str, Sequence[bytes]]) -> None:
    versions = [value.decode("ascii", "replace") for value in auth_context.get("ssl_tls_version", ())]
    if versions != [TLS_VERSION]:
        raise IdentityError(
            f"the connection uses {', '.join(versions) or 'no TLS'}, this service speaks {TLS_VERSION} only",
            "update the TLS library of the client, or remove the proxy between the two",
        )


def peer_certificate(auth_context: Mapping[str, Sequence[bytes]]) -> x509.Certificate:
    """Return the certificate of the other end of a connection, unchecked.

    Raises:
        IdentityError: the connection shows none, several, or one that is malformed.
    """
    certificates = auth_context.get("x509_pem_cert", ())
    if len(certificates) != 1:
        raise IdentityError(
            f"the connection shows {len(certificates)} certificates, expected one",
            "connect with the certificate that `fedfair certs install` has put in place",
        )
    return decode_certificate(certificates[0], "the certificate of the connection")
