"""How a loss is written: as many decimals as its size needs, because a plan may measure it in any unit."""

from __future__ import annotations

import math

TOO_FEW = "too few"
"""Stands for a figure that is kept back, because too few records would make it."""

_SMALL, _LARGE = 1e-3, 1e4


def decimals_for(size: float, usual: int = 3) -> int:
    """Return with how many decimals losses of about this size are written.

    Args:
        size: a loss, in the unit of the plan.
        usual: how many decimals a loss between 0.001 and 10,000 has, 1 or more.

    Returns:
        `usual`; none from 10,000 on; below 0.001 as many as show `usual` digits that are not leading zeros.
    """
    size = abs(size)
    if size >= _LARGE:
        return 0
    if size == 0.0 or size >= _SMALL or not math.isfinite(size):
        return usual
    return usual - 1 - math.floor(math.log10(size))


def loss_text(loss: float, usual: int = 3, beside: float | None = None) -> str:
    """Return a loss as text, with a fixed number of decimals and no exponent.

    Args:
        loss: the loss, or a difference of two.
        usual: see `decimals_for`.
        beside: a loss whose size decides instead, so that all figures of a table have the same decimals.
    """
    text = f"{loss:.{decimals_for(loss if beside is None else beside, usual)}f}"
    # A difference that rounds to nothing has no sign.
    return text if float(text) else text.removeprefix("-")


def loss_or_too_few(loss: float | None) -> str:
    """Return a loss as `loss_text` writes it, usually with four decimals; `TOO_FEW` for None."""
    return TOO_FEW if loss is None else loss_text(loss, 4)
