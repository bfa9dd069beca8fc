"""Checks a site's own records against the plan, column by column, for the site alone; nothing of it is ever sent.

Decides what is described of a column and what is odd about it. A fault is what a start would refuse. An odd thing
is not refused: a column that never varies, records that are all the same, a spelling that is nearly a value,
values that are all outside of the declared range and inside of it in another unit, or a number that often stands
for a missing value. Where a file is refused, it is read once more without the rules that refuse values, so that
its columns can be shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.survey import CategorySummary, numeric_values, summarised, survey_layout
from fedfair.errors import DataError, FedfairError, PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.csv_table import MISSING, OTHER
from fedfair.plan.losses import HuberLoss, PinballLoss, SquaredLoss
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.policy.site_config import SiteConfig
from fedfair.tables.dataset import Dataset, Splits, concatenated
from fedfair.tables.profile import MAX_SHOWN, ColumnProfile, DataProfile, data_profile
from fedfair.tables.row_order import record_hashes
from fedfair.tables.site_form import site_table
from fedfair.tables.site_survey import SiteColumn, site_column, site_survey
from fedfair.tables.source import finished, read_unfinished, unfilled
from fedfair.tables.source_modules import FileRecords
from fedfair.tables.sources.table import open_table
from fedfair.tables.survey_faults import MIN_SPIKE, MISSING_CODES, is_far_from_the_rest
from fedfair.tables.text_table import counted
from fedfair.tables.unit_faults import CONVERSIONS
from fedfair.withdrawal.tombstone_file import owners_of

INSIDE = 0.95
"""The least share of values that another unit must bring into the declared range."""


SAME = 0.5
MIN_RECORDS = 20
"""So large a part of so many records is odd if it is one record again and again."""


@dataclass(frozen=True, slots=True)
class NumberCheck:
    """A numeric column.

    Attributes:
        name: the column.
        missing: records without a value.
        present: records with one.
        least: the least value, and so on to the greatest; None without values.
        mean: of the values; None without values.
        spread: their standard deviation, divisor n.
        range: as the plan declares it; None where it does not.
        outside: how many values are outside of it.
        odd: what somebody should look at, in words.
    """

    name: str
    missing: int
    present: int
    least: float | None
    quartiles: tuple[float, float, float] | None
    greatest: float | None
    mean: float | None
    spread: float | None
    range: tuple[float, float] | None
    outside: int
    odd: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CategoryCheck:
    """A categorical column.

    Attributes:
        name: the column.
        counts: how many records have each value of the plan, and `other` for any other value; who has none is
            not among them.
        missing: records without a value.
        odd: what somebody should look at, in words.
    """

    name: str
    counts: Mapping[str, int]
    missing: int
    odd: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DataCheck:
    """The outcome of a check of a site's own data.

    Attributes:
        records: how many there are, over all files; 0 where they cannot be read.
        splits: how many are trained on, and so on; empty where a start would refuse them.
        labels: how many records each class has, by the class as the plan writes it.
        numeric: the numeric columns.
        categories: the categorical ones.
        unused: columns of the file that the plan does not use.
        errors: what a start would refuse, with what to do.
        odd: what somebody should look at and is about no single column.
        withdrawn: how many persons have withdrawn at this site; their records are not among these.
    """

    records: int
    splits: Mapping[str, int]
    labels: Mapping[str, int]
    numeric: tuple[NumberCheck, ...]
    categories: tuple[CategoryCheck, ...]
    unused: tuple[str, ...]
    errors: tuple[str, ...]
    odd: tuple[str, ...]
    withdrawn: int = 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return every odd thing with its column."""
        columns: Sequence[NumberCheck | CategoryCheck] = (*self.numeric, *self.categories)
        told = (f"column '{column.name}': {words}" for column in columns for words in column.odd)
        return (*told, *self.odd)


def check_data(
    plan: Plan, site: SiteConfig, participant: ParticipantId, root: Path, *, code: Path | None = None
) -> DataCheck:
    """Return what a site's own records are like, and what is wrong with them; arguments as `read_site_records`."""
    errors: list[str] = []
    splits: Mapping[str, int] = {}
    read: FileRecords | None = None
    try:
        read = read_unfinished(plan, site, participant, root, code=code)
        own = finished(plan, participant, read.splits)
        splits = {name: len(part) for name, part in own.parts.items()}
    except FedfairError as fault:
        errors.append(fault.diagnostics())
    if read is None:
        try:
            read = read_unfinished(_lenient(plan), site, participant, root, code=code)
        except FedfairError:
            # What is wrong has been said already.
            return DataCheck(0, {}, {}, (), (), (), tuple(errors), ())
    # A number near the greatest that there is has no square; what is wrong with it is said as a fault.
    with np.errstate(over="ignore", invalid="ignore"):
        whole = concatenated(list(read.splits.parts.values()))
        layout = survey_layout(plan, whole.schema)
        records = unfilled(whole, layout)
        survey = site_survey(records, layout)
        values = numeric_values(records.features, layout)
        # A column that the plan does not know has the name of the site's own file.
        names = whole.schema.names
        numeric = tuple(
            _number(held, values[:, place], column.grid.range, names[column.place] if names else column.name)
            for place, (held, column) in enumerate(zip(survey.columns, layout.numeric, strict=True))
        )
        profiles = {profile.name: profile for profile in read.columns or ()}
        categories = tuple(
            _category(each, profiles.get(each.name)) for each in summarised(survey.header, layout).categories
        )
        profile = data_profile(plan.task, Splits(whole), ())
        return DataCheck(
            len(whole),
            splits,
            profile.labels,
            (*numeric, *_targets(plan, whole)),
            categories,
            _unused(plan, site, root),
            tuple(errors),
            (*_odd_labels(profile), *_odd_records(whole)),
            0 if (owners := owners_of(site)) is None else len(owners.withdrawn),
        )


def _targets(plan: Plan, whole: Dataset) -> Iterator[NumberCheck]:
    """Yield the column of the target, where it is a number."""
    loss, source = plan.task.loss, plan.task.data
    if isinstance(loss, SquaredLoss | HuberLoss | PinballLoss):
        name = source.csv.target if isinstance(source, CsvSource) else None
        values = np.asarray(whole.labels, np.float64)
        yield _number(site_column(name or "target", values), values, loss.target_range, name or "target")


def _number(
    own: SiteColumn, values: NDArray[np.float64], declared: tuple[float, float] | None, name: str
) -> NumberCheck:
    known = values[~np.isnan(values)]
    if not len(known):
        never = ("has no value in any record",) if own.missing else ()
        return NumberCheck(name, own.missing, 0, None, None, None, None, None, declared, 0, never)
    least, low, middle, high, greatest = np.quantile(known, [0.0, 0.25, 0.5, 0.75, 1.0]).tolist()
    mean, spread = float(known.mean()), float(known.std())
    outside = 0 if declared is None else int(np.count_nonzero((known < declared[0]) | (known > declared[1])))
    odd = tuple(_odd_number(own, known, declared, outside))
    quartiles = low, middle, high
    return NumberCheck(
        name, own.missing, own.present, least, quartiles, greatest, mean, spread, declared, outside, odd
    )


def _odd_number(
    own: SiteColumn, known: NDArray[np.float64], declared: tuple[float, float] | None, outside: int
) -> Iterator[str]:
    if own.distinct == 1 and len(known) > 1:
        yield f"is {known[0]:g} in all {len(known)} records"
    if declared is not None and outside == len(known):
        unit = _unit(known, declared)
        if unit:
            yield f"all values are outside of its range, {declared[0]:g} to {declared[1]:g}; {unit}"
    for value, times in own.common:
        often = times / own.present
        if value in MISSING_CODES and times > 1 and often >= MIN_SPIKE and is_far_from_the_rest(own, value):
            yield f"is {value:g} in {often:.0%} of the values, far from the rest: does it mean a missing one?"
            break


def _unit(known: NDArray[np.float64], declared: tuple[float, float]) -> str:
    """Return in words in which other unit the values would be in the declared range; empty for none."""
    least, greatest = declared
    inside = ((each, each.of(known)) for each in CONVERSIONS)
    found = [each.words for each, other in inside if np.mean((other >= least) & (other <= greatest)) >= INSIDE]
    return f"they fit in another unit, such as {'; or '.join(found)}" if found else ""


def _category(summary: CategorySummary, profile: ColumnProfile | None) -> CategoryCheck:
    counts = {value: count for value, count in summary.counts.items() if value != MISSING}
    unknown = summary.missing - summary.counts.get(MISSING, 0)
    counts[OTHER] -= unknown
    return CategoryCheck(summary.name, counts, summary.missing, tuple(_odd_category(counts, profile)))


def _odd_category(counts: Mapping[str, int], profile: ColumnProfile | None) -> Iterator[str]:
    total = sum(counts.values())
    if total > 1 and total in counts.values():
        alone = next(value for value, count in counts.items() if count == total)
        yield f"is {alone} in all {total} records that have a value"
    for one in () if profile is None else profile.case_variants[:MAX_SHOWN]:
        yield f"'{one.found}' in {counted(one.records, 'record')} {one.words}"


def _odd_labels(profile: DataProfile) -> Iterator[str]:
    if profile.one_class is not None:
        yield f"all records are of class {profile.one_class}; check the label column and label_values"


def _odd_records(whole: Dataset) -> Iterator[str]:
    """Yield what is odd about the records as a whole: that most of them are one and the same."""
    hashes = record_hashes(whole)
    often = int(np.unique(hashes, return_counts=True)[1].max(initial=0))
    if often > 1 and often == len(hashes):
        yield f"all {often} records are the same, in every column that the plan uses; is it the right file?"
    elif len(hashes) >= MIN_RECORDS and often >= SAME * len(hashes):
        yield f"{often} of {len(hashes)} records are the same, in every column that the plan uses"


def _lenient(plan: Plan) -> Plan:
    """Return the plan without the rules by which a table's values are refused: ranges, and missing values."""
    source = plan.task.data
    if not isinstance(source, CsvSource):
        raise DataError("only a table is read again without its rules")
    numbers = {name: policy for name, policy in source.csv.missing_of.items() if policy == "own"}
    table = source.csv.model_copy(update={"ranges": {}, "missing": "mean", "missing_of": numbers})
    loss = plan.task.loss
    if isinstance(loss, SquaredLoss | HuberLoss | PinballLoss):
        loss = loss.model_copy(update={"target_range": None})
    task = plan.task.model_copy(update={"data": source.model_copy(update={"csv": table}), "loss": loss})
    return plan.model_copy(update={"task": task})


def _unused(plan: Plan, site: SiteConfig, root: Path) -> tuple[str, ...]:
    """Return the columns of the training file that the plan does not name, in the file's order."""
    source = plan.task.data
    if not isinstance(source, CsvSource) or isinstance(source.csv.numeric, str) or site.data.train is None:
        return ()
    try:
        table = site_table(source.csv, site.data.format).file
        header = open_table(root / site.data.train, table).header
    except (OSError, DataError, PlanError):
        # A file that cannot be read is an error already.
        return ()
    return tuple(name for name in header if name not in table.named_columns)
