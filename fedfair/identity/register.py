"""The authority's register of what it has signed: one JSON line per certificate, only ever appended to.

It says whom a serial number belongs to, so that people can revoke by name, and which signing key a name was given
out with, so that a request under an old name with a new key is noticed. It is a record, not a source of trust.

    {"serial": "5f..", "name": "clinic-a", "role": "collaborator", "hosts": [],
     "not_after": "2027-01-31T12:00:00+00:00", "fingerprint": "<SHA-256 of the certificate, hex>",
     "signing_key": "ed25519:..."}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

from fedfair.errors import IdentityError
from fedfair.identity.certificate import fingerprint
from fedfair.identity.files import read_bytes
from fedfair.identity.request import SiteRequest
from fedfair.identity.signing import format_signing_key
from fedfair.ids import ParticipantId
from fedfair.store.atomic_file import READABLE
from fedfair.store.line_end import is_cut


@dataclass(frozen=True, slots=True)
class Issued:
    """One certificate that the authority has signed.

    Attributes:
        serial: of the certificate.
        name: of the participant.
        role: "collaborator" or "aggregator".
        hosts: names and addresses in the certificate; empty for a collaborator.
        not_after: its end, aware.
        fingerprint: SHA-256 of the certificate in hexadecimal.
        signing_key: the participant's public signing key, as in a plan.
    """

    serial: int
    name: ParticipantId
    role: str
    hosts: tuple[str, ...]
    not_after: datetime
    fingerprint: str
    signing_key: str


def entry(certificate: x509.Certificate, request: SiteRequest, hosts: Sequence[str]) -> Issued:
    """Return what the register says about a certificate that was just signed."""
    return Issued(
        serial=certificate.serial_number,
        name=request.name,
        role=request.role.value,
        hosts=tuple(hosts),
        not_after=certificate.not_valid_after_utc,
        fingerprint=fingerprint(certificate).hex(),
        signing_key=format_signing_key(request.signing_public_key),
    )


def append(path: Path, issued: Issued) -> None:
    """Add one line to the register."""
    line = asdict(issued) | {"serial": f"{issued.serial:x}", "not_after": issued.not_after.isoformat()}
    path.touch(READABLE)
    with path.open("a", encoding="ascii") as target:
        target.write(("\n" if is_cut(path) else "") + json.dumps(line) + "\n")


def read(path: Path) -> list[Issued]:
    """Return everything the register says, oldest first; nothing where there is no register yet.

    Raises:
        IdentityError: a line is damaged; it is named.
    """
    if not path.exists():
        return []
    lines = read_bytes(path, "the register").decode("utf-8", "replace").splitlines()
    return [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def _parse(line: str, place: str) -> Issued:
    try:
        fields = json.loads(line)
        return Issued(
            serial=int(fields["serial"], 16),
            name=ParticipantId(str(fields["name"])),
            role=str(fields["role"]),
            hosts=tuple(str(host) for host in fields["hosts"]),
            not_after=datetime.fromisoformat(fields["not_after"]),
            fingerprint=str(fields["fingerprint"]),
            signing_key=str(fields["signing_key"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IdentityError(f"{place}: the register is damaged here", "restore it from a copy") from error


def latest_of(register: Sequence[Issued], name: str) -> Issued | None:
    """Return the latest certificate signed for `name`, or None."""
    return next((issued for issued in reversed(register) if issued.name == name), None)


def check_same_signing_key(register: Sequence[Issued], request: SiteRequest) -> None:
    """Check that a name that was given out keeps its signing key.

    Raises:
        IdentityError: the name was given out with another signing key: either the site has lost its key, or
            somebody else asks in its name.
    """
    previous = latest_of(register, request.name)
    if previous is None or previous.signing_key == format_signing_key(request.signing_public_key):
        return
    raise IdentityError(
        f"{request.name} had the signing key {previous.signing_key} before, this request brings "
        f"{format_signing_key(request.signing_public_key)}",
        "a renewal keeps the key (`fedfair certs renew`); if the site really starts again, revoke its old "
        "certificates, sign with --replace-signing-key, and change the plan's roster",
    )


def choose(register: Sequence[Issued], name: str | None, serial: str | None) -> list[Issued]:
    """Return the certificates of `name`, or the one with the hexadecimal number `serial`; neither chooses none.

    Raises:
        IdentityError: the register knows no such certificate.
    """
    if name is None and serial is None:
        return []
    chosen = [issued for issued in register if issued.name == name or f"{issued.serial:x}" == serial]
    if not chosen:
        raise IdentityError(
            f"this authority has signed no certificate {f'for {name}' if name else f'with the serial {serial}'}",
            "`fedfair certs show` lists what it has signed",
        )
    return chosen
