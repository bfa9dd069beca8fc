"""Signs a certificate with a participant's long-lived Ed25519 key, and verifies it.

    signature over: label "fedfair/certificate/v2", then everything but the signature in the canonical form of
    `fedfair.plan.digest` (keys sorted, floats by `float.hex`)

The name and the key of the issuer are among what is signed. Whose key it is, no file can show: a verifier takes
the key from the plan's roster, from its own workspace, or from the issuer by phone, not from the certificate.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.certificate.document import Certificate, Issuer
from fedfair.errors import CertificateError
from fedfair.identity.document_seal import DocumentSeal, signature_of
from fedfair.identity.signing import format_signing_key
from fedfair.plan.digest import canonical_json
from fedfair.signed_message import labelled_message

LABEL = "fedfair/certificate/v2"
SEAL = DocumentSeal("certificate", "the figures alone", CertificateError)


def seal(certificate: Certificate, name: str, signing_key: Ed25519PrivateKey) -> Certificate:
    """Return the certificate with an issuer and its signature.

    Args:
        certificate: an unsigned one.
        name: the participant that signs.
        signing_key: its long-lived key.
    """
    issuer = Issuer(name=name, key=format_signing_key(signing_key.public_key()))
    issued = certificate.model_copy(update={"issuer": issuer})
    return issued.model_copy(update={"signature": signature_of(_message(issued), signing_key)})


def verify_seal(certificate: Certificate, public_key: Ed25519PublicKey | None) -> None:
    """Check that the holder of a key issued exactly this.

    Args:
        certificate: any.
        public_key: the key that its issuer is known to hold; None if it has no issuer.

    Raises:
        CertificateError: it is unsigned, names another key, or was changed after it was signed.
        IdentityError: the signature is not base64.
    """
    SEAL.verify(certificate.issuer, certificate.signature, _message(certificate), public_key)


def _message(certificate: Certificate) -> bytes:
    # Fields that an older file lacks are no part of what was signed.
    signed = certificate.model_dump(exclude={"signature"}, exclude_unset=True)
    return labelled_message(LABEL, [canonical_json(signed)])
