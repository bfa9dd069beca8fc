"""The form of a site's own file: `data: {format: {...}}` of `collaborator.yaml`.

Decides what one site may state about the writing of its own file: keys of the plan's `csv` that say how a text is
read, and the names that its columns have. What is left out is the plan's. Nothing here says what a column means:
which values there are, what is missing and what is summed stays the plan's business. The way back to the plan's
names is `fedfair.tables.site_form`'s business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Discriminator, Field, Tag, model_validator

from fedfair.plan.csv_table import DecimalMark, Encoding, Separator, ThousandsMark
from fedfair.plan.fields import LIST, WORD, Fault, Items, Scalar, Section, Text, refuse, repeated

MAPPING = "<mapping>"
"""The branch of a field that takes a mapping; angle brackets mark it as no key."""

OwnColumns = Annotated[
    Annotated[dict[Text, Text], Tag(MAPPING)] | Annotated[Items[Text], Tag(LIST)],
    Discriminator(lambda value: LIST if isinstance(value, list | tuple) else MAPPING),
]
OwnDates = Annotated[
    Annotated[dict[Text, Text], Tag(MAPPING)] | Annotated[Text, Tag(WORD)],
    Discriminator(lambda value: WORD if isinstance(value, str) else MAPPING),
]


class FormatSection(Section):
    """How this site's own file is written, where it differs from the plan's csv."""

    columns: OwnColumns | None = None
    """names of the file's columns by the plan's, {age: Alter_Jahre}, and line 1 names them; or the list of all
    columns, for a file without a header line; null: as the plan"""
    separator: Separator | None = None
    r"""what stands between two fields: ",", ";", "\t", "|" or " "; null: as the plan"""
    comment: Text | None = None
    """lines that begin with this text are omitted; left out: as the plan"""
    encoding: Encoding | None = None
    """how the file encodes its characters, such as latin-1; null: as the plan"""
    decimal: DecimalMark | None = None
    """what stands before the decimals of a number: "." or ","; null: as the plan"""
    thousands: ThousandsMark | None = None
    """what stands between groups of three digits: ".", ",", "'" or " "; null: nothing does; left out: as
    the plan"""
    dates: OwnDates = Field(default={})
    """form of the dates: one for all dates of the plan, such as "%d.%m.%Y", or {birth: "%d.%m.%Y"} for some
    columns"""
    missing_values: Items[str] | None = None
    """texts that mean a missing value in this file; null: as the plan"""
    missing_values_of: dict[Text, Items[Scalar]] = Field(default={})
    """values that mean a missing one in one column, such as {weight: [-9]}"""

    @model_validator(mode="after")
    def _check(self) -> FormatSection:
        refuse(self, self._faults())
        return self

    def _faults(self) -> Iterator[Fault]:
        if isinstance(self.columns, Mapping):
            names = list(self.columns.values())
            for index, name in repeated(names):
                column = list(self.columns)[index]
                first = list(self.columns)[names.index(str(name))]
                message = f"is {name!r}, and so is {first}"
                yield Fault(("columns", column), message, "name another column of the file for one of them")
        if self.decimal is not None and self.decimal == self.thousands:
            yield Fault(("thousands",), f"is {self.thousands!r}, and so is decimal", "state the mark of each")

    @property
    def site_names(self) -> Mapping[str, str]:
        """Names of the file's columns by the plan's, as far as they differ."""
        return self.columns if isinstance(self.columns, Mapping) else {}
