"""Shares of a secret, as a test holds them: by their points."""

from collections.abc import Mapping

from fedfair.secagg.shamir import combine, lagrange_at_zero
from fedfair.secagg.transcript import digest, u16


def combine_shares(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret behind {point: share}; the number of shares must be the threshold exactly."""
    return combine(lagrange_at_zero(list(shares)), list(shares.values()))


def share_digest(transcript: bytes, sender: int, holder: int, share: bytes) -> bytes:
    """Return what a site promises of one share, by the words of the protocol."""
    return digest("share", transcript, u16(sender), u16(holder), share)[:8]
