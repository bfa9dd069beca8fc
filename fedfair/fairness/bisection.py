"""Finds where a rising number changes its sign, to the last digit."""

from __future__ import annotations

from collections.abc import Callable


def bisect(is_below: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest double at which `is_below` is false, given that it is true at `low` and false at `high`.

    Halves the interval until no double lies between its ends, which takes at most about a hundred steps where the
    ends are of the size of the answer.
    """
    while low < (middle := low + (high - low) / 2) < high:
        if is_below(middle):
            low = middle
        else:
            high = middle
    return high
