"""Conditional value-at-risk of a finite list of losses, exactly, with ties and fractional group sizes.

Works on one float64 array of all losses, so it serves simulations, tests and a site's own records; what can
be known from sums over sites is `fedfair.aggregation`'s business. No torch.

With l_(1) >= l_(2) >= ... and k = rho n, the worst group holds the first floor(k) records and a fraction of
the next one. The conditional expectation E[L | L >= q] of the paper's equation (2) is another number whenever
several records share the loss q; the fractional definition is the one that equals the variational form

    CVaR_rho = min over c of  c + mean((l - c)+) / rho          Rockafellar and Uryasev 2000, Theorem 1

and the dual one, max over weights q with sum q = 1 and 0 <= q_i <= 1 / (rho n) of sum q_i l_i.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError, PlanError

_WHOLE = 1e-9
"""rho * n this close to a whole number of records is meant to be that number (0.3 * 10 is 3)."""


def tail_count(records: int, group_size: float) -> float:
    """Return k = group_size * records, the possibly fractional number of records in the worst group, > 0.

    Raises:
        PlanError: group_size is outside (0, 1].
    """
    if not 0.0 < group_size <= 1.0:
        raise PlanError(f"group size is {group_size}, outside (0, 1]")
    count = group_size * records
    whole = round(count)
    return float(whole) if whole >= 1 and abs(count - whole) <= _WHOLE else count


def worst_and_best(losses: NDArray[np.floating], group_size: float) -> tuple[float, float]:
    """Return the mean loss of the worst group of a size, and of all others.

    Args:
        losses: array (n,), n >= 1, finite and not negative.
        group_size: the worst group's share of the records (rho), in (0, 1]; below 1/n it is the worst record.

    Returns:
        CVaR, and the mean of the remaining share 1 - rho (NaN at rho = 1). The rounding of a
        pairwise sum, below 1e-14 of each, is the only error.

    Raises:
        DataError: there are no losses, or one is negative or not finite.
        PlanError: group_size is outside (0, 1].
    """
    return split_means(descending(losses), group_size)


def cvar(losses: NDArray[np.floating], group_size: float) -> float:
    """Return the mean loss of the worst group of a size; arguments and faults as in `worst_and_best`."""
    return worst_and_best(losses, group_size)[0]


def threshold_interval(losses: NDArray[np.floating], group_size: float) -> tuple[float, float]:
    """Return the smallest and largest threshold c >= 0 that minimise the variational form.

    These are the c with P(l > c) <= rho <= P(l >= c): one loss where rho n is fractional, and the whole way
    from one loss to the next where it is not. At rho = 1 every c from 0 to the smallest loss is optimal.

    Args:
        losses: array (n,), n >= 1, finite and not negative.
        group_size: the worst group's share of the records (rho), in (0, 1].
    """
    ordered = descending(losses)
    count = tail_count(len(ordered), group_size)
    whole = math.floor(count)
    if count > whole:
        return float(ordered[whole]), float(ordered[whole])
    return (float(ordered[whole]) if whole < len(ordered) else 0.0), float(ordered[whole - 1])


def optimal_threshold(losses: NDArray[np.floating], group_size: float) -> float:
    """Return the smallest optimal threshold: the (1 - rho)-quantile, equation (1) of the paper."""
    return threshold_interval(losses, group_size)[0]


def rcvar(losses: NDArray[np.floating], group_size: float, tradeoff: float) -> float:
    """Return (1 - tradeoff) * CVaR + tradeoff * mean: the exact objective with its best threshold.

    Args:
        losses: array (n,), n >= 1, finite and not negative.
        group_size: rho, in (0, 1].
        tradeoff: epsilon, in [0, 1].
    """
    return (1.0 - tradeoff) * cvar(losses, group_size) + tradeoff * float(_checked(losses).mean())


def descending(losses: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the losses as float64 from the worst to the best.

    Raises:
        DataError: there are no losses, or one is negative or not finite.
    """
    return np.sort(_checked(losses))[::-1]


def split_means(ordered: NDArray[np.float64], group_size: float) -> tuple[float, float]:
    """Return CVaR and the mean of the rest, for losses that `descending` has put in order.

    Args:
        ordered: float64 array (n,), n >= 1, from the worst to the best.
        group_size: rho, in (0, 1].
    """
    records = len(ordered)
    count = tail_count(records, group_size)
    if count == records:
        return float(ordered.mean()), math.nan
    whole = math.floor(count)
    part = count - whole
    split = float(ordered[whole])  # belongs to the worst group with its share `part`, to the others with the rest
    worst = (float(ordered[:whole].sum()) + part * split) / count
    best = (float(ordered[whole + 1 :].sum()) + (1.0 - part) * split) / (records - count)
    return worst, best


def _checked(losses: NDArray[np.floating]) -> NDArray[np.float64]:
    values = np.asarray(losses, np.float64)
    if values.ndim != 1 or not len(values):
        raise DataError(f"losses have shape {values.shape}; a risk needs a list of at least one loss")
    if not (np.isfinite(values).all() and (values >= 0.0).all()):
        raise DataError(
            f"{int((~(np.isfinite(values) & (values >= 0.0))).sum())} of {len(values)} losses are negative or "
            "not finite; the risk of the worst group is defined for losses in [0, inf)"
        )
    return values
