"""Shamir sharing over p = 2^255 - 19: splits and combines; who gets which share is decided elsewhere.

A secret has 31 bytes, a share 32, and the evaluation point is the holder's roster index. A combined value of
2^248 or more cannot have been split here and is refused; that it is the *right* secret is for the caller to
check against a commitment. Source: Shamir 1979.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check, require

PRIME = 2**255 - 19
SECRET_BYTES = 31
SHARE_BYTES = 32
_UNREDUCED_STEPS = 16

Randomness = Callable[[int], bytes]
"""Returns that many bytes that nobody can predict: `secrets.token_bytes` wherever something is at stake."""


def split(secret: bytes, points: Sequence[int], threshold: int, randomness: Randomness) -> list[bytes]:
    """Return one 32-byte share for each of `points`, any `threshold` of which give `secret` back.

    Args:
        secret: 31 bytes.
        points: distinct evaluation points in [1, 65535].
        threshold: how many shares are needed, in [1, len(points)].
        randomness: source of the coefficients.

    Raises:
        LocalProtocolError: an argument is out of range.
    """
    _check_points(points, len(secret), threshold)
    coefficients = [
        int.from_bytes(secret, "big"),
        *(_field_element(randomness) for _ in range(threshold - 1)),
    ]
    return [_evaluate(coefficients, point).to_bytes(SHARE_BYTES, "big") for point in points]


def lagrange_at_zero(points: Sequence[int]) -> list[int]:
    """Return the weights that turn the shares at distinct `points` into the secret; once per set of responders."""
    everything = math.prod(points) % PRIME
    # The product of small differences is reduced once; point * product of the others is what the share is over.
    under = [point * math.prod(other - point for other in points if other != point) % PRIME for point in points]
    # One inversion for all: the inverse of the product, taken apart from its end (Montgomery).
    before = list(itertools.accumulate(under, lambda one, other: one * other % PRIME, initial=1))
    rest = pow(before[-1], -1, PRIME) * everything % PRIME
    weights = []
    for each, product in zip(reversed(under), reversed(before[:-1]), strict=True):
        weights.append(rest * product % PRIME)
        rest = rest * each % PRIME
    return weights[::-1]


def combine(weights: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """Return the 31-byte secret behind exactly as many shares as there are weights.

    Raises:
        SecaggError: SHARE: a share is not in the field, or the result is no secret of ours.
    """
    numbers = [parse_share(share) for share in shares]
    value = sum(weight * number for weight, number in zip(weights, numbers, strict=True)) % PRIME
    require(value < 1 << (8 * SECRET_BYTES), Check.SHARE, "the shares do not combine to a 31-byte secret")
    return value.to_bytes(SECRET_BYTES, "big")


def parse_share(share: bytes) -> int:
    """Return a share as a field element.

    Raises:
        SecaggError: SHARE: it does not have 32 bytes or is not below the prime.
    """
    require(len(share) == SHARE_BYTES, Check.SHARE, f"a share of {len(share)} bytes, expected {SHARE_BYTES}")
    number = int.from_bytes(share, "big")
    require(number < PRIME, Check.SHARE, "a share outside the field")
    return number


def _evaluate(coefficients: Sequence[int], point: int) -> int:
    # Points have at most 16 bits, so reducing now and then is cheaper than reducing in every step.
    value = 0
    for end in range(len(coefficients), 0, -_UNREDUCED_STEPS):
        for coefficient in reversed(coefficients[max(0, end - _UNREDUCED_STEPS) : end]):
            value = value * point + coefficient
        value %= PRIME
    return value


def _field_element(randomness: Randomness) -> int:
    # 255 random bits are rejected with probability 19 / 2^255; masking and retrying leaves no bias at all.
    while True:
        number = int.from_bytes(randomness(SHARE_BYTES), "big") >> 1
        if number < PRIME:
            return number


def _check_points(points: Sequence[int], secret_bytes: int, threshold: int) -> None:
    if secret_bytes != SECRET_BYTES:
        raise LocalProtocolError(f"a secret of {secret_bytes} bytes cannot be shared, expected {SECRET_BYTES}")
    if len(set(points)) != len(points) or not all(1 <= point <= 0xFFFF for point in points):
        raise LocalProtocolError("shares need distinct evaluation points in [1, 65535]")
    if not 1 <= threshold <= len(points):
        raise LocalProtocolError(f"a threshold of {threshold} cannot be met by {len(points)} shares")
