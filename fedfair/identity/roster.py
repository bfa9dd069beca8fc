"""The roster: which signing key belongs to which member, and the proof that a connection is that member's.

The plan pins one Ed25519 key per collaborator, and every site has approved the plan, so no one, not even the
authority, can add or replace a member alone. A certificate is bound to a member by the member's own signature
over the certificate's fingerprint, sent once per connection. A renewed certificate gets a new binding from the
same key and needs no one's approval; a certificate made by a rogue authority gets none. A binding seen by others
is of no use to them, because it names the certificate whose private key only the member holds.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.errors import IdentityError
from fedfair.identity.signing import SIGNATURE_BYTES, parse_signing_key
from fedfair.ids import FederationName, ParticipantId, parse_participant_id
from fedfair.signed_message import labelled_message

LABEL = "fedfair/certificate-binding/v1"

Roster = Mapping[ParticipantId, Ed25519PublicKey]


def parse_roster(keys: Mapping[str, str]) -> Roster:
    """Return the plan's roster with its keys read.

    Args:
        keys: collaborator's name and "ed25519:<base64>".

    Raises:
        IdentityError: a key is malformed, or two members have the same one.
    """
    roster = {parse_participant_id(name): parse_signing_key(text) for name, text in keys.items()}
    owner: dict[bytes, str] = {}
    for name, key in roster.items():
        first = owner.setdefault(key.public_bytes_raw(), name)
        if first != name:
            raise IdentityError(
                f"the roster gives {first} and {name} the same signing key",
                "each site makes its own: `fedfair certs request`",
            )
    return roster


def bind_certificate(
    signing_key: Ed25519PrivateKey, certificate_fingerprint: bytes, federation: FederationName, name: ParticipantId
) -> bytes:
    """Return the member's signature, 64 bytes, that binds its present certificate to its pinned key.

    Args:
        signing_key: the member's.
        certificate_fingerprint: SHA-256 of the certificate's DER, 32 bytes.
        federation: the member's federation.
        name: the member.
    """
    return signing_key.sign(_message(certificate_fingerprint, federation, name))


def verify_binding(
    binding: bytes,
    *,
    public_key: Ed25519PublicKey,
    certificate_fingerprint: bytes,
    federation: FederationName,
    name: ParticipantId,
) -> None:
    """Check that the member with the pinned key has bound exactly this certificate to itself.

    Args:
        binding: what arrived, at most 64 bytes are a signature.
        public_key: the key that the roster pins for `name`.
        certificate_fingerprint: of the certificate that the connection was made with, 32 bytes.
        federation: the roster's federation.
        name: whom the certificate names.

    Raises:
        IdentityError: the signature does not verify.
    """
    if len(binding) != SIGNATURE_BYTES:
        raise IdentityError(
            f"the certificate binding of {name} has {len(binding)} bytes, expected {SIGNATURE_BYTES}"
        )
    try:
        public_key.verify(binding, _message(certificate_fingerprint, federation, name))
    except InvalidSignature as error:
        raise IdentityError(
            f"{name} shows a certificate (SHA-256 {certificate_fingerprint.hex()}) that the signing key pinned "
            f"for {name} in the plan has not bound",
            f"if {name} has made a new signing key, put its new signing.pub into the plan and have all "
            "sites approve it; if not, somebody else holds a certificate in its name: tell the "
            "authority's operator",
        ) from error


def _message(certificate_fingerprint: bytes, federation: FederationName, name: ParticipantId) -> bytes:
    return labelled_message(LABEL, [certificate_fingerprint, federation.encode("ascii"), name.encode("ascii")])
