"""Smoothed plus functions: what stands in for (m)+ = max(m, 0), so that there is a gradient everywhere.

Decides the value, the derivative, the gap max(s - (m)+) and the smoothness max(s'') of each function a plan
may name. How they enter the objective is `rcvar.py`'s business.

Definition 4.1 of the FedSRCVaR paper: s is a smoothed plus function for gamma if it is convex,
(2/gamma)-smooth and 0 <= s(m) - (m)+ <= gamma for every m. Each of the five is one shape t -> s_1(t)
stretched by gamma, s(m) = gamma s_1(m / gamma), and is symmetric, s(m) = m + s(-m). So a row of the table
needs only its excess over the plus function at |t|, and value(m) >= (m)+ holds even in floating point.

At the same gamma Zang's function lies 5.5 times closer to (m)+ than softplus does, and the bias it leaves in
a trained model is smaller still: prefer it where the last thousandth of the worst-group risk matters, and
softplus where a gradient for every record matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfair.errors import PlanError
from fedfair.fairness.smoothness import SMOOTHNESS, SYNONYMS


@dataclass(frozen=True, slots=True)
class _Shape:
    """One row of the table, for gamma = 1: its excess takes |t|, its slope takes t."""

    gap: float
    smoothness: float
    excess: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]


def _gaussian_excess(t: Tensor) -> Tensor:
    # phi(t) - t Phi(-t) = phi(t) (1 - t Mills ratio): as a product it cannot fall below 0 by cancellation.
    # Beyond 40 the density is 0 in float64; the cap keeps infinity * 0 out.
    t = t.clamp(max=40.0)
    mills: Tensor = math.sqrt(math.pi / 2.0) * torch.special.erfcx(t / math.sqrt(2.0))
    return torch.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi) * (1.0 - t * mills)


def _chks_excess(t: Tensor) -> Tensor:
    # (sqrt(t^2 + 4) - t) / 2 without the cancellation; hypot does not overflow where t^2 would.
    return 2.0 / (torch.hypot(t, torch.full_like(t, 2.0)) + t)


def _chks_slope(t: Tensor) -> Tensor:
    root = torch.hypot(t, torch.full_like(t, 2.0))
    tail = 2.0 / (root * (root + t.abs()))  # the slope at -|t|, again without cancellation
    return torch.where(t < 0, tail, 1.0 - tail)


_SHAPES = {
    "softplus": _Shape(math.log(2.0), SMOOTHNESS["softplus"], lambda t: torch.log1p(torch.exp(-t)), torch.sigmoid),
    "zang": _Shape(
        0.125,
        SMOOTHNESS["zang"],
        lambda t: (0.5 - t).clamp(min=0.0) ** 2 / 2.0,
        lambda t: (t + 0.5).clamp(0.0, 1.0),
    ),
    "quadratic": _Shape(
        0.25,
        SMOOTHNESS["quadratic"],
        lambda t: (1.0 - t).clamp(min=0.0) ** 2 / 4.0,
        lambda t: (0.5 * t + 0.5).clamp(0.0, 1.0),
    ),
    "chks": _Shape(1.0, SMOOTHNESS["chks"], _chks_excess, _chks_slope),
    "gaussian": _Shape(
        1.0 / math.sqrt(2.0 * math.pi), SMOOTHNESS["gaussian"], _gaussian_excess, torch.special.ndtr
    ),
}

NAMES = (*_SHAPES, *SYNONYMS)
"""Every name that `smoothing` understands."""


@dataclass(frozen=True, slots=True)
class SmoothedPlus:
    """A smoothed plus function s with its smoothing parameter; made by `smoothing`.

    Attributes:
        name: a row of the table; never a synonym.
        gamma: the smoothing parameter, positive, in units of the loss.
    """

    name: str
    gamma: float

    @property
    def gap(self) -> float:
        """The largest s(m) - (m)+, reached at m = 0; at most gamma."""
        return _SHAPES[self.name].gap * self.gamma

    @property
    def smoothness(self) -> float:
        """The largest second derivative; at most 2 / gamma."""
        return _SHAPES[self.name].smoothness / self.gamma

    def value(self, m: Tensor) -> Tensor:
        """Return s(m), elementwise, for a float tensor of any shape; differentiable by autograd, at 0 too."""
        distance = m.abs()
        plus = 0.5 * (m + distance)  # unlike clamp and relu it has the derivative 1/2 at 0 that s has
        return plus + self.gamma * _SHAPES[self.name].excess(distance / self.gamma)

    def derivative(self, m: Tensor) -> Tensor:
        """Return s'(m), elementwise, in [0, 1], for a float tensor of any shape."""
        return self.slope(m / self.gamma)

    def slope(self, t: Tensor) -> Tensor:
        """Return s'(gamma t): the derivative for a tensor that is in units of gamma already."""
        return _SHAPES[self.name].slope(t)


def smoothing(name: str, gamma: float) -> SmoothedPlus:
    """Return the smoothed plus function that a plan names.

    Args:
        name: softplus (or soft-relu), zang, quadratic, chks or gaussian.
        gamma: the smoothing parameter (gamma in the paper), positive and finite, in units of the loss.

    Raises:
        PlanError: the name is none of these, or gamma is not a positive number.
    """
    name = SYNONYMS.get(name, name)
    if name not in _SHAPES:
        raise PlanError(
            f"'{name}' is not a smoothed plus function that fedfair knows",
            f"use one of {', '.join(NAMES)}; others, such as SiLU, do not bound the objective they stand for",
        )
    if not (gamma > 0.0 and math.isfinite(1.0 / gamma) and math.isfinite(gamma)):
        raise PlanError(f"gamma is {gamma}; it must be a positive number", "the paper uses 0.05")
    return SmoothedPlus(name, float(gamma))
