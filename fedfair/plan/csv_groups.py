"""Groups of the keys of a table, and which of them contradict each other.

Decides the rules within a group: the form of a file, the answers of a record, the columns of numbers. The keys
themselves, with their words for people, are `csv_table.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedfair.plan.fields import Fault, Scalar, repeated
from fedfair.plan.losses import Answers

MIN_CLASSES = 2

DATE_DIRECTIVES = frozenset("YymdjHMSf%")
"""Letters that may follow a % in the form of a date; no names of months, which a locale decides, and no zones."""


@dataclass(frozen=True, slots=True)
class FileKeys:
    """How files write the rows and numbers of a table: the keys of these names."""

    columns: Sequence[str] | None
    separator: str
    decimal: str
    thousands: str | None

    def faults(self, named: Collection[str]) -> Iterator[Fault]:
        """Yield every rule that is broken; `named` are the columns that the description names."""
        for index, name in repeated(self.columns or ()):
            yield Fault(("columns", index), f"column {name!r} is listed twice", "give every column its own name")
        for name in () if self.columns is None else named:
            if name not in (self.columns or ()):
                message = f"does not list column {name!r}, which the plan uses"
                yield Fault(("columns",), message, "name every column of the file, in the file's order")
        if self.thousands == self.decimal:
            message = f"is {self.thousands!r}, and so is decimal"
            yield Fault(("thousands",), message, "state the mark of each")
        if self.separator == self.thousands == " ":
            message = "is a blank, and blanks separate the fields"
            yield Fault(("thousands",), message, "state another separator, or null")


@dataclass(frozen=True, slots=True)
class AnswerKeys:
    """What is predicted of a record: the keys of these names, and the values of every class."""

    label: str | None
    target: str | None
    labels: Sequence[str]
    time: str | None
    event: str | None
    label_above: float | None
    classes: Sequence[Sequence[Scalar]] | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are predicted: one class, one number, several labels, or a time and its event."""
        return tuple(name for name in (self.label, self.target, *self.labels, self.time, self.event) if name)

    @property
    def kind(self) -> Answers:
        """The kind of a record's answer."""
        if self.target is not None:
            return "number"
        if self.time is not None or self.event is not None:
            return "time"
        return "labels" if self.labels else "class"

    def faults(self) -> Iterator[Fault]:
        """Yield a fault where no column is predicted, or columns of two kinds are, and for classes at odds."""
        stated = {
            "label": self.label is not None,
            "target": self.target is not None,
            "labels": bool(self.labels),
            "time and event": self.time is not None or self.event is not None,
        }
        named = [name for name, is_stated in stated.items() if is_stated]
        if not named:
            remedy = "name the column to predict, or state target, labels, or time and event"
            yield Fault(("label",), "is null", remedy)
        if len(named) > 1:
            yield Fault((), f"states {' and '.join(named)}, and a record has one answer", "keep one of them")
        if (self.time is None) != (self.event is None):
            lacking = "time" if self.time is None else "event"
            yield Fault((lacking,), "is missing; survival needs time and event", "name the column")
        for index, column in repeated(self.labels):
            yield Fault(("labels", index), f"column {column!r} is listed twice", "remove one of them")
        for key, value in (("label_values", self.classes), ("label_above", self.label_above)):
            if value is not None and self.label is None and named:
                yield Fault((key,), f"has no meaning with {named[0]}", "remove it")
        yield from self._class_faults()

    def _class_faults(self) -> Iterator[Fault]:
        if self.classes is not None and self.label_above is not None:
            message = f"is {self.label_above:g} while label_values lists the classes"
            yield Fault(("label_above",), message, "remove one of them")
        if self.classes is None:
            return
        if len(self.classes) < MIN_CLASSES:
            yield Fault(("label_values",), f"lists fewer than {MIN_CLASSES} classes", "list at least 2")
        for index, values in enumerate(self.classes):
            if not values:
                yield Fault(("label_values", index), "is a class without values", "list its values or remove it")
        placed = [(index, value) for index, values in enumerate(self.classes) for value in values]
        for position, value in repeated([value for _, value in placed]):
            yield listed_twice(("label_values", placed[position][0]), value)


@dataclass(frozen=True, slots=True)
class NumberKeys:
    """The columns of numbers: the keys of these names; `numeric` is None where it is all."""

    numeric: Sequence[str] | None
    ranges: Mapping[str, tuple[float, float]]
    dates: Mapping[str, str]

    def faults(self) -> Iterator[Fault]:
        """Yield every rule that ranges and dates break."""
        if self.numeric is None:
            for key, by_column in (("ranges", self.ranges), ("dates", self.dates)):
                if by_column:
                    message = "names columns while numeric is all"
                    yield Fault((key,), message, "list the numeric columns by name")
            return
        for name, (least, greatest) in self.ranges.items():
            if name not in self.numeric:
                yield Fault(("ranges", name), f"column {name!r} is not numeric", "name a column of numeric")
            if least >= greatest:
                message = f"from {least:g} to {greatest:g} is no range"
                yield Fault(("ranges", name), message, "write [least, greatest]")
        for name, form in self.dates.items():
            if name not in self.numeric:
                yield Fault(("dates", name), f"column {name!r} is not numeric", "name a column of numeric")
            used = set(re.findall(r"%(.?)", form, re.DOTALL))
            if not used & {"Y", "y"} or not used <= DATE_DIRECTIVES:
                message = f"{form!r} is no form of a date that can be read everywhere"
                remedy = 'write it like "%Y-%m-%d" or "%d.%m.%Y %H:%M": %Y or %y, and any of %m %d %j %H %M %S %f'
                yield Fault(("dates", name), message, remedy)


def listed_twice(place: tuple[str | int, ...], value: object) -> Fault:
    """Return the fault of a value that stands at a place for the second time."""
    return Fault(place, f"value {value!r} is listed twice", "remove one of them")
