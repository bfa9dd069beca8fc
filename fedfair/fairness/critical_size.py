"""The critical group size: how large a protected group must be for a linear model to beat guessing.

Decides by one linear program over the records; it needs them all in one place, so it is for studies and
tests, not for a running federation. The existence of such a size is Lemma 3.2 of Martinez et al. 2021 (BPF),
which Remark A.1 of the FedSRCVaR paper takes over.

At theta = 0 a linear softmax model with bias gives every class the same chance and every record the loss
log(classes), so every record belongs to some worst group, and the subgradients of CVaR_rho at 0 are all
sum(q_i grad l_i) with 0 <= q_i <= 1/(rho n) and sum(q_i) = 1. The objective is convex, so theta = 0 is
optimal if and only if 0 is among them. With z_i = rho n q_i: if and only if there are z_i in [0, 1] of sum
rho n with sum(z_i grad l_i) = 0. Hence

    critical size = max mean(z)  over  0 <= z_i <= 1  with, for every class k,
                    sum_i z_i (1/classes - [y_i = k]) (x_i, 1) = 0

in words: the largest share of the records that can be weighted so that every class has the same total weight
and the same weighted mean of every feature.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from fedfair.errors import DataError


def critical_group_size(features: NDArray[np.floating], labels: NDArray[np.integer], classes: int) -> float:
    """Return the largest worst_group_size at which the uniform classifier minimises CVaR.

    Holds for cross-entropy, a linear softmax model with a bias and no regularisation, at tradeoff 0. Every
    smaller size has the same answer. With a positive tradeoff the critical
    size is not larger.

    Args:
        features: array (n, p), finite; scaled columns keep the program well conditioned, but are not
            required.
        labels: int array (n,), in 0..classes-1.
        classes: number of classes, at least 2.

    Returns:
        A share in [0, 1]: 0 where one step from guessing lowers every record's loss at once (separable
        classes, for one), 1 where no model beats guessing even on average. Accurate to about 1e-6, the
        tolerance of the solver.

    Raises:
        DataError: the shapes do not fit, a value is not finite, a label is out of range, or the solver fails.
    """
    _check(features, labels, classes)
    design = np.column_stack([np.asarray(features, np.float64), np.ones(len(labels))])
    # The scale of a column does not change the feasible set, but the solver's tolerance is absolute.
    design /= np.maximum(np.abs(design).max(axis=0), np.finfo(np.float64).tiny)
    residuals = 1.0 / classes - (np.asarray(labels)[:, None] == np.arange(classes - 1))
    # The constraints of the classes add up to 0, so the last class's follow from the others'.
    gradients = (residuals[:, :, None] * design[:, None, :]).reshape(len(labels), -1)
    solution = linprog(
        -np.ones(len(labels)),
        A_eq=csr_array(gradients.T),
        b_eq=np.zeros(gradients.shape[1]),
        bounds=(0.0, 1.0),
        method="highs",
    )
    if solution.status != 0:
        raise DataError(f"the linear program for the critical group size was not solved: {solution.message}")
    return min(max(0.0, -float(solution.fun) / len(labels)), 1.0)


def _check(features: NDArray[np.floating], labels: NDArray[np.integer], classes: int) -> None:
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
