"""The revocation list: certificates that must no longer be accepted although they have not expired.

An X.509 CRL, signed by the authority and carried to every site with each bundle. A list is made together with the
authority, so "no list" never means "none is revoked": a missing, forged or stale list is refused. Otherwise,
anyone who can hide it could undo a revocation. A list is good for 400 days, longer than a certificate, because it
travels by hand and a short period would stop federations rather than intruders. Source: RFC 5280, section 5.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from fedfair.errors import IdentityError
from fedfair.identity.authority import BACKDATE, Authority, authority_key_identifier
from fedfair.identity.certificate import EXPIRY_WARNING, PARSE_FAULTS

LIST_DAYS = 400


def decode_list(content: bytes) -> x509.CertificateRevocationList:
    """Return the revocation list in `content` (PEM), with every field that is looked at later read once.

    Raises:
        IdentityError: it is malformed.
    """
    try:
        crl = x509.load_pem_x509_crl(content)
        _ = crl.extensions, crl.last_update_utc, crl.next_update_utc, crl.signature_hash_algorithm
        list_number(crl)
        revoked_serials(crl)
    except PARSE_FAULTS as error:
        raise IdentityError(f"the revocation list is malformed: {error}", "have it sent again") from error
    return crl


def empty_list(authority: Authority, now: datetime) -> x509.CertificateRevocationList:
    """Return the authority's first list, number 1, which is empty."""
    return _sign(authority, x509.CertificateRevocationListBuilder(), 1, now)


def revoke(
    authority: Authority, crl: x509.CertificateRevocationList, serials: frozenset[int], now: datetime
) -> x509.CertificateRevocationList:
    """Return the next list: all of `crl`, and `serials`.

    Args:
        authority: signs the list; it must have signed `crl` as well.
        crl: the list so far.
        serials: serial numbers to add; empty to sign the same list for another 400 days.
        now: an aware time.

    Raises:
        IdentityError: `crl` was not signed by `authority`, so that adding to it could lose revocations.
    """
    _check_signature(crl, authority.certificate)
    builder = x509.CertificateRevocationListBuilder()
    for entry in crl:
        builder = builder.add_revoked_certificate(entry)
    for serial in sorted(serials - revoked_serials(crl)):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(entry)
    return _sign(authority, builder, list_number(crl) + 1, now)


def revoked_serials(crl: x509.CertificateRevocationList) -> frozenset[int]:
    """Return the serial numbers on the list."""
    return frozenset(entry.serial_number for entry in crl)


def list_number(crl: x509.CertificateRevocationList) -> int:
    """Return the list's number, which grows by one with every list.

    Raises:
        IdentityError: it has none.
    """
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound as error:
        raise IdentityError("the revocation list has no number") from error


def check_list(crl: x509.CertificateRevocationList, ca: x509.Certificate, now: datetime) -> None:
    """Check that `crl` is the authority's and current.

    Raises:
        IdentityError: it is forged, of another authority, from the future, or stale.
    """
    _check_signature(crl, ca)
    end = crl.next_update_utc
    if crl.last_update_utc > now:
        raise IdentityError(
            f"the revocation list begins on {crl.last_update_utc:%Y-%m-%d %H:%M} UTC, "
            f"and it is {now:%Y-%m-%d %H:%M} UTC",
            "set this machine's clock",
        )
    if end is None or end < now:
        raise IdentityError(
            f"the revocation list is stale: it was good until {'never' if end is None else f'{end:%Y-%m-%d}'}",
            "ask the authority's operator for a new one (`fedfair certs revoke --refresh`) and "
            "`fedfair certs install` it",
        )


def check_not_revoked(
    certificate: x509.Certificate, crl: x509.CertificateRevocationList, ca: x509.Certificate, now: datetime
) -> None:
    """Check that `certificate` is not on a valid, current list.

    Raises:
        IdentityError: it is on the list, or the list cannot be relied upon.
    """
    check_list(crl, ca, now)
    entry = crl.get_revoked_certificate_by_serial_number(certificate.serial_number)
    if entry is not None:
        raise IdentityError(
            f"the certificate '{certificate.subject.rfc4514_string()}' was revoked on "
            f"{entry.revocation_date_utc:%Y-%m-%d} (serial {certificate.serial_number:x})",
            "if that is a mistake, request and install a new certificate",
        )


def list_warning(crl: x509.CertificateRevocationList, now: datetime) -> str | None:
    """Return a sentence where the list has at most 30 days left, else None."""
    end = crl.next_update_utc
    if end is None or end - now > EXPIRY_WARNING:
        return None
    return (
        f"the revocation list is good until {end:%Y-%m-%d} only; `fedfair certs revoke --refresh` makes a new one"
    )


def _sign(
    authority: Authority, builder: x509.CertificateRevocationListBuilder, number: int, now: datetime
) -> x509.CertificateRevocationList:
    return (
        builder.issuer_name(authority.certificate.subject)
        .last_update(now - BACKDATE)
        .next_update(now + timedelta(days=LIST_DAYS))
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(authority_key_identifier(authority.certificate), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _check_signature(crl: x509.CertificateRevocationList, ca: x509.Certificate) -> None:
    key = ca.public_key()
    # The issuer's name alone proves nothing; the key decides.
    if not isinstance(key, ec.EllipticCurvePublicKey) or not crl.is_signature_valid(key):
        raise IdentityError(
            f"the revocation list was not signed by the authority '{ca.subject.rfc4514_string()}'",
            "install the list that came with the authority's bundle",
        )
