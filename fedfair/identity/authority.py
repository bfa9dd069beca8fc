"""The federation's own certificate authority: creates itself and signs verified requests.

Decides every field of a certificate: subject, names, usages and serial are chosen here, and nothing that a request
asks for is copied but its public key. One level: the authority signs participants directly (path length 0). Where
its files lie is `authority_store.py`'s business, the revocation list is `revocation.py`'s. Source: RFC 5280,
section 4.2; the CA/Browser Forum's baseline requirements for serial numbers (at least 64 random bits).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedfair.errors import IdentityError
from fedfair.identity.certificate import Role, check_issued_by, check_validity
from fedfair.identity.request import SiteRequest
from fedfair.ids import FederationName, parse_federation_name

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
BACKDATE = timedelta(minutes=5)
"""Certificates begin this long before they are made: clocks of two institutions differ by minutes."""

_HOST_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")
_USAGE = {
    Role.COLLABORATOR: ExtendedKeyUsageOID.CLIENT_AUTH,
    Role.AGGREGATOR: ExtendedKeyUsageOID.SERVER_AUTH,
}


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that can sign: its own certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def federation(self) -> FederationName:
        """The one federation that this authority signs for."""
        return federation_of(self.certificate)


def create_authority(federation: FederationName, now: datetime, days: int = AUTHORITY_DAYS) -> Authority:
    """Return a new authority with a P-256 key.

    Args:
        federation: whom it signs for.
        now: an aware time.
        days: validity, at least 1.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(federation, f"{federation} authority")
    builder = _dated(x509.CertificateBuilder(), now, days).subject_name(subject).issuer_name(subject)
    builder = (
        builder.public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def federation_of(ca: x509.Certificate) -> FederationName:
    """Return the federation that the authority's certificate belongs to.

    Raises:
        IdentityError: the certificate is not one of an authority made by `create_authority`.
    """
    try:
        is_authority = ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    names = ca.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    if not is_authority or len(names) != 1:
        raise IdentityError(
            f"'{ca.subject.rfc4514_string()}' is not the certificate of a federation's authority",
            "use the ca.crt that `fedfair certs authority` made",
        )
    return parse_federation_name(str(names[0].value))


def check_authority(ca: x509.Certificate, now: datetime) -> None:
    """Check that `ca` is a whole and valid certificate of an authority; whether of the right one, people decide.

    Raises:
        IdentityError: it is not an authority's, was changed, or is not valid at `now`.
    """
    federation_of(ca)
    # Nothing above an authority vouches for it, but its own signature shows that no field was changed.
    check_issued_by(ca, ca)
    check_validity(ca, now, "the authority's certificate")


def sign_request(
    authority: Authority,
    request: SiteRequest,
    *,
    hosts: Sequence[str],
    now: datetime,
    days: int = CERTIFICATE_DAYS,
) -> x509.Certificate:
    """Return a certificate for the site that made `request`.

    Args:
        authority: signs.
        request: verified, and its fingerprint compared by two people.
        hosts: names or IP addresses under which collaborators reach the aggregator; none for a collaborator.
        now: an aware time.
        days: validity, at least 1, not beyond the authority's own.

    Raises:
        IdentityError: another federation, hosts that do not fit the role, or a validity beyond the authority's.
    """
    _check_signable(authority, request, hosts, now, days)
    issuer = authority.certificate
    builder = _dated(x509.CertificateBuilder(), now, days).issuer_name(issuer.subject)
    builder = (
        builder.subject_name(_subject(request.federation, request.name))
        .public_key(request.csr.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USAGE[request.role]]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.UniformResourceIdentifier(request.participant.uri), *map(_host_name, hosts)]
            ),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(request.csr.public_key()), critical=False)
        .add_extension(authority_key_identifier(issuer), critical=False)
    )
    return builder.sign(authority.key, hashes.SHA256())


def authority_key_identifier(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Return the extension by which what `ca` signs names the key that signed it."""
    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _check_signable(
    authority: Authority, request: SiteRequest, hosts: Sequence[str], now: datetime, days: int
) -> None:
    if request.federation != authority.federation:
        raise IdentityError(
            f"the request of {request.name} is for the federation '{request.federation}', "
            f"this authority signs for '{authority.federation}'"
        )
    if request.role is Role.AGGREGATOR and not hosts:
        raise IdentityError(
            "the aggregator's certificate must name the hosts under which collaborators reach it",
            "add --host agg.example.org, once for each name or IP address",
        )
    if request.role is Role.COLLABORATOR and hosts:
        raise IdentityError(
            f"{request.name} is a collaborator: it opens connections and needs no host name",
            "omit --host",
        )
    left = (authority.certificate.not_valid_after_utc - now).days
    if not 1 <= days <= left:
        raise IdentityError(
            f"a validity of {days} days is not within 1 and {left}, the days that the authority itself has left",
            "choose --days accordingly",
        )


def _subject(federation: str, name: str) -> x509.Name:
    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation)
    return x509.Name([organisation, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _dated(builder: x509.CertificateBuilder, now: datetime, days: int) -> x509.CertificateBuilder:
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        # Not an address, so it has to be a host name.
        labels = host.split(".")
    if len(host) > 253 or not all(_HOST_LABEL.fullmatch(label) for label in labels):
        raise IdentityError(
            f"--host {host!r} is neither an IP address nor a host name in lower case",
            "give it as collaborators will write it in the plan, without a port, such as agg.example.org",
        )
    return x509.DNSName(host)
