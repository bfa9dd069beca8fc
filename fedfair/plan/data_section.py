"""The base of every source's keys, with the facts of a source that rules elsewhere ask for.

Decides what a source is unless it says otherwise: its records have numeric columns of known ranges, a missing
number is refused, classes have no names, and no records are kept apart for testing. Which sources there are is
decided in `sources.py`, and reading one is the business of its module in `fedfair.tables.sources`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from fedfair.plan.fields import Scalar, Section


class DataSection(Section):
    """The keys of one source of records."""

    reader: ClassVar[str]
    """The module in `fedfair.tables.sources` that reads it."""

    has_numeric_columns: ClassVar[bool] = True
    """Whether its records have columns that can be standardised; pictures have none."""

    missing_number: ClassVar[Literal["refuse", "zero", "mean"]] = "refuse"
    """The treatment of a missing number, where the keys state none."""

    leaves_gaps: ClassVar[bool] = False
    """Whether a missing number may stay open until the overall mean, or the site's own, fills it in."""

    class_names: ClassVar[tuple[str, ...]] = ()
    """The names of its classes, in their order; empty where they have none."""

    inputs: ClassVar[int | None] = None
    """How many features every record of such a source has; None where its keys or the data tell."""

    person_column: ClassVar[str | None] = None
    """The column by which the data themselves say whose a record is; None where they do not."""

    @property
    def missing_ranges(self) -> tuple[str, ...]:
        """The numeric columns whose least and greatest value is not known beforehand; in words where unnamed."""
        return ()

    @property
    def known_inputs(self) -> int | None:
        """How many features a record has, at least 1; None where only the data can tell."""
        return self.inputs

    @property
    def owner_column(self) -> str | None:
        """The column by which the data themselves say who owns a record; None where they do not."""
        return getattr(self, "collaborator", None)

    @property
    def has_own_tests(self) -> bool:
        """Whether it brings test records of its own."""
        return getattr(self, "test", None) is not None

    @property
    def answer_column(self) -> str | None:
        """The column of the classes; None where they are in no column."""
        return None

    @property
    def named_classes(self) -> tuple[str, ...]:
        """The names of its classes under these keys; empty where they have none."""
        return self.class_names

    @property
    def class_values(self) -> tuple[tuple[Scalar, ...], ...]:
        """The values in the column that each class has; empty where the numbers of the classes are meant."""
        return ()
