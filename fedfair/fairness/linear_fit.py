"""The linear model that minimises the fair objective over pooled records, by a convex solver.

    min over theta of  min over c of (1 - eps) [c + mean s(l_i - c) / rho] + eps mean l_i  +  ridge |w|^2 / 2

with Zang's smoothed plus function s. The loss is the cross-entropy of a softmax model in nats, or the squared
error of a regression; means are over what each record counts. The inner minimum is taken exactly: it is at the c
where the mean of s'(l_i - c) is rho, and by the envelope theorem its gradient in theta is that at this c. L-BFGS
minimises the rest, with a smoothing that becomes sharper in stages, each from the end of the one before. No rate,
no schedule and no draw has a part in it, so the result tells of the family of models and not of an optimiser. It
needs all records in one place: for studies, never for a running federation. Source: equation (7) of the FedSRCVaR
paper; Zang 1980; Liu and Nocedal 1989. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fedfair.errors import PlanError, TrainingError
from fedfair.fairness.linear_design import Array, LinearDesign, RegressionDesign, with_constant

STAGES = (0.05, 0.005)
"""The widths (gamma) of the smoothing. Zang's gap is gamma / 8, so a fit ends within (1 - eps) / rho times 0.0006
of the optimum."""

_SOLVER = {"maxiter": 200, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-7}
_MAX_NEWTON_STEPS = 60


def fit_linear(
    design: LinearDesign | RegressionDesign,
    group_size: float,
    tradeoff: float,
    *,
    start: Array | None = None,
    stages: Sequence[float] = STAGES,
) -> Array:
    """Return the parameters (p + 1, outputs) of the fitted model, in the coordinates of the design.

    Args:
        design: the records.
        group_size: rho, in (0, 1]; 1 is the plain mean.
        tradeoff: epsilon, in [0, 1]; 1 is the plain mean.
        start: parameters to begin with; None for the uniform guess, or for predicting 0.
        stages: widths of the smoothing, in units of the loss, from the widest to the sharpest.

    Raises:
        PlanError: the group size or the tradeoff is out of range.
        TrainingError: the solver left the finite numbers.
    """
    if not (0.0 < group_size <= 1.0 and 0.0 <= tradeoff <= 1.0):
        raise PlanError(f"worst_group_size {group_size} is outside (0, 1], or tradeoff {tradeoff} outside [0, 1]")
    point = design.start if start is None else start
    is_mean = group_size == 1.0 or tradeoff == 1.0
    for gamma in stages[-1:] if is_mean else stages:
        found = minimize(
            _value_and_gradient,
            point.ravel(),
            args=(design, 1.0 if is_mean else group_size, tradeoff, gamma),
            jac=True,
            method="L-BFGS-B",
            options=_SOLVER,
        )
        if not np.isfinite(found.x).all():
            raise TrainingError(f"the fit for the worst {group_size:g} left the finite numbers")
        point = np.asarray(found.x).reshape(point.shape)
    return point


def linear_losses(
    parameters: Array, design: LinearDesign, features: NDArray[np.floating], labels: NDArray[np.integer]
) -> tuple[Array, NDArray[np.int64]]:
    """Return the losses (n,) in nats and the predicted classes (n,) of a fitted model on any records.

    Args:
        parameters: what `fit_linear` returned.
        design: the records it was fitted to.
        features: array (n, p), finite.
        labels: int array (n,).
    """
    logits = np.column_stack([with_constant(features) @ (design.back @ parameters), np.zeros(len(labels))])
    losses = _log_sum_exp(logits) - logits[np.arange(len(labels)), labels]
    return np.maximum(losses, 0.0), logits.argmax(axis=1)


def zang_threshold(losses: Array, group_size: float, gamma: float, shares: Array | None = None) -> float:
    """Return the c at which the mean of s'((l - c) / gamma) is the group size, by safeguarded Newton steps.

    Args:
        losses: array (n,), n >= 1.
        group_size: rho, in (0, 1).
        gamma: width of Zang's function, above 0.
        shares: float64 array (n,), positive, summing to 1: what each record counts; None where all count alike.
    """
    low, high = float(losses.min()) - gamma, float(losses.max()) + gamma
    level = float(np.quantile(losses, 1.0 - group_size))
    for _ in range(_MAX_NEWTON_STEPS):
        scaled = (losses - level) / gamma + 0.5
        excess = _mean(np.clip(scaled, 0.0, 1.0), shares) - group_size
        if abs(excess) < 1e-12:
            break
        low, high = (level, high) if excess > 0.0 else (low, level)
        slope = _mean(((scaled > 0.0) & (scaled < 1.0)).astype(np.float64), shares) / gamma
        step = level + excess / slope if slope > 0.0 else low
        level = step if low < step < high else 0.5 * (low + high)
    return level


def _mean(values: Array, shares: Array | None) -> float:
    return float(values.mean()) if shares is None else float(shares @ values)


def _value_and_gradient(
    vector: Array, design: LinearDesign | RegressionDesign, group_size: float, tradeoff: float, gamma: float
) -> tuple[float, Array]:
    parameters = vector.reshape(design.start.shape)
    outputs, shares = design.rows @ parameters, design.shares
    if isinstance(design, RegressionDesign):
        errors = outputs[:, 0] - design.targets
        losses, slopes = errors**2, 2.0 * errors[:, None]
    else:
        losses, slopes = _losses_and_slopes(design, outputs)
    value, weights = _mean(losses, shares), np.ones_like(losses)
    if group_size < 1.0:
        level = zang_threshold(losses, group_size, gamma, shares)
        scaled = (losses - level) / gamma
        share = np.clip(scaled + 0.5, 0.0, 1.0)
        plus = gamma * np.where(scaled >= 0.5, scaled, 0.5 * share**2)
        value = (1.0 - tradeoff) * (level + _mean(plus, shares) / group_size) + tradeoff * value
        weights = (1.0 - tradeoff) * share / group_size + tradeoff
    counted = weights / len(losses) if shares is None else weights * shares
    gradient = design.rows.T @ (slopes * counted[:, None])
    shrunk = design.penalty @ parameters
    if isinstance(design, LinearDesign) and design.between is not None:
        shrunk = shrunk @ design.between
    return value + 0.5 * float((parameters * shrunk).sum()), (gradient + shrunk).ravel()


def _losses_and_slopes(design: LinearDesign, logits: Array) -> tuple[Array, Array]:
    """Return the losses (n,) and their gradients in the free logits (n, K - 1)."""
    if design.classes == 2:
        # Two classes take half of the time: the loss is softplus(-margin), the margin that of the true class.
        sign = np.where(design.labels == 0, 1.0, -1.0)
        margin = sign * logits[:, 0]
        small = np.exp(-np.abs(margin))
        losses = np.log1p(small) + np.maximum(-margin, 0.0)
        wrong = np.where(margin >= 0.0, small, 1.0) / (1.0 + small)
        return losses, (-sign * wrong)[:, None]
    free = design.classes - 1
    whole = np.column_stack([logits, np.zeros(len(logits))])
    total = _log_sum_exp(whole)
    slopes = np.exp(logits - total[:, None])
    known = np.flatnonzero(design.labels < free)
    slopes[known, design.labels[known]] -= 1.0
    return total - whole[np.arange(len(whole)), design.labels], slopes


def _log_sum_exp(logits: Array) -> Array:
    greatest = logits.max(axis=1)
    total: Array = np.log(np.exp(logits - greatest[:, None]).sum(axis=1)) + greatest
    return total
