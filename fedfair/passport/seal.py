"""Signs a passport with a participant's long-lived Ed25519 key, and verifies it.

    signature over: label "fedfair/passport/v1", then everything but the signature in the canonical form of
    `fedfair.plan.digest`

The name and the key of the issuer, and the digest of every file of evidence, are among what is signed. Whose key
it is, no file can show: a verifier takes it from a plan, from its own workspace, or from the issuer by phone.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.errors import PassportError
from fedfair.identity.document_seal import DocumentSeal, signature_of
from fedfair.identity.signing import format_signing_key
from fedfair.passport.document import Passport, PassportIssuer
from fedfair.plan.digest import canonical_json
from fedfair.signed_message import labelled_message

LABEL = "fedfair/passport/v1"
SEAL = DocumentSeal("passport", "what its evidence shows alone", PassportError)


def seal_passport(passport: Passport, name: str, signing_key: Ed25519PrivateKey) -> Passport:
    """Return the passport with an issuer and its signature.

    Args:
        passport: an unsigned one.
        name: the participant that signs.
        signing_key: its long-lived key.
    """
    issuer = PassportIssuer(name=name, key=format_signing_key(signing_key.public_key()))
    issued = passport.model_copy(update={"issuer": issuer})
    return issued.model_copy(update={"signature": signature_of(_message(issued), signing_key)})


def verify_passport_seal(passport: Passport, public_key: Ed25519PublicKey | None) -> None:
    """Check that the holder of a key issued exactly this.

    Args:
        passport: any.
        public_key: the key that its issuer is known to hold; None if it has no issuer.

    Raises:
        PassportError: it is unsigned, names another key, or was changed after it was signed.
        IdentityError: the signature is not base64.
    """
    SEAL.verify(passport.issuer, passport.signature, _message(passport), public_key)


def _message(passport: Passport) -> bytes:
    return labelled_message(LABEL, [canonical_json(passport.facts())])
