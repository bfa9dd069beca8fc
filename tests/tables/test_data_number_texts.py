import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.tables.number_texts import NumberForm, date_form, what_was_seen, year_of

GERMAN, SWISS, FRENCH = NumberForm(",", "."), NumberForm(".", "'"), NumberForm(",", " ")


@pytest.mark.parametrize(
    ("form", "text", "number"),
    [
        (GERMAN, "1.234,5", 1234.5), (GERMAN, "-1.234.567", -1234567.0), (GERMAN, "1234,5e-1", 123.45),
        (GERMAN, ",5", 0.5), (GERMAN, "7", 7.0), (SWISS, "1'234.5", 1234.5), (SWISS, "1\u2019234", 1234.0),
        (FRENCH, "1 234,5", 1234.5), (FRENCH, "1\u202f234\u202f567,5", 1234567.5),
        (NumberForm(","), "+0,25", 0.25),
    ],
)  # fmt: skip
def test_a_number_is_read_by_the_marks_that_are_declared(form: NumberForm, text: str, number: float) -> None:
    assert form.number(text) == number
    assert form.numbers(np.array([text, text])).tolist() == [number] * 2


@pytest.mark.parametrize(
    "text", ["1.5", "12.34,5", "1.2345", "1..234", "", ",", "1,5,5", "inf", "nan", "1_0", " 1"]
)
def test_whatever_else_is_no_number_where_marks_are_declared(text: str) -> None:
    assert GERMAN.number(text) is None
    assert NumberForm(",").number("1.5") is None
    assert GERMAN.numbers(np.array([text])).tolist() == [float("inf")]


@given(st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)))
def test_a_date_is_its_year_and_the_part_of_it_that_has_gone_by(day: dt.date) -> None:
    length = (dt.date(day.year, 12, 31) - dt.date(day.year, 1, 1)).days + 1
    expected = day.year + (day.timetuple().tm_yday - 1) / length
    assert year_of(day) == expected
    assert NumberForm(date="%d.%m.%Y").number(f"{day.day:02}.{day.month:02}.{day.year:04}") == expected


@pytest.mark.parametrize(
    ("texts", "key"),
    [
        (["130,6", "12,25"], 'a decimal comma: state decimal: ","'),
        (["1.234,50", "999,00"], 'decimal: "," and thousands: "."'),
        (["1,234", "5,678"], 'state decimal: "," or thousands: ","'), (["1,234,567"], 'thousands: ","'),
        (["1,234.5"], 'thousands: ","'), (["1.234.567"], 'thousands: "."'), (["1'234.5"], 'thousands: "\'"'),
        (["1 234"], 'thousands: " "'), (["1 234,5"], 'decimal: "," and thousands: " "'),
        (["31.12.1999", "1.2.2000"], 'state dates: {born: "%d.%m.%Y"}'),
        (["12/31/1999", "1/2/2000"], '"%m/%d/%Y"'), (["31/12/1999", "1/2/2000"], '"%d/%m/%Y"'),
        (["1999-12-31"], '"%Y-%m-%d"'), (["1999-12-31 23:59"], '"%Y-%m-%d %H:%M"'),
    ],
)  # fmt: skip
def test_what_texts_look_like_is_said_with_the_key_that_declares_it(texts: list[str], key: str) -> None:
    assert key in what_was_seen(texts, "born", NumberForm())
    fixed = what_was_seen(texts, "born", NumberForm(), fixed=True)
    assert "as the model's plan has it" in fixed
    assert "state" not in fixed


def test_marks_of_numbers_and_forms_of_dates_are_those_of_all_texts() -> None:
    assert FRENCH.number("1 234\u00a0567") is None
    assert year_of(dt.datetime(1958, 7, 2, 12, tzinfo=dt.UTC)) == 1958.5
    zone = dt.timezone(dt.timedelta(hours=2))
    assert year_of(dt.datetime(2020, 1, 1, 2, tzinfo=zone)) == 2020
    days = [dt.date(2019, 12, 30) + dt.timedelta(days=number) for number in range(800)]
    assert np.all(np.diff([year_of(day) for day in days]) > 0)
    assert 'state decimal: "."' in what_was_seen(["1.5"], "x", NumberForm(","))
    assert what_was_seen(["one", "1,5"], "x", NumberForm()) == ""
    assert "no calendar has such a day" in what_was_seen(["32.01.2020"], "x", NumberForm(date="%d.%m.%Y"))
    assert what_was_seen(["32.01.20"], "x", NumberForm(date="%d.%m.%Y")) == ""
    assert date_form(["1/2/2000", "13/2/2000"]) == "%d/%m/%Y"
    assert date_form(["1/2/2000", "1.2.2000"]) is None
    assert date_form([]) is None
