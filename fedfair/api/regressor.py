"""A linear regression in the manner of scikit-learn that protects the worst group of a size."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from fedfair.api.fair_estimator import CountedRecords, FairEstimator, counted_records
from fedfair.api.fit_verdict import FitVerdict, fit_verdict
from fedfair.conformal.intervals import reach
from fedfair.conformal.prediction_sets import PredictionSets
from fedfair.conformal.promise import Promise
from fedfair.conformal.threshold import worst_kept
from fedfair.fairness.linear_design import Array, RegressionDesign, regression_design
from fedfair.fairness.linear_fit import fit_linear
from fedfair.plan.losses import SquaredLoss


class FairRegressor(RegressorMixin, FairEstimator):  # type: ignore[misc]
    """A linear regression that protects every group of at least a size, without anyone naming the groups.

    It minimises `(1 - tradeoff)` times the mean squared error of the worst group plus `tradeoff` times that of all
    records. A convex solver ends at the optimum, so nothing is to be tuned, and the same records give the same
    model. Columns and targets are standardised within.

    Args:
        worst_group_size: the smallest share of the people that is protected (rho), above 0 to 1.
        tradeoff: weight of the overall mean (epsilon), from 0 to 1; at 1 this is least squares.
        ridge: factor of half the squared weights of the standardised columns, at least 0; None for one record's
            share of all records.

    Attributes:
        coef_: weights of the columns in their own units: array (p,).
        intercept_: the constant.
        verdict_: whether the worst group of the training records is served better than by one prediction for
            all, and from which group size on.
        sets_: the promise of `predict_intervals`, after `calibrate_intervals`.

    Example:
        >>> import fedfair
        >>> from sklearn.datasets import load_diabetes
        >>> features, targets = load_diabetes(return_X_y=True)
        >>> model = fedfair.FairRegressor().fit(features, targets)
        >>> model.verdict_.is_worse
        False
        >>> model.record_losses(features, targets).shape
        (442,)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FairRegressor:  # noqa: N803
        """Fit the model.

        Args:
            X: array, sparse matrix or DataFrame (n, p), finite.
            y: numbers (n,), finite.
            sample_weight: how many people each record stands for, (n,), at least 0; None for one each. The worst
                group is a share of these people.

        Raises:
            ValueError: a parameter is out of its range, or the records are none that a model can be fitted to.
        """
        self._check_parameters()
        self.__dict__.pop("sets_", None)  # those of an earlier fit
        features, answers = self._checked(X, y, y_numeric=True)
        weights = _check_sample_weight(sample_weight, features, dtype=np.float64, ensure_non_negative=True)
        held = counted_records(features, np.asarray(answers, np.float64), weights)
        targets, centre, unit = _standardised(held)
        ridge = self._ridge_of(held)
        design = regression_design(held.features, targets, ridge=ridge, shares=held.shares)
        found = fit_linear(design, self.worst_group_size, self.tradeoff)
        weighed = (design.back @ found)[:, 0] * unit
        self.coef_ = weighed[:-1] / held.scale
        self.intercept_ = float(weighed[-1] + centre - self.coef_ @ held.mean)
        losses = _squared_errors(design, found) * unit**2
        constant = regression_design(held.features[:, :0], targets, ridge=ridge, shares=held.shares)

        def guess(size: float) -> float:
            # The best for the worst group alone: no guess is better for it.
            return held.worst(_squared_errors(constant, fit_linear(constant, size, 0.0)) * unit**2, size)

        self.verdict_: FitVerdict = fit_verdict(
            self.worst_group_size, lambda size: held.worst(losses, size), guess
        )
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the prediction for each record: array (n,)."""
        check_is_fitted(self)
        features, _ = self._checked(X, reset=False)
        predicted: Array = features @ self.coef_ + self.intercept_
        return predicted

    def calibrate_intervals(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        group_size: float | None = None,
        missed: float = 0.1,
        confidence: float = 0.95,
    ) -> FairRegressor:
        """Find on held-out records which intervals miss no group of a size more often than a share.

        Args:
            X: array, sparse matrix or DataFrame (n, p), of records that no fit or choice of a model has seen.
            y: numbers (n,), finite.
            group_size: the least share of people that a group has; None for `worst_group_size`.
            missed: the most of any such group whose number is not in its interval, on average over draws.
            confidence: of `sets_.missed_at_most`, the bound on the share of all people whom these intervals miss.

        Raises:
            ValueError: a parameter is out of its range, or the records are too few for the promise.
        """
        size = self.worst_group_size if group_size is None else group_size
        promise, losses = Promise(size, missed, confidence), self.record_losses(X, y)
        self.sets_ = PredictionSets("interval", promise, "test", len(losses), -worst_kept(-losses, promise))
        return self

    def predict_intervals(self, X: Any) -> Array:  # noqa: N803
        """Return where the interval of each record begins and ends: array (n, 2), after `calibrate_intervals`."""
        check_is_fitted(self, "sets_")
        below, above = reach(SquaredLoss(name="squared"), self.sets_.bound)
        intervals: Array = self.predict(X)[:, None] + np.array([-below, above])
        return intervals

    def record_losses(self, X: Any, y: Any) -> Array:  # noqa: N803
        """Return the squared error of each record: array (n,), for `fedfair.worst_group_risk`."""
        losses: Array = (np.asarray(y, np.float64) - self.predict(X)) ** 2
        return losses


def _standardised(held: CountedRecords) -> tuple[Array, float, float]:
    """Return the targets around 0 in units of their deviation, their mean, and that unit."""
    centre = float(held.shares @ held.answers)
    deviation = float(np.sqrt(held.shares @ (held.answers - centre) ** 2))
    unit = deviation if deviation > 1e-12 * max(abs(centre), 1e-300) else 1.0
    return (held.answers - centre) / unit, centre, unit


def _squared_errors(design: RegressionDesign, parameters: Array) -> Array:
    errors: Array = ((design.rows @ parameters)[:, 0] - design.targets) ** 2
    return errors
