"""Where the page is: on this machine, or under TLS elsewhere; and by which names a request may call it."""

from __future__ import annotations

import contextlib
import ipaddress
from pathlib import Path

from cryptography import x509

from fedfair.errors import IdentityError
from fedfair.identity.files import read_certificate
from fedfair.process.terminal import host_and_port
from fedfair.watching.place import StatusPlace, is_loopback

PAGE_OPTION = "--listen"


def page_place(text: str, certificate: Path | None, key: Path | None) -> StatusPlace:
    """Return where the page is served.

    Args:
        text: HOST:PORT; port 0 lets the system choose.
        certificate: PEM file, or None.
        key: PEM file, or None.

    Raises:
        BadParameter: the text is not HOST:PORT.
        IdentityError: others could reach it without TLS, or a certificate has no key, or the other way round.
    """
    host, port = host_and_port(text, PAGE_OPTION, 0)
    if (certificate is None) != (key is None):
        given, missing = ("--certificate", "--key")[:: 1 if key is None else -1]
        raise IdentityError(f"{given} is given without {missing}", "give both, or neither")
    if certificate is None and not is_loopback(host):
        raise IdentityError(
            f"{PAGE_OPTION} {text} can be reached by other machines, and passphrases would cross the network",
            "listen on localhost, or give --certificate and --key",
        )
    return StatusPlace(host, port, certificate, key, "page", PAGE_OPTION)


def names_of(place: StatusPlace) -> frozenset[str]:
    """Return the names and addresses by which a request may call the page, in lower case.

    Without a certificate these are this machine's own: otherwise a web page elsewhere could have its name point to
    this machine, and speak to the page through the browser of somebody who is logged in.

    Raises:
        IdentityError: the certificate cannot be read.
    """
    own = {"localhost", "127.0.0.1", "::1"}
    if place.certificate is None:
        return frozenset(own | {place.host.lower()})
    stated = read_certificate(place.certificate, "the certificate of the page")
    try:
        names = stated.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound as error:
        raise IdentityError(
            f"{place.certificate} states no name that a browser would look for",
            "make one with subject alternative names",
        ) from error
    addresses = {str(one) for one in names.get_values_for_type(x509.IPAddress)}
    return frozenset({name.lower() for name in names.get_values_for_type(x509.DNSName)} | addresses | own)


def is_named(names: frozenset[str], host_header: str) -> bool:
    """Return whether a Host header calls the page by one of its names."""
    host, _, port = host_header.rpartition(":")
    if not (host and port.isdecimal()):
        host = host_header
    host = host.strip("[]").lower()
    with contextlib.suppress(ValueError):
        host = str(ipaddress.ip_address(host))
    return host in names
