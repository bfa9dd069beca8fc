"""Where a status is served: HOST:PORT, with a certificate wherever others than this machine can reach it.

Decides what is refused before anything starts, and which names a request may call this place by. Whoever reaches
the place can read the status; the certificate keeps what is read from others on the way.
"""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedfair.errors import FedfairError, IdentityError
from fedfair.extras import install_command
from fedfair.process.terminal import host_and_port

StatusCertificate = Annotated[
    Path | None,
    typer.Option(
        "--status-certificate",
        help="PEM file; with it, other machines may reach --status, and every one that does can read it.",
    ),
]
StatusKey = Annotated[Path | None, typer.Option("--status-key", help="PEM file of that certificate's key.")]

BACKLOG = 64
"""Connections that wait until they are accepted; the system refuses more."""


@dataclass(frozen=True, slots=True)
class ServedThing:
    """A thing that may be served at a place, and the options by which an operator says where; for messages.

    Attributes:
        what: it is.
        option: that names the place.
        certificate: option of the certificate.
        key: option of its key.
        danger: what would happen where others reach it without TLS.
    """

    what: str
    option: str
    certificate: str
    key: str
    danger: str

    def unprotected(self, place: str) -> IdentityError:
        """Return the refusal of a place that others can reach without TLS."""
        return IdentityError(
            f"{place} can be reached by other machines, and {self.danger}",
            f"listen on localhost, or give {self.certificate} and {self.key}",
        )


STATUS = ServedThing(
    "status", "--status", "--status-certificate", "--status-key", "nothing would protect what they read"
)


@dataclass(frozen=True, slots=True)
class StatusPlace:
    """The place of a status, or of something else that is served.

    Attributes:
        host: name or address of this machine.
        port: 0 lets the system choose one.
        certificate: PEM file with the certificate and those between it and its authority; None for plain HTTP.
        key: PEM file of its key.
        thing: what is served there.
    """

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    thing: ServedThing = STATUS

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def scheme(self) -> str:
        """Return http or https."""
        return "http" if self.certificate is None else "https"

    def is_named(self, host_header: str) -> bool:
        """Return whether a request may call this place by the name in its Host header.

        Without a certificate only this machine's own names are right: otherwise a web page could have its name
        point to this machine, and read the status through the browser of somebody who works here.
        """
        if self.certificate is not None:
            return True
        host = host_header.rpartition(":")[0] if _has_port(host_header) else host_header
        return is_loopback(host.strip("[]")) or host.strip("[]").lower() == self.host.lower()

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what a connection is protected with; None for plain HTTP.

        Raises:
            IdentityError: certificate or key cannot be read, or do not belong together.
        """
        if self.certificate is None or self.key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for path, what in ((self.certificate, "certificate"), (self.key, "key")):
            try:
                path.read_bytes()
            except OSError as fault:
                raise IdentityError(
                    f"{path}: the {what} of the {self.thing.what} cannot be read: {fault.strerror}"
                ) from fault
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_passphrase)
        except (ssl.SSLError, FedfairError) as fault:
            raise IdentityError(
                f"{self.certificate} and {self.key} cannot be used for the {self.thing.what}: {_words(fault)}",
                "give the PEM file of a certificate and that of its key, without a passphrase",
            ) from fault
        return context

    def listener(self) -> socket.socket:
        """Return a socket that listens here.

        Raises:
            FedfairError: this machine has no such address, others can reach it without TLS, or it is taken.
        """
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = found[0]
            if self.certificate is None and not is_loopback(str(address[0])):
                raise self.thing.unprotected(f"{self}, which is {address[0]},")
            with contextlib.ExitStack() as opened:
                listener = opened.enter_context(socket.socket(family, kind, protocol))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
                listener.listen(BACKLOG)
                listener.setblocking(False)
                opened.pop_all()
        except OSError as fault:
            raise FedfairError(
                f"the {self.thing.what} cannot be served on {self}: {fault.strerror}",
                f"is another process listening there? choose another place with {self.thing.option} HOST:PORT",
            ) from fault
        return listener


def asked_place(text: str | None, certificate: Path | None, key: Path | None) -> StatusPlace | None:
    """Return where an operator asked for the status to be served; None where it was not asked for.

    Args:
        text: HOST:PORT, or None.
        certificate: PEM file, or None.
        key: PEM file, or None.

    Raises:
        BadParameter: the text is not HOST:PORT.
        FedfairError: the place is refused, or what serves a status is not installed.
    """
    if text is None:
        if certificate is not None or key is not None:
            raise IdentityError("a certificate or key for the status is given, but no --status HOST:PORT")
        return None
    missing = [name for name in ("h11", "prometheus_client") if importlib.util.find_spec(name) is None]
    if missing:
        raise FedfairError(f"--status needs {' and '.join(missing)}", install_command("status"))
    return status_place(text, certificate, key)


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def status_place(
    text: str, certificate: Path | None, key: Path | None, thing: ServedThing = STATUS
) -> StatusPlace:
    """Return where the status, or something else, is served.

    Args:
        text: HOST:PORT; port 0 lets the system choose.
        certificate: PEM file, or None.
        key: PEM file, or None.
        thing: what is served.

    Raises:
        BadParameter: the text is not HOST:PORT.
        FedfairError: others could reach it without TLS, or a certificate has no key, or the other way round.
    """
    host, port = host_and_port(text, thing.option, 0)
    if (certificate is None) != (key is None):
        given, missing = (thing.certificate, thing.key)[:: 1 if key is None else -1]
        raise IdentityError(f"{given} is given without {missing}", "give both, or neither")
    if certificate is None and not is_loopback(host):
        raise thing.unprotected(f"{thing.option} {text}")
    return StatusPlace(host, port, certificate, key, thing)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address can only be this machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _has_port(host_header: str) -> bool:
    return host_header.rpartition(":")[2].isdecimal() and not host_header.endswith("]")


def _no_passphrase() -> str:
    raise FedfairError("the key has a passphrase")


def _words(fault: Exception) -> str:
    return fault.message if isinstance(fault, FedfairError) else str(getattr(fault, "reason", None) or fault)
