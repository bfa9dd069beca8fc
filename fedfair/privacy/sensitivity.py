"""The sensitivity: how far one record can move what a site releases, and the unit that noise is counted in.

Clip, then weight. A record adds the vector

    v_i = (u_i clip_C(grad l_i), kappa d f~_i / dc),    u_i in [eps, W],    W = (1 - eps) / rho + eps

to a step, and d f~_i / dc = 1 - u_i (see `fairness.rcvar`). With |clip_C| <= C its squared norm is at most
(u C)^2 + kappa^2 (1 - u)^2, which is convex in u and so largest at an end of its range:

    S = max( sqrt((W C)^2 + (kappa (1 - eps) (1/rho - 1))^2),  sqrt((eps C)^2 + (kappa (1 - eps))^2) )

That is the sensitivity of the exact sum when one record is replaced by one that contributes nothing (zero-out),
and it is attained. The threshold needs no clipping, because its gradient is bounded by construction. With C = G,
the Lipschitz constant of the loss, and kappa = 1 it is G_{rho,eps} of the FedSRCVaR paper, Lemma 5.2. Joint
clipping makes the sensitivity C at the price of clipping away the weights 1/rho themselves.

A computed sum is not the exact one, and a record can change the rounding of all that is added after it
(Casacuberta et al. 2022, "Widespread Underestimation of Sensitivity in Differentially Private Libraries and How to
Fix It"). With unit roundoff u a computed sum of m products is off, in every entry and for every order of adding,
by at most gamma_m times the sum of the magnitudes, gamma_m = m u / (1 - m u) (Higham 2002, "Accuracy and Stability
of Numerical Algorithms", section 3.1): as a vector by at most m gamma_m S. So at most m records are added up in
floats of that width, and such sums are rounded to the grid and added up in whole numbers. A record that is zeroed
out stays in its place in its batch and changes one of them:

    S' = S (1 + 2 m gamma_m + 32 u)

where 32 u covers the norm, the weight and the product with both, each a few roundings. Up to M = 8192 float32
vectors may also be added up in float64 and rounded to float32 once: that is off by at most M u S each time, and so
moves two sums apart by 2 M u S, half as much as 2 m gamma_m S for m = 128. Numbers only: no torch.
"""

from __future__ import annotations

import math
from typing import Literal, Protocol

from fedfair.errors import PlanError

Clipping = Literal["before_weighting", "joint"]

MAX_SUMMED = {24: 128, 53: 1 << 16}
"""How many records are added up in floats, by the bits of a significand: S' is at most 0.2 % above S."""

MAX_WIDENED = 1 << 13
"""How many float32 vectors are added up in float64 and rounded to float32 once."""


class Weighting(Protocol):
    """The part of an objective that decides the weights: `fairness.rcvar.Objective`, or a plan's `objective`."""

    @property
    def worst_group_size(self) -> float:
        """Return rho, in (0, 1]."""

    @property
    def tradeoff(self) -> float:
        """Return epsilon, in [0, 1]."""


def sensitivity(objective: Weighting | None, clip: float, threshold_scale: float = 1.0) -> float:
    """Return the largest norm of what one record adds to the noised sum of a step (S), clipped before weighting.

    Args:
        objective: worst_group_size (rho) and tradeoff (eps); None where every weight is 1, as in FedAvg.
        clip: largest norm of a record's gradient (C), positive, in units of loss per unit of weight.
        threshold_scale: weight of the threshold's gradient beside the model's (kappa), positive.

    Returns:
        S, positive, in the units of `clip`; equal to it where every weight is 1.

    Raises:
        PlanError: clip or threshold_scale is not a positive number.
    """
    for name, value in (("clip", clip), ("threshold_scale", threshold_scale)):
        if not (value > 0.0 and math.isfinite(value)):
            raise PlanError(f"privacy.sample_level.{name} is {value}", "give a positive number")
    rho, eps = (1.0, 1.0) if objective is None else (objective.worst_group_size, objective.tradeoff)
    if rho == 1.0 or eps == 1.0:
        return clip
    greatest_weight = (1.0 - eps) / rho + eps
    in_the_tail = math.hypot(greatest_weight * clip, threshold_scale * (1.0 - eps) * (1.0 / rho - 1.0))
    below_it = math.hypot(eps * clip, threshold_scale * (1.0 - eps))
    return max(in_the_tail, below_it)


def step_sensitivity(
    objective: Weighting | None, clip: float, threshold_scale: float, clipping: Clipping
) -> float:
    """Return the sensitivity of a step under either way of clipping; arguments and faults as in `sensitivity`."""
    before_weighting = sensitivity(objective, clip, threshold_scale)
    return clip if clipping == "joint" else before_weighting


def summed_sensitivity(exact: float, significand_bits: int) -> float:
    """Return the most that one record changes a sum of `MAX_SUMMED` vectors as floats compute it (S').

    Args:
        exact: S, the largest norm of what one record adds.
        significand_bits: 24 for float32, 53 for float64.
    """
    records, roundoff = MAX_SUMMED[significand_bits], 2.0**-significand_bits
    gamma = records * roundoff / (1.0 - records * roundoff)
    return exact * (1.0 + 2.0 * records * gamma + 32.0 * roundoff)
