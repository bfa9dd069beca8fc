"""Where the page is: on this machine, or under TLS elsewhere; and by which names a request may call it."""

from __future__ import annotations

import contextlib
import ipaddress
from pathlib import Path

from cryptography import x509

from fedfair.errors import IdentityError
from fedfair.identity.files import read_certificate
from fedfair.watching.place import ServedThing, StatusPlace, status_place

PAGE = ServedThing("page", "--listen", "--certificate", "--key", "passphrases would cross the network")


def page_place(text: str, certificate: Path | None, key: Path | None) -> StatusPlace:
    """Return where the page is served, as `status_place` does for a status."""
    return status_place(text, certificate, key, PAGE)


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
