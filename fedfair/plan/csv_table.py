"""The meaning of a table's columns: `task.data: {csv: {...}}`.

Decides which tables a plan can describe and which descriptions contradict themselves. Reading a file by the
description is `fedfair.tables.table_reader`'s business.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from fedfair.plan.data_section import DataSection
from fedfair.plan.fields import (
    LIST,
    LIST_WORD,
    Fault,
    Items,
    Scalar,
    Text,
    list_or_word,
    repeated,
)
from fedfair.plan.losses import Answers

Columns = Annotated[
    Annotated[Items[Text], Tag(LIST)] | Annotated[Literal["all"], Tag(LIST_WORD)], Discriminator(list_or_word)
]

NUMBER_POLICIES = ("refuse", "mean", "zero")
OTHER, OWN, MISSING = "other", "own", "missing"
CATEGORY_POLICIES = (OTHER, OWN, "refuse")

MIN_CLASSES = 2

DATE_DIRECTIVES = frozenset("YymdjHMSf%")
"""Letters that may follow a % in the form of a date; no names of months, which a locale decides, and no zones."""

ONE_VALUE = "<value>"
"""The branch of a class that one value stands for; angle brackets mark it as no key."""

Separator = Literal[",", ";", "\t", "|", " "]
DecimalMark = Literal[".", ","]
ThousandsMark = Literal[".", ",", "'", " "]
"""Marks that a file may write between fields, before decimals, and between groups of three digits."""

Encoding = Literal[
    "utf-8",
    "utf-16",
    "latin-1",
    "iso-8859-2",
    "iso-8859-5",
    "iso-8859-7",
    "iso-8859-9",
    "iso-8859-15",
    "cp437",
    "cp850",
    "cp1250",
    "cp1251",
    "cp1252",
    "cp1253",
    "cp1254",
    "mac-roman",
    "koi8-r",
    "gb18030",
    "big5",
    "shift_jis",
    "euc-jp",
    "euc-kr",
]
"""Encodings that Python brings on every machine, so that a plan means the same file everywhere."""

Range = Annotated[tuple[float, float], Field(strict=False)]

LabelClass = Annotated[
    Annotated[Items[Scalar], Tag(LIST)] | Annotated[Scalar, Tag(ONE_VALUE)],
    Discriminator(lambda value: LIST if isinstance(value, list | tuple) else ONE_VALUE),
]


def _needs_no_label(schema: dict[str, Any]) -> None:
    """Let an editor take a table whose answers are not in one column of classes."""
    schema["required"] = [name for name in schema["required"] if name != "label"]


class CsvData(DataSection):
    """A table: one record on each line."""

    model_config = ConfigDict(json_schema_extra=_needs_no_label)

    reader: ClassVar[str] = "table"
    leaves_gaps: ClassVar[bool] = True

    train: Text | None = None
    """file with the training rows, for a simulation; a path inside the workspace"""

    test: Text | None = None
    """file with the test rows, for a simulation; a path"""

    train_of: dict[Text, Text] = Field(default={})
    """file of each collaborator by its name, for a simulation in which each has its own; paths"""

    columns: Items[Text] | None = None
    """names of all columns, for files without a header line; null: line 1 names them"""

    separator: Separator = ","
    """what stands between two fields: ",", ";", "\\t" or "|", after which blanks are ignored; or " ": any run of
    blanks and tabs"""

    comment: Text | None = None
    """lines that begin with this text are omitted; null: there are none"""

    encoding: Encoding = "utf-8"
    """how a text file encodes its characters, such as latin-1, cp1252 or utf-16"""

    decimal: DecimalMark = "."
    """what stands before the decimals of a number: "." or ",\""""

    thousands: ThousandsMark | None = None
    """what stands between groups of three digits: ".", ",", "'" or " "; null: nothing does"""

    label: Text | None
    """column to predict, a class; or state target, labels, or time and event, as task.loss needs"""

    target: Text | None = None
    """column to predict, a number, for task.loss squared, huber, pinball or its own"""

    labels: Items[Text] = ()
    """columns to predict, each 0 or 1, for task.loss multi_label"""

    time: Text | None = None
    """column with the time until the event or until the last look, for survival"""

    event: Text | None = None
    """column that is 1 where the event happened at that time, 0 where it was not seen"""

    label_values: Items[LabelClass] | None = None
    """the label's values in the order of their classes, at least 2; several values of one class are a list, as in
    [0, [1, 2, 3]]; null where they are 0, 1, ..."""

    label_above: float | None = None
    """a label above this number is class 1, any other number class 0; or label_values"""

    numeric: Columns = ()
    """columns used as numbers: a list, or all (every column not named elsewhere)"""

    dates: dict[Text, Text] = Field(default={})
    """numeric columns that hold dates, each with its form, such as {birth: "%d.%m.%Y"}; a date is its year with
    the part of the year that has gone by, 2020-07-02 being 2020.5, and ranges are in years"""

    categorical: dict[Text, Items[Scalar]] = Field(default={})
    """columns used as categories, each with its values; any other value falls into one more column"""

    collaborator: Text | None = None
    """column that says which collaborator owns a row, for a simulation"""

    ranges: dict[Text, Range] = Field(default={})
    """least and greatest value of a numeric column, such as {age: [0, 120]}; a file with another value is refused,
    and masked sums are as fine as the range allows"""

    missing: Literal["refuse", "mean", "zero"] = "refuse"
    """what to do with a missing number: refuse the file, or fill in zero, or the mean: that of all sites under
    standardize: secure, the middle of the range under ranges, otherwise the site's own"""

    missing_of: dict[Text, Literal["refuse", "mean", "zero", "other", "own"]] = Field(default={})
    """columns that differ: refuse, mean or zero for a number; other (like any other value; the default), own (one
    more column) or refuse for a category"""

    missing_values: Items[str] = ("", "?", "NA")
    """texts that mean a missing value"""

    missing_values_of: dict[Text, Items[Scalar]] = Field(default={})
    """more values that mean a missing one in one column, such as {cholesterol: [0]}"""

    rows: dict[Text, Items[Scalar]] = Field(default={})
    """take only rows with one of these values in these columns, such as {year: [2018]}"""

    keep: Items[Text] = ()
    """columns kept for partitions and group reports; never features by themselves"""

    @model_validator(mode="before")
    @classmethod
    def _without_label(cls, values: Any) -> Any:  # noqa: ANN401 - whatever a file says
        """Take a table of other answers without a label, which else must be stated."""
        others = {"target", "labels", "time", "event"}
        if isinstance(values, Mapping) and "label" not in values and others & values.keys():
            return {**values, "label": None}
        return values

    @property
    def missing_ranges(self) -> tuple[str, ...]:
        """The numeric columns without a range; in words under `numeric: all`."""
        if isinstance(self.numeric, str):
            return ("all numeric columns",)
        return tuple(name for name in self.numeric if name not in self.ranges)

    @property
    def answer_columns(self) -> tuple[str, ...]:
        """The columns that are predicted: one class, one number, several labels, or a time and its event."""
        return tuple(name for name in (self.label, self.target, *self.labels, self.time, self.event) if name)

    @property
    def answers(self) -> Answers:
        """The kind of a record's answer."""
        if self.target is not None:
            return "number"
        if self.time is not None or self.event is not None:
            return "time"
        return "labels" if self.labels else "class"

    @property
    def label_classes(self) -> tuple[tuple[Scalar, ...], ...] | None:
        """The values of every class; None where the plan does not list them."""
        if self.label_values is None:
            return None
        return tuple(values if isinstance(values, tuple) else (values,) for values in self.label_values)

    @property
    def feature_columns(self) -> frozenset[str]:
        """The columns that the plan names as features; under `numeric: all` the categories alone."""
        numeric = () if isinstance(self.numeric, str) else self.numeric
        return frozenset((*numeric, *self.categorical))

    @property
    def known_inputs(self) -> int | None:
        """How many features a record has; None under `numeric: all`."""
        return None if isinstance(self.numeric, str) else len(self.numeric) + self.category_columns

    @property
    def category_columns(self) -> int:
        """How many features the categories become."""
        return sum(len(self.coding_of(column)) for column in self.categorical)

    def coding_of(self, column: str) -> tuple[str, ...]:
        """Return the names of the features that a category becomes, in order, each 0 or 1.

        There is one for each value, one for any other value, and with `missing_of: own` one for a missing one.
        """
        more = (OTHER, MISSING) if self.missing_of.get(column) == OWN else (OTHER,)
        return tuple(f"{column}={value}" for value in (*self.categorical[column], *more))

    def faults(self) -> Iterator[Fault]:
        """Yield every rule that the description breaks; none where it is a section that was validated."""
        return itertools.chain(
            _answer_faults(self),
            self._feature_faults(),
            self._missing_faults(),
            _number_faults(self),
            self._row_faults(),
            _file_faults(self),
        )

    @property
    def named_columns(self) -> tuple[str, ...]:
        """Every column that the description names, once; under `numeric: all` the others are features too."""
        numeric = () if isinstance(self.numeric, str) else self.numeric
        owner = () if self.collaborator is None else (self.collaborator,)
        return tuple(
            dict.fromkeys((*self.answer_columns, *numeric, *self.categorical, *owner, *self.rows, *self.keep))
        )

    def _feature_faults(self) -> Iterator[Fault]:
        numeric = () if isinstance(self.numeric, str) else self.numeric
        if self.numeric == () and not self.categorical:
            yield Fault(("numeric",), "no column is a feature", "name columns under numeric or categorical")
        for index, name in repeated(numeric):
            yield Fault(("numeric", index), f"column {name!r} is listed twice", "remove one of them")
        for index, name in enumerate(numeric):
            if name in self.categorical:
                yield Fault(("numeric", index), f"column {name!r} is both numeric and categorical", "choose one")
            if name in self.answer_columns:
                yield Fault(("numeric", index), f"the label {name!r} is also a feature", "remove it from numeric")
        for name, values in self.categorical.items():
            if name in self.answer_columns:
                place = ("categorical", name)
                yield Fault(place, f"the label {name!r} is also a feature", "remove it from categorical")
            if not values:
                yield Fault(("categorical", name), "has no values", "list at least 1")
            for index, value in repeated(values):
                yield _listed_twice(("categorical", name, index), value)

    def _missing_faults(self) -> Iterator[Fault]:
        for name, policy in self.missing_of.items():
            allowed = CATEGORY_POLICIES if name in self.categorical else NUMBER_POLICIES
            if policy not in allowed:
                kind = "a category" if name in self.categorical else "a number"
                message = f"{policy!r} has no meaning for {kind}"
                yield Fault(("missing_of", name), message, f"choose {', '.join(allowed)}")
            if policy != "other" and name in self.categorical:
                for index, value in enumerate(self.categorical[name]):
                    if value in (*self.missing_values, *self.missing_values_of.get(name, ())):
                        message = f"value {value!r} means a missing one, for which missing_of says {policy!r}"
                        yield Fault(("categorical", name, index), message, "remove it here or there")
        for key, names in (("missing_of", self.missing_of), ("missing_values_of", self.missing_values_of)):
            for name in names:
                if not self._is_feature(name):
                    yield Fault((key, name), f"column {name!r} is no feature", "name a numeric or categorical one")

    def _row_faults(self) -> Iterator[Fault]:
        for name, values in self.rows.items():
            if not values:
                yield Fault(("rows", name), "has no values, so that no row is taken", "list at least 1")
        if self.train_of and (self.train is not None or self.test is not None or self.collaborator is not None):
            message = "names a file of each collaborator beside train, test or collaborator"
            yield Fault(("train_of",), message, "keep one of the two ways to say whose a row is")

    def _is_feature(self, name: str) -> bool:
        """Return whether a column may be one; under numeric: all, whatever has no other role."""
        if isinstance(self.numeric, str):
            return name not in {*self.answer_columns, self.collaborator, *self.keep}
        return name in self.categorical or name in self.numeric


# ------------------------------------------------------------------ which keys contradict each other


def _file_faults(table: CsvData) -> Iterator[Fault]:
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


def _answer_faults(table: CsvData) -> Iterator[Fault]:
    """Yield a fault where no column is predicted, or columns of two kinds are, and for classes at odds."""
    stated = {
        "label": table.label is not None,
        "target": table.target is not None,
        "labels": bool(table.labels),
        "time and event": table.time is not None or table.event is not None,
    }
    named = [name for name, is_stated in stated.items() if is_stated]
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
        yield _listed_twice(("label_values", placed[position][0]), value)


def _number_faults(table: CsvData) -> Iterator[Fault]:
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


def _listed_twice(place: tuple[str | int, ...], value: object) -> Fault:
    """Return the fault of a value that stands at a place for the second time."""
    return Fault(place, f"value {value!r} is listed twice", "remove one of them")
