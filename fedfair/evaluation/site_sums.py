"""Each site's own means, where a plan publishes them: one row per site in the sum over everybody.

    row = [n, correct, sum of losses] for each split

The header of such an evaluation ends in one row per collaborator, in the plan's order. A site fills its own row
and leaves the others zero, so the sum over everybody IS the table: its length says nothing about a site, and
masks, drop-outs and exactness are those of every other sum. A split of fewer records than the plan's
`evaluation.min_group` leaves zeros, as a site without records and a site that is missing do.

What this costs is the point: whoever opens the sum reads every site's row. That a site agrees is
`plan/policy.py`'s business. Nothing vouches for a row but the other sums: a site that lies can change any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import RemoteProtocolError
from fedfair.evaluation.loss_sums import SPLITS

SLOT = 3
"""Values of one site in one split: records, correct classifications, sum of the losses."""


@dataclass(frozen=True, slots=True)
class SplitMeans:
    """What one site's records of one split come to.

    Attributes:
        n: number of records, at least 1.
        mean: of their losses, in nats.
        accuracy: share that was classified correctly, 0 to 1.
    """

    n: int
    mean: float
    accuracy: float


def site_sums_length(sites: int) -> int:
    """Return the number of values in the rows of so many sites."""
    return sites * len(SPLITS) * SLOT


def slot(losses: NDArray[np.float64], correct: NDArray[np.bool_], fewest: int) -> NDArray[np.float64]:
    """Return one site's [n, correct, sum of losses] of one split: float64 array (3,).

    Args:
        losses: array (n,), finite and not negative.
        correct: bool array (n,).
        fewest: below so many records nothing is told.
    """
    if len(losses) < fewest:
        return np.zeros(SLOT)
    return np.array([len(losses), np.count_nonzero(correct), losses.sum()], np.float64)


def site_rows(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a view of the rows at the end of a header: array (sites, splits, 3)."""
    return table.reshape(-1, len(SPLITS), SLOT)


def check_site_sums(rows: NDArray[np.float64], blocks: NDArray[np.float64], fewest: int) -> None:
    """Refuse rows that no records have.

    Args:
        rows: array (sites, splits, 3), summed over the sites.
        blocks: array (splits, at least 2), the blocks of `loss_sums.py`, summed over the same sites.
        fewest: as in `slot`.

    Raises:
        RemoteProtocolError: a row counts more correct records than records, or fewer records than any honest
            site tells of, or the rows count more than everybody's records.
    """
    records, correct = rows[..., 0], rows[..., 1]
    possible = (correct >= 0.0) & (correct <= records) & ((records == 0.0) | (records >= fewest))
    untold, untold_correct = blocks[:, 0] - records.sum(axis=0), blocks[:, 1] - correct.sum(axis=0)
    if not (possible.all() and ((untold_correct >= 0.0) & (untold_correct <= untold)).all()):
        raise RemoteProtocolError(
            "the rows of the sites in an evaluation do not fit the records of its histograms",
            "a participant sent numbers that no records have; compare software versions",
        )


def site_means(
    rows: NDArray[np.float64], records: NDArray[np.float64], fewest: int
) -> tuple[Mapping[str, SplitMeans], ...]:
    """Return the means of each site by split, for the splits that may be told of.

    Where the sites that say nothing have fewer than `fewest` records in all, whoever subtracts the table from the
    sums over everybody would learn about those few people. The smallest of the other sites is kept back then: it
    has `fewest` records or more, and so have those that are left over together.

    Args:
        rows: array (sites, splits, 3) that `check_site_sums` has passed.
        records: array (splits,), everybody's records.
        fewest: the fewest records of a group about which anything is published.
    """
    told = rows[..., 0] > 0.0
    for split, count in enumerate(records):
        own = np.where(told[:, split], rows[:, split, 0], np.inf)
        untold = count - own[told[:, split]].sum()
        if 0 < untold < fewest and told[:, split].any():
            told[np.argmin(own), split] = False
    return tuple(
        {name: _means(row[place]) for place, name in enumerate(SPLITS) if seen[place]}
        for row, seen in zip(rows, told, strict=True)
    )


def _means(values: NDArray[np.float64]) -> SplitMeans:
    count, correct, losses = (float(value) for value in values)
    return SplitMeans(int(count), losses / count, correct / count)
