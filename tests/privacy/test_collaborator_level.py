"""One collaborator's part of a noised sum: never longer than it is counted, always covered by enough noise."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedfair.errors import LocalProtocolError, PlanError
from fedfair.privacy.collaborator_level import NoisedSums, noised_sums
from fedfair.privacy.skellam import MAX_SHARE_VARIANCE, skellam_epsilon

ENTRIES = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-2.0, 2.0) | st.floats(-1e-300, 1e-300)


def plan_of(**changes: float) -> NoisedSums:
    stated = {"length": 40, "clip": 0.5, "noise_multiplier": 6.0, "members": 10, "shares": 4, "ring_bits": 32}
    return noised_sums(**(stated | {"sums": 100} | changes))  # type: ignore[arg-type]


@given(st.lists(ENTRIES, min_size=12, max_size=12), st.sampled_from([0.01, 1.0, 1e6]), st.sampled_from([32, 16]))
def test_no_vector_is_beyond_the_bound_in_whole_numbers(entries: list[float], clip: float, ring_bits: int) -> None:
    sums = plan_of(length=12, clip=clip, ring_bits=ring_bits)
    numbers = sums.whole_numbers(np.array(entries))
    assert sum(int(number) ** 2 for number in numbers) <= sums.bound**2
    assert sum(abs(int(number)) for number in numbers) <= sums.greatest_l1
    if not np.isfinite(entries).all():
        assert not numbers.any()


@given(st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_the_longest_rounding_of_a_clipped_vector_stays_within_the_bound(length: int, seed: int) -> None:
    # Entries halfway between two whole numbers are moved the farthest; this is the worst that rounding can do.
    sums = NoisedSums(length=length, clip=1.0, bound=400, share_variance=1, shares=1)
    source = np.random.Generator(np.random.PCG64(seed))
    halves = (source.integers(0, 12, length) + 0.5) / sums.scale
    numbers = sums.whole_numbers(halves)
    assert int(np.dot(numbers, numbers)) <= sums.bound**2


@pytest.mark.parametrize("ring_bits", [32, 24, 20, 16])
@pytest.mark.parametrize(("members", "shares"), [(3, 3), (10, 4), (50, 18)])
def test_every_sum_fits_the_ring_and_no_finer_one_would(ring_bits: int, members: int, shares: int) -> None:
    sums = plan_of(ring_bits=ring_bits, members=members, shares=shares, length=8)
    room = 2 ** (ring_bits - 1) - 1
    deviation = math.sqrt(members * sums.share_variance)
    # A normal number exceeds 7.9 deviations with probability 3e-15, times 800 entries: about 2^-40 a run.
    reach = members * sums.bound + 7.9 * deviation
    assert reach <= room
    # Chernoff's 8.4 deviations in place of 7.9 cost less than a tenth of the room.
    assert reach > 0.9 * room or sums.share_variance > 0.99 * MAX_SHARE_VARIANCE
    assert sums.variance >= (6.0 * sums.bound) ** 2


def test_numbers_by_hand_and_sums_that_are_refused() -> None:
    # D2 = 100 in 3 entries: s = (100 - sqrt(3)/2 - 1) / C. (3, 0, 4) is clipped to 0.6, 0 and 0.8 of C.
    sums = NoisedSums(length=3, clip=2.0, bound=100, share_variance=50, shares=4)
    assert sums.scale == pytest.approx((99 - math.sqrt(3) / 2) / 2)
    assert sums.whole_numbers(np.array([3.0, 0.0, 4.0])).tolist() == [59, 0, 79]
    assert sums.whole_numbers(np.array([0.3, 0.0, -0.4])).tolist() == [15, 0, -20]
    assert sums.variance == 200
    assert sums.greatest_l1 == pytest.approx(math.sqrt(3) * 100)
    assert (sums.release(7).delta_2, sums.release(7).mu, sums.release(7).count) == (100.0, 200.0, 7)
    sums = plan_of()
    source = np.random.Generator(np.random.PCG64(1))
    vector = source.standard_normal(sums.length)
    vector *= 0.9 * sums.clip / np.linalg.norm(vector)
    error = np.abs(sums.whole_numbers(vector.astype(np.float64)) / sums.scale - vector)
    # Half a step, and what float64 loses on the way: a few units in the last place.
    assert error.max() <= 0.5 / sums.scale * (1 + 1e-9)
    with pytest.raises(PlanError, match=r"rounding is too coarse.*16 bits") as refusal:
        plan_of(ring_bits=16, members=50, length=100_000)
    assert "ring_bits" in str(refusal.value.remedy)
    with pytest.raises(PlanError, match="0 honest noise shares"):
        plan_of(shares=0)
    with pytest.raises(LocalProtocolError, match="shape"):
        plan_of().whole_numbers(np.zeros(3))


@pytest.mark.parametrize(("members", "survivors"), [(10, 10), (10, 7), (3, 2)])
def test_the_noise_of_a_sum_is_as_wide_as_its_shares(members: int, survivors: int) -> None:
    colluders = 3 if members == 10 else 0
    fewest = 7 if members == 10 else 2
    sums = plan_of(length=20_000, members=members, shares=fewest - colluders, noise_multiplier=2.0)
    parts = [sums.contribution(np.zeros(sums.length), seed=100 * survivors + k) for k in range(survivors)]
    everybody, honest = np.sum(parts, axis=0), np.sum(parts[colluders:], axis=0)
    for seen, shares in ((everybody, survivors), (honest, survivors - colluders)):
        ratio = (seen.astype(np.float64) ** 2).sum() / (shares * sums.share_variance)
        # Sk(mu) with mu in the millions is normal: chi-square with 20 000 degrees of freedom, 1e-7 on either side.
        assert stats.chi2.isf(1 - 1e-7, sums.length) < ratio < stats.chi2.isf(1e-7, sums.length)
        assert shares * sums.share_variance == sums.variance * shares / (fewest - colluders)
    assert (survivors - colluders) * sums.share_variance >= sums.variance >= (2.0 * sums.bound) ** 2


# ------------------------------------------------------------------ the audit

TRIALS = 400_000
AUDIT_DELTA = 1e-3
FAILURE = 1e-6
MEMBERS, SURVIVORS, COLLUDERS = 7, 5, 2


def audited(sums: NoisedSums) -> float:
    """Return a lower bound on epsilon that an attacker proves, wrong with probability below `FAILURE`.

    The attacker is the aggregator with its colluders: it takes their shares off, knows everything but whether the
    target added its longest vector or zeros, and guesses by a threshold on the sum. (epsilon, delta)-DP means
    P(yes | vector) <= e^epsilon P(yes | zeros) + delta; both probabilities are bounded by Clopper and Pearson.
    The entries of a long vector of zeros are so many independent trials of one entry.
    """
    trials = replace(sums, length=TRIALS)
    quiet, loud = (
        sum(trials.contribution(np.zeros(TRIALS), seed=seed + k) for k in range(SURVIVORS - COLLUDERS))
        for seed in (1000, 2000)
    )
    loud = loud + int(sums.whole_numbers(np.array([10.0 * sums.clip]))[0])
    thresholds = [step * 0.25 * math.sqrt(sums.bound**2 * NOISE**2) for step in range(2, 15)]
    failure = FAILURE / (2 * len(thresholds))
    proved = 0.0
    for threshold in thresholds:
        yes, false = int((loud > threshold).sum()), int((quiet > threshold).sum())
        least = stats.beta.ppf(failure, yes, TRIALS - yes + 1) if yes else 0.0
        most = stats.beta.isf(failure, false + 1, TRIALS - false)
        if least > AUDIT_DELTA:
            proved = max(proved, math.log((least - AUDIT_DELTA) / most))
    return proved


NOISE = 2.0


def test_an_attacker_proves_less_than_what_is_stated_and_finds_every_noise_that_is_too_small() -> None:
    honest = noised_sums(
        length=1, clip=1.0, noise_multiplier=NOISE, members=MEMBERS, shares=SURVIVORS - COLLUDERS, ring_bits=32,
        sums=1,
    )  # fmt: skip
    stated = skellam_epsilon([honest.release(1)], AUDIT_DELTA)
    proved = audited(honest)
    assert 0.4 * stated < proved <= stated
    # Shares that count on every site, of whom two dropped out and two tell: 3/7 of the noise; half the scale: 1/4.
    divided_by_all = replace(honest, share_variance=honest.variance // MEMBERS)
    half = replace(honest, share_variance=honest.share_variance // 4)
    for broken in (divided_by_all, half):
        assert audited(broken) > stated
