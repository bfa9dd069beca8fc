"""The fields of statistics of columns in `fedfair/result/1`; which numbers are in them is not decided here."""

from __future__ import annotations

from typing import Literal

from fedfair.results.frozen import FrozenPart


class StatisticRow(FrozenPart):
    """One number."""

    column: str
    """of which; empty for the number of records"""

    group: str
    """value of the column that tells groups apart; empty without one"""

    statistic: Literal["records", "count", "mean"]
    """records, count (of a cell) or mean"""

    cell: str
    """value or bin that is counted; empty for others"""

    value: float | None
    """the number, in records or in the column's unit; null where it may rest on too few records"""

    error: float | None
    """standard deviation of its noise, 0 without noise; null where the number is"""


class StatisticsFields(FrozenPart):
    """Statistics of columns of all sites."""

    by: str | None
    """column that tells groups apart; null where there is none"""

    min_group: int
    """fewest records that a reported number rests on"""

    statement: str
    """what the noise promises"""

    rows: tuple[StatisticRow, ...]
    """the numbers, group by group"""

    least_reported: float | None = None
    """least estimate of records that is reported; a number of fewer than min_group is with a chance of 1 %"""

    noise_deviation: float | None = None
    """standard deviation of the noise on a count, in records; omitted without noise"""

    epsilon: float | None = None
    """what all numbers cost a record at most; omitted without noise"""

    delta: float | None = None
    """at which delta"""

    honest_shares: int | None = None
    """sites that add noise which nobody else knows, at least"""
