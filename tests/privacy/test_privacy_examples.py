"""The examples of docs/explain/privacy.md: every figure in them is computed again."""

import math

import pytest

from fedfair.privacy.accounting import epsilon
from fedfair.privacy.collaborator_level import noised_sums
from fedfair.privacy.releases import GaussianRelease
from fedfair.privacy.skellam import skellam_epsilon
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "explain" / "privacy.md").read_text(encoding="utf-8")
DELTA = 1e-5


def rows(name: str) -> list[list[float]]:
    """Return the numbers of each row of the table with a name."""
    text = PAGE.split(f"<!-- five hospitals: {name} -->")[1].split("<!-- /")[0]
    lines = text.strip().splitlines()[2:]
    return [[float(cell.replace(" ", "")) for cell in line.strip("| ").split("|")] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("row", rows("records"), ids=lambda row: f"noise {row[0]:g}")
def test_the_epsilon_of_each_hospital_is_what_the_accountant_says(row: list[float]) -> None:
    noise, *stated = row
    evaluations = GaussianRelease("evaluation", 20.0, 1.0, 12)
    for records, told in zip((300, 800, 2000, 5000, 12_000), stated, strict=True):
        found = epsilon([GaussianRelease("training", noise, 64 / records, 100), evaluations], DELTA)
        assert told == float(f"{found:.2f}") or told == float(f"{found:.3g}")


@pytest.mark.parametrize("row", rows("sites"), ids=lambda row: f"noise {row[0]:g}")
def test_the_epsilon_of_whole_hospitals_and_its_noise_are_what_skellam_says(row: list[float]) -> None:
    noise, *stated, deviation = row
    for rounds, told in zip((10, 30, 100), stated, strict=True):
        sums = noised_sums(
            length=12, clip=1.0, noise_multiplier=noise, members=5, shares=3, ring_bits=32, sums=rounds
        )
        assert told == float(f"{skellam_epsilon([sums.release(rounds)], DELTA):.2f}")
        # Five shares are in the sum of which the mean is a fifth.
        assert deviation == float(f"{math.sqrt(5 * sums.share_variance) / sums.scale / 5:.2f}")


def test_the_evaluations_alone_cost_what_the_page_says() -> None:
    alone = epsilon([GaussianRelease("evaluation", 20.0, 1.0, 12)], DELTA)
    assert f"The evaluations alone cost {alone:.2f}." in PAGE.replace("\n", " ")
