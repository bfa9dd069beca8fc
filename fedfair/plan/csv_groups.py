"""Groups of the keys of a table, and which of them contradict each other.

Decides the rules within a group: the form of a file, the answers of a record, the columns of numbers. The keys
themselves, with their words for people, are `csv_table.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedfair.plan.fields import Fault, repeated

if TYPE_CHECKING:
    from fedfair.plan.csv_table import CsvData

MIN_CLASSES = 2

DATE_DIRECTIVES = frozenset("YymdjHMSf%")
"""Letters that may follow a % in the form of a date; no names of months, which a locale decides, and no zones."""


def file_faults(table: CsvData) -> Iterator[Fault]:
    """Yield every rule that is broken by how files write the rows and numbers of a table."""
    for index, name in repeated(table.columns or ()):
        yield Fault(("columns", index), f"column {name!r} is listed twice", "give every column its own name")
    for name in () if table.columns is None else table.named_columns:
        if name not in (table.columns or ()):
            message = f"does not list column {name!r}, which the plan uses"
            yield Fault(("columns",), message, "name every column of the file, in the file's order")
    if table.thousands == table.decimal:
        message = f"is {table.thousands!r}, and so is decimal"
        yield Fault(("thousands",), message, "state the mark of each")
    if table.separator == table.thousands == " ":
        message = "is a blank, and blanks separate the fields"
        yield Fault(("thousands",), message, "state another separator, or null")


def answer_faults(table: CsvData) -> Iterator[Fault]:
    """Yield a fault where no column is predicted, or columns of two kinds are, and for classes at odds."""
    stated = {
        "label": table.label is not None,
        "target": table.target is not None,
        "labels": bool(table.labels),
        "time and event": table.time is not None or table.event is not None,
    }
    named = [name for name, is_stated in stated.items() if is_stated]
    if not named:
        remedy = "name the column to predict, or state target, labels, or time and event"
        yield Fault(("label",), "is null", remedy)
    if len(named) > 1:
        yield Fault((), f"states {' and '.join(named)}, and a record has one answer", "keep one of them")
    if (table.time is None) != (table.event is None):
        lacking = "time" if table.time is None else "event"
        yield Fault((lacking,), "is missing; survival needs time and event", "name the column")
    for index, column in repeated(table.labels):
        yield Fault(("labels", index), f"column {column!r} is listed twice", "remove one of them")
    for key, value in (("label_values", table.label_classes), ("label_above", table.label_above)):
        if value is not None and table.label is None and named:
            yield Fault((key,), f"has no meaning with {named[0]}", "remove it")
    yield from _class_faults(table)


def _class_faults(table: CsvData) -> Iterator[Fault]:
    if table.label_classes is not None and table.label_above is not None:
        message = f"is {table.label_above:g} while label_values lists the classes"
        yield Fault(("label_above",), message, "remove one of them")
    if table.label_classes is None:
        return
    if len(table.label_classes) < MIN_CLASSES:
        yield Fault(("label_values",), f"lists fewer than {MIN_CLASSES} classes", "list at least 2")
    for index, values in enumerate(table.label_classes):
        if not values:
            yield Fault(("label_values", index), "is a class without values", "list its values or remove it")
    placed = [(index, value) for index, values in enumerate(table.label_classes) for value in values]
    for position, value in repeated([value for _, value in placed]):
        yield listed_twice(("label_values", placed[position][0]), value)


def number_faults(table: CsvData) -> Iterator[Fault]:
    """Yield every rule that ranges and dates break."""
    if isinstance(table.numeric, str):
        for key, by_column in (("ranges", table.ranges), ("dates", table.dates)):
            if by_column:
                message = "names columns while numeric is all"
                yield Fault((key,), message, "list the numeric columns by name")
        return
    for name, (least, greatest) in table.ranges.items():
        if name not in table.numeric:
            yield Fault(("ranges", name), f"column {name!r} is not numeric", "name a column of numeric")
        if least >= greatest:
            message = f"from {least:g} to {greatest:g} is no range"
            yield Fault(("ranges", name), message, "write [least, greatest]")
    for name, form in table.dates.items():
        if name not in table.numeric:
            yield Fault(("dates", name), f"column {name!r} is not numeric", "name a column of numeric")
        used = set(re.findall(r"%(.?)", form, re.DOTALL))
        if not used & {"Y", "y"} or not used <= DATE_DIRECTIVES:
            message = f"{form!r} is no form of a date that can be read everywhere"
            remedy = 'write it like "%Y-%m-%d" or "%d.%m.%Y %H:%M": %Y or %y, and any of %m %d %j %H %M %S %f'
            yield Fault(("dates", name), message, remedy)


def listed_twice(place: tuple[str | int, ...], value: object) -> Fault:
    """Return the fault of a value that stands at a place for the second time."""
    return Fault(place, f"value {value!r} is listed twice", "remove one of them")
