"""Envelopes of one key: what two of them show, and what does not open."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Log, ReplaceLog
from fedfair.secagg.keys import ENVELOPE_KEY_BYTES, Secret
from fedfair.secagg.round_messages import Upload
from fedfair.secagg.sealing import (
    ENVELOPE_BYTES,
    open_envelope,
    seal,
    share_digests,
    wrap_pair_masks,
)
from tests.attacks.harness import Lies
from tests.secagg.federation_in_memory import draws_of
from tests.secagg.shares import share_digest

KEY = Secret(bytes(range(ENVELOPE_KEY_BYTES)))
TRANSCRIPT = bytes(32)
SHARES = st.binary(min_size=31, max_size=31).map(lambda share: b"\0" + share)


def xored(first: bytes, second: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(first, second, strict=True))


@given(SHARES, SHARES)
@settings(max_examples=70)
def test_two_contents_under_one_key_do_not_show_their_difference(first: bytes, second: bytes) -> None:
    envelopes = [seal(KEY, TRANSCRIPT, 1, 2, share) for share in (first, second)]
    assert (envelopes[0] == envelopes[1]) == (first == second)
    assert open_envelope(KEY, TRANSCRIPT, 1, 2, envelopes[1], "a") == second
    if first != second:
        for start in (0, 16):
            assert xored(envelopes[0], envelopes[1])[start : start + len(first)] != xored(first, second)


def test_a_site_put_back_to_a_snapshot_does_not_show_the_difference_of_its_shares() -> None:
    """The same round is contributed to twice, from the same keys and with other random numbers."""
    lies = Lies.in_session(4)
    lies.updates = lies.fresh_updates()
    lies.server.start_round("training", lies.model, (1.0,), lies.roster.indices)
    lies.server.round -= 1
    lies.sites[1].receive(lies.start(), lies.model)
    contributing = lies.sites[1].phase
    key = contributing.sending[2].reveal()  # type: ignore[union-attr]
    transcript = contributing.context.transcript  # type: ignore[union-attr]
    replaced, *_, sent = lies.sites[1].contribute(lies.updates[1], draws_of(lies.updates[1]))
    assert isinstance(replaced, ReplaceLog | Log)
    first = dict(Upload.decode(sent.message).envelopes)[2]  # type: ignore[union-attr]
    known = open_envelope(Secret(key), transcript, 1, 2, first, "a")
    other = bytes(31) + b"\x01"
    second = seal(Secret(key), transcript, 1, 2, other)
    assert len(first) == len(second) == ENVELOPE_BYTES
    hidden = xored(first, second)
    assert xored(known, other) not in (hidden[16:], hidden[:-16])


def test_an_envelope_that_was_altered_cut_or_is_for_somebody_else_does_not_open() -> None:
    envelope = seal(KEY, TRANSCRIPT, 1, 2, bytes(32))
    spoilt = [
        envelope[:-1],
        envelope[1:],
        envelope + b"x",
        bytes(16),
        b"",
        bytes([envelope[0] ^ 1]) + envelope[1:],
    ]
    for raw, sender, receiver in [*((raw, 1, 2) for raw in spoilt), (envelope, 2, 1), (envelope, 1, 3)]:
        with pytest.raises(SecaggError) as refusal:
            open_envelope(KEY, TRANSCRIPT, sender, receiver, raw, "a")
        assert refusal.value.check is Check.ENVELOPE


@given(st.binary(min_size=31, max_size=31), st.binary(min_size=31, max_size=31))
@settings(max_examples=25)
def test_a_pair_mask_is_read_with_the_own_mask_of_this_round_and_pair_alone(own: bytes, pair: bytes) -> None:
    wrapped = wrap_pair_masks(Secret(own), TRANSCRIPT, 1, {2: pair, 7: pair})
    assert wrap_pair_masks(Secret(own), TRANSCRIPT, 1, {7: wrapped[7]}) == {7: pair}
    assert wrap_pair_masks(Secret(own), TRANSCRIPT, 1, wrapped) == {2: pair, 7: pair}
    assert len({pair, *wrapped.values()}) == 3
    assert wrap_pair_masks(Secret(own), TRANSCRIPT, 1, {}) == {}
    other_seed = bytes([own[0] ^ 1]) + own[1:]
    others = ((other_seed, TRANSCRIPT, 1, 2), (own, b"r" * 32, 1, 2), (own, TRANSCRIPT, 1, 3))
    for seed, transcript, owner, gone in (*others, (own, TRANSCRIPT, 2, 1)):
        assert wrap_pair_masks(Secret(seed), transcript, owner, {gone: wrapped[2]}) != {gone: pair}


def test_digests_of_many_shares_are_those_of_each() -> None:
    given = [
        ((sender, holder), (sender * 70000 + holder).to_bytes(32, "big"))
        for sender in (1, 300)
        for holder in (2, 65535)
    ]
    each = [(pair, share_digest(TRANSCRIPT, *pair, share)) for pair, share in given]
    assert list(share_digests(TRANSCRIPT, given)) == each
