"""Keys: one label each, used once, never printed.

Decides how a pair of members gets from two ephemeral public keys to the seeds of one round; signing keys and
what is done with the seeds are elsewhere. The chain of a pair moves one way (CK_r -> CK_{r+1}), so a
session that is opened later does not give the rounds before. Sources: RFC 7748 (X25519), FIPS 203 (ML-KEM-768),
RFC 5869 (HKDF).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import constant_time, hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedfair.errors import FedfairError, LocalProtocolError
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.params import Suite
from fedfair.secagg.shamir import SECRET_BYTES, Randomness
from fedfair.secagg.transcript import labelled, u16

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey  # not in every version

X25519_BYTES = 32
FIELD_PRIME = 2**255 - 19
KEM_SEED_BYTES = 64
KEM_PUBLIC_BYTES = 1184
KEM_CIPHERTEXT_BYTES = 1088
CHAIN_BYTES = 32
TAG_BYTES = 16
ENVELOPE_KEY_BYTES = 64
"""AES-256-SIV takes two keys of 32 bytes."""

_NO_HONEST_KEY = "no honest site sends it: find out what runs there under that name"


class Secret:
    """Bytes that are neither printed nor compared by accident, and that can be erased."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = bytearray(value)

    def reveal(self) -> bytes:
        """Return the bytes, for the one computation that needs them.

        Raises:
            LocalProtocolError: they were erased: a secret was about to be used after its phase.
        """
        if not self._value:
            raise LocalProtocolError("a secret is used after it was erased")
        return bytes(self._value)

    def erase(self) -> None:
        """Overwrite and forget the bytes. Copies that libraries made are out of reach; ours are not."""
        self._value[:] = bytes(len(self._value))
        self._value.clear()

    @property
    def erased(self) -> bool:
        """Return whether nothing is left."""
        return not self._value

    def __repr__(self) -> str:
        return f"Secret({len(self._value)} bytes)"

    def __reduce__(self) -> NoReturn:
        raise LocalProtocolError("a secret cannot be pickled or copied")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and constant_time.bytes_eq(bytes(self._value), bytes(other._value))

    __hash__ = None  # type: ignore[assignment]  # a secret in a set or a key of a dict would outlive its phase


def derive(secret: Secret, label: str, *context: bytes, length: int, salt: bytes = b"") -> Secret:
    """Return `length` bytes of HKDF-SHA256 under one label and its context."""
    kdf = HKDF(algorithm=hashes.SHA256(), length=length, salt=salt, info=labelled(label, *context))
    return Secret(kdf.derive(secret.reveal()))


class EphemeralKey:
    """One member's key pair for one session; erased as soon as the session is agreed."""

    __slots__ = ("_kem", "_key", "public", "suite")

    def __init__(self, suite: Suite, randomness: Randomness) -> None:
        self.suite = suite
        self._key: X25519PrivateKey | None = X25519PrivateKey.from_private_bytes(randomness(X25519_BYTES))
        self._kem = kem_key(randomness(KEM_SEED_BYTES)) if suite is Suite.X25519_MLKEM768 else None
        self.public = self._key.public_key().public_bytes_raw()
        if self._kem is not None:
            self.public += self._kem.public_key().public_bytes_raw()

    def agree(self, peer: bytes) -> Secret:
        """Return the X25519 secret shared with `peer`'s public key.

        Raises:
            SecaggError: KEY: the peer's key has low order.
        """
        if self._key is None:
            raise LocalProtocolError("the session key is used after it was erased")
        try:
            return Secret(self._key.exchange(X25519PublicKey.from_public_bytes(peer[:X25519_BYTES])))
        except ValueError as error:
            # `check_public_key` has refused it with the name of its owner.
            raise SecaggError(Check.KEY, "a member's public key has low order") from error

    def open(self, ciphertext: bytes) -> Secret:
        """Return the ML-KEM secret inside `ciphertext` (1088 bytes)."""
        if self._kem is None:
            raise LocalProtocolError("this session has no ML-KEM key, or it was erased")
        return Secret(self._kem.decapsulate(ciphertext))

    def erase(self) -> None:
        """Forget both private keys."""
        self._key = None
        self._kem = None


def public_key_bytes(suite: Suite) -> int:
    """Return the length of an advertised public key."""
    return X25519_BYTES + (KEM_PUBLIC_BYTES if suite is Suite.X25519_MLKEM768 else 0)


def encapsulate(peer: bytes) -> tuple[Secret, bytes]:
    """Return a fresh ML-KEM secret and its ciphertext for `peer`'s hybrid public key.

    Raises:
        SecaggError: KEY: the peer's key is malformed.
    """
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey  # newer than the rest

    try:
        shared, ciphertext = MLKEM768PublicKey.from_public_bytes(peer[X25519_BYTES:]).encapsulate()
    except ValueError as error:
        raise SecaggError(Check.KEY, "a member's ML-KEM key is malformed") from error
    return Secret(shared), ciphertext


def pair_chain(
    shared: Secret,
    kem: Secret | None,
    ciphertext: bytes,
    session_id: bytes,
    members: tuple[tuple[int, bytes], tuple[int, bytes]],
) -> Chain:
    """Return CK_0 of a pair.

    Args:
        shared: the X25519 secret.
        kem: the ML-KEM secret in a hybrid session.
        ciphertext: what carried it; empty otherwise.
        session_id: 32 bytes.
        members: (roster index, public key) of both, lower index first.
    """
    (low, low_key), (high, high_key) = members
    material = Secret(shared.reveal() + (kem.reveal() if kem is not None else b""))
    key = derive(
        material,
        "pair",
        u16(low),
        u16(high),
        low_key,
        high_key,
        ciphertext,
        length=CHAIN_BYTES,
        salt=session_id,
    )
    material.erase()
    return Chain(key, 0)


class Chain:
    """The key CK_r that a pair shares at step r; it only moves forward."""

    __slots__ = ("_key", "step")

    def __init__(self, key: Secret, step: int) -> None:
        self._key = key
        self.step = step

    def advance_to(self, step: int) -> None:
        """Move on to `step` and forget every key before it."""
        if step < self.step:
            raise LocalProtocolError(f"a chain at step {self.step} cannot go back to {step}")
        while self.step < step:
            following = derive(self._key, "next", length=CHAIN_BYTES)
            self._key.erase()
            self._key, self.step = following, self.step + 1

    def mask_seed(self, transcript: bytes) -> Secret:
        """Return s_uv (31 bytes): the seed of the mask that the pair shares in this round."""
        return derive(self._key, "mask", transcript, length=SECRET_BYTES)

    def envelope_key(self, transcript: bytes, sender: int, receiver: int) -> Secret:
        """Return the key (64 bytes) of the one message that `sender` seals for `receiver` in this round."""
        return derive(self._key, "env", transcript, u16(sender), u16(receiver), length=ENVELOPE_KEY_BYTES)

    def erase(self) -> None:
        """Forget the chain."""
        self._key.erase()

    @property
    def erased(self) -> bool:
        """Return whether the chain is forgotten."""
        return self._key.erased


def confirmation_tag(seed: Secret, transcript: bytes) -> bytes:
    """Return 16 bytes that both members of a pair compute from s_uv.

    It comes from the seed itself, not from the chain, so that the aggregator, which recovers the seed of a member
    that vanished, can check it before using it.
    """
    return derive(seed, "tag", transcript, length=TAG_BYTES).reveal()


def kem_key(seed: bytes) -> MLKEM768PrivateKey:
    """Return the ML-KEM-768 key pair of a 64-byte seed.

    Raises:
        FedfairError: the installed cryptographic library does not have ML-KEM.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey as PrivateKey

        return PrivateKey.from_seed_bytes(seed)
    except (ImportError, UnsupportedAlgorithm) as error:
        raise FedfairError(
            "the installed cryptographic library has no ML-KEM-768", "update it, or use the X25519 suite"
        ) from error


def check_suite(suite: Suite) -> None:
    """Refuse a suite that the installed cryptographic library cannot carry out.

    Raises:
        FedfairError: it has no ML-KEM-768.
    """
    if suite is Suite.X25519_MLKEM768:
        kem_key(bytes(KEM_SEED_BYTES))


def check_public_key(key: bytes, suite: Suite, owner: str) -> None:
    """Refuse a public key that no honest member advertises; it takes no private key to see that.

    X25519 takes every 32 bytes, and reads them modulo 2^255 - 19 and without the last bit (RFC 7748, section 5). A
    copy of somebody's key in another spelling would not look like one, so every key has one spelling.

    A point of low order, in whatever form it is written, gives zero with every private key of X25519: those are
    multiples of 8, the cofactor of the curve, and its twist's is 4. So one exchange with a well-known
    key finds them all. Source: RFC 7748, section 6.1.

    Args:
        key: what was advertised.
        suite: of the session.
        owner: who signed it, for the message.

    Raises:
        SecaggError: KEY: the length is wrong, the X25519 key has low order or another spelling, or the ML-KEM key
            is malformed.
    """
    expected = public_key_bytes(suite)
    require(
        len(key) == expected,
        Check.KEY,
        f"{owner} advertises a public key of {len(key)} bytes, {suite.name} has {expected}",
        _NO_HONEST_KEY,
    )
    try:
        X25519PrivateKey.from_private_bytes(bytes(X25519_BYTES)).exchange(
            X25519PublicKey.from_public_bytes(key[:X25519_BYTES])
        )
    except ValueError as error:
        low = f"{owner} advertises a public key of low order ({key[:X25519_BYTES].hex()})"
        raise SecaggError(Check.KEY, low, _NO_HONEST_KEY) from error
    point = int.from_bytes(key[:X25519_BYTES], "little")
    spelt = f"{owner} advertises an X25519 public key that is not below 2^255 - 19"
    require(point < FIELD_PRIME, Check.KEY, spelt, _NO_HONEST_KEY)
    if suite is Suite.X25519_MLKEM768:
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey  # newer than the rest

        try:
            MLKEM768PublicKey.from_public_bytes(key[X25519_BYTES:])
        except ValueError as error:
            malformed = f"{owner} advertises a malformed ML-KEM-768 key"
            raise SecaggError(Check.KEY, malformed, _NO_HONEST_KEY) from error
