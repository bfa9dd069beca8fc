"""Computes the risk of the worst group from anything that holds one loss for each record.

Takes what callers have (lists, arrays, columns of a table, tensors) and hands the arithmetic to `cvar.py`. Losses
may be negative here, as the log-likelihood of a density may be: CVaR is defined for them too. No torch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfair.errors import DataError
from fedfair.fairness.cvar import split_means


def worst_group_risk(losses: ArrayLike, size: float) -> float:
    """Return the mean loss of the worst group of a size: no group of at least that size fares worse.

    The worst group holds the `size * n` greatest losses. Where that is no whole number, the next loss counts with
    the fraction that is left, so ties need no rule. This is CVaR (Rockafellar and Uryasev 2000, Theorem 1).

    Args:
        losses: one finite number for each record, shape (n,), n >= 1: a list, an array, a Series or a tensor.
        size: the group's share of all records, above 0 to 1. At 1 the result is the mean, below 1/n the maximum.

    Returns:
        The risk, in the unit of the losses.

    Raises:
        DataError: the losses are no list of finite numbers, or there are none.
        PlanError: the size is outside (0, 1].

    Example:
        >>> import fedfair
        >>> fedfair.worst_group_risk([0.1, 0.1, 0.4, 2.0], 0.25)
        2.0
        >>> fedfair.worst_group_risk([0.1, 0.1, 0.4, 2.0], 0.5)
        1.2
    """
    values = _values(losses)
    return split_means(np.sort(values)[::-1], size)[0]


def _values(losses: object) -> NDArray[np.float64]:
    # A tensor that requires a gradient, or lies on another device, does not turn into an array by itself.
    for method in ("detach", "cpu"):
        if hasattr(losses, method):
            losses = getattr(losses, method)()
    if str(getattr(losses, "dtype", "")) in {"torch.bfloat16", "torch.float16"} and hasattr(losses, "float"):
        losses = losses.float()
    try:
        given = np.asarray(losses)
    except (TypeError, ValueError) as error:
        raise DataError(f"losses are no list of numbers: {error}", "give one number for each record") from error
    if given.dtype.kind not in "fiub":
        raise DataError(f"losses are of type {given.dtype}, not numbers", "give one number for each record")
    values = given.astype(np.float64)
    if values.ndim != 1 or not len(values):
        raise DataError(
            f"losses have shape {values.shape}; a risk needs one loss for each record, and at least one record",
            "compute losses without a reduction, such as cross_entropy(..., reduction='none')",
        )
    faulty = np.flatnonzero(~np.isfinite(values))
    if len(faulty):
        raise DataError(
            f"{len(faulty)} of {len(values)} losses are NaN or infinite, the first at place {faulty[0]}",
            "remove such records, or find out why the model fails on them",
        )
    return values
