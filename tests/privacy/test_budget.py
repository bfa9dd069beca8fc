"""A limit lets through what the accountant affords, and nothing more, however cleverly it remembers."""

import math
from dataclasses import replace

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedfair.errors import PrivacyError
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.budget import Budget, Limit, largest, remaining
from fedfair.privacy.entries import LedgerEntry, Origin, Written
from fedfair.privacy.releases import GaussianRelease, SkellamRelease, Unprotected

STEP = GaussianRelease("training", 2.0, 0.1, 3, clip=1.0)
LOOK = GaussianRelease("evaluation", 8.0, 1.0, 1)
OWN = Origin("clinic-a", "heart", "sha256:" + "a" * 64, None)


def entry(release: Written, origin: Origin = OWN) -> LedgerEntry:
    return LedgerEntry("2031-05-04T10:11:12+00:00", origin, release)


def limit(budget: Budget) -> Limit:
    return Limit("the budget of this site", budget, OWN.may_share_records, "raise it")


def exactly(releases: list[GaussianRelease], delta: float) -> float:
    """Return epsilon of Gaussian sums without sampling, from Balle and Wang 2018, Theorem 8.

    Together they are one sum with the noise multiplier 1 / mu, mu^2 = sum of steps / sigma^2.
    """
    mu = math.sqrt(sum(release.steps / release.noise_multiplier**2 for release in releases))

    def excess(eps: float) -> float:
        return norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu) - delta

    return float(brentq(excess, 0.0, 50.0))


def test_a_limit_lets_through_exactly_what_is_affordable_however_it_remembers() -> None:
    kinds = [LOOK, replace(LOOK, noise_multiplier=15.0), replace(LOOK, noise_multiplier=5.0, steps=2)]
    tracked, made, refused = limit(Budget(1.0)), [], 0
    for turn in range(14):
        release = kinds[turn * turn % 3]
        would = exactly([*made, release], 1e-5)
        # The accountant overstates epsilon by up to 1e-3; nothing here is that close to the budget.
        assert abs(would - 1.0) > 2e-3
        assert tracked.allows(release) == (would <= 1.0)
        if would > 1.0:
            refused += 1
            continue
        tracked.count(entry(release))
        made.append(release)
    assert 4 <= refused <= 10
    assert tracked.cost() == pytest.approx(exactly(made, 1e-5), abs=1e-3)


def test_a_refusal_says_how_much_is_spent_left_and_needed() -> None:
    tracked = limit(Budget(1.0))
    spent, would = epsilon([LOOK], 1e-5), epsilon([replace(LOOK, steps=8)], 1e-5)
    tracked.count(entry(LOOK))
    with pytest.raises(PrivacyError) as caught:
        tracked.check(replace(LOOK, steps=7))
    assert caught.value.message == (
        "the budget of this site allows no further evaluation release: "
        f"{spent:.4g} of epsilon 1 at delta 1e-05 is spent, {1 - spent:.4g} is left, "
        f"with this it would be {would:.4g}"
    )
    assert caught.value.remedy == "raise it"


def test_what_carried_no_noise_for_records_leaves_nothing_of_a_budget() -> None:
    tracked = limit(Budget(100.0))
    tracked.check(STEP)
    tracked.count(entry(Unprotected("evaluation")))
    with pytest.raises(PrivacyError, match="no epsilon covers the evaluation sums without noise, on 2031-05-04"):
        tracked.check(STEP)
    with pytest.raises(PrivacyError, match="training sums of this plan carry no noise"):
        limit(Budget(100.0)).check(Unprotected("training"))
    tracked, sums = limit(Budget(100.0)), SkellamRelease("training", 100.0, 10.0, 1e9, 1)
    with pytest.raises(PrivacyError, match="training sums of this plan carry no noise for single records"):
        tracked.check(sums)
    tracked.count(entry(sums))
    with pytest.raises(PrivacyError, match="the training sums under noise for whole collaborators only, on 2031"):
        tracked.check(STEP)


@pytest.mark.parametrize(
    ("own", "other", "shared"),
    [(None, None, True), (None, "old", True), ("new", None, True), ("new", "new", True), ("new", "old", False)],
)
def test_records_without_a_name_may_be_anybodys(own: str | None, other: str | None, shared: bool) -> None:
    tracked = Limit("it", Budget(9.0), replace(OWN, data_set=own).may_share_records, "")
    tracked.count(entry(STEP, replace(OWN, data_set=other, plan_digest="sha256:" + "b" * 64)))
    assert tracked.spent == ((STEP,) if shared else ())


@pytest.mark.parametrize("turn", range(-1, 12))
def test_the_largest_number_is_found(turn: int) -> None:
    assert largest(lambda number: number <= turn, 10) == min(turn, 10)


def test_what_remains_of_a_plan_is_asked_on_top_of_what_was_spent() -> None:
    planned = (replace(STEP, steps=30), LOOK)
    assert remaining(planned, [STEP, STEP, replace(LOOK, steps=5)]) == (replace(STEP, steps=24),)
    assert remaining(planned, ()) == planned
    looks = [replace(LOOK, steps=4)]
    bound = limit(Budget(epsilon([*looks, LOOK], 1e-5) - 1e-3))
    assert bound.affords([LOOK])
    bound.count(entry(looks[0]))
    assert not bound.affords([LOOK])
    assert bound.affords([])
