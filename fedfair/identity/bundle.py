"""The authority's reply to a site: `<name>.certificate.pem`, and its installation.

One PEM file of the site's certificate, the authority's certificate and the present revocation list; or, to bring a
revocation list alone up to date, that list. It holds no secret. The first bundle brings the authority with it, so
its fingerprint has to be compared with the authority's operator; every later one must be of the same authority.

A revocation list that the aggregator carried is taken as one that came by hand.
The aggregator states nothing here: the authority has signed the list, and its number is part of what is signed. So
whoever carries it can only withhold it. An older list is refused, because it would take revocations back; numbers
may be missing, because every list is whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fedfair.errors import IdentityError
from fedfair.identity import files, store
from fedfair.identity.authority import check_authority
from fedfair.identity.certificate import PARSE_FAULTS, decode_certificate, fingerprint, grouped
from fedfair.identity.files import list_pem, write_public
from fedfair.identity.revocation import check_list, decode_list, list_number
from fedfair.identity.store import REVOCATION_LIST, Trust, load_authority_and_list, trust_folder

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a bundle, not yet checked against anything.

    Attributes:
        certificate: the site's; None where the file is a revocation list alone.
        ca: the authority's; None where the file is a revocation list alone.
        crl: the revocation list.
    """

    certificate: x509.Certificate | None
    ca: x509.Certificate | None
    crl: x509.CertificateRevocationList


def make_bundle(certificate: x509.Certificate, trust: store.Trust) -> bytes:
    """Return the content of a bundle."""
    return files.certificate_pem(certificate) + files.certificate_pem(trust.ca) + files.list_pem(trust.crl)


def read_bundle(path: Path) -> Bundle:
    """Return what the file `path` holds.

    Raises:
        IdentityError: it is not a bundle.
    """
    return parse_bundle(files.read_bytes(path, "the bundle"), str(path))


def parse_bundle(content: bytes, source: str) -> Bundle:
    """Return a bundle that was read already.

    Args:
        content: of the file.
        source: its name, for people.

    Raises:
        IdentityError: it is not a bundle.
    """
    blocks = [(match[1], match[0]) for match in _BLOCK.finditer(content)]
    match blocks:
        case [(b"X509 CRL", crl)]:
            return Bundle(None, None, decode_list(crl))
        case [(b"CERTIFICATE", leaf), (b"CERTIFICATE", ca), (b"X509 CRL", crl)]:
            return Bundle(
                decode_certificate(leaf, "the certificate in the bundle"),
                decode_certificate(ca, "the authority's certificate in the bundle"),
                decode_list(crl),
            )
    raise IdentityError(
        f"{source} is neither a bundle nor a revocation list",
        "install the file <name>.certificate.pem that `fedfair certs sign` wrote, or the authority's revoked.crl",
    )


def check_bundle(cert_folder: Path, bundle: Bundle, now: datetime, passphrase: bytes | None = None) -> store.Trust:
    """Check a bundle against what is installed; nothing is written.

    Args:
        cert_folder: the workspace's `cert` folder.
        bundle: as read.
        now: an aware time.
        passphrase: of encrypted keys.

    Returns:
        The trust that installing it would lead to.

    Raises:
        IdentityError: another authority than the installed one, an older list than the installed one, a list or
            certificate that does not verify, or a certificate for which there is no key here.
    """
    installed = installed_authority(cert_folder)
    ca = bundle.ca or installed
    if ca is None:
        raise IdentityError(
            "this workspace knows no authority yet, so a revocation list alone cannot be checked",
            "install this site's own bundle first",
        )
    if installed is not None and ca != installed:
        raise IdentityError(
            f"the bundle comes from the authority {grouped(fingerprint(ca))}, this workspace trusts "
            f"{grouped(fingerprint(installed))}",
            "if the consortium has really made a new authority, move the old ca.crt and revoked.crl away first",
        )
    check_authority(ca, now)
    check_list(bundle.crl, ca, now)
    _check_not_older(cert_folder, bundle.crl)
    if bundle.certificate is not None:
        store.check_certificate(bundle.certificate, store.Trust(ca, bundle.crl), now)
        store.owned_key(cert_folder, bundle.certificate, passphrase)
    return store.Trust(ca, bundle.crl)


def install_bundle(
    cert_folder: Path, bundle: Bundle, now: datetime, passphrase: bytes | None = None
) -> store.Trust:
    """Check a bundle and put every part of it in its place.

    Args:
        cert_folder: the workspace's `cert` folder.
        bundle: as read.
        now: an aware time.
        passphrase: of encrypted keys.

    Returns:
        The trust that is now installed.

    Raises:
        IdentityError: as `check_bundle`; nothing was written.
    """
    trust = check_bundle(cert_folder, bundle, now, passphrase)
    if store.trust_folder(cert_folder) == cert_folder:
        # Where the authority itself is kept, its own files are the newest there are.
        files.write_public(cert_folder / store.CA_CERTIFICATE, files.certificate_pem(trust.ca))
        files.write_public(cert_folder / store.REVOCATION_LIST, files.list_pem(trust.crl))
    if bundle.certificate is not None:
        store.install_certificate(cert_folder, bundle.certificate, passphrase)
    return trust


def installed_authority(cert_folder: Path) -> x509.Certificate | None:
    """Return the authority that this workspace trusts already, or None before the first bundle."""
    path = store.trust_folder(cert_folder) / store.CA_CERTIFICATE
    return files.read_certificate(path, "the authority's certificate") if path.exists() else None


def _check_not_older(cert_folder: Path, crl: x509.CertificateRevocationList) -> None:
    path = store.trust_folder(cert_folder) / store.REVOCATION_LIST
    if not path.exists():
        return
    present = list_number(files.read_list(path))
    # An old list, though genuine, would take later revocations back.
    if list_number(crl) < present:
        raise IdentityError(
            f"the bundle's revocation list is number {list_number(crl)}, this workspace has number {present}",
            "ask the authority's operator for the current list",
        )


def carried_list(trust: Trust) -> bytes:
    """Return the present revocation list as it travels: in DER."""
    return trust.crl.public_bytes(serialization.Encoding.DER)


def newer_list(cert_folder: Path, content: bytes, now: datetime) -> Trust | None:
    """Return the trust that a carried list leads to; None where it is the installed one. Nothing is written.

    Args:
        cert_folder: the workspace's `cert` folder.
        content: as it travelled.
        now: an aware time.

    Raises:
        IdentityError: it is malformed, not the authority's, stale, or older than the installed one; or another one
            of the same number, which no honest authority signs.
    """
    installed = load_authority_and_list(cert_folder)
    crl = _decoded(content)
    if crl.tbs_certlist_bytes == installed.crl.tbs_certlist_bytes:
        return None
    check_list(crl, installed.ca, now)
    number, present = list_number(crl), list_number(installed.crl)
    if number < present:
        raise IdentityError(
            f"the list that the aggregator carries is number {number}, this site has number {present}",
            "an older list would take revocations back; the aggregator's operator installs the current one",
        )
    if number == present:
        raise IdentityError(
            f"the list that the aggregator carries has number {number} like this site's, but says something else",
            "the authority has signed two lists of one number; ask its operator, who signs the next one with "
            "`fedfair certs revoke --refresh`",
        )
    return Trust(installed.ca, crl)


def keep_list(cert_folder: Path, crl: x509.CertificateRevocationList) -> None:
    """Put a checked list in the place of the installed one.

    Raises:
        IdentityError: this folder keeps the authority itself, whose own list is the newest there can be.
        OSError: the file cannot be written.
    """
    if trust_folder(cert_folder) != cert_folder:
        raise IdentityError(
            f"the list number {list_number(crl)} is newer than the one of the authority that this folder keeps",
            "an older copy of the authority's folder was restored; restore the newest one",
        )
    write_public(cert_folder / REVOCATION_LIST, list_pem(crl))


def _decoded(content: bytes) -> x509.CertificateRevocationList:
    try:
        return decode_list(list_pem(x509.load_der_x509_crl(content)))
    except PARSE_FAULTS as error:
        raise IdentityError(f"the list that the aggregator carries is malformed: {error}") from error
