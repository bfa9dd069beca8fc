"""A loss of any unit is told from another: thousandths of nats, millionths of a square, squares of dollars."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.report.figure_names import interval
from fedfair.results.loss_text import loss_text


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (0.0, "0.000"), (0.4321, "0.432"), (12.34567, "12.346"), (9999.9, "9999.900"),
        (6543210987.6, "6543210988"), (0.001, "0.001"), (0.0001234, "0.000123"), (1.5e-9, "0.00000000150"),
        (-0.25, "-0.250"), (float("inf"), "inf"), (float("nan"), "nan"),
    ],
)  # fmt: skip
def test_a_loss_has_the_decimals_that_its_size_needs(loss: float, text: str) -> None:
    assert loss_text(loss) == text


@given(st.floats(1e-15, 1e15), st.integers(1, 4))
def test_what_is_written_is_within_the_last_digit_that_counts(loss: float, usual: int) -> None:
    error = abs(float(loss_text(loss, usual)) - loss)
    assert error <= max(
        0.5 * 10.0**-usual if 1e-3 <= loss < 1e4 else 0.0, 0.5 * loss * 10.0 ** (1 - usual), 1e-9 * loss
    )


def test_figures_of_a_table_have_the_same_decimals_and_zeros_no_sign() -> None:
    assert loss_text(1e-17, beside=0.4) == "0.000"
    assert loss_text(0.000041, beside=0.000412) == "0.000041"
    assert interval((0.00001, 0.00042)) == "0.0000100 to 0.0004200"
    assert interval((1234567.8, 7654321.0)) == "1234568 to 7654321"
    assert loss_text(-0.00001, beside=1.0) == "0.000"
    assert loss_text(-0.0) == "0.000"
    assert loss_text(-0.5) == "-0.500"
