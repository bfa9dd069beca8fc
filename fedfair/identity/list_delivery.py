"""Takes a revocation list that the aggregator carried, as `fedfair certs install` takes one that came by hand.

The aggregator states nothing here: the authority has signed the list, and its number is part of what is signed. So
whoever carries it can only withhold it. An older list is refused, because it would take revocations back; numbers
may be missing, because every list is whole.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fedfair.errors import IdentityError
from fedfair.identity.certificate import PARSE_FAULTS
from fedfair.identity.files import list_pem, write_public
from fedfair.identity.revocation import check_list, decode_list, list_number
from fedfair.identity.store import REVOCATION_LIST, Trust, load_authority_and_list, trust_folder


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
