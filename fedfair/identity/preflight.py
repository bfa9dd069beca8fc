"""Checks the aggregator before a collaborator opens its gRPC channel.

One short TLS connection of its own, because gRPC reports every handshake that fails as "unavailable", shows a
client no server certificate and knows no revocation list. Each thing that can be wrong gets its own sentence. The
leaf certificate that passed is returned, and the channel then trusts that one alone (`tls.channel_credentials`).

In TLS 1.3 a client is done before the server has looked at the client's certificate, so the server's refusal
arrives only in place of the first bytes; hence the short read at the end. Servers of gRPC close the connection
without an alert then, which a dying process does as well; but a dead process does not complete a second
handshake, so the second silent close is taken for a refusal. Source: RFC 8446, section 6 (alerts) and appendix A
(the order of the handshake).
"""

from __future__ import annotations

import secrets
import socket
import ssl
import tempfile
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509

from fedfair.errors import FedfairError, IdentityError, RenewableIdentityError, UnreachableError
from fedfair.identity.certificate import Role, decode_certificate
from fedfair.identity.files import certificate_pem, private_pem
from fedfair.identity.store import SiteIdentity, check_certificate
from fedfair.identity.tunnel import connect
from fedfair.policy.proxy import DIRECT, Route

TIMEOUT_SECONDS = 10.0
_ATTEMPTS = 2
_LOOK_AT_OWN = "`fedfair certs show` on both sides: does it come from the same authority, and is it still valid?"


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """An aggregator that passed every check.

    Attributes:
        leaf_pem: its certificate; what the channel will trust.
        tls_version: as negotiated, "TLSv1.3".
    """

    leaf_pem: bytes
    tls_version: str


def preflight(
    host: str,
    port: int,
    identity: SiteIdentity,
    now: datetime,
    timeout_seconds: float = TIMEOUT_SECONDS,
    route: Route = DIRECT,
) -> ServerIdentity:
    """Connect once to the aggregator, check it, and see that it accepts this site's certificate.

    Args:
        host: name or address, as in the plan.
        port: as in the plan.
        identity: of this site.
        now: an aware time.
        timeout_seconds: for each step of the connection.
        route: directly, or through which proxy; every error names it.

    Raises:
        IdentityError: it does not speak TLS 1.3, is not this federation's aggregator, or refuses this site.
        UnreachableError: nothing answers there; trying again later may help.
        ConnectionRefusedByPeerError: the proxy does not let this site through.
    """
    try:
        return _checked(host, port, identity, now, timeout_seconds, route)
    except FedfairError as fault:
        raise type(fault)(f"{fault.message} ({route.words})", fault.remedy) from fault


def _checked(
    host: str, port: int, identity: SiteIdentity, now: datetime, timeout_seconds: float, route: Route
) -> ServerIdentity:
    for _ in range(_ATTEMPTS):
        server = _meet(host, port, identity, now, timeout_seconds, route)
        if server is not None:
            return server
    raise IdentityError(
        f"{host}:{port} is the aggregator, but it refused this site's certificate without giving a reason",
        _LOOK_AT_OWN,
    )


def _meet(
    host: str, port: int, identity: SiteIdentity, now: datetime, timeout_seconds: float, route: Route
) -> ServerIdentity | None:
    """Return the aggregator's identity, or None where it closed the connection after the handshake."""
    place = f"{host}:{port}"
    context = _client_context(identity)
    with (
        connect(host, port, route, timeout_seconds) as plain,
        _handshaken(context, plain, host, place) as connection,
    ):
        der = connection.getpeercert(binary_form=True)
        if der is None:
            raise IdentityError(f"{place} showed no certificate")
        leaf = decode_certificate(der, f"the certificate of {place}")
        _check_aggregator(leaf, identity, now, place)
        if not _answers(connection, place):
            return None
        return ServerIdentity(certificate_pem(leaf), connection.version() or "unknown")


def _client_context(identity: SiteIdentity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=certificate_pem(identity.trust.ca).decode("ascii"))
    _show_identity(context, identity)
    return context


def _show_identity(context: ssl.SSLContext, identity: SiteIdentity) -> None:
    """Have a context show the very certificate that the channel will show.

    Python's ssl reads keys from files only. The file gets the key encrypted under a passphrase of this call alone,
    so that the disk never holds a key that its owner keeps encrypted.
    """
    once = secrets.token_hex(32)
    with tempfile.NamedTemporaryFile(prefix="fedfair-") as file:
        file.write(certificate_pem(identity.certificate) + private_pem(identity.tls_key, once.encode("ascii")))
        file.flush()
        context.load_cert_chain(file.name, password=once)


def _handshaken(context: ssl.SSLContext, plain: socket.socket, host: str, place: str) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise _certificate_fault(error, host, place) from error
    except ssl.SSLError as error:
        raise _handshake_fault(error, place) from error
    except TimeoutError as error:
        raise UnreachableError(f"{place} accepts connections but did not answer in TLS") from error
    except OSError as error:
        raise UnreachableError(f"{place} closed the connection during the TLS handshake") from error


def _certificate_fault(error: ssl.SSLCertVerificationError, host: str, place: str) -> IdentityError:
    # The numbers are OpenSSL's X509_V_ERR_*, fixed in x509_vfy.h.
    match error.verify_code:
        case 18 | 19 | 20 | 21 | 7:
            return IdentityError(
                f"the certificate of {place} was not signed by this federation's authority",
                "compare the authority's fingerprint on both sides with `fedfair certs show`; "
                "somebody may be between you and the aggregator, such as a proxy that opens TLS connections",
            )
        case 10:
            return RenewableIdentityError(
                f"the certificate of {place} has expired", "its operator must renew it: `fedfair certs renew`"
            )
        case 9:
            return IdentityError(
                f"the certificate of {place} is not valid yet", "compare the clocks of both machines"
            )
        case 62 | 64:
            return IdentityError(
                f"the certificate of {place} is not made for the name '{host}'",
                f"sign the aggregator's certificate with --host {host}, or correct aggregator.host in the plan",
            )
        case 26:
            return IdentityError(
                f"{place} shows a certificate that may not be used by a server: it is a collaborator's, "
                "not the aggregator's",
                "somebody may be posing as the aggregator; ask its operator",
            )
    return IdentityError(f"the certificate of {place} does not verify: {error.verify_message}")


def _handshake_fault(error: ssl.SSLError, place: str) -> FedfairError:
    reason = error.reason or ""
    if "PROTOCOL_VERSION" in reason or reason == "UNSUPPORTED_PROTOCOL":
        return IdentityError(
            f"{place} does not speak TLS 1.3", "is that the aggregator, without a proxy before it?"
        )
    if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}:
        return IdentityError(f"what listens at {place} does not speak TLS", "check aggregator.host and port")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return UnreachableError(f"{place} closed the connection during the TLS handshake")
    return IdentityError(f"the TLS handshake with {place} failed: {reason or error}")


def _check_aggregator(leaf: x509.Certificate, identity: SiteIdentity, now: datetime, place: str) -> None:
    try:
        participant = check_certificate(leaf, identity.trust, now)
    except IdentityError as error:
        raise type(error)(f"{place}: {error.message}", error.remedy) from error
    if participant.role is not Role.AGGREGATOR or participant.federation != identity.participant.federation:
        raise IdentityError(
            f"{place} is {participant.uri}, not the aggregator of '{identity.participant.federation}'",
            "check aggregator.host and port in the plan",
        )


def _answers(connection: ssl.SSLSocket, place: str) -> bool:
    """Return whether the server says anything, which it does only to a client that it has accepted."""
    try:
        # Only read: bytes that the server leaves unread would turn its alert into a bare reset. A gRPC server
        # sends its settings unasked.
        return connection.recv(1) != b""
    except TimeoutError as error:
        raise UnreachableError(
            f"{place} completed the TLS handshake but sent nothing",
            "is that the aggregator, and is it overloaded?",
        ) from error
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "ALERT" not in reason:
            return False
        words = reason.rpartition("ALERT_")[2].lower().replace("_", " ")
        raise IdentityError(
            f"{place} refused this site's certificate: {words}",
            _LOOK_AT_OWN,
        ) from error
    except OSError:
        # Reset or broken pipe: closed, as far as this side can tell.
        return False
