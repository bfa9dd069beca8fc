"""Reads and checks certificates: name, role, validity and issuer.

Reads certificates only; `authority.py` writes them. A participant is named by one URI in the subject alternative
name, `fedfair://<federation>/<name>`, and by nothing else: the subject is for people. The role follows from the
extended key usage and must fit the name. Source: RFC 5280, sections 4.2.1.6 and 4.2.1.12.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedfair.errors import FedfairError, IdentityError, RenewableIdentityError
from fedfair.ids import AGGREGATOR, FederationName, ParticipantId, parse_federation_name, parse_participant_id

SCHEME = "fedfair://"
PARSE_FAULTS = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension)
"""Exceptions that `cryptography` raises on malformed input, at once or when a field is first read."""

EXPIRY_WARNING = timedelta(days=30)
"""How long before its end a certificate, or a revocation list, begins to be warned about."""


class Role(enum.Enum):
    """The role of a participant; the value is the word in requests and tables."""

    COLLABORATOR = "collaborator"
    AGGREGATOR = "aggregator"


_ROLE_OF_USAGE = {
    ExtendedKeyUsageOID.CLIENT_AUTH: Role.COLLABORATOR,
    ExtendedKeyUsageOID.SERVER_AUTH: Role.AGGREGATOR,
}


@dataclass(frozen=True, slots=True)
class CertifiedParticipant:
    """One member of one federation, as a certificate names it."""

    federation: FederationName
    name: ParticipantId

    @property
    def uri(self) -> str:
        """The name inside certificates."""
        return f"{SCHEME}{self.federation}/{self.name}"

    @property
    def role(self) -> Role:
        """The role that belongs to the name: one name is reserved for the aggregator."""
        return Role.AGGREGATOR if self.name == AGGREGATOR else Role.COLLABORATOR


def parse_participant(federation: str, name: str) -> CertifiedParticipant:
    """Return the participant called `name`, which may be "aggregator", of `federation`.

    Raises:
        IdentityError: a name does not fit into a certificate.
    """
    try:
        participant = AGGREGATOR if name == AGGREGATOR else parse_participant_id(name)
        return CertifiedParticipant(parse_federation_name(federation), participant)
    except FedfairError as error:
        raise IdentityError(error.message, error.remedy) from error


def parse_uri(uri: str) -> CertifiedParticipant:
    """Return the participant that a URI of a certificate names.

    Raises:
        IdentityError: it is outside the scheme, or names no participant.
    """
    federation, slash, name = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not slash:
        raise IdentityError(f"the certificate's URI is {uri[:200]!r}, not {SCHEME}<federation>/<name>")
    return parse_participant(federation, name)


def decode_certificate(content: bytes, what: str) -> x509.Certificate:
    """Return the certificate in `content`, with every field that is looked at later read once.

    `cryptography` reads fields late, so a malformed one would otherwise turn up far from here.

    Args:
        content: one certificate, PEM or DER.
        what: whose certificate this is, for the message.

    Raises:
        IdentityError: it is malformed, or its key is not P-256.
    """
    load = x509.load_pem_x509_certificate if content.lstrip().startswith(b"-") else x509.load_der_x509_certificate
    try:
        certificate = load(content)
        key = certificate.public_key()
        _ = certificate.subject, certificate.issuer, certificate.extensions, certificate.signature_hash_algorithm
    except PARSE_FAULTS as error:
        raise IdentityError(f"{what} is malformed: {error}", "have it sent, or made, again") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError(f"{what} is not for a P-256 key", "use certificates made by `fedfair certs` only")
    return certificate


def participant_of(certificate: x509.Certificate) -> CertifiedParticipant:
    """Return whom `certificate` names.

    Raises:
        IdentityError: it names no participant, two, one outside the scheme, or one whose role it does not carry.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound as error:
        message = "the certificate has no subject alternative name, so it names no participant"
        raise IdentityError(message) from error
    if len(uris) != 1:
        raise IdentityError(
            f"the certificate has {len(uris)} URIs in its subject alternative name, expected one",
            "use a certificate made by `fedfair certs sign`",
        )
    participant = parse_uri(uris[0])
    role = role_of(certificate)
    if role is not participant.role:
        raise IdentityError(
            f"the certificate of {participant.uri} is made for the role {role.value}, "
            f"but that name has the role {participant.role.value}"
        )
    return participant


def role_of(certificate: x509.Certificate) -> Role:
    """Return the one role that the certificate's extended key usage allows.

    Raises:
        IdentityError: it allows none, several, or something else.
    """
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound as error:
        raise IdentityError("the certificate does not say what it may be used for (extended key usage)") from error
    roles = [_ROLE_OF_USAGE.get(oid) for oid in usage]
    if len(roles) != 1 or roles[0] is None:
        raise IdentityError(
            "the certificate's extended key usage is "
            f"{', '.join(oid.dotted_string for oid in usage)}; expected client authentication (collaborator) or "
            "server authentication (aggregator), and only one"
        )
    return roles[0]


def fingerprint(certificate: x509.Certificate) -> bytes:
    """Return the SHA-256 of the certificate's DER, 32 bytes."""
    return certificate.fingerprint(hashes.SHA256())


def grouped(digest: bytes) -> str:
    """Return a digest in hexadecimal groups of four, for two people to read to each other."""
    text = digest.hex()
    return " ".join(text[start : start + 4] for start in range(0, len(text), 4))


def check_issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> None:
    """Check that `ca` itself signed `certificate`.

    Raises:
        IdentityError: somebody else did.
    """
    try:
        certificate.verify_directly_issued_by(ca)
    except (InvalidSignature, *PARSE_FAULTS) as error:
        raise IdentityError(
            f"the certificate '{certificate.subject.rfc4514_string()}' was not signed by the authority "
            f"'{ca.subject.rfc4514_string()}'",
            "every certificate of a federation must come from the same authority; compare both with "
            "`fedfair certs show`",
        ) from error


def check_validity(certificate: x509.Certificate, now: datetime, what: str) -> None:
    """Check that `certificate` is valid at `now`.

    Args:
        certificate: any certificate.
        now: an aware time.
        what: whose certificate this is, for the message.

    Raises:
        IdentityError: it is not valid yet.
        RenewableIdentityError: it has expired.
    """
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        raise IdentityError(
            f"{what} is not valid before {start:%Y-%m-%d %H:%M} UTC, and it is {now:%Y-%m-%d %H:%M} UTC",
            "set this machine's clock",
        )
    if now > end:
        raise RenewableIdentityError(
            f"{what} expired on {end:%Y-%m-%d %H:%M} UTC",
            "make a new one: `fedfair certs renew`, then have it signed and install it",
        )


def expiry_warning(certificate: x509.Certificate, now: datetime, what: str) -> str | None:
    """Return a sentence where `certificate` has expired or has at most 30 days left, else None."""
    left = certificate.not_valid_after_utc - now
    if left > EXPIRY_WARNING:
        return None
    date = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    return f"{what} expired on {date}" if left < timedelta(0) else f"{what} expires on {date}, in {left.days} days"
