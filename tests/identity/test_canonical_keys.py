"""Each public key has one spelling: in base64, and as a point of the curve."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import IdentityError
from fedfair.identity.signing import parse_signing_key
from fedfair.plan.public_keys import check_public_key, format_public_key, parse_public_key
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.keys import EphemeralKey
from fedfair.secagg.keys import check_public_key as check_session_key
from fedfair.secagg.params import Suite

P = 2**255 - 19
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def spelt(y: int, sign: int = 0) -> bytes:
    return (y | sign << 255).to_bytes(32, "little")


SMALL_ORDER = [
    spelt(1), spelt(P - 1), spelt(0), spelt(0, 1),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
]  # fmt: skip
OTHER_SPELLINGS = [spelt(P + y, sign) for y in range(19) for sign in (0, 1)] + [spelt(1, 1), spelt(P - 1, 1)]


@pytest.mark.parametrize("key", OTHER_SPELLINGS + SMALL_ORDER)
def test_a_key_that_is_another_spelling_or_that_anybody_can_sign_for_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="is not the one spelling of a key"):
        parse_public_key(format_public_key(key))
    with pytest.raises(IdentityError, match="is not the one spelling of a key"):
        parse_signing_key(format_public_key(key))


@given(st.binary(min_size=32, max_size=32))
def test_every_key_that_somebody_has_made_is_taken(seed: bytes) -> None:
    key = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    check_public_key(key)
    assert parse_public_key(format_public_key(key)) == key


@given(st.binary(min_size=32, max_size=32))
def test_no_other_base64_of_a_key_is_taken(seed: bytes) -> None:
    raw = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    text = format_public_key(raw)
    last = ALPHABET.index(text[-2])
    assert last % 4 == 0
    # The last letter has two bits that mean nothing.
    others = [text[:-2] + ALPHABET[last + step] + "=" for step in (1, 2, 3)]
    others += [text.rstrip("="), text + "\n", text + "=", " " + text, text[:20] + "\n" + text[20:], text.upper()]
    others += ["ed25519:ed25519:" + base64.b64encode(raw).decode(), base64.b64encode(raw).decode()]
    for other in others:
        with pytest.raises(ValueError, match="is not 'ed25519:'"):
            parse_public_key(other)


@given(st.binary(min_size=32, max_size=32))
def test_a_session_key_has_one_spelling_too(seed: bytes) -> None:
    made = EphemeralKey(Suite.X25519, lambda _: seed).public
    check_session_key(made, Suite.X25519, "clinic-a")
    value = int.from_bytes(made, "little")
    for other in (value | 1 << 255, value + P):
        if other < 1 << 256:
            with pytest.raises(SecaggError, match="not below 2\\^255 - 19") as refusal:
                check_session_key(other.to_bytes(32, "little"), Suite.X25519, "clinic-a")
            assert refusal.value.check is Check.KEY
