"""Signs a passport with a participant's long-lived Ed25519 key, and verifies it.

    signature over: label "fedfair/passport/v1", then everything but the signature in the canonical form of
    `fedfair.plan.digest`

The name and the key of the issuer, and the digest of every file of evidence, are among what is signed. Whose key
it is, no file can show: a verifier takes it from a plan, from its own workspace, or from the issuer by phone.
"""

from __future__ import annotations

import base64

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.errors import PassportError
from fedfair.identity.signing import decode_base64, format_signing_key
from fedfair.passport.document import Passport, PassportIssuer
from fedfair.plan.digest import canonical_json
from fedfair.signed_message import labelled_message

LABEL = "fedfair/passport/v1"


def seal_passport(passport: Passport, name: str, signing_key: Ed25519PrivateKey) -> Passport:
    """Return the passport with an issuer and its signature.

    Args:
        passport: an unsigned one.
        name: the participant that signs.
        signing_key: its long-lived key.
    """
    issuer = PassportIssuer(name=name, key=format_signing_key(signing_key.public_key()))
    issued = passport.model_copy(update={"issuer": issuer})
    signature = base64.b64encode(signing_key.sign(_message(issued))).decode("ascii")
    return issued.model_copy(update={"signature": signature})


def verify_passport_seal(passport: Passport, public_key: Ed25519PublicKey | None) -> None:
    """Check that the holder of a key issued exactly this.

    Args:
        passport: any.
        public_key: the key that its issuer is known to hold; None if it has no issuer.

    Raises:
        PassportError: it is unsigned, names another key, or was changed after it was signed.
        IdentityError: the signature is not base64.
    """
    if passport.issuer is None or passport.signature is None or public_key is None:
        raise PassportError(
            "the passport is not signed: anybody could have written it",
            "ask for a signed one, or look at what its evidence shows alone with --unsigned",
        )
    name, expected = passport.issuer.name, format_signing_key(public_key)
    if passport.issuer.key != expected:
        raise PassportError(
            f"the passport was issued with the key {passport.issuer.key}, not with {expected}",
            f"ask {name} which key is theirs",
        )
    signature = decode_base64(passport.signature, "the passport's signature")
    try:
        public_key.verify(signature, _message(passport))
    except InvalidSignature as error:
        raise PassportError(
            f"the signature of {name} does not cover this passport: it was changed after it was signed",
            "ask the issuer for the file again",
        ) from error


def _message(passport: Passport) -> bytes:
    return labelled_message(LABEL, [canonical_json(passport.facts())])
