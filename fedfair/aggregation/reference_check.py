"""The check of the references of `measure: excess` in an evaluation: how often came true what they said.

    Delta_G = E[sum over y of (p*(y|x) - q(y|x)) log(q(y|x) / p(y|x)) | G]

is by how much the promise of the excess to a group G is off, where q is the reference and p* the truth. It is zero
where q is right about G. No sum tells it of every G. This one tells whether q is right about those of whom it says
the same: in each tenth of the chance that it gives (of class 1 with two classes, else of the likeliest class), how
many people there are, the sum of the chances, and of how many it came true (Murphy and Winkler 1977).

Chances count in whole steps of 2^-8, so that a lone record shows which of 257 chances it was given, and whether it
came true. No torch: the aggregator imports this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Field, Group, Number, one_of
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.errors import RemoteProtocolError

TENTHS = 10
_STEPS = 256


@dataclass(frozen=True, slots=True)
class CheckedTenth:
    """The people to whom references gave about the same chance.

    Attributes:
        low: the chance from which on they are counted, a multiple of .1.
        high: that below which they are; the last tenth holds 1 too.
        records: how many they are.
        said: the mean of their chances.
        found: of which share of them it came true.
    """

    low: float
    high: float
    records: int
    said: float
    found: float

    @property
    def error(self) -> float:
        """Return the standard error of `found`, were `said` the truth."""
        return float(np.sqrt(self.said * (1.0 - self.said) / self.records))


def check_group(*, checked: bool) -> Group:
    """Return the fields of all splits: without values where nothing is checked."""
    fields = (
        Field("records", Number.COUNT, (TENTHS,), lone=one_of(TENTHS)),
        Field("chances", Number.COUNT, (TENTHS,), lone=one_of(_STEPS + 1)),
        Field("came_true", Number.COUNT, (TENTHS,), lone=one_of(TENTHS + 1)),
    )
    return Group("checked", fields, (len(SPLITS) * checked,))


def check_sums(answered: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return what the records of one split add, by the names of the fields: arrays (10,).

    Args:
        answered: float64 array (n, 2), the chance that was given to each record, from 0 to 1, and whether it came
            true, 0 or 1.
    """
    steps = np.rint(answered[:, 0] * _STEPS).astype(np.int64)
    places = np.minimum(steps * TENTHS // _STEPS, TENTHS - 1)
    weighted = {"records": None, "chances": steps, "came_true": answered[:, 1]}
    return {
        name: np.bincount(places, weights, minlength=TENTHS).astype(np.float64)
        for name, weights in weighted.items()
    }


def checked_tenths(sums: NDArray[Any], fewest: int) -> tuple[CheckedTenth, ...]:
    """Return the tenths of one split that hold at least so many people.

    Args:
        sums: record of the fields of `check_group`.
        fewest: people about whom anything is told, at least 1.
    """
    found = zip(sums["records"].tolist(), sums["chances"].tolist(), sums["came_true"].tolist(), strict=True)
    return tuple(
        CheckedTenth(
            place / TENTHS, (place + 1) / TENTHS, int(records), chances / (_STEPS * records), true / records
        )
        for place, (records, chances, true) in enumerate(found)
        if records >= fewest
    )


def check_checked(checked: NDArray[Any], records: NDArray[np.float64]) -> None:
    """Refuse a check that is over other records than the losses beside it, or that no records have.

    Args:
        checked: array (splits,) of the fields of `check_group`; of no length where nothing is checked.
        records: array (splits,), of the losses.

    Raises:
        RemoteProtocolError: it is one.
    """
    each, chances, true = checked["records"], checked["chances"], checked["came_true"]
    if not each.any():
        return
    possible = (each >= 0.0).all() and ((chances >= 0.0) & (chances <= each * _STEPS)).all()
    if not (possible and ((true >= 0.0) & (true <= each)).all() and (each.sum(axis=-1) == records).all()):
        raise RemoteProtocolError(
            "the check of the references is not over the records of the losses, or none that records have",
            "a participant sent numbers that no records have; compare software versions",
        )
