"""Says from a run's evaluations how its training went: to its optimum, not so far, or past it.

It looks at the figure that the plan's algorithm minimises, over training records. Decides how training is
called; what follows from it is `advice.py`'s business. In this order:

    OPTIMUM   the least figure of all models of this kind is known, and the returned one is within `NEAR`
    RISING    training ended more than `RISE` above what it had reached before
    UNKNOWN   nothing was evaluated between the start and the last third of training
    STILL     no evaluation is further from the first than `MOVE`
    FALLING   at the pace of the last third, as much training again would gain `GAIN` or more
    FLAT      otherwise

A learning rate that falls makes the last rounds short whatever they could gain. So a pace is a gain over the sum
of the factors of the schedule. No torch.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NEAR = 0.01
"""A figure within this part of the least one is at the optimum: the defaults aim at it."""

RISE = 0.02
"""Where guessing is the optimum, the noise of batches alone leaves the last model up to .015 above it."""

MOVE = 0.0005
GAIN = 0.05
LAST_PART = 2 / 3
"""The last part of training begins after this share of the rounds, or at the evaluation before."""


class Trend(enum.Enum):
    """How training went."""

    OPTIMUM = "at the optimum"
    RISING = "rising"
    UNKNOWN = "unknown"
    STILL = "still"
    FALLING = "falling"
    FLAT = "flat"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The figure that training minimises, at one moment.

    Attributes:
        round: training rounds done.
        value: the figure, or the middle of its interval.
        width: of the interval; 0 where the figure is exact.
    """

    round: int
    value: float
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainingTrend:
    """How training went, with the evaluations that show it.

    Attributes:
        trend: its name.
        before: the evaluation to compare the last one with: the best one, or the one before the last part.
        end: the last one; None where no training was watched, as where a saved model is evaluated.
        optimum: the least figure that a model of this kind can have; None where it is not known.
    """

    trend: Trend
    before: Evaluated | None = None
    end: Evaluated | None = None
    optimum: float | None = None


def training_trend(
    history: Sequence[Evaluated], factor: Callable[[int], float], reached: float, optimum: float | None
) -> TrainingTrend:
    """Return how training went.

    Args:
        history: from round 0 to the last round, as far as it was evaluated.
        factor: by what the learning rates of a round, from 1, are multiplied.
        reached: the figure of the returned model.
        optimum: as in `TrainingTrend`.
    """
    if optimum is not None and reached <= optimum * (1.0 + NEAR):
        # A solver ends a little above the optimum, too.
        return TrainingTrend(Trend.OPTIMUM, None, Evaluated(0, reached), min(optimum, reached))
    if len(history) < 2 or history[0].round != 0:
        return TrainingTrend(Trend.UNKNOWN)
    end, best = history[-1], min(history[:-1], key=lambda one: one.value)
    if end.value - best.value > RISE * best.value + _widths(end, best):
        return TrainingTrend(Trend.RISING, best, end, optimum)
    before = [one for one in history[1:-1] if one.round <= LAST_PART * end.round]
    if not before:
        return TrainingTrend(Trend.UNKNOWN, None, end)
    first, turn = history[0], before[-1]
    return TrainingTrend(_settled(history, first, turn, factor), turn, end, optimum)


def _settled(
    history: Sequence[Evaluated], first: Evaluated, turn: Evaluated, factor: Callable[[int], float]
) -> Trend:
    end = history[-1]
    if all(abs(one.value - first.value) <= MOVE * first.value for one in history):
        return Trend.STILL
    last = sum(factor(number) for number in range(turn.round + 1, end.round + 1))
    whole = last + sum(factor(number) for number in range(1, turn.round + 1))
    gained = turn.value - end.value
    # Where it never was below the start, the noise of batches fell with the rate, and no more.
    falls = turn.value < first.value and gained > _widths(turn, end)
    if falls and gained * whole / last > GAIN * end.value:
        return Trend.FALLING
    return Trend.FLAT


def _widths(one: Evaluated, other: Evaluated) -> float:
    return 0.5 * (one.width + other.width)
