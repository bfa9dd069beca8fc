"""The signature of a document by its issuer: made, and verified with a key that the verifier has by itself.

A certificate of fairness and a passport name their issuer and its key among what is signed. Whose key it is, no
document can show: a verifier takes it from a plan, from its own workspace, or from the issuer by phone.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.errors import FedfairError
from fedfair.identity.known_keys import known_key
from fedfair.identity.signing import decode_base64, format_signing_key, parse_signing_key

if TYPE_CHECKING:
    from fedfair.plan.schema import Plan


class NamedIssuer(Protocol):
    """The issuer of a document, as the document says."""

    @property
    def name(self) -> str:
        """The participant."""

    @property
    def key(self) -> str:
        """Its public signing key, "ed25519:" and base64."""


@dataclass(frozen=True, slots=True)
class DocumentSeal:
    """What a kind of document says of its seal.

    Attributes:
        kind: the document in a word, such as "passport".
        without: how it is looked at without a signature, in words.
        error: raised where a seal is wrong.
    """

    kind: str
    without: str
    error: type[FedfairError]

    def verify(
        self, issuer: NamedIssuer | None, signature: str | None, message: bytes, key: Ed25519PublicKey | None
    ) -> None:
        """Check that the holder of a key issued exactly this.

        Args:
            issuer: as the document says; None for none.
            signature: base64, likewise.
            message: what is signed.
            key: that the issuer is known to hold; None where there is none.

        Raises:
            FedfairError: `error`; it is unsigned, names another key, or was changed after it was signed.
            IdentityError: the signature is not base64.
        """
        if issuer is None or signature is None or key is None:
            raise self.error(
                f"the {self.kind} is not signed: anybody could have written it",
                f"ask for a signed one, or look at {self.without} with --unsigned",
            )
        expected = format_signing_key(key)
        if issuer.key != expected:
            raise self.error(
                f"the {self.kind} was issued with the key {issuer.key}, not with {expected}",
                f"ask {issuer.name} which key is theirs",
            )
        try:
            key.verify(decode_base64(signature, f"the {self.kind}'s signature"), message)
        except InvalidSignature as error:
            raise self.error(
                f"the signature of {issuer.name} does not cover this {self.kind}: something in it was changed "
                "after it was signed",
                "ask the issuer for the file again",
            ) from error

    def issuer_key(
        self, issuer: NamedIssuer | None, given: str | None, plan: Plan | None, cert_folder: Path
    ) -> Ed25519PublicKey | None:
        """Return the key that an issuer is known to hold; None where there is no issuer.

        Args:
            issuer: as the document says.
            given: the key or its file, as `known_key` takes it.
            plan: whose roster counts next; None for none.
            cert_folder: of the workspace's keys.

        Raises:
            FedfairError: `error`; nothing here says which key it has.
            IdentityError: the key is malformed.
        """
        if issuer is None:
            return None
        found = known_key(issuer.name, given, plan, cert_folder)
        if found is None:
            raise self.error(
                f"this folder does not tell which key {issuer.name} has; the {self.kind} claims {issuer.key}",
                f"ask {issuer.name} by a way that you trust, then give the key with --key",
            )
        return parse_signing_key(found)


def signature_of(message: bytes, signing_key: Ed25519PrivateKey) -> str:
    """Return the signature of a message, in base64."""
    return base64.b64encode(signing_key.sign(message)).decode("ascii")
