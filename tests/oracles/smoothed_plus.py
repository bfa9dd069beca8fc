"""What a smoothed plus function is, by Definition 4.1 of the paper, as far as numbers can tell."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedfair.errors import PlanError

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
