"""Minimisation over pooled records to the last digits: the (theta, c) at which an aggregate of losses is least.

L-BFGS-B of SciPy with gradients from autograd. Its stopping rule looks at the decrease of one step, which is tiny
long before the minimum where features are nearly collinear; it is therefore started again, with an empty memory,
until a whole run gains nothing. For convex objectives this is the minimum; for others, a stationary point.
Source: Byrd, Lu, Nocedal and Zhu 1995, "A limited memory algorithm for bound constrained optimization".
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional

from fedfair.training.flat_model import FlatModel

Aggregate = Callable[[Tensor, Tensor], Tensor]
"""From per-sample losses (n,) and the threshold to the scalar that is minimised."""

RESTARTS = 50
RELATIVE_GAIN = 1e-13
_OPTIONS = {"maxiter": 5000, "maxfun": 20000, "maxcor": 30, "ftol": 0.0, "gtol": 1e-12}


@dataclass(frozen=True, slots=True)
class Optimum:
    """Where a minimisation ended.

    Attributes:
        vector: float64 array (d,), the model.
        threshold: the threshold c.
        value: the aggregate there.
    """

    vector: NDArray[np.float64]
    threshold: float
    value: float


def minimise(
    model: FlatModel,
    features: Tensor,
    labels: Tensor,
    aggregate: Aggregate,
    *,
    threshold: float = 1.0,
    loss_bound: float | None = None,
) -> Optimum:
    """Minimise an aggregate of the cross-entropies over the model and a threshold in [0, loss_bound].

    Args:
        model: an fp64 model on the CPU; its content is the start, and is overwritten.
        features: float64 tensor (n, *input_shape).
        labels: int64 tensor (n,).
        aggregate: what is minimised; differentiable.
        threshold: the start of the threshold.
        loss_bound: the threshold's upper end; None for none.
    """

    def value_and_gradient(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        model.load(point[:-1])
        model.zero_gradient()
        level = torch.tensor(point[-1], requires_grad=True)
        value = aggregate(functional.cross_entropy(model(features), labels, reduction="none"), level)
        torch.autograd.backward(value)
        slope = 0.0 if level.grad is None else float(level.grad)
        return float(value.detach()), np.append(model.gradient.numpy(), slope)

    point = np.append(model.vector(), threshold)
    value = value_and_gradient(point)[0]
    bounds = [(None, None)] * (len(point) - 1) + [(0.0, loss_bound)]
    for _ in range(RESTARTS):
        found = minimize(value_and_gradient, point, jac=True, method="L-BFGS-B", bounds=bounds, options=_OPTIONS)
        gain = value - float(found.fun)
        if gain > 0.0:
            point, value = found.x, float(found.fun)
        if gain <= RELATIVE_GAIN:
            break
    model.load(point[:-1])
    return Optimum(point[:-1], float(point[-1]), value)
