"""Stores a site's keys and certificates; reads and checks them together.

    cert/ca.crt, cert/revoked.crl                     trust, at a site that does not hold the authority
    cert/authority/{ca.crt,ca.key,revoked.crl,...}    trust, where the authority is kept (`authority_store.py`)
    cert/<name>/{tls.key,tls.crt}                     P-256, of the connection; renewed every year
    cert/<name>/{signing.key,signing.pub}             Ed25519, of the participant; pinned in the plan
    cert/<name>/tls.next.key                          only while a renewal waits for the authority

Private keys are written for their owner only, and read by others only under protest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.errors import IdentityError, RenewableIdentityError
from fedfair.identity import files
from fedfair.identity.authority import check_authority, federation_of
from fedfair.identity.certificate import (
    CertifiedParticipant,
    check_issued_by,
    check_validity,
    expiry_warning,
    participant_of,
)
from fedfair.identity.request import make_request
from fedfair.identity.revocation import check_list, check_not_revoked, list_warning
from fedfair.identity.signing import format_signing_key

AUTHORITY_FOLDER = "authority"
CA_CERTIFICATE = "ca.crt"
REVOCATION_LIST = "revoked.crl"
TLS_KEY = "tls.key"
NEXT_TLS_KEY = "tls.next.key"
TLS_CERTIFICATE = "tls.crt"
SIGNING_KEY = "signing.key"
SIGNING_PUBLIC_KEY = "signing.pub"

_INSTALL = "install the bundle that the authority sent back: `fedfair certs install BUNDLE`"


@dataclass(frozen=True, slots=True)
class Trust:
    """The authority that certificates are checked against, and its revocation list."""

    ca: x509.Certificate
    crl: x509.CertificateRevocationList


@dataclass(frozen=True, slots=True)
class SiteIdentity:
    """Everything that one participant needs to show who it is, checked to belong together.

    Attributes:
        folder: where its files are.
        participant: federation and name, from the certificate.
        certificate: of the TLS key, valid, signed by the authority, not revoked.
        tls_key: P-256.
        signing_key: Ed25519; its public half is pinned in the plan.
        trust: whom this site trusts.
        warnings: sentences about what is still right but not for long, or not safe.
    """

    folder: Path
    participant: CertifiedParticipant
    certificate: x509.Certificate
    tls_key: ec.EllipticCurvePrivateKey
    signing_key: Ed25519PrivateKey
    trust: Trust
    warnings: tuple[str, ...]


def trust_folder(cert_folder: Path) -> Path:
    """Return the folder that holds the authority's certificate and list: cert/authority/ where it exists."""
    authority = cert_folder / AUTHORITY_FOLDER
    return authority if (authority / CA_CERTIFICATE).exists() else cert_folder


def load_authority_and_list(cert_folder: Path) -> Trust:
    """Return the authority and its revocation list as they are installed, whether they are current or not.

    Raises:
        IdentityError: a file is missing or malformed.
    """
    folder = trust_folder(cert_folder)
    ca = files.read_certificate(folder / CA_CERTIFICATE, "the authority's certificate", _INSTALL)
    return Trust(ca, files.read_list(folder / REVOCATION_LIST, _INSTALL))


def load_trust(cert_folder: Path, now: datetime) -> Trust:
    """Return the authority and its revocation list; cheap enough to be called for every connection.

    Raises:
        IdentityError: a file is missing, the authority has expired, or the list is forged or stale.
    """
    folder = trust_folder(cert_folder)
    ca = files.read_certificate(folder / CA_CERTIFICATE, "the authority's certificate", _INSTALL)
    check_authority(ca, now)
    crl = files.read_list(folder / REVOCATION_LIST, _INSTALL)
    check_list(crl, ca, now)
    return Trust(ca, crl)


def lost_key_remedy(name: str) -> str:
    """Return what to do where a key of a participant is not there."""
    return (
        f"at first, make one: `fedfair certs request -n {name}`, and send the request; where the plan pins a key "
        "of it, restore the folder from a backup: a new key is in nobody's roster, so the lead would have to "
        "pin it (`fedfair admit --replace`) and every site to approve the plan again"
    )


def load_signing_key(cert_folder: Path, name: str, passphrase: bytes | None = None) -> Ed25519PrivateKey:
    """Return the signing key of participant `name`.

    Raises:
        IdentityError: there is none, it does not open with the passphrase, or it is not an Ed25519 key.
    """
    path, remedy = cert_folder / name / SIGNING_KEY, lost_key_remedy(name)
    return files.read_signing_key(path, f"the signing key of {name}", passphrase, remedy)


def has_encrypted_key(cert_folder: Path, name: str) -> bool:
    """Return whether a passphrase is needed to read the keys of participant `name`."""
    paths = (cert_folder / name / key for key in (SIGNING_KEY, TLS_KEY, NEXT_TLS_KEY))
    return any(files.is_encrypted(files.read_bytes(path, "a key")) for path in paths if path.exists())


def load_site_identity(
    cert_folder: Path, name: str, now: datetime, passphrase: bytes | None = None
) -> SiteIdentity:
    """Return the identity of `name`, with every part checked against the others.

    Args:
        cert_folder: the workspace's `cert` folder.
        name: a collaborator's name, or "aggregator".
        now: an aware time.
        passphrase: of encrypted keys; others are read without it.

    Raises:
        RenewableIdentityError: the certificate has expired, or the key beside it is of another one.
        IdentityError: a file is missing or malformed, a key does not open, the certificate names somebody else, is
            not the authority's, or was revoked.
    """
    folder = cert_folder / name
    signing_key = load_signing_key(cert_folder, name, passphrase)
    tls_key = files.read_tls_key(folder / TLS_KEY, f"the TLS key of {name}", passphrase, lost_key_remedy(name))
    certificate = files.read_certificate(folder / TLS_CERTIFICATE, f"the certificate of {name}", _INSTALL)
    # Before the list, which is often stale by then too: a new list alone would not help.
    check_validity(certificate, now, f"the certificate of {name}")
    trust = load_trust(cert_folder, now)
    participant = check_certificate(certificate, trust, now)
    if participant.name != name:
        raise IdentityError(f"the certificate in {folder} is for {participant.name}, not for {name}")
    if certificate.public_key() != tls_key.public_key():
        raise RenewableIdentityError(
            f"the certificate in {folder} does not belong to the key {TLS_KEY} beside it",
            "install the bundle of the latest request, or make a new request",
        )
    warnings = _warnings(folder, certificate, trust, now)
    return SiteIdentity(folder, participant, certificate, tls_key, signing_key, trust, warnings)


def check_pinned(identity: SiteIdentity, pinned: Ed25519PublicKey) -> None:
    """Refuse a signing key that is not the one that a plan pins, before anything that it signed is blamed.

    Raises:
        IdentityError: the file holds another key.
    """
    if identity.signing_key.public_key() == pinned:
        return
    name = identity.participant.name
    raise IdentityError(
        f"the signing key of {name} in {identity.folder / SIGNING_KEY} is not the one that the plan pins for "
        f"{name}: the file is damaged, or another key",
        f"copy {SIGNING_KEY} back from a backup; without one, have the lead enroll a new key in a new plan",
    )


def check_certificate(certificate: x509.Certificate, trust: Trust, now: datetime) -> CertifiedParticipant:
    """Return whom a certificate names after checking all that can be checked without a connection.

    Raises:
        IdentityError: another authority or federation, expired, revoked, or it names no participant.
    """
    check_issued_by(certificate, trust.ca)
    participant = participant_of(certificate)
    if participant.federation != federation_of(trust.ca):
        raise IdentityError(
            f"the certificate of {participant.uri} was signed by the authority of '{federation_of(trust.ca)}'"
        )
    check_validity(certificate, now, f"the certificate of {participant.name}")
    check_not_revoked(certificate, trust.crl, trust.ca, now)
    return participant


def _warnings(folder: Path, certificate: x509.Certificate, trust: Trust, now: datetime) -> tuple[str, ...]:
    found = (
        expiry_warning(certificate, now, "this site's certificate"),
        expiry_warning(trust.ca, now, "the authority's certificate"),
        list_warning(trust.crl, now),
        files.permission_warning(folder / TLS_KEY, "the TLS key"),
        files.permission_warning(folder / SIGNING_KEY, "the signing key"),
    )
    return tuple(warning for warning in found if warning is not None)


def create_site(cert_folder: Path, participant: CertifiedParticipant, passphrase: bytes | None = None) -> bytes:
    """Make both keys of a participant, encrypted where a passphrase is given, and return its request.

    Raises:
        IdentityError: the participant has keys already; they are left alone.
    """
    folder = cert_folder / participant.name
    if (folder / SIGNING_KEY).exists() or (folder / TLS_KEY).exists():
        raise IdentityError(
            f"{participant.name} has keys already, in {folder}",
            "for a new certificate use `fedfair certs renew`; to start again, move that folder away first",
        )
    tls_key, signing_key = ec.generate_private_key(ec.SECP256R1()), Ed25519PrivateKey.generate()
    request = make_request(participant, tls_key, signing_key)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.write_private(folder / TLS_KEY, files.private_pem(tls_key, passphrase))
    files.write_private(folder / SIGNING_KEY, files.private_pem(signing_key, passphrase))
    files.write_public(
        folder / SIGNING_PUBLIC_KEY, f"{format_signing_key(signing_key.public_key())}\n".encode("ascii")
    )
    return request


def renew_site(cert_folder: Path, name: str, passphrase: bytes | None = None) -> bytes:
    """Make the next TLS key of a participant and return its request; the present pair stays in use meanwhile.

    The new key is encrypted where a passphrase is given.

    Raises:
        IdentityError: the participant has no certificate yet, or its files cannot be read.
    """
    folder = cert_folder / name
    signing_key = load_signing_key(cert_folder, name, passphrase)
    certificate = files.read_certificate(folder / TLS_CERTIFICATE, f"the certificate of {name}", _INSTALL)
    participant = participant_of(certificate)
    if participant.name != name:
        raise IdentityError(f"the certificate in {folder} is for {participant.name}, not for {name}")
    tls_key = ec.generate_private_key(ec.SECP256R1())
    request = make_request(participant, tls_key, signing_key)
    files.write_private(folder / NEXT_TLS_KEY, files.private_pem(tls_key, passphrase))
    return request


def encrypt_keys(cert_folder: Path, name: str, new: bytes, old: bytes | None = None) -> tuple[Path, ...]:
    """Encrypt the private keys of a participant with a passphrase, in place; return which.

    An interruption leaves some keys as they were. The same call again does the rest.

    Args:
        cert_folder: the workspace's `cert` folder.
        name: a collaborator's name, or "aggregator".
        new: the passphrase from now on.
        old: of keys that are encrypted.

    Raises:
        IdentityError: there is no signing key, or a key opens neither with the old nor with the new passphrase;
            then every key is as it was.
    """
    folder = cert_folder / name
    keys = {folder / SIGNING_KEY: _either(old, new, lambda secret: load_signing_key(cert_folder, name, secret))}
    for path in (folder / TLS_KEY, folder / NEXT_TLS_KEY):
        if path.exists():
            keys[path] = _either(old, new, partial(files.read_tls_key, path, f"the TLS key of {name}"))
    for path, key in keys.items():
        files.write_private(path, files.private_pem(key, new))
    return tuple(keys)


def _either(old: bytes | None, new: bytes, read: Callable[[bytes | None], files.PrivateKey]) -> files.PrivateKey:
    try:
        return read(new)
    except IdentityError:
        return read(old)


def find_key(cert_folder: Path, certificate: x509.Certificate, passphrase: bytes | None = None) -> Path | None:
    """Return the TLS key file of the participant that `certificate` names and belongs to, or None.

    Raises:
        IdentityError: a key there does not open with the passphrase.
    """
    folder = cert_folder / participant_of(certificate).name
    for filename in (NEXT_TLS_KEY, TLS_KEY):
        path = folder / filename
        if not path.exists():
            continue
        if files.read_tls_key(path, "the TLS key", passphrase).public_key() == certificate.public_key():
            return path
    return None


def owned_key(cert_folder: Path, certificate: x509.Certificate, passphrase: bytes | None = None) -> Path:
    """Return the TLS key file that `certificate` belongs to.

    Raises:
        IdentityError: no key in the participant's folder belongs to the certificate.
    """
    key = find_key(cert_folder, certificate, passphrase)
    if key is None:
        raise IdentityError(
            f"no key in {cert_folder / participant_of(certificate).name} belongs to this certificate",
            "install it on the machine, and in the workspace, where its request was made",
        )
    return key


def install_certificate(cert_folder: Path, certificate: x509.Certificate, passphrase: bytes | None = None) -> None:
    """Put a checked certificate beside its key, and put a waiting renewal's key in use.

    Args:
        cert_folder: the workspace's `cert` folder.
        certificate: passed `check_certificate`.
        passphrase: of encrypted keys.

    Raises:
        IdentityError: no key in the participant's folder belongs to the certificate.
    """
    key = owned_key(cert_folder, certificate, passphrase)
    # An interruption between the two steps is mended by installing the same certificate again.
    key.replace(key.parent / TLS_KEY)
    files.write_public(key.parent / TLS_CERTIFICATE, files.certificate_pem(certificate))
