"""Stores the authority, and does everything to its own files.

    cert/authority/ca.key       P-256; encrypted where a passphrase was given
    cert/authority/ca.crt       goes to every site, in each bundle
    cert/authority/revoked.crl  likewise; replaced whole by every revocation
    cert/authority/issued.jsonl the register (`register.py`)

Nothing here decides what may be signed: that is `authority.py`, and the person who compared the fingerprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509

from fedfair.errors import IdentityError
from fedfair.identity import files, register, revocation
from fedfair.identity.authority import (
    CERTIFICATE_DAYS,
    Authority,
    check_authority,
    create_authority,
    sign_request,
)
from fedfair.identity.certificate import Role, parse_participant
from fedfair.identity.request import SiteRequest, parse_request
from fedfair.identity.store import (
    AUTHORITY_FOLDER,
    CA_CERTIFICATE,
    REVOCATION_LIST,
    create_site,
    install_certificate,
)
from fedfair.ids import FederationName

CA_KEY = "ca.key"
REGISTER = "issued.jsonl"

_CREATE = "create it with `fedfair certs authority`, or run this where it is kept"


def found_authority(
    cert_folder: Path, federation: FederationName, now: datetime, passphrase: bytes | None
) -> Authority:
    """Create an authority with an empty revocation list in cert/authority/.

    Raises:
        IdentityError: there is one already; it is left alone.
    """
    folder = cert_folder / AUTHORITY_FOLDER
    taken = [name for name in (CA_KEY, CA_CERTIFICATE, REGISTER) if (folder / name).exists()]
    if taken:
        raise IdentityError(
            f"there is an authority already: {folder / taken[0]}",
            "a second one would make every certificate of the first useless; to start again, move the folder away",
        )
    authority = create_authority(federation, now)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.write_private(folder / CA_KEY, files.private_pem(authority.key, passphrase))
    files.write_public(folder / REVOCATION_LIST, files.list_pem(revocation.empty_list(authority, now)))
    files.write_public(folder / CA_CERTIFICATE, files.certificate_pem(authority.certificate))
    return authority


def load_authority(cert_folder: Path, now: datetime, passphrase: bytes | None) -> Authority:
    """Return the authority that is kept in cert/authority/.

    Raises:
        IdentityError: it is missing, expired, does not open with the passphrase, or its key is another's.
    """
    folder = cert_folder / AUTHORITY_FOLDER
    certificate = files.read_certificate(folder / CA_CERTIFICATE, "the authority's certificate", _CREATE)
    check_authority(certificate, now)
    key = files.read_tls_key(folder / CA_KEY, "the authority's key", passphrase, _CREATE)
    if certificate.public_key() != key.public_key():
        raise IdentityError(
            f"in {folder}, {CA_KEY} is not the key of {CA_CERTIFICATE}", "restore both from a copy"
        )
    return Authority(certificate, key)


def load_register(cert_folder: Path) -> list[register.Issued]:
    """Return what the authority has signed so far, oldest first."""
    return register.read(cert_folder / AUTHORITY_FOLDER / REGISTER)


def issue(
    cert_folder: Path,
    authority: Authority,
    request: SiteRequest,
    *,
    hosts: Sequence[str],
    now: datetime,
    days: int,
) -> x509.Certificate:
    """Sign a request and write it into the register, before anybody can use the certificate.

    Args:
        cert_folder: the workspace's `cert` folder.
        authority: signs.
        request: verified, and its fingerprint compared by two people.
        hosts: as for `sign_request`; empty takes the aggregator's hosts over from its previous certificate.
        now: an aware time.
        days: validity.

    Raises:
        IdentityError: the authority refuses; nothing was written.
    """
    previous = register.latest_of(load_register(cert_folder), request.name)
    if not hosts and previous is not None and request.role is Role.AGGREGATOR:
        hosts = previous.hosts
    certificate = sign_request(authority, request, hosts=hosts, now=now, days=days)
    path = cert_folder / AUTHORITY_FOLDER / REGISTER
    register.append(path, register.entry(certificate, request, hosts))
    return certificate


def make_identity(
    cert_folder: Path, authority: Authority, name: str, *, hosts: Sequence[str] = (), now: datetime
) -> SiteRequest:
    """Make keys and certificate of a participant in the folder that holds the authority too; return its request.

    Args:
        cert_folder: the workspace's `cert` folder, with cert/authority/.
        authority: that signs.
        name: of the participant.
        hosts: names or addresses of the aggregator; empty for a collaborator.
        now: an aware time.

    Raises:
        IdentityError: the name is unusable, or the folder holds keys of it already.
    """
    asked = parse_request(create_site(cert_folder, parse_participant(authority.federation, name)))
    days = CERTIFICATE_DAYS
    install_certificate(cert_folder, issue(cert_folder, authority, asked, hosts=hosts, now=now, days=days))
    return asked


def revoke(cert_folder: Path, authority: Authority, serials: frozenset[int], now: datetime) -> None:
    """Put certificates on the list and sign it again; with no serials, only sign it again.

    Raises:
        IdentityError: the present list is missing or not the authority's.
    """
    path = cert_folder / AUTHORITY_FOLDER / REVOCATION_LIST
    crl = revocation.revoke(authority, files.read_list(path, "restore it from a copy"), serials, now)
    files.write_public(path, files.list_pem(crl))
