"""Steps the global model with the mean of the sites' changes: plain averaging, momentum, Adam or Yogi.

With the mean change D of a round, whose local rate was eta, the pseudo-gradient is g = -D / eta. A step is
x <- x - rate * direction, elementwise for every parameter, and for the threshold with its own g:

    sgd       g
    momentum  m <- beta1 m + g;              m
    adam      m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;          m' / (sqrt(v') + floor)
    yogi      the same m;                    v <- v - (1 - beta2) sign(v - g^2) g^2;  m' / (sqrt(v') + floor)

where m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t) after t rounds. sgd at the local rate is the plain mean,
x + D, and computed as that. Running statistics of a model are no parameters: their mean is taken as it is.

Only +, -, *, / and square roots, each rounded once, so that every platform comes to the same bits; powers of beta
are kept and multiplied. A step is a function of the opened sum alone, so that noise in the sum protects the step
as well. Source: Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2; the correction by 1 - beta^t
is Kingma and Ba's (2015).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import vector_sha256
from fedfair.aggregation.training_sum import blocks, moved_by_mean
from fedfair.errors import RemoteProtocolError
from fedfair.ids import RoundNumber
from fedfair.plan.learning_rates import (
    averages_plainly,
    local_rates,
    rate_factor,
    server_optimizer_of,
    server_rate,
)
from fedfair.plan.schema import Plan, ServerOptimizerSection

_Array = NDArray[np.floating]


@dataclass(frozen=True)
class Moments:
    """The memory of an optimizer that has one; no array of it is ever changed.

    Attributes:
        first: array (d,), m of every parameter, in the width of the model.
        second: array (d,), v of every parameter, in the same width; empty where the optimizer has none.
        threshold_first: m of the threshold.
        threshold_second: v of the threshold.
        first_power: beta1^t.
        second_power: beta2^t.
    """

    first: _Array
    second: _Array
    threshold_first: float = 0.0
    threshold_second: float = 0.0
    first_power: float = 1.0
    second_power: float = 1.0

    @cached_property
    def vectors_sha256(self) -> tuple[bytes, bytes]:
        """Return the SHA-256 (32 bytes) of `first` and of `second`, as `requests.vector_sha256`."""
        return vector_sha256(self.first), vector_sha256(self.second)


@dataclass(frozen=True, slots=True)
class MeanChange:
    """The opened sum of a training round.

    Attributes:
        total: array (d,), the weighted sum of the changes of the model.
        threshold: the weighted sum of the changes of the threshold.
        weight: the sum of the weights, above 0.
        used_up: whether the memory of `total` may become the model's.
    """

    total: _Array
    threshold: float
    weight: float
    used_up: bool = False


class ServerOptimizer:
    """The steps of every run of one plan.

    Args:
        plan: the plan.
        layout: of its model.
    """

    def __init__(self, plan: Plan, layout: Layout) -> None:
        self._plan, self._dimension, self._width = plan, layout.dimension, layout.dtype
        self._stated: ServerOptimizerSection = server_optimizer_of(plan)
        self._averages = averages_plainly(plan)
        self._statistics = [place for entry, place in layout.slices() if not entry.trainable]

    @property
    def first_moments(self) -> Moments | None:
        """Return the memory before round 1; None where the optimizer has none."""
        if self._stated.name == "sgd":
            return None
        seconds = 0 if self._stated.name == "momentum" else self._dimension
        return Moments(np.zeros(self._dimension, self._width), np.zeros(seconds, self._width))

    def may_have(self, moments: Moments | None) -> bool:
        """Return whether a run of the plan can have this memory, as far as its shapes tell."""
        first = self.first_moments
        if first is None or moments is None:
            return first is moments
        return (moments.first.shape, moments.second.shape) == (first.first.shape, first.second.shape)

    def stepped(
        self, vector: _Array, threshold: float, moments: Moments | None, change: MeanChange, number: RoundNumber
    ) -> tuple[_Array, float, Moments | None]:
        """Return the model, the threshold (not projected) and the memory after a round.

        Args:
            vector: array (d,), the model before; it stays as it is.
            threshold: the threshold before.
            moments: the memory before.
            change: the opened sum; `training_sum.check_mean` must have passed.
            number: the round, from 1.

        Raises:
            RemoteProtocolError: the step is not finite.
        """
        if self._averages:
            averaged = moved_by_mean(vector, change.total, change.weight, in_place=change.used_up)
            return averaged, threshold + change.threshold / change.weight, None
        rates = local_rates(self._plan, number)
        rate = server_rate(self._plan) * rate_factor(self._plan, number)
        after = None if moments is None else self._remembering(moments)
        moved = np.empty_like(vector)
        scale = change.weight * rates.model
        with np.errstate(over="ignore", invalid="ignore"):
            for block in blocks(vector.size):
                gradient = change.total[block].astype(np.float64) / -scale
                moved[block] = vector[block] - rate * self._direction(gradient, after, block)
        for place in self._statistics:
            moved[place] = moved_by_mean(vector[place], change.total[place], change.weight)
        if rates.threshold is not None:
            slope = np.array([change.threshold / -(change.weight * rates.threshold)])
            own = None if after is None else _of_threshold(after)
            threshold -= rate * float(self._direction(slope, own, slice(0, 1))[0])
            if after is not None and own is not None:
                second = float(own.second[0]) if own.second.size else 0.0
                after = replace(after, threshold_first=float(own.first[0]), threshold_second=second)
        if not (np.isfinite(moved).all() and _is_finite(after)):
            raise RemoteProtocolError(
                f"the step of round {number} by training.server_optimizer is not finite",
                "lower training.learning_rate or training.server_optimizer.learning_rate",
            )
        return moved, threshold, after

    def _remembering(self, moments: Moments) -> Moments:
        """Return a memory to be written into, one round later."""
        stated = self._stated
        return replace(
            moments,
            first=moments.first.copy(),
            second=moments.second.copy(),
            first_power=moments.first_power * stated.momentum,
            second_power=moments.second_power * stated.second_momentum,
        )

    def _direction(self, gradient: NDArray[np.float64], after: Moments | None, block: slice) -> _Array:
        """Return the direction of a block of parameters; write what is remembered of it into `after`."""
        if after is None:
            return gradient
        stated, first = self._stated, after.first[block].astype(np.float64)
        if stated.name == "momentum":
            first = stated.momentum * first + gradient
            after.first[block] = first
            return first
        first = stated.momentum * first + (1.0 - stated.momentum) * gradient
        second, square = after.second[block].astype(np.float64), gradient * gradient
        if stated.name == "adam":
            second = stated.second_momentum * second + (1.0 - stated.second_momentum) * square
        else:
            second = second - (1.0 - stated.second_momentum) * np.sign(second - square) * square
        after.first[block], after.second[block] = first, second
        mean, squares = first / (1.0 - after.first_power), second / (1.0 - after.second_power)
        direction: _Array = mean / (np.sqrt(squares) + stated.floor)
        return direction


def _of_threshold(moments: Moments) -> Moments:
    """Return the memory of the threshold as that of a model with one parameter."""
    seconds = [moments.threshold_second][: moments.second.size]
    return replace(moments, first=np.array([moments.threshold_first]), second=np.array(seconds))


def _is_finite(moments: Moments | None) -> bool:
    if moments is None:
        return True
    return bool(np.isfinite(moments.first).all() and np.isfinite(moments.second).all())
