"""The records of a linear model, softmax or regression, in coordinates in which a solver needs few steps.

Decides the parametrisation: one logit for each class but the last, whose logit is 0, from the features and a
constant 1. A regression has one output. This is the family of linear models with a bias. The rows are whitened:
their second moments, with a ridge of the weight of one record, become the identity, so that neither units nor
collinear columns slow a solver down. What is minimised is the business of `linear_fit.py` and `critical_size.py`.
No torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError

Array = NDArray[np.float64]

MIN_MOMENT = 1e-12
"""Second moments below this part of the greatest count as this part: a column of zeros has none."""


@dataclass(frozen=True, slots=True)
class LinearDesign:
    """Labelled records in whitened coordinates; made by `linear_design`.

    Attributes:
        rows: float64 array (n, p + 1): the whitened features and constant.
        labels: int array (n,), in 0..classes-1.
        classes: number of classes (K), at least 2.
        back: float64 array (p + 1, p + 1): rows = (features, 1) @ back.
        penalty: float64 array (p + 1, p + 1): the ridge on the weights, without the bias, in these coordinates.
        shares: float64 array (n,), positive, summing to 1: what each record counts; None where all count alike.
        between: float64 array (K - 1, K - 1): how the ridge couples the free logits; None where each stands alone.
    """

    rows: Array = field(repr=False)
    labels: NDArray[np.integer] = field(repr=False)
    classes: int
    back: Array = field(repr=False)
    penalty: Array = field(repr=False)
    shares: Array | None = field(default=None, repr=False)
    between: Array | None = field(default=None, repr=False)

    @property
    def start(self) -> Array:
        """Return the parameters of the uniform guess: zeros (p + 1, K - 1)."""
        return np.zeros((self.rows.shape[1], self.classes - 1))

    @property
    def residuals(self) -> Array:
        """Return the gradient of each record's loss in its own logits at the uniform guess: (n, K - 1)."""
        residuals: Array = 1.0 / self.classes - (self.labels[:, None] == np.arange(self.classes - 1))
        return residuals


@dataclass(frozen=True, slots=True)
class RegressionDesign:
    """Records with a number to predict, in whitened coordinates; made by `regression_design`.

    Attributes:
        rows: float64 array (n, p + 1): the whitened features and constant.
        targets: float64 array (n,): the numbers, finite.
        back: float64 array (p + 1, p + 1): rows = (features, 1) @ back.
        penalty: float64 array (p + 1, p + 1): the ridge on the weights, without the bias, in these coordinates.
        shares: float64 array (n,), positive, summing to 1: what each record counts; None where all count alike.
    """

    rows: Array = field(repr=False)
    targets: Array = field(repr=False)
    back: Array = field(repr=False)
    penalty: Array = field(repr=False)
    shares: Array | None = field(default=None, repr=False)

    @property
    def start(self) -> Array:
        """Return the parameters that predict 0: zeros (p + 1, 1)."""
        return np.zeros((self.rows.shape[1], 1))


def linear_design(
    features: NDArray[np.floating],
    labels: NDArray[np.integer],
    classes: int,
    *,
    ridge: float | None = None,
    shares: Array | None = None,
) -> LinearDesign:
    """Return records in whitened coordinates.

    Args:
        features: array (n, p), finite.
        labels: int array (n,), in 0..classes-1.
        classes: number of classes, at least 2.
        ridge: factor of half the squared weights that a fit adds to its objective, at least 0; None for 1 / n,
            the weight of one record, so that an optimum exists where classes can be separated.
        shares: float64 array (n,), positive, summing to 1: what each record counts; None where all count alike.

    Of more than two classes the ridge is on the weights of all of them around their mean, so that the model does
    not depend on which class is the last. Two classes have one weight for each column.

    Raises:
        DataError: the shapes do not fit, a value is not finite, or a label is out of range.
    """
    check_records(features, labels, classes)
    rows, back, penalty = _whitened(features, ridge, shares)
    # With the last weight 0 the sum of squares around the mean is sum a_k^2 - (sum a_k)^2 / K.
    between = np.eye(classes - 1) - 1.0 / classes if classes > 2 else None
    return LinearDesign(rows, labels, classes, back, penalty, shares, between)


def regression_design(
    features: NDArray[np.floating],
    targets: NDArray[np.floating],
    *,
    ridge: float | None = None,
    shares: Array | None = None,
) -> RegressionDesign:
    """Return records with a number to predict in whitened coordinates.

    Args:
        features: array (n, p), finite; p may be 0, which leaves the constant.
        targets: array (n,), finite.
        ridge: as in `linear_design`.
        shares: as in `linear_design`.

    Raises:
        DataError: the shapes do not fit, or a value is not finite.
    """
    if features.ndim != 2 or targets.shape != features.shape[:1] or not len(targets):
        raise DataError(
            f"features of shape {features.shape} and targets of shape {targets.shape} do not fit together"
        )
    if not (np.isfinite(features).all() and np.isfinite(targets).all()):
        raise DataError("features or targets are NaN or infinite")
    rows, back, penalty = _whitened(features, ridge, shares)
    return RegressionDesign(rows, np.asarray(targets, np.float64), back, penalty, shares)


def _whitened(
    features: NDArray[np.floating], ridge: float | None, shares: Array | None
) -> tuple[Array, Array, Array]:
    """Return the whitened rows, the way back to the features, and the ridge in the new coordinates."""
    design = with_constant(features)
    records, columns = design.shape
    weight = 1.0 / records if ridge is None else ridge
    penalty = np.diag(np.append(np.full(columns - 1, weight), 0.0))
    second = design.T @ design / records if shares is None else design.T @ (design * shares[:, None])
    moments, directions = np.linalg.eigh(second + penalty)
    back = directions / np.sqrt(np.maximum(moments, MIN_MOMENT * moments[-1]))
    return design @ back, back, back.T @ penalty @ back


def with_constant(features: NDArray[np.floating]) -> Array:
    """Return the features (n, p) in float64 with a last column of ones."""
    return np.column_stack([np.asarray(features, np.float64), np.ones(len(features))])


def check_records(features: NDArray[np.floating], labels: NDArray[np.integer], classes: int) -> None:
    """Refuse records that no linear model can be fitted to.

    Raises:
        DataError: the shapes do not fit, a value is not finite, or a label is out of range.
    """
    if features.ndim != 2 or labels.shape != features.shape[:1] or not len(labels):
        raise DataError(
            f"features of shape {features.shape} and labels of shape {labels.shape} do not fit together"
        )
    if not np.isfinite(features).all():
        raise DataError(f"{int((~np.isfinite(features)).sum())} features are NaN or infinite")
    if classes < 2 or labels.min() < 0 or labels.max() >= classes:
        raise DataError(
            f"labels run from {labels.min()} to {labels.max()}; {classes} classes allow 0 to {classes - 1}"
        )
