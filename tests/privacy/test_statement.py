"""The two sentences, word for word, and every reason not to say them."""

import math
from dataclasses import replace

import pytest

from fedfair.errors import PrivacyError
from fedfair.privacy.releases import GaussianRelease
from fedfair.privacy.statement import (
    CollaboratorLevelFacts,
    SampleLevelFacts,
    collaborator_level_sentence,
    sample_level_sentence,
)

RECORDS = SampleLevelFacts(
    holder="collaborator clinic-a",
    releases=(
        GaussianRelease("training", 1.1, 0.05, 100, clip=1.0),
        GaussianRelease("evaluation", 20.0, 1.0, 4),
        GaussianRelease("training", 1.1, 0.05, 200, clip=1.0),
    ),
    epsilon=2.71828,
    delta=1e-5,
    accountant="PLD (dp-accounting 0.6.0)",
)
SITES = CollaboratorLevelFacts(8.0, 1e-5, 1, fewest_survivors=9, noise_shares=8, skellam=1234.5, rounds=100)


def test_the_sentences_about_records_and_collaborators() -> None:
    assert sample_level_sentence(RECORDS) == (
        "(ε=2.719, δ=1e-05) DP, unit = one record of collaborator clinic-a (zero-out: replaced by one that "
        "contributes nothing; how many records there are is public), "
        "Poisson sampling q=0.05, noise multiplier=1.1, clip=1, steps=300, "
        "4 evaluation sums with noise multiplier 20, accountant PLD (dp-accounting 0.6.0), statistical PRNG; "
        "covers: training updates, evaluation sums."
    )
    assert collaborator_level_sentence(SITES) == (
        "(ε=8, δ=1e-05) DP, unit = one collaborator (zero-out), against the aggregator and up to 1 colluders, "
        "if ≥ 8 honest noise shares are in every round; Skellam μ=1234.5, T=100, RDP."
    )


@pytest.mark.parametrize(
    ("epsilon", "said"), [(0.62001, "0.6201"), (0.62, "0.62"), (12.3401, "12.35"), (0.0, "0")]
)
def test_no_epsilon_is_stated_that_is_smaller_than_what_was_proved(epsilon: float, said: str) -> None:
    assert f"(ε={said}, δ=1.2345678e-07)" in sample_level_sentence(
        replace(RECORDS, epsilon=epsilon, delta=1.2345678e-7)
    )
    assert f"(ε={said}, δ=1e-05)" in collaborator_level_sentence(replace(SITES, epsilon=epsilon))


def test_masks_that_a_lying_aggregator_could_open_promise_nothing_against_one() -> None:
    said = collaborator_level_sentence(replace(SITES, may_lie=False))
    assert "against an aggregator that follows the protocol and up to 1 colluders" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"complete": False}, "outside the accountant"), ({"epsilon": math.inf}, "no epsilon covers"),
        ({"epsilon": math.nan}, "no epsilon covers"), ({"releases": ()}, "nothing was released"),
    ],
)  # fmt: skip
def test_nothing_is_said_of_records_where_it_would_be_false(change: dict[str, object], words: str) -> None:
    with pytest.raises(PrivacyError, match=words):
        sample_level_sentence(replace(RECORDS, **change))


def test_a_round_of_every_record_has_the_rate_1() -> None:
    every_record = GaussianRelease("training", 3.0, 1.0, 5)
    assert "q=1, " in sample_level_sentence(replace(RECORDS, releases=(every_record,)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fewest_survivors": 8}, "7 honest noise shares, and 8 were counted on"),
        ({"colluders": 2}, "7 honest noise shares"), ({"fixed_weights": False}, "weights of the collaborators"),
        ({"complete": False}, "outside the accountant"), ({"epsilon": math.inf}, "no epsilon covers"),
    ],
)  # fmt: skip
def test_nothing_is_said_of_collaborators_where_it_would_be_false(change: dict[str, object], words: str) -> None:
    with pytest.raises(PrivacyError, match=words):
        collaborator_level_sentence(replace(SITES, **change))
