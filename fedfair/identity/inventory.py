"""Lists a `cert` folder item by item, with what is or will soon be wrong: for people, and as JSON.

Reads and checks, changes nothing, and continues after a fault: a list of certificates in which one is broken is
most useful exactly then.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

from fedfair.errors import IdentityError
from fedfair.identity import store
from fedfair.identity.authority_store import CA_KEY, load_register
from fedfair.identity.certificate import check_validity, expiry_warning, fingerprint
from fedfair.identity.files import permission_warning, read_bytes, read_certificate
from fedfair.identity.register import Issued
from fedfair.identity.revocation import list_warning

GOOD = "good"


@dataclass(frozen=True, slots=True)
class InventoryItem:
    """One certificate, or the place of one.

    Attributes:
        name: of the participant, or "authority".
        where: the file, or "register" for a certificate that was signed here for another place.
        not_after: its end, aware; None where there is no certificate.
        fingerprint: SHA-256 of the certificate in hexadecimal, or "".
        signing_key: "ed25519:<base64>", or "".
        serial: in hexadecimal, or "".
        status: "good", or what is wrong.
        warnings: what is not wrong but needs somebody's attention.
    """

    name: str
    where: str
    not_after: datetime | None
    fingerprint: str
    signing_key: str
    serial: str
    status: str
    warnings: tuple[str, ...]


def take_inventory(cert_folder: Path, now: datetime) -> list[InventoryItem]:
    """Return everything in `cert_folder`: the authority, the participants, and what was signed for others.

    Raises:
        IdentityError: there is nothing there.
    """
    authority = store.trust_folder(cert_folder) / store.CA_CERTIFICATE
    names = [path.parent.name for path in sorted(cert_folder.glob(f"*/{store.SIGNING_PUBLIC_KEY}"))]
    if not names and not authority.exists():
        raise IdentityError(
            f"there are no certificates in {cert_folder}",
            "begin with `fedfair certs authority`, or at a site with `fedfair certs request`",
        )
    try:
        trust: store.Trust | IdentityError = store.load_trust(cert_folder, now)
    except IdentityError as error:
        trust = error
    items = [_authority(authority, trust, now)] if authority.exists() else []
    items += [_site(cert_folder / name, name, trust, now) for name in names]
    here = {item.serial for item in items}
    listed = [_elsewhere(issued, trust, now) for issued in load_register(cert_folder)]
    return items + [item for item in listed if item.serial not in here]


def _authority(path: Path, trust: store.Trust | IdentityError, now: datetime) -> InventoryItem:
    certificate = read_certificate(path, "the authority's certificate")
    key = path.parent / CA_KEY
    warnings = [expiry_warning(certificate, now, "the authority's certificate")]
    if isinstance(trust, store.Trust):
        warnings.append(list_warning(trust.crl, now))
    if key.exists():
        warnings.append(permission_warning(key, "the authority's key"))
    return _item(
        "authority", path, certificate, "", GOOD if isinstance(trust, store.Trust) else trust.message, warnings
    )


def _site(folder: Path, name: str, trust: store.Trust | IdentityError, now: datetime) -> InventoryItem:
    signing_key = (
        read_bytes(folder / store.SIGNING_PUBLIC_KEY, "the public signing key").decode("ascii", "replace").strip()
    )
    path = folder / store.TLS_CERTIFICATE
    if not path.exists():
        return InventoryItem(name, str(path), None, "", signing_key, "", "waiting for its certificate", ())
    try:
        certificate = read_certificate(path, f"the certificate of {name}")
    except IdentityError as error:
        return InventoryItem(name, str(path), None, "", signing_key, "", error.message, ())
    warnings = [expiry_warning(certificate, now, "the certificate")]
    warnings += [
        permission_warning(folder / key, "the key")
        for key in (store.TLS_KEY, store.SIGNING_KEY)
        if (folder / key).exists()
    ]
    if (folder / store.NEXT_TLS_KEY).exists():
        warnings.append("a renewal waits for its certificate")
    return _item(name, path, certificate, signing_key, _status(certificate, trust, now), warnings)


def _status(certificate: x509.Certificate, trust: store.Trust | IdentityError, now: datetime) -> str:
    try:
        if isinstance(trust, IdentityError):
            check_validity(certificate, now, "the certificate")
            return f"cannot be checked: {trust.message}"
        store.check_certificate(certificate, trust, now)
    except IdentityError as error:
        return error.message
    return GOOD


def _elsewhere(issued: Issued, trust: store.Trust | IdentityError, now: datetime) -> InventoryItem:
    place, status = f"{store.AUTHORITY_FOLDER} register", _register_status(issued, trust, now)
    about = (issued.not_after, issued.fingerprint, issued.signing_key, f"{issued.serial:x}")
    return InventoryItem(issued.name, place, *about, status, ())


def _register_status(issued: Issued, trust: store.Trust | IdentityError, now: datetime) -> str:
    known = None if isinstance(trust, IdentityError) else trust.crl
    if known is not None and known.get_revoked_certificate_by_serial_number(issued.serial) is not None:
        return "revoked"
    return "expired" if issued.not_after < now else GOOD


def _item(
    name: str, path: Path, certificate: x509.Certificate, signing_key: str, status: str, warnings: list[str | None]
) -> InventoryItem:
    return InventoryItem(
        name=name,
        where=str(path),
        not_after=certificate.not_valid_after_utc,
        fingerprint=fingerprint(certificate).hex(),
        signing_key=signing_key,
        serial=f"{certificate.serial_number:x}",
        status=status,
        warnings=tuple(warning for warning in warnings if warning is not None),
    )
