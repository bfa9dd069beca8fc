import secrets

import pytest
import shamirs
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check
from fedfair.secagg.effects import Log, ReplaceLog
from fedfair.secagg.keys import ENVELOPE_KEY_BYTES, Secret
from fedfair.secagg.round_messages import Upload
from fedfair.secagg.sealing import ENVELOPE_BYTES, open_envelope, seal, share_digests, wrap_pair_masks
from fedfair.secagg.shamir import PRIME, combine, lagrange_at_zero, parse_share, split
from tests.attacks.harness import Lies, check_of
from tests.secagg.federation_in_memory import draws_of
from tests.secagg.shares import combine_shares, share_digest

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
def test_shares_agree_with_an_independent_implementation(sharing: tuple[bytes, list[int], int]) -> None:
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
    assert check_of(parse_share, share) is Check.SHARE


@pytest.mark.parametrize(
    ("secret", "points", "threshold"),
    [
        (bytes(30), [1, 2], 2), (bytes(31), [1, 1], 2), (bytes(31), [0, 1], 2), (bytes(31), [1, 65536], 2),
        (bytes(31), [1, 2], 3), (bytes(31), [1, 2], 0),
    ],
)  # fmt: skip
def test_a_sharing_that_cannot_work_is_our_own_fault(secret: bytes, points: list[int], threshold: int) -> None:
    with pytest.raises(LocalProtocolError):
        split(secret, points, threshold, secrets.token_bytes)


def test_coefficients_outside_the_field_are_drawn_again() -> None:
    draws = iter([b"\xff" * 32, (2).to_bytes(32, "big")])
    assert split(bytes(31), [5], 1, lambda _: next(draws)) == [bytes(32)]
    assert split(bytes(31), [1, 2], 2, lambda _: next(draws))[0] == (1).to_bytes(32, "big")


# ---- envelopes of one key: what two of them show, and what does not open

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
    known, other = open_envelope(Secret(key), transcript, 1, 2, first, "a"), bytes(31) + b"\x01"
    second = seal(Secret(key), transcript, 1, 2, other)
    assert len(first) == len(second) == ENVELOPE_BYTES
    hidden = xored(first, second)
    assert xored(known, other) not in (hidden[16:], hidden[:-16])


def test_an_envelope_that_was_altered_cut_or_is_for_somebody_else_does_not_open() -> None:
    envelope = seal(KEY, TRANSCRIPT, 1, 2, bytes(32))
    spoilt = [
        envelope[:-1], envelope[1:], envelope + b"x", bytes(16), b"",
        bytes([envelope[0] ^ 1]) + envelope[1:],
    ]  # fmt: skip
    for raw, sender, receiver in [*((raw, 1, 2) for raw in spoilt), (envelope, 2, 1), (envelope, 1, 3)]:
        assert check_of(open_envelope, KEY, TRANSCRIPT, sender, receiver, raw, "a") is Check.ENVELOPE


@given(st.binary(min_size=31, max_size=31), st.binary(min_size=31, max_size=31))
@settings(max_examples=25)
def test_a_pair_mask_is_read_with_the_own_mask_of_this_round_and_pair_alone(own: bytes, pair: bytes) -> None:
    wrapped = wrap_pair_masks(Secret(own), TRANSCRIPT, 1, {2: pair, 7: pair})
    assert wrap_pair_masks(Secret(own), TRANSCRIPT, 1, {7: wrapped[7]}) == {7: pair}
    assert wrap_pair_masks(Secret(own), TRANSCRIPT, 1, wrapped) == {2: pair, 7: pair}
    assert (len({pair, *wrapped.values()}), wrap_pair_masks(Secret(own), TRANSCRIPT, 1, {})) == (3, {})
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
