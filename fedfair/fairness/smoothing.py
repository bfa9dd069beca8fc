"""Smoothed plus functions: what stands in for (m)+ = max(m, 0), so that there is a gradient everywhere.

Decides the value, the derivative, the gap max(s - (m)+) and the smoothness max(s'') of each function a plan
may name, and whether any other callable deserves to be one (`verify_smoothed_plus`). How they enter the
objective is `rcvar.py`'s business.

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


_STEPS_PER_GAMMA = 1024
_REACH_IN_GAMMAS = 32
_FAR = (1e2, 1e3, 1e4, 1e6)


def verify_smoothed_plus(candidate: Callable[[Tensor], Tensor], gamma: float) -> None:
    """Refuse a function that is not a smoothed plus function for `gamma`, as far as numbers can tell.

    Looks at a grid of float64 points with step gamma/1024 on [-32 gamma, 32 gamma], and at a few points up to
    10^6 gamma on both sides: the excess over (m)+ lies in [0, gamma], the slopes between neighbours lie in
    [0, 1], never fall (convex) and rise by at most 2/gamma times the step (smooth). A violation that is
    narrower than the step and smaller than what the step allows is not seen.

    Args:
        candidate: maps a float64 tensor (k,) to its values (k,).
        gamma: the smoothing parameter, positive, in units of the loss.

    Raises:
        PlanError: naming the first property that fails, where, and the value found.
    """
    step = gamma / _STEPS_PER_GAMMA
    reach = _REACH_IN_GAMMAS * _STEPS_PER_GAMMA
    grid = torch.arange(-reach, reach + 1, dtype=torch.float64) * step
    far = torch.tensor([-1.0, 1.0], dtype=torch.float64).outer(torch.tensor(_FAR, dtype=torch.float64))
    points = torch.cat([grid, far.flatten() * gamma])
    # A value v carries an error of a few 2^-53 |v|. On the grid, |v| <= 32 gamma: divided by the step that stays
    # below 1e-10 in a slope and below 1e-7 / gamma in a rise.
    rounding = 1e-14 * (points.abs() + gamma)
    values = candidate(points)
    slopes = values[: len(grid)].diff() / step
    rises = slopes.diff() / step
    _require_within(points, values - points.clamp(min=0.0), gamma, rounding, "value above (m)+")
    _require_within(grid[:-1], slopes, 1.0, 1e-10, "slope")
    _require_within(grid[1:-1], rises, 2.0 / gamma, 1e-7 / gamma, "second derivative")


def _require_within(points: Tensor, found: Tensor, upper: float, rounding: Tensor | float, what: str) -> None:
    # Written so that a NaN counts as a violation.
    bad = ~((found >= -rounding) & (found <= upper + rounding))
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise PlanError(
            f"not a smoothed plus function: at m = {float(points[first]):g} its {what} is "
            f"{float(found[first]):g}, outside [0, {upper:g}]",
            "Definition 4.1 of the paper asks for convex, (2/gamma)-smooth and 0 <= s(m) - (m)+ <= gamma",
        )
