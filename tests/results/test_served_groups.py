"""From which group size on a result's model beats guessing, in one sentence."""

import math

import pytest

from fedfair.results.risks import ReportedGroupRisk, SplitRisk
from fedfair.results.served_groups import served_groups, served_sentence

GUESS = math.log(2)


def risk(worst: dict[str, float], mean: float, *, width: float | None = 0.0, few: str = "") -> SplitRisk:
    groups = {
        size: ReportedGroupRisk(
            worst=one, best=0.1, disparity=0.1, bound=None if width is None else (one - width, one + width)
        )
        for size, one in worst.items()
    }
    if few:
        groups[few] = ReportedGroupRisk(worst=None, best=None, disparity=None, bound=None)
    return SplitRisk(n=100, mean=mean, accuracy=0.8, by_group_size=groups)


HALF_SERVED = {"0.1": 1.2, "0.4": 0.6}


def test_both_sides_of_the_critical_size_are_said() -> None:
    mean = 0.30
    slope = (mean - 0.24) / 0.6
    from_size = (0.24 - slope * 0.4) / (GUESS - slope)
    to_size = 0.1 + 0.3 * (0.12 - 0.1 * GUESS) / (0.12 - 0.1 * GUESS + 0.4 * GUESS - 0.24)
    served = served_groups(risk(HALF_SERVED, mean, few="0.01"), GUESS)
    assert served.certain
    assert served.sizes.served_from == pytest.approx(from_size)
    assert served.sizes.not_served_to == pytest.approx(to_size)
    said = served_sentence(served)
    low, high = math.floor(100 * to_size), math.ceil(100 * from_size)
    assert (
        said == f"This model serves the worst {low} % no better than guessing; from {high} % on it certainly does."
    )
    named = served_sentence(served, group_size=0.1)
    assert (
        named == f"This model serves the worst 10 % no better than guessing; from {high} % on it certainly does."
    )
    family = served_sentence(served, group_size=0.1, family_lowest=0.129)
    assert family == (
        "No model of this kind serves the worst 12 % better than guessing (the critical group size); "
        f"from {high} % on this one certainly does."
    )


def test_sums_under_noise_prove_nothing() -> None:
    served = served_groups(risk(HALF_SERVED, 0.3, width=None), GUESS)
    assert not served.certain
    assert "on it by the estimates does" in served_sentence(served)


def test_a_model_that_serves_all_or_nobody_is_said_so() -> None:
    every = served_groups(risk({"0.1": 0.5}, 0.2), GUESS)
    # The sum of the worst tenth is 0.05, that of all 0.2: below a tenth it falls by 1/6 of the size at least, and
    # 0.05 - (0.1 - s) / 6 is log 2 times s at 0.0633. All of it may be one record's.
    assert served_sentence(every).startswith("From 7 % on, this model serves the worst group certainly better")
    flat = served_groups(risk({"0.1": 0.5}, 0.5), GUESS)
    assert served_sentence(flat) == (
        "This model serves the worst group of every size certainly better than guessing."
    )
    nobody = served_groups(risk({"0.1": 1.5}, 0.9), GUESS)
    assert served_sentence(nobody) == (
        "This model serves no group, not even all people together, certainly better than guessing."
    )
