"""The name that was probably meant."""

import pytest

from fedfair.likeness import meant, misspelt


def test_case_never_tells_two_names_apart() -> None:
    assert meant("Y", ["age", "y"]) == "y"
    assert meant("AGE", ["age", "y"]) == "age"
    assert meant("weight", ["age", "y"]) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [("Femle", "Female"), ("femal", "Female"), ("male", None), ("ward 2", None), ("F", None), ("unknown", None)],
)
def test_only_a_slip_of_the_pen_is_misspelt(text: str, found: str | None) -> None:
    assert misspelt(text, ["Female", "ward 1", "F"]) == found
