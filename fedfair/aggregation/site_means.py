"""Each site's own means, where a plan publishes them: one row per site in the sum over all sites.

For each split a row has the number of records, of correct classifications, and the sum of the losses. The header
of such an evaluation ends in one row per collaborator, in the plan's order. A site fills its own row and leaves
the others zero, so the sum over all sites IS the table. Its length says nothing about a site, and masks, drop-outs
and exactness are those of every other sum. A split of fewer records than the plan's `evaluation.min_group` leaves
zeros, as a site without records and a site that is missing do.

This has a price, on purpose: the aggregator, which opens the sum, reads every site's row. That a site agrees is
`policy/terms.py`'s business. Nothing vouches for a row but the other sums: a site that lies can change any of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Bits, Field, Number, one_of
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec
from fedfair.errors import RemoteProtocolError


def row_fields(spec: HistogramSpec) -> tuple[Field, ...]:
    """Return the figures of one site about one split; losses are their sum, without classes none is correct."""
    correct = (Field("correct", Number.COUNT, lone=one_of(2)),) if spec.has_classes else ()
    losses = Field("losses", Number.REAL, lone=one_of(spec.rounded_values))
    return Field("records", Number.COUNT, lone=Bits(0)), *correct, losses


@dataclass(frozen=True, slots=True)
class SplitMeans:
    """The means of one site's records of one split.

    Attributes:
        n: number of records, at least 1.
        mean: of their losses, in nats.
        accuracy: share that was classified correctly, 0 to 1; None where there are no classes.
    """

    n: int
    mean: float
    accuracy: float | None


def own_values(losses: NDArray[np.float64], correct: NDArray[np.bool_] | None, fewest: int) -> tuple[float, ...]:
    """Return one site's values for one split, in the order of `row_fields`.

    Args:
        losses: array (n,), finite and not negative, rounded as those of the histogram.
        correct: bool array (n,); None where there are no classes.
        fewest: below so many records nothing is published.
    """
    right = () if correct is None else (float(np.count_nonzero(correct)),)
    if len(losses) < fewest:
        return (0.0,) * (2 + len(right))
    return float(len(losses)), *right, float(losses.sum())


def check_site_sums(rows: NDArray[Any], splits: NDArray[Any], fewest: int) -> None:
    """Refuse rows that no records have.

    Args:
        rows: array (sites, splits) of `row_fields`, summed over the sites.
        splits: array (splits,) of `loss_histogram.block_fields`, summed over the same sites.
        fewest: as in `own_values`.

    Raises:
        RemoteProtocolError: a row counts more correct records than records, or fewer records than any honest
            site tells of, or the rows count more than all records.
    """
    records, counts_correct = rows["records"], "correct" in (rows.dtype.names or ())
    correct = rows["correct"] if counts_correct else np.zeros_like(records)
    possible = (correct >= 0.0) & (correct <= records) & ((records == 0.0) | (records >= fewest))
    untold = splits["records"] - records.sum(axis=0)
    untold_correct = splits["correct"] - correct.sum(axis=0) if counts_correct else np.zeros_like(untold)
    if not (possible.all() and ((untold_correct >= 0.0) & (untold_correct <= untold)).all()):
        raise RemoteProtocolError(
            "the rows of the sites in an evaluation do not fit the records of its histograms",
            "a participant sent numbers that no records have; compare software versions",
        )


def site_means(
    rows: NDArray[Any], records: NDArray[np.float64], fewest: int
) -> tuple[Mapping[str, SplitMeans], ...]:
    """Return the means of each site by split, for the splits that may be published.

    Where the sites that say nothing have fewer than `fewest` records in all, a reader who subtracts the table from
    the sums over all sites would learn about those few people. The smallest of the other sites is kept back then:
    it has `fewest` records or more, and so have those that are left over together.

    Args:
        rows: array (sites, splits) of `row_fields` that `check_site_sums` has passed.
        records: array (splits,), all records.
        fewest: the fewest records of a group about which anything is published.
    """
    told = rows["records"] > 0.0
    for split, count in enumerate(records):
        own = np.where(told[:, split], rows["records"][:, split], np.inf)
        untold = count - own[told[:, split]].sum()
        if 0 < untold < fewest and told[:, split].any():
            told[np.argmin(own), split] = False
    return tuple(
        {name: _means(row[place]) for place, name in enumerate(SPLITS) if seen[place]}
        for row, seen in zip(rows, told, strict=True)
    )


def _means(row: np.void) -> SplitMeans:
    told = dict(zip(row.dtype.names or (), row.item(), strict=True))
    records, correct = told["records"], told.get("correct")
    return SplitMeans(int(records), told["losses"] / records, None if correct is None else correct / records)
