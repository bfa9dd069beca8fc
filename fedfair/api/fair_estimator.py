"""What the estimators have in common: their parameters with the ranges, and their records before a fit.

scikit-learn reads parameters from the constructor, wherever a class has it from.

A sample weight is a number of people: a record of weight 2 is two people, and of weight 0 none. So equal records
are put together in one order, and the fit is the same to the last bit, in whatever order and multiplicity they
are given.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from fedfair.fairness.linear_design import Array
from fedfair.fairness.superquantile_weights import worst_weights

MIN_DEVIATION = 1e-12
"""A column that varies by less than this part of its mean is a constant: its scale is 1."""


@dataclass(frozen=True, slots=True)
class CountedRecords:
    """Different records, and how many people each stands for.

    Attributes:
        features: float64 array (n, p), standardised.
        answers: float64 array (n,): classes or targets.
        counts: float64 array (n,), positive: people of each kind.
        mean: of the columns, float64 array (p,).
        scale: of the columns, float64 array (p,), positive.
    """

    features: Array = field(repr=False)
    answers: Array = field(repr=False)
    counts: Array = field(repr=False)
    mean: Array = field(repr=False)
    scale: Array = field(repr=False)

    @property
    def people(self) -> float:
        """How many people there are."""
        return float(self.counts.sum())

    @property
    def shares(self) -> Array:
        """Each record's share of all people: float64 array (n,), summing to 1."""
        shares: Array = self.counts / self.counts.sum()
        return shares

    def worst(self, losses: Array, size: float) -> float:
        """Return the mean loss of the worst group of a size, where each record counts for its people."""
        if len(losses) == 1:
            return float(losses[0])
        return float(worst_weights(losses, self.shares, size) @ losses)


def counted_records(features: NDArray[np.floating], answers: Array, weights: Array) -> CountedRecords:
    """Return the different records of positive weight.

    Args:
        features: array (n, p), finite.
        answers: float64 array (n,), finite.
        weights: float64 array (n,), not negative, at least one positive.
    """
    present = weights > 0.0
    table = np.column_stack([np.asarray(features, np.float64), answers])[present]
    order = np.lexsort(table.T[::-1])
    table, held = table[order], weights[present][order]
    first = np.append(True, (table[1:] != table[:-1]).any(axis=1))
    counts = np.add.reduceat(held, np.flatnonzero(first))
    table = table[first]
    columns, shares = table[:, :-1], counts / counts.sum()
    mean = shares @ columns
    deviation = np.sqrt(shares @ (columns - mean) ** 2)
    varies = deviation > MIN_DEVIATION * np.maximum(np.abs(mean), math.ulp(1.0))
    scale = np.where(varies, deviation, 1.0)
    return CountedRecords((columns - mean) / scale, table[:, -1], counts, mean, scale)


NO_ANSWERS = "no_validation"
"""Says to `validate_data` that a call has no answers, where None means that somebody forgot them."""


class FairEstimator(BaseEstimator):  # type: ignore[misc]
    """A linear model that protects every group of at least a size; `FairClassifier` and `FairRegressor` fit it.

    Args:
        worst_group_size: the smallest share of the people that is protected (rho), above 0 to 1.
        tradeoff: weight of the overall mean (epsilon), from 0 to 1.
        ridge: factor of half the squared weights of the standardised columns, at least 0; None for one record's
            share of all records.
    """

    def __init__(
        self, worst_group_size: float = 0.3, tradeoff: float = 0.3, *, ridge: float | None = None
    ) -> None:
        self.worst_group_size = worst_group_size
        self.tradeoff = tradeoff
        self.ridge = ridge

    def __sklearn_tags__(self) -> Any:
        """Say to scikit-learn that sparse features are taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _checked(self, X: Any, y: Any = NO_ANSWERS, **terms: Any) -> tuple[Array, Any]:  # noqa: N803 - what callers have
        """Return finite features as a dense array (n, p), and the answers; scikit-learn remembers the columns.

        Sparse features are made dense, because the solver centres the columns.

        Raises:
            ValueError: the records are none that a model can be fitted to.
        """
        checked = validate_data(self, X, y, accept_sparse=True, dtype=np.float64, **terms)
        features, answers = checked if isinstance(checked, tuple) else (checked, None)
        return np.ascontiguousarray(features.toarray()) if sparse.issparse(features) else features, answers

    def _ridge_of(self, held: CountedRecords) -> float:
        return 1.0 / held.people if self.ridge is None else self.ridge

    def _check_parameters(self) -> None:
        """Refuse parameters that are out of their range.

        Raises:
            ValueError: naming the parameter, its value and the range.
        """
        ridge = 0.0 if self.ridge is None else self.ridge
        ranges = (
            ("worst_group_size", self.worst_group_size, math.ulp(0.0), 1.0, "above 0 to 1"),
            ("tradeoff", self.tradeoff, 0.0, 1.0, "from 0 to 1"),
            ("ridge", ridge, 0.0, sys.float_info.max, "of at least 0, or None"),
        )
        for name, value, least, greatest, words in ranges:
            is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not (is_number and least <= value <= greatest):
                raise ValueError(f"{name} is {value!r}; give a number {words}")
