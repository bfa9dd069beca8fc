"""A site's request for a certificate: `<name>.request.json`, made by the site, read by the authority.

It carries a certificate signing request for the TLS key and the public signing key, and is signed by the signing
key, so that both keys are shown to be the sender's. Who the sender is, no file can show: two people compare
`fingerprint`, which covers every field, by phone before the authority signs. Subject and extensions
inside the CSR are never read; `authority.py` chooses its own.

    {"format": "fedfair/request/1", "federation": "heart", "name": "clinic-a", "role": "collaborator",
     "csr": "-----BEGIN CERTIFICATE REQUEST-----...", "signing_key": "ed25519:...", "signature": "<base64>"}
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from fedfair.errors import IdentityError
from fedfair.identity.certificate import PARSE_FAULTS, CertifiedParticipant, Role, parse_participant
from fedfair.identity.signing import decode_base64, format_signing_key, parse_signing_key
from fedfair.ids import FederationName, ParticipantId
from fedfair.signed_message import labelled_message

FORMAT = "fedfair/request/1"
LABEL = "fedfair/request/v1"
MAX_REQUEST_BYTES = 16 * 1024
"""A request takes about 1 kB; anything much longer is not one."""

_FIELDS = ("format", "federation", "name", "role", "csr", "signing_key", "signature")


@dataclass(frozen=True, slots=True)
class SiteRequest:
    """A request whose two signatures have been verified.

    Attributes:
        participant: who asks.
        csr: holds the public TLS key (P-256); its signature was verified.
        signing_public_key: the Ed25519 key that the plan's roster will pin.
        fingerprint: SHA-256 over every field, 32 bytes, the same on both sides.
    """

    participant: CertifiedParticipant
    csr: x509.CertificateSigningRequest
    signing_public_key: Ed25519PublicKey
    fingerprint: bytes

    @property
    def name(self) -> ParticipantId:
        """Who asks."""
        return self.participant.name

    @property
    def federation(self) -> FederationName:
        """For which federation."""
        return self.participant.federation

    @property
    def role(self) -> Role:
        """For which role."""
        return self.participant.role


def make_request(
    participant: CertifiedParticipant, tls_key: ec.EllipticCurvePrivateKey, signing_key: Ed25519PrivateKey
) -> bytes:
    """Return the content of a request file.

    Args:
        participant: who asks.
        tls_key: P-256 key of the certificate to be.
        signing_key: the site's long-lived signing key.

    Returns:
        UTF-8 JSON, ready to be sent; it holds no secret.
    """
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, participant.name)])
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(tls_key, hashes.SHA256())
    document = {
        "format": FORMAT,
        "federation": participant.federation,
        "name": participant.name,
        "role": participant.role.value,
        "csr": csr.public_bytes(serialization.Encoding.PEM).decode("ascii"),
        "signing_key": format_signing_key(signing_key.public_key()),
        "signature": base64.b64encode(signing_key.sign(_signed_bytes(participant, csr))).decode("ascii"),
    }
    return json.dumps(document, indent=2).encode("ascii") + b"\n"


def read_request(path: Path) -> SiteRequest:
    """Return the verified request in the file `path`.

    Raises:
        IdentityError: the file cannot be read, or does not hold a valid request.
    """
    try:
        with path.open("rb") as source:
            raw = source.read(MAX_REQUEST_BYTES + 1)
    except OSError as error:
        raise IdentityError(f"cannot read the request {path}: {error.strerror}") from error
    return parse_request(raw)


def parse_request(raw: bytes) -> SiteRequest:
    """Return the request that `raw` holds, with both its signatures verified.

    Raises:
        IdentityError: it is too long, malformed, of another key type, or a signature does not verify.
    """
    fields = _parse_fields(raw)
    participant = parse_participant(fields["federation"], fields["name"])
    if fields["role"] != participant.role.value:
        raise IdentityError(
            f"the request of {participant.name!r} asks for the role {fields['role'][:40]!r}; "
            f"that name has the role {participant.role.value!r}",
            "the aggregator, and nobody else, is called 'aggregator'",
        )
    csr = _parse_csr(fields["csr"])
    signing_key = parse_signing_key(fields["signing_key"])
    signature = decode_base64(fields["signature"], "the request's signature")
    message = _signed_bytes(participant, csr)
    try:
        signing_key.verify(signature, message)
    except InvalidSignature as error:
        raise IdentityError(
            f"the request of {participant.name} does not verify under its own signing key",
            "it was changed after it was made; have it sent again",
        ) from error
    fingerprint = hashlib.sha256(message + signing_key.public_bytes_raw()).digest()
    return SiteRequest(participant, csr, signing_key, fingerprint)


def _parse_fields(raw: bytes) -> dict[str, str]:
    if len(raw) > MAX_REQUEST_BYTES:
        raise IdentityError(f"the request is longer than {MAX_REQUEST_BYTES} bytes, so it is not a request")
    try:
        document = json.loads(raw.decode("ascii"), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise IdentityError(f"the request is not JSON in plain characters: {error}") from error
    if not isinstance(document, dict) or tuple(sorted(document)) != tuple(sorted(_FIELDS)):
        raise IdentityError(
            f"the request does not have exactly the fields {', '.join(_FIELDS)}",
            "make it with `fedfair certs request`",
        )
    fields = {name: value for name, value in document.items() if isinstance(value, str)}
    if len(fields) != len(_FIELDS):
        wrong = ", ".join(sorted(set(_FIELDS) - set(fields)))
        raise IdentityError(f"the request's fields must be texts; not one: {wrong}")
    if fields["format"] != FORMAT:
        raise IdentityError(
            f"the request has the format {fields['format'][:80]!r}, this version reads {FORMAT!r}",
            "use the same version of fedfair on both sides",
        )
    return fields


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # JSON lets a name stand twice; two readers could then see two different requests.
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a field stands twice")
    return document


def _parse_csr(text: str) -> x509.CertificateSigningRequest:
    try:
        csr = x509.load_pem_x509_csr(text.encode("ascii"))
        public_key = csr.public_key()
        valid = csr.is_signature_valid
    except PARSE_FAULTS as error:
        raise IdentityError(f"the certificate signing request inside the request is malformed: {error}") from error
    if not isinstance(public_key, ec.EllipticCurvePublicKey) or not isinstance(public_key.curve, ec.SECP256R1):
        raise IdentityError(
            "the TLS key of the request is not a P-256 key",
            "make the request with `fedfair certs request`; gRPC refuses other kinds or gains nothing from them",
        )
    if not valid:
        raise IdentityError(
            "the certificate signing request is not signed by its own key",
            "its maker does not hold the key; have the site itself make it again",
        )
    return csr


def _signed_bytes(participant: CertifiedParticipant, csr: x509.CertificateSigningRequest) -> bytes:
    return labelled_message(
        LABEL,
        [
            participant.federation.encode("ascii"),
            participant.name.encode("ascii"),
            participant.role.value.encode("ascii"),
            csr.public_bytes(serialization.Encoding.DER),
        ],
    )
