"""The numbers of statistics of columns; `aggregation.column_statistics` has their layout and meaning. No torch.

Decides which totals records can have: whole numbers, and without noise none below zero and as many as there are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.column_statistics import StatisticsLayout, statistics_layout
from fedfair.aggregation.header import NO_RECORDS, Header
from fedfair.aggregation.sum_kinds import SumKind
from fedfair.errors import RemoteProtocolError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan


def _header(plan: Plan, _schema: FeatureSchema) -> Header:
    return statistics_layout(plan).header


def check_statistics(header: NDArray[np.float64], layout: StatisticsLayout) -> None:
    """Refuse a total that no records have.

    Raises:
        RemoteProtocolError: a number is not whole; or without noise a count is below zero or no whole record, the
            cells of a histogram do not add up to the records, or a sum is beyond its values.
    """
    if (header != np.rint(header)).any():
        raise _impossible(f"the number {header[header != np.rint(header)][0]:g}")
    if layout.noise is not None:
        return
    found, scale = layout.header.read(header), layout.scale
    records, present = found["records"], found["present"]
    if not records.sum() > 0:
        raise _impossible(f"{records.sum():g} records ({NO_RECORDS})", "look at the plan's filters")
    for counts in (records, found["cells"], present):
        if (counts < 0).any() or (counts % scale).any():
            raise _impossible("a count that is no whole number of records")
    for histogram, cells in zip(layout.histograms, layout.split(found["cells"]), strict=True):
        if (cells.sum(axis=1) != records).any():
            raise _impossible(f"cells of {histogram.column} that do not add up to the records")
    if (present > records[:, None]).any() or (np.abs(found["sums"]) > present).any():
        raise _impossible("a sum beyond its values")


def _impossible(what: str, remedy: str = "compare the versions of fedfair at the sites") -> RemoteProtocolError:
    return RemoteProtocolError(f"the statistics are of {what}, which no records have", remedy)


def _check(total: NDArray[np.float64], plan: Plan, _schema: FeatureSchema) -> None:
    check_statistics(total, statistics_layout(plan))


def _columns(plan: Plan, _schema: FeatureSchema) -> tuple[str, ...]:
    return statistics_layout(plan).columns


HEADER = SumKind(_header, columns=_columns, check=_check)
