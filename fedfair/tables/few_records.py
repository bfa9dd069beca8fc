"""A site with few records takes part with nothing, in a way that nobody but its own operator can see.

Decides what becomes of a site's records where they are fewer than its policy wants: it trains on none of them, and
what it adds to every sum is zeros. The same holds for a site of whose records the plan's filters take none. So
neither a start that fails nor a sum over a few people tells who has a record that a filter asks for. How many
records are enough is the site's own policy, `policy.min_records`; a simulation has no policy, and takes all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedfair.errors import DataError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.tables.dataset import Dataset, Splits

if TYPE_CHECKING:
    from fedfair.tables.feature_coding import CsvRecords


class UnusableRecordsError(DataError):
    """Records that cannot be trained on, none at all or some with values that the plan does not allow.

    Args:
        fault: what is said where there are enough of them.
        count: how many records the plan takes, whatever their values.
        schema: what their features are.
    """

    def __init__(self, fault: DataError, count: int, schema: FeatureSchema) -> None:
        super().__init__(fault.message, fault.remedy)
        self.count = count
        self.schema = schema


def no_records(schema: FeatureSchema) -> Dataset:
    """Return a data set of these features without a record."""
    width = np.int64 if schema.classes else np.float64
    return Dataset(np.zeros((0, *schema.input_shape)), np.zeros((0, *schema.targets), width), schema)


def unless_few(read: Callable[[], CsvRecords], fewest: int) -> CsvRecords:
    """Return what is read of a table; no record where it is unusable and has fewer than `fewest` that count.

    A value that the plan does not allow must not stop a site whose few records count for nothing: the plan may
    have been written so that only the holder of one record fails to start.
    """
    from fedfair.tables.feature_coding import CsvRecords

    try:
        return read()
    except UnusableRecordsError as fault:
        if fault.count >= fewest:
            raise
        return CsvRecords(no_records(fault.schema), ())


def with_enough(splits: Splits, fewest: int) -> tuple[Splits, tuple[str, ...]]:
    """Return what a site takes part with, and in words what it does not.

    Args:
        splits: its records.
        fewest: of policy.min_records. With fewer training records it has none at all; a held-out split of fewer
            is left out alone.
    """
    count = len(splits.train)
    if count < fewest:
        words = f"{count} training records of this site count under the plan, and policy.min_records is {fewest}"
        nothing = Splits(no_records(splits.train.schema))
        return nothing, (f"{words}: it takes part with nothing, and adds zeros to every sum",)
    told: list[str] = []
    for name, part in (("validation", splits.validation), ("test", splits.test)):
        if part is not None and len(part) < fewest:
            splits = replace(splits, validation=None) if name == "validation" else replace(splits, test=None)
            told.append(
                f"{len(part)} {name} records of this site are fewer than policy.min_records, {fewest}: they are "
                "in no sum"
            )
    return splits, tuple(told)
