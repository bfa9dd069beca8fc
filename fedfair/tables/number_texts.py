"""Numbers and dates as a plan says that files write them.

Decides which texts are numbers: digits with a decimal point, or with the decimal mark and the marks of thousands
that the plan declares, and then only so. A date becomes its year with the part of the year that has gone by, so
that ranges and differences can be read: 2020-01-01 is 2020, and 1958-07-02 at noon is 1958.5. Decides too what
texts that are no numbers were probably meant to be.
"""

from __future__ import annotations

import calendar
import datetime as dt
import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.plan.csv_table import CsvData

MARKS = {".": ".", ",": ",", "'": "'\u2019", " ": " \u00a0\u2009\u202f"}
"""The characters that each declared mark of thousands stands for: an apostrophe and a blank have several."""

_GAPS = MARKS[" "]
_SIGN, _EXPONENT = "[+-]?", "(?:[eE][+-]?[0-9]+)?"
_WHOLE_GROUPS = re.compile(rf"{_SIGN}[0-9]{{1,3}}(?:,[0-9]{{3}})+")
_SEEN = (
    (re.compile(rf"{_SIGN}[0-9]*,[0-9]+{_EXPONENT}"), 'decimal: ","'),
    (re.compile(rf"{_SIGN}[0-9]{{1,3}}(?:\.[0-9]{{3}})*,[0-9]+"), 'decimal: "," and thousands: "."'),
    (re.compile(rf"{_SIGN}[0-9]{{1,3}}(?:[{_GAPS}][0-9]{{3}})*,[0-9]+"), 'decimal: "," and thousands: " "'),
    (re.compile(rf"{_SIGN}[0-9]{{1,3}}(?:['\u2019][0-9]{{3}})*,[0-9]+"), 'decimal: "," and thousands: "\'"'),
    (re.compile(rf"{_SIGN}[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?"), 'thousands: ","'),
    (re.compile(rf"{_SIGN}[0-9]{{1,3}}(?:\.[0-9]{{3}}){{2,}}"), 'thousands: "."'),
    (re.compile(rf"{_SIGN}[0-9]{{1,3}}(?:['\u2019][0-9]{{3}})+(?:\.[0-9]+)?"), 'thousands: "\'"'),
    (re.compile(rf"{_SIGN}[0-9]{{1,3}}(?:[{_GAPS}][0-9]{{3}})+(?:\.[0-9]+)?"), 'thousands: " "'),
    (re.compile(rf"{_SIGN}[0-9]*\.[0-9]+{_EXPONENT}"), 'decimal: "."'),
)
"""Texts that are no numbers as they were read, and the keys of the plan with which they would be."""

EXACT = 2**53
"""Whole numbers up to it are exact as 64-bit floats."""

_WHOLE = re.compile(r"[+-]?[0-9]+")
IN_A_PLAN = "under csv in the plan, or for one site's file alone under data.format in its collaborator.yaml"
"""Where it is stated how a file is written."""

DATE_FORMS = (
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"), "%Y-%m-%d"),
    (re.compile(r"[0-9]{4}/[0-9]{1,2}/[0-9]{1,2}"), "%Y/%m/%d"),
    (re.compile(r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}"), "%d.%m.%Y"),
    (re.compile(r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}"), "%d/%m/%Y"),
    (re.compile(r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}"), "%m/%d/%Y"),
    (re.compile(r"[0-9]{1,2}-[0-9]{1,2}-[0-9]{4}"), "%d-%m-%Y"),
    (re.compile(r"[0-9]{8}"), "%Y%m%d"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2} [0-9]{1,2}:[0-9]{2}"), "%Y-%m-%d %H:%M"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2} [0-9]{1,2}:[0-9]{2}:[0-9]{2}"), "%Y-%m-%d %H:%M:%S"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}T[0-9]{1,2}:[0-9]{2}:[0-9]{2}"), "%Y-%m-%dT%H:%M:%S"),
)
"""Forms of dates that are recognised; of a day and a month that may be either, the first that fits."""


@dataclass(frozen=True, slots=True)
class NumberForm:
    """How the numbers of a column are written.

    Attributes:
        decimal: the mark before the fraction.
        thousands: the mark between groups of three digits; None where there is none.
        date: the form of a date; None where the column has none.
    """

    decimal: str = "."
    thousands: str | None = None
    date: str | None = None

    def fits(self, text: str) -> bool:
        """Return whether a text is a number of this form, in its strictest spelling: digits and marks alone."""
        return _pattern(self).fullmatch(text) is not None

    @property
    def is_plain(self) -> bool:
        """Whether texts are read as any program writes them."""
        return self == NumberForm()

    def number(self, text: str) -> float | None:
        """Return the number that a text means; None where it means none."""
        if self.date is not None:
            return year_of_text(text, self.date)
        if not self.is_plain:
            if not self.fits(text):
                return None
            for mark in MARKS[self.thousands] if self.thousands else "":
                text = text.replace(mark, "")
            text = text.replace(self.decimal, ".")
        try:
            return float(text)
        except ValueError:
            return None

    def rounds(self, text: str, number: float) -> bool:
        """Return whether a text is a whole number, and `number`, which was made of it, is another one."""
        for mark in MARKS[self.thousands] if self.thousands else "":
            text = text.replace(mark, "")
        return self.date is None and _WHOLE.fullmatch(text) is not None and int(text) != int(number)

    def numbers(self, texts: NDArray[np.str_]) -> NDArray[np.float64]:
        """Return texts (n,) as numbers; infinity for what is none."""
        if self.is_plain:
            try:
                return texts.astype(np.float64)
            except ValueError:
                return np.array([_or_infinite(self.number(text)) for text in texts])
        return of_distinct(texts, lambda text: _or_infinite(self.number(text)))


FORMS = tuple(
    NumberForm(decimal, thousands)
    for decimal, thousands in (
        (".", None), (",", None), (",", "."), (",", " "), (",", "'"), (".", ","), (".", "'"), (".", " "),
    )
)  # fmt: skip
"""The forms of numbers that are recognised, the plain one first."""


def form_of(spec: CsvData, column: str) -> NumberForm:
    """Return how a plan's table writes the numbers of a column."""
    return NumberForm(spec.decimal, spec.thousands, spec.dates.get(column))


def of_distinct(texts: NDArray[np.str_], number: Callable[[str], float]) -> NDArray[np.float64]:
    """Return the number of every text, (n,), asking once for each distinct one."""
    import pandas as pd  # only who reads a table waits for it

    places, distinct = pd.factorize(texts.astype(np.object_))
    return np.array([number(text) for text in distinct], np.float64)[places]


def year_of_text(text: str, form: str) -> float | None:
    """Return a date as a year with its fraction; None where the text is no date of that form."""
    try:
        return year_of(dt.datetime.strptime(text, form).replace(tzinfo=dt.UTC))
    except ValueError:
        return None


def year_of(moment: dt.datetime | dt.date) -> float:
    """Return a moment as its year and the part of the year that has gone by: 2020-01-01 is 2020.

    A moment with a time zone is taken in coordinated universal time.
    """
    if not isinstance(moment, dt.datetime):
        moment = dt.datetime(moment.year, moment.month, moment.day, tzinfo=dt.UTC)
    elif moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    moment = moment.astimezone(dt.UTC)
    days = 366 if calendar.isleap(moment.year) else 365
    return moment.year + (moment - dt.datetime(moment.year, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(days=days)


def what_was_seen(texts: Sequence[str], column: str, form: NumberForm, *, fixed: bool = False) -> str:
    """Return a remedy for texts that should be numbers, by what they look like; empty where that is unknown.

    Args:
        texts: those that are no numbers, at least 1.
        column: whose texts they are.
        form: how the column was read.
        fixed: whether the form is that of a saved model, which nobody can change any more.
    """
    if form.date is not None and all(_has_shape(text, form.date) for text in texts):
        return "they have this form, and no calendar has such a day: correct them, or declare them as missing"
    kind, key = _seen(texts, column, form)
    if not kind:
        return ""
    if fixed:
        wanted = (
            "dates of the form " + form.date if form.date else f"numbers with {form.decimal!r} before decimals"
        )
        return f"they look like {kind}: write {wanted}, as the model's plan has it, or give --format '{{{key}}}'"
    return f"they look like {kind}: state {key} {IN_A_PLAN}"


_DIGITS = {"Y": "[0-9]{4}", "y": "[0-9]{2}", "j": "[0-9]{1,3}", "f": "[0-9]{1,6}", "%": "%"}


def _has_shape(text: str, form: str) -> bool:
    """Return whether a text has as many digits and the same marks as dates of a form, whatever day it says."""
    parts = re.split("%(.)", form)
    shape = "".join(
        _DIGITS.get(part, "[0-9]{1,2}") if place % 2 else re.escape(part) for place, part in enumerate(parts)
    )
    return re.fullmatch(shape, text) is not None


def date_form(texts: Sequence[str]) -> str | None:
    """Return the first form of dates that all texts have; None where there is none, or no text."""
    for pattern, form in DATE_FORMS:
        if texts and all(pattern.fullmatch(text) and year_of_text(text, form) is not None for text in texts):
            return form
    return None


def _seen(texts: Sequence[str], column: str, form: NumberForm) -> tuple[str, str]:
    """Return what texts look like and the key that says so; both empty where they look like nothing known."""
    date = date_form(texts)
    if date is not None and date != form.date:
        return "dates", f"dates: {{{column}: {json.dumps(date)}}}"
    if form.date is not None:
        return "", ""
    key = next((key for pattern, key in _SEEN if all(map(pattern.fullmatch, texts))), "")
    if not key:
        return "", ""
    if all(map(_WHOLE_GROUPS.fullmatch, texts)):
        return "numbers with a decimal comma or with marks of thousands", 'decimal: "," or thousands: ","'
    marks = [] if "decimal" not in key else ["a decimal comma" if 'decimal: ","' in key else "a decimal point"]
    return "numbers with " + " and ".join([*marks, *(["marks of thousands"] if "thousands" in key else [])]), key


@functools.cache
def _pattern(form: NumberForm) -> re.Pattern[str]:
    whole = "[0-9]+"
    if form.thousands is not None:
        marks = re.escape(MARKS[form.thousands])
        # One kind of mark in one number, three digits after each.
        whole = rf"(?:[0-9]{{1,3}}([{marks}])[0-9]{{3}}(?:\1[0-9]{{3}})*|[0-9]+)"
    point = re.escape(form.decimal)
    return re.compile(rf"{_SIGN}(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+){_EXPONENT}")


def _or_infinite(number: float | None) -> float:
    return math.inf if number is None else number
