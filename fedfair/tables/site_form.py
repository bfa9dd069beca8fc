"""One site's own file beside the plan's description of a table: other marks and names, the same records.

Decides how the plan's description is put in the terms of one file, so that every reader takes that file as it
takes any other and names the file's own columns in a fault. What was read gets the plan's names back at once: no
sum, no digest of records and no model can tell in which form a site keeps its file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fedfair.errors import PlanError
from fedfair.likeness import meant
from fedfair.plan.csv_table import CsvData
from fedfair.plan.sources import CsvSource
from fedfair.plan.task import TaskSection
from fedfair.policy.site_format import FormatSection
from fedfair.tables.site_survey import mask_name
from fedfair.tables.table_reader import CsvRecords, csv_schema

KEY = "data.format"

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SiteTable:
    """A table as the plan describes it and as one file has it.

    Attributes:
        plan: the plan's description.
        file: the same in the words of the file: its marks, its forms of dates, its columns' names.
        names: of the file's columns by the plan's, as far as they differ.
    """

    plan: CsvData
    file: CsvData
    names: Mapping[str, str] = field(default_factory=dict)

    def in_file(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the names that the file has for columns of the plan."""
        return tuple(self.names.get(name, name) for name in columns)

    def in_plan(self, records: CsvRecords, classes: int | None) -> CsvRecords:
        """Return records that were read by the file's words under the plan's names, unchanged otherwise.

        Args:
            records: of the file.
            classes: number of classes that the plan states, if any.
        """
        if not self.names:
            return records
        own = {name: column for column, name in self.names.items()}
        raw = own | {mask_name(name): mask_name(column) for name, column in own.items()}
        dataset = records.dataset
        numeric = self.plan.numeric
        if isinstance(numeric, str):
            # These have no names in the plan, so they keep the file's.
            numeric = dataset.schema.names[: len(dataset.schema.numeric)]
        schema = csv_schema(self.plan, classes, numeric)
        columns = {raw.get(name, name): values for name, values in dataset.columns.items()}
        profiles = tuple(replace(each, name=own.get(each.name, each.name)) for each in records.columns)
        return CsvRecords(replace(dataset, schema=schema, columns=columns), profiles)


def site_table(
    plan: CsvData, stated: FormatSection | None, extra: Collection[str] = (), key: str = KEY
) -> SiteTable:
    """Return the plan's table in the words of a site's own file.

    Args:
        plan: the plan's description of the table.
        stated: what the site states of its file; None where that is nothing.
        extra: columns that are kept beside those which the description names.
        key: where the site has stated it, for faults.

    Raises:
        PlanError: the two do not go together: a column that the plan does not have, two columns with one name, or
            marks that contradict each other.
    """
    if stated is None:
        return SiteTable(plan, plan)
    _check_names(plan, stated.site_names, extra, key)
    names = {column: name for column, name in stated.site_names.items() if column != name}
    file = _renamed(plan.model_copy(update=_marks(plan, stated, key)), names)
    faults = [
        f"{key}.{'.'.join(map(str, fault.place))}: {fault.message} -> {fault.remedy}" for fault in file.faults()
    ]
    if faults:
        raise PlanError("\n  ".join([f"{key} and the plan do not go together:", *faults]))
    return SiteTable(plan, file, names)


def check_form(task: TaskSection, stated: FormatSection | None) -> None:
    """Refuse a form that does not go with the plan, before any record is read.

    Raises:
        PlanError: as for `site_table`, or the plan describes no table.
    """
    if stated is None:
        return
    if not isinstance(task.data, CsvSource):
        raise PlanError(
            f"{KEY}: says how a table is written, and the plan describes no table",
            "remove it from collaborator.yaml",
        )
    divided = None if task.partition is None else task.partition.column
    site_table(task.data.csv, stated, () if divided is None else (divided,))


def _marks(plan: CsvData, stated: FormatSection, key: str) -> dict[str, object]:
    """Return the keys of the description that are the file's own, with the plan's names of columns."""
    marks = {name: getattr(stated, name) for name in ("separator", "encoding", "decimal", "missing_values")}
    own: dict[str, object] = {name: value for name, value in marks.items() if value is not None}
    # Null means something of its own here: there are none.
    own |= {name: getattr(stated, name) for name in ("comment", "thousands") if name in stated.model_fields_set}
    if stated.columns is not None:
        own["columns"] = None if isinstance(stated.columns, Mapping) else tuple(stated.columns)
    if isinstance(stated.dates, str):
        if not plan.dates:
            raise PlanError(
                f"{key}.dates: is one form for all dates, and the plan has none",
                f'name the columns, such as {{birth: "{stated.dates}"}}',
            )
        own["dates"] = dict.fromkeys(plan.dates, stated.dates)
    elif stated.dates:
        own["dates"] = plan.dates | _by_plan(plan, stated, stated.dates)
    if stated.missing_values_of:
        own["missing_values_of"] = plan.missing_values_of | _by_plan(plan, stated, stated.missing_values_of)
    return own


def _by_plan(plan: CsvData, stated: FormatSection, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return values by the plan's names of columns, also where a column is stated by its name in the file."""
    names = {name: column for column, name in stated.site_names.items()}
    known = plan.named_columns
    return {column if column in known else names.get(column, column): value for column, value in values.items()}


def _check_names(plan: CsvData, names: Mapping[str, str], extra: Collection[str], key: str) -> None:
    """Raise a PlanError for a name that the plan does not have, or that two of its columns would have."""
    known = tuple(dict.fromkeys((*plan.named_columns, *extra)))
    for column in names:
        if column in known:
            continue
        close = meant(column, known)
        remedy = f"did you mean {close!r}?" if close else f"the plan's columns are {', '.join(known)}"
        if isinstance(plan.numeric, str) and not close:
            remedy += "; under numeric: all it knows no others, so have it list them"
        raise PlanError(f"{key}.columns: the plan has no column {column!r}", f"{remedy}; write {{PLAN: FILE}}")
    of_file: dict[str, str] = {}
    for column in known:
        name = names.get(column, column)
        if name in of_file:
            unnamed = of_file[name] if column in names else column
            raise PlanError(
                f"{key}.columns: {of_file[name]!r} and {column!r} of the plan are both {name!r} of the file",
                f"state which column of the file is {unnamed!r}",
            )
        of_file[name] = column


def _renamed(table: CsvData, names: Mapping[str, str]) -> CsvData:
    """Return a description with the file's names of its columns."""

    def renamed(value: object) -> object:
        match value:
            case str():
                return names.get(value, value)
            case Mapping():
                return {names.get(name, name): each for name, each in value.items()}
            case tuple():
                return tuple(names.get(name, name) for name in value)
        return value

    listed = () if isinstance(table.numeric, str) else ("numeric",)
    return table.model_copy(
        update={name: renamed(getattr(table, name)) for name in (*_NAMING_COLUMNS, *listed)} if names else {}
    )


_NAMING_COLUMNS = (
    "label", "target", "time", "event", "collaborator", "labels", "keep", "dates", "categorical", "ranges",
    "missing_of", "missing_values_of", "rows",
)  # fmt: skip
"""The keys of a table that name columns, or have them as keys; `numeric` may be a word too."""
