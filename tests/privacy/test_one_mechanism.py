"""Noise is added in one way only: no other module of the product draws numbers that could be noise."""

from tests.trees import called

DRAWING = {
    "normal", "normal_", "randn", "randn_like", "standard_normal", "laplace", "exponential_", "poisson",
    "binomial", "gauss", "normalvariate", "log_normal_", "Normal", "Laplace", "MultivariateNormal",
}  # fmt: skip
"""Calls that draw from a distribution with tails, by their last name."""

ALLOWED = {
    ("fedfair/privacy/noise.py", "standard_normal"): "Draws.whole_noise, rounded to whole cells before it leaves",
    ("fedfair/privacy/noise.py", "normal_"): "the same on a GPU",
    ("fedfair/privacy/noise.py", "binomial"): "the size of a Poisson sample",
    ("fedfair/privacy/skellam.py", "poisson"): "shares of noise, whole numbers as they are drawn",
    ("fedfair/prediction/export.py", "normal"): "made-up features, to compare an export with its model",
    ("fedfair/training/dp_sgd.py", "randn"): "the features of a trial batch, before there are records",
}
"""Who may draw, and what it is for."""

NOISING = {"whole_noise", "with_noise", "noise_share"}
"""The names through which noise gets into numbers."""

NOISED = {
    ("fedfair/privacy/noise.py", "whole_noise"), ("fedfair/privacy/sample_level.py", "with_noise"),
    ("fedfair/simulation/vectorised/private_descent.py", "with_noise"),
    ("fedfair/training/dp_statistics.py", "with_noise"), ("fedfair/privacy/collaborator_level.py", "noise_share"),
    ("fedfair/privacy/shared_noise.py", "noise_share"),
}  # fmt: skip
"""Who uses them: steps in the loop and at once, evaluations and standardisations, and shares for a masked sum."""


def test_nothing_but_the_one_mechanism_draws_noise_in_whole_numbers() -> None:
    calls = {(place, name.rpartition(".")[2]) for place, name, _ in called()}
    assert {found for found in calls if found[1] in DRAWING} == set(ALLOWED)
    assert {found for found in calls if found[1] in NOISING} == NOISED
