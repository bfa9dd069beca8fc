"""Checks the aggregator before a collaborator opens its gRPC channel.

One short TLS connection of its own, because gRPC reports every handshake that fails as "unavailable", shows a
client no server certificate and knows no revocation list. Each thing that can be wrong gets its own sentence. The
leaf certificate that passed is returned, and the channel then trusts that one alone (`tls.channel_credentials`).

In TLS 1.3 a client is done before the server has looked at the client's certificate, so the server's refusal
arrives only in place of the first bytes; hence the short read at the end. Servers of gRPC close the connection
without an alert then, which a dying process does as well; but a dead process does not complete a second
handshake, so the second silent close is taken for a refusal. Source: RFC 8446, section 6 (alerts) and appendix A
(the order of the handshake).

The TCP connection goes directly, or through an HTTP proxy. Each thing that can go wrong gets its own sentence: the
proxy is dead, it wants a user, it does not let this site through, it cannot reach the aggregator. Which way to go
is decided in `fedfair.policy.proxy`.
"""

from __future__ import annotations

import re
import secrets
import socket
import ssl
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509

from fedfair.errors import (
    ConnectionRefusedByPeerError,
    FedfairError,
    IdentityError,
    RenewableIdentityError,
    UnreachableError,
)
from fedfair.identity.certificate import Role, decode_certificate
from fedfair.identity.files import certificate_pem, private_pem
from fedfair.identity.store import SiteIdentity, check_certificate
from fedfair.policy.proxy import DIRECT, Proxy, Route

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
    place = f"{host}:{port}"
    try:
        for _ in range(_ATTEMPTS):
            with connect(host, port, route, timeout_seconds) as plain:
                server = _meet(plain, host, place, identity, now)
            if server is not None:
                return server
    except FedfairError as fault:
        raise type(fault)(f"{fault.message} ({route.words})", fault.remedy) from fault
    raise IdentityError(
        f"{place} is the aggregator, but it refused this site's certificate without giving a reason "
        f"({route.words})",
        _LOOK_AT_OWN,
    )


def _meet(
    plain: socket.socket, host: str, place: str, identity: SiteIdentity, now: datetime
) -> ServerIdentity | None:
    """Return the server of one handshake, or None where it closed the connection without saying why."""
    with _handshaken(_client_context(identity), plain, host, place) as connection:
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


MAX_REPLY_BYTES = 16_384
"""Of a proxy's answer to CONNECT, which is a status line and a few headers."""

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r?\n")
_LATER = frozenset({408, 425, 429})
"""Statuses below 500 that say "try again later"; from 500 on the proxy did not reach the aggregator."""


def connect(host: str, port: int, route: Route, timeout_seconds: float) -> socket.socket:
    """Return a connection on which the aggregator answers.

    Args:
        host: of the aggregator.
        port: of the aggregator.
        route: directly, or through which proxy.
        timeout_seconds: for each step; also the time limit of the socket that is returned.

    Raises:
        UnreachableError: no host answers; trying again later may help.
        ConnectionRefusedByPeerError: the proxy refuses to connect this site; trying again does not help.
    """
    proxy = route.proxy
    if proxy is None:
        return _opened(host, port, f"{host}:{port}", "is the aggregator started?", timeout_seconds)
    plain = _opened(proxy.host, proxy.port, f"the proxy {proxy}", "is that the proxy's port?", timeout_seconds)
    try:
        _ask_for_tunnel(plain, proxy, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", timeout_seconds)
    except BaseException:
        plain.close()
        raise
    return plain


def _opened(host: str, port: int, place: str, hint: str, timeout_seconds: float) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout=timeout_seconds)
    except (socket.gaierror, UnicodeError) as error:
        raise UnreachableError(f"the host name '{host}' cannot be resolved here") from error
    except ConnectionRefusedError as error:
        raise UnreachableError(f"nothing listens at {place}", hint) from error
    except TimeoutError as error:
        raise UnreachableError(
            f"{place} did not answer within {timeout_seconds:g} s", "a firewall between the two usually does that"
        ) from error
    except OSError as error:
        raise UnreachableError(f"{place} cannot be reached: {error.strerror or error}") from error


def _ask_for_tunnel(plain: socket.socket, proxy: Proxy, place: str, timeout_seconds: float) -> None:
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    try:
        plain.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii"))
        reply = _reply(plain, time.monotonic() + timeout_seconds)
    except TimeoutError as error:
        raise UnreachableError(
            f"the proxy {proxy} did not open a connection to {place} within {timeout_seconds:g} s",
            "is the aggregator started, and may the proxy reach it?",
        ) from error
    except OSError as error:
        raise UnreachableError(f"the proxy {proxy} closed the connection without an answer") from error
    plain.settimeout(timeout_seconds)
    status = _STATUS.match(reply)
    if status is None or not reply.endswith(b"\n"):
        raise UnreachableError(
            f"what listens at {proxy} does not answer like an HTTP proxy", "check the address of the proxy"
        )
    code = int(status.group(1))
    if not 200 <= code < 300:
        raise _refusal(code, proxy, place)


def _reply(plain: socket.socket, deadline: float) -> bytes:
    """Return a proxy's answer up to its empty line, and not one byte of what follows; less if it ends before."""
    reply = bytearray()
    while len(reply) < MAX_REPLY_BYTES and not reply.endswith((b"\r\n\r\n", b"\n\n")):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        plain.settimeout(left)
        byte = plain.recv(1)
        if not byte:
            break
        reply += byte
    return bytes(reply)


def _refusal(code: int, proxy: Proxy, place: str) -> FedfairError:
    if code == 407:
        verb = "does not accept the" if proxy.authorization else "wants a"
        return ConnectionRefusedByPeerError(
            f"the proxy {proxy} {verb} user and password (status 407)",
            "state them in its URL: http://user:password@host:port, with basic authentication",
        )
    if code >= 500 or code in _LATER:
        return UnreachableError(
            f"the proxy {proxy} could not connect to {place} (status {code})",
            "is the aggregator started, and may the proxy reach it?",
        )
    return ConnectionRefusedByPeerError(
        f"the proxy {proxy} does not connect this site to {place} (status {code})",
        f"ask its operator to allow CONNECT to {place}, or list the host in no_proxy",
    )
