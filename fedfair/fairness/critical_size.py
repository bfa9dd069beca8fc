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
and the same weighted mean of every feature. The dual of this program is

    critical size = min over Theta of mean (1 + sum_k (1/classes - [y_i = k]) <Theta_k, (x_i, 1)>)+

the least mean hinge loss of a linear model; with two classes, that of a support vector machine without a margin
penalty. Any Theta is an upper bound. A smoothed hinge has slopes in [0, 1] that at its minimum are such z_i, and
their mean is a lower bound. So many records need no linear program.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_array

from fedfair.errors import DataError
from fedfair.fairness.linear_design import check_records, linear_design, with_constant

_HINGE_WIDTHS = (1.0, 0.1, 0.01, 0.001)
_HINGE_SOLVER = {"maxiter": 1000, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-8}


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
    check_records(features, labels, classes)
    design = with_constant(features)
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


def critical_size_bounds(
    features: NDArray[np.floating], labels: NDArray[np.integer], classes: int
) -> tuple[float, float]:
    """Return a lower and an upper bound of `critical_group_size` by the dual, for many records.

    The upper bound holds for any end of the solver. The lower one holds up to the gradient that is left at its
    end, which is taken off in proportion to the parameters found.

    Args and faults as in `critical_group_size`.
    """
    design = linear_design(features, labels, classes)
    residuals, point = design.residuals, design.start
    lower, upper = 0.0, 1.0

    def hinge(vector: NDArray[np.float64], width: float) -> tuple[float, NDArray[np.float64]]:
        margins = 1.0 + (residuals * (design.rows @ vector.reshape(point.shape))).sum(axis=1)
        share = np.clip(margins / width + 0.5, 0.0, 1.0)
        plus = np.where(margins >= 0.5 * width, margins, 0.5 * width * share**2)
        gradient = design.rows.T @ (residuals * share[:, None]) / len(margins)
        return float(plus.mean()), gradient.ravel()

    for width in _HINGE_WIDTHS:
        found = minimize(hinge, point.ravel(), args=(width,), jac=True, method="L-BFGS-B", options=_HINGE_SOLVER)
        point = np.asarray(found.x).reshape(point.shape)
        margins = 1.0 + (residuals * (design.rows @ point)).sum(axis=1)
        left = float(np.abs(found.jac).max() * np.abs(found.x).sum())
        lower = max(lower, float(np.clip(margins / width + 0.5, 0.0, 1.0).mean()) - left)
        upper = min(upper, float(np.maximum(margins, 0.0).mean()))
    return min(lower, upper), upper
