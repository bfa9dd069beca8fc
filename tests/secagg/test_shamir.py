from __future__ import annotations

import secrets

import pytest
import shamirs
from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.shamir import PRIME, combine, lagrange_at_zero, parse_share, split
from tests.secagg.shares import combine_shares

SECRETS = st.binary(min_size=31, max_size=31)


@st.composite
def sharings(draw: st.DrawFn) -> tuple[bytes, list[int], int]:
    points = draw(st.lists(st.integers(1, 65535), min_size=1, max_size=12, unique=True))
    return draw(SECRETS), points, draw(st.integers(1, len(points)))


def test_the_line_through_the_secret_is_worked_by_hand() -> None:
    # f(x) = 7 + 2x: the only coefficient is drawn as 2.
    shares = split((7).to_bytes(31, "big"), [1, 2, 10], 2, lambda size: (4).to_bytes(size, "big"))
    assert [int.from_bytes(share, "big") for share in shares] == [9, 11, 27]
    # At zero through 1 and 2: 2 * 9 - 11 = 7.
    assert lagrange_at_zero([1, 2]) == [2, PRIME - 1]
    assert int.from_bytes(combine([2, PRIME - 1], shares[:2]), "big") == 7


@settings(deadline=None, max_examples=30)
@given(sharings(), st.randoms())
def test_any_threshold_many_shares_give_the_secret(sharing: tuple[bytes, list[int], int], choice: object) -> None:
    secret, points, threshold = sharing
    shares = dict(zip(points, split(secret, points, threshold, secrets.token_bytes), strict=True))
    chosen = choice.sample(points, threshold)  # type: ignore[attr-defined]
    assert combine_shares({point: shares[point] for point in chosen}) == secret


@settings(deadline=None, max_examples=30)
@given(sharings())
def test_shares_agree_with_an_independent_implementation_over_the_same_field(
    sharing: tuple[bytes, list[int], int],
) -> None:
    secret, points, threshold = sharing
    ours = split(secret, points, threshold, secrets.token_bytes)[:threshold]
    theirs = [
        shamirs.share(point, int.from_bytes(share, "big"), PRIME)
        for point, share in zip(points, ours, strict=False)
    ]
    assert shamirs.interpolate(theirs, threshold=threshold) == int.from_bytes(secret, "big")


def test_a_sharing_of_an_independent_implementation_is_combined() -> None:
    secret = secrets.token_bytes(31)
    theirs = shamirs.shares(int.from_bytes(secret, "big"), quantity=7, modulus=PRIME, threshold=4)
    assert combine_shares({s.index: s.value.to_bytes(32, "big") for s in list(theirs)[2:6]}) == secret


def test_sharing_over_another_field_behaves_the_same() -> None:
    # The same threshold behaviour in GF(2^128): t shares give the secret, t - 1 give something else.
    secret = secrets.token_bytes(16)
    theirs = Shamir.split(3, 5, secret)
    ours = split(secret.rjust(31, b"\0"), [1, 2, 3, 4, 5], 3, secrets.token_bytes)
    assert Shamir.combine(theirs[:3]) == secret == combine_shares(dict(zip([1, 2, 3], ours, strict=False)))[15:]
    assert Shamir.combine(theirs[:2]) != secret


def test_one_share_too_few_fits_every_secret_equally_well() -> None:
    # Through t - 1 shares and any value at zero goes a polynomial of degree t - 1, so they say nothing.
    shares = split(b"\1" * 31, [1, 2, 3], 3, secrets.token_bytes)
    known = [int.from_bytes(share, "big") for share in shares[:2]]
    for guess in (0, 1, 12345):
        # The value at 3 of the parabola through (0, guess), (1, known[0]), (2, known[1]), by hand.
        at_three = (guess - 3 * known[0] + 3 * known[1]) % PRIME
        forged = {1: shares[0], 2: shares[1], 3: at_three.to_bytes(32, "big")}
        assert combine_shares(forged) == guess.to_bytes(31, "big")


@pytest.mark.parametrize("share", [b"", bytes(31), bytes(33), PRIME.to_bytes(32, "big"), b"\xff" * 32], ids=len)
def test_a_share_outside_the_field_is_refused(share: bytes) -> None:
    with pytest.raises(SecaggError) as refused:
        parse_share(share)
    assert refused.value.check is Check.SHARE


@pytest.mark.parametrize(
    ("secret", "points", "threshold"),
    [
        (bytes(30), [1, 2], 2),
        (bytes(31), [1, 1], 2),
        (bytes(31), [0, 1], 2),
        (bytes(31), [1, 65536], 2),
        (bytes(31), [1, 2], 3),
        (bytes(31), [1, 2], 0),
    ],
)
def test_a_sharing_that_cannot_work_is_our_own_fault(secret: bytes, points: list[int], threshold: int) -> None:
    with pytest.raises(LocalProtocolError):
        split(secret, points, threshold, secrets.token_bytes)


def test_coefficients_outside_the_field_are_drawn_again() -> None:
    draws = iter([b"\xff" * 32, (2).to_bytes(32, "big")])
    shares = split(bytes(31), [5], 1, lambda _: next(draws))
    assert shares == [bytes(32)]
    assert split(bytes(31), [1, 2], 2, lambda _: next(draws))[0] == (1).to_bytes(32, "big")
