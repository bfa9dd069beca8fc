"""Key, certificate and list files: read with readable faults, written whole and with the right permissions.

Knows file formats and permissions; which file lies where is decided by `store.py` and `authority_store.py`. A file
is written beside its place and renamed, so that a reader never meets half of one; a private key is never readable
by others, not even for the moment between creation and chmod.
"""

from __future__ import annotations

import stat
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.errors import IdentityError
from fedfair.identity.certificate import decode_certificate
from fedfair.identity.revocation import decode_list
from fedfair.store.atomic_file import OWNER_ONLY, READABLE, replace_file

MAX_FILE_BYTES = 4 * 1024 * 1024
"""The longest of these files is a revocation list: about 40 bytes an entry, so room for 100 000."""

CREDENTIAL = "fedfair-passphrase"
"""The name under which systemd hands a service the passphrase of its keys (`LoadCredential=`)."""

PrivateKey = ec.EllipticCurvePrivateKey | Ed25519PrivateKey


def write_public(path: Path, content: bytes) -> None:
    """Write `content` to `path`, readable by all but those whom the umask excludes."""
    _write(path, content, READABLE)


def write_private(path: Path, content: bytes) -> None:
    """Write `content` to `path`, readable by its owner only."""
    _write(path, content, OWNER_ONLY)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [content], mode)


def private_pem(key: PrivateKey, passphrase: bytes | None = None) -> bytes:
    """Return a private key as PKCS #8 PEM, encrypted where a passphrase is given."""
    encryption = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def list_pem(crl: x509.CertificateRevocationList) -> bytes:
    """Return a revocation list as PEM."""
    return crl.public_bytes(serialization.Encoding.PEM)


def read_bytes(path: Path, what: str, remedy: str = "") -> bytes:
    """Return the content of `path`.

    Args:
        path: the file.
        what: what it should hold, for the message.
        remedy: how to come by it where it is missing.

    Raises:
        IdentityError: it is missing, unreadable or far too long.
    """
    try:
        with path.open("rb") as source:
            content = source.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise IdentityError(f"{what} is missing: {path}", remedy) from error
    except OSError as error:
        raise IdentityError(f"{what} cannot be read: {path}: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise IdentityError(f"{what} is longer than {MAX_FILE_BYTES} bytes: {path}")
    return content


def read_certificate(path: Path, what: str, remedy: str = "") -> x509.Certificate:
    """Return the certificate in the PEM file `path`.

    Raises:
        IdentityError: the file is missing or does not begin with a certificate.
    """
    return decode_certificate(read_bytes(path, what, remedy), f"{what}, {path},")


def read_list(path: Path, remedy: str = "") -> x509.CertificateRevocationList:
    """Return the revocation list in the PEM file `path`.

    Raises:
        IdentityError: the file is missing or does not hold a list.
    """
    content = read_bytes(path, "the revocation list", remedy)
    try:
        return decode_list(content)
    except IdentityError as error:
        raise IdentityError(f"{path}: {error.message}", error.remedy) from error


def read_tls_key(
    path: Path, what: str, passphrase: bytes | None = None, remedy: str = ""
) -> ec.EllipticCurvePrivateKey:
    """Return the P-256 private key in `path`.

    Raises:
        IdentityError: the file is missing, encrypted with another passphrase, or holds another kind of key.
    """
    key = _read_private(path, what, passphrase, remedy)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError(f"{what} is not a P-256 key: {path}")
    return key


def read_signing_key(
    path: Path, what: str, passphrase: bytes | None = None, remedy: str = ""
) -> Ed25519PrivateKey:
    """Return the Ed25519 private key in `path`.

    Raises:
        IdentityError: the file is missing, encrypted with another passphrase, or holds another kind of key.
    """
    key = _read_private(path, what, passphrase, remedy)
    if not isinstance(key, Ed25519PrivateKey):
        raise IdentityError(f"{what} is not an Ed25519 key: {path}")
    return key


def _read_private(path: Path, what: str, passphrase: bytes | None, remedy: str) -> object:
    content = read_bytes(path, what, remedy)
    encrypted = is_encrypted(content)
    if encrypted and passphrase is None:
        raise IdentityError(
            f"{what} is encrypted: {path}",
            "give its passphrase: --passphrase-file FILE, or the systemd credential "
            f"{CREDENTIAL!r}, or type it where a terminal asks for it",
        )
    try:
        return serialization.load_pem_private_key(content, passphrase if encrypted else None)
    except (ValueError, TypeError) as error:
        if not encrypted:
            raise IdentityError(
                f"{what} is not a private key in PEM form: {path}",
                "the file is damaged: copy it back from a backup; a new signing key is enrolled in a new plan",
            ) from error
        raise IdentityError(
            f"{what} does not open with this passphrase: {path}",
            "give the passphrase that the key was made with; it is kept nowhere, so nobody can recover a lost one",
        ) from error


def is_encrypted(content: bytes) -> bool:
    """Return whether a private key's PEM is encrypted."""
    return b"ENCRYPTED PRIVATE KEY" in content


def permission_warning(path: Path, what: str) -> str | None:
    """Return a sentence where others than the owner may read the key in `path`, else None."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & (stat.S_IRWXG | stat.S_IRWXO):
        return None
    return f"{what} may be read by others on this machine (mode {mode:04o}): chmod 600 {path}"
