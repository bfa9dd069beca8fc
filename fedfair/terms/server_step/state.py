"""Steps the global model with the mean of the sites' changes: plain averaging, momentum, Adam or Yogi.

With the mean change D of a round, whose local rate was eta, the pseudo-gradient is g = -D / eta. A step is
x <- x - rate * direction, elementwise for every parameter, and for the threshold with its own g:

    sgd       g
    momentum  m <- beta1 m + g;              m
    adam      m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;          m' / (sqrt(v') + floor)
    yogi      the same m;                    v <- v - (1 - beta2) sign(v - g^2) g^2;  m' / (sqrt(v') + floor)

The threshold is in natural units of the loss. Its g is free of units: the change is divided by eta and by the loss
unit of the local steps, and the step is multiplied by it (`target_scaling.py`).

where m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t) after t rounds. sgd at the local rate is the plain mean,
x + D, and computed as that. Running statistics of a model are no parameters: their mean is taken as it is.

Only +, -, *, / and square roots, each rounded once, so that every platform computes the same bits; powers of beta
are kept and multiplied. A step is a function of the opened sum alone, so that noise in the sum protects the step
as well. Source: Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2; the correction by 1 - beta^t
is Kingma and Ba's (2015).

A step works in blocks that stay in the processor's cache. It makes new moments in a `VectorRoom` and leaves the
old ones as they are: neither need be in memory.
"""

from __future__ import annotations

import struct
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

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
from fedfair.plan.schema import Plan
from fedfair.plan.sections import ServerOptimizerSection
from fedfair.store.long_vectors import IN_MEMORY, VectorRoom, VectorWriter
from fedfair.terms.slot import FirstState, Slot, Vectors, first_of, fitting
from fedfair.terms.term import Moved, OpenedRound, TermRule, TermSetting

_Array = NDArray[np.floating]
_Block = NDArray[np.float64]

STEP_BLOCK = 1 << 13
"""Parameters of a step at a time: all float64 numbers of a block together fit the second cache of a processor."""

_FORGOTTEN_AT_ONCE = 1 << 19
"""Parameters after which the memory of what was read is given back."""


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
        loss_unit: how many units of the threshold one loss of the local steps has.
    """

    total: _Array
    threshold: float
    weight: float
    used_up: bool = False
    loss_unit: float = 1.0


class ServerOptimizer(TermRule[Moments]):
    """The steps of every run of one plan.

    Args:
        plan: the plan.
        layout: of its model.
        room: where moments are.
    """

    def __init__(self, plan: Plan, layout: Layout, room: VectorRoom = IN_MEMORY) -> None:
        self._room = room
        self._plan, self._dimension, self._width = plan, layout.dimension, layout.dtype
        self._stated: ServerOptimizerSection = server_optimizer_of(plan)
        self._averages = averages_plainly(plan)
        self._statistics = [place for entry, place in layout.slices() if not entry.trainable]

    @property
    def first(self) -> Moments | None:
        """Return the memory before round 1; None where the optimizer has none."""
        if self._stated.name == "sgd":
            return None
        seconds = 0 if self._stated.name == "momentum" else self._dimension
        # One zero that is read again and again, and takes no memory.
        zero = np.zeros(1, self._width)
        return Moments(np.broadcast_to(zero, self._dimension), np.broadcast_to(zero, seconds))

    def may_be(self, held: Moments, rounds_done: int) -> bool:
        """Return whether a run of the plan can have this memory, as far as its shapes tell."""
        del rounds_done
        first = self.first
        shapes = held.first.shape, held.second.shape
        return first is not None and shapes == (first.first.shape, first.second.shape)

    def housed(self, held: Moments) -> Moments:
        """Return the same memory with its vectors in the room of this optimizer.

        Raises:
            OSError: there is no room.
        """
        if self._room.houses(held.first) and self._room.houses(held.second):
            return held
        with ExitStack() as files:
            writers = self._writers(held, files)
            for block in blocks(self._dimension):
                for writer, vector in zip(writers, (held.first, held.second), strict=False):
                    writer.append(vector[block])
            return _finished(held, writers)

    def apply(self, held: Moments | None, opened: OpenedRound, model: Moved) -> tuple[Moments | None, Moved]:
        """Return the memory after a round, and the stepped model; see `TermRule.apply`.

        Raises:
            RemoteProtocolError: the step is not finite.
        """
        change = MeanChange(
            opened.total, float(opened.sums["threshold"]), opened.divisor, opened.used_up, opened.loss_unit
        )
        vector, threshold, after = self.stepped(model.vector, model.threshold, held, change, opened.number)
        return after, Moved(vector, threshold)

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
        counted = None if moments is None else self._one_round_later(moments)
        if rates.threshold is not None:
            slope = change.threshold / -(change.weight * rates.threshold * change.loss_unit)
            direction, counted = self._threshold_direction(slope, counted)
            threshold -= rate * direction * change.loss_unit
        # Before the step of the model, which may take the place of the sum.
        means = [moved_by_mean(vector[at], change.total[at], change.weight) for at in self._statistics]
        moved, after, faults = self._model_step(vector, counted, change, change.weight * rates.model, rate)
        for place, mean in zip(self._statistics, means, strict=True):
            moved[place] = mean
            faults += () if np.isfinite(mean).all() else (place,)
        if not all(np.isfinite(moved[place]).all() for place in faults) or (after is None) != (moments is None):
            raise RemoteProtocolError(
                f"the step of round {number} by training.server_optimizer is not finite",
                "lower training.learning_rate or training.server_optimizer.learning_rate",
            )
        return moved, threshold, after

    def _one_round_later(self, moments: Moments) -> Moments:
        """Return the same memory with the powers of a round later."""
        first_power = moments.first_power * self._stated.momentum
        second_power = moments.second_power * self._stated.second_momentum
        return replace(moments, first_power=first_power, second_power=second_power)

    def _threshold_direction(self, slope: float, counted: Moments | None) -> tuple[float, Moments | None]:
        """Return the direction of the threshold, and the memory with what is remembered of it."""
        if counted is None:
            return slope, None
        first, second = np.array([counted.threshold_first]), np.array([counted.threshold_second])
        direction = float(self._direction(np.array([slope]), first, second, counted)[0])
        return direction, replace(counted, threshold_first=float(first[0]), threshold_second=float(second[0]))

    def _model_step(
        self, vector: _Array, counted: Moments | None, change: MeanChange, scale: float, rate: float
    ) -> tuple[_Array, Moments | None, tuple[slice, ...]]:
        """Step with the model alone.

        Args:
            vector: array (d,), the model before.
            counted: the memory: its numbers are those after the round, its vectors those before.
            change: the opened sum.
            scale: by what the sum is divided for the pseudo-gradient, but for its sign.
            rate: of the step.

        Returns:
            The model; the memory, None also where a moment is not finite; and the places of the model in which
            something is not finite.
        """
        total = change.total
        is_used_up = change.used_up and total.dtype == vector.dtype and total.flags.writeable
        moved, faults = total if is_used_up else np.empty_like(vector), list[slice]()
        rows, sound, read = np.empty((3, min(STEP_BLOCK, vector.size))), True, 0
        with np.errstate(over="ignore", invalid="ignore"), ExitStack() as files:
            writers = [] if counted is None else self._writers(counted, files)
            for block in blocks(vector.size, STEP_BLOCK):
                direction, first, second = rows[:, : block.stop - block.start]
                direction[...] = total[block]
                direction /= -scale
                if counted is not None:
                    _load(counted, block, (first, second))
                    direction = self._direction(direction, first, second, counted)
                    for writer, moment in zip(writers, (first, second), strict=False):
                        narrow = moment.astype(self._width)
                        sound = sound and bool(np.isfinite(narrow).all())
                        writer.append(narrow)
                direction *= rate
                moved[block] = np.subtract(vector[block], direction, out=direction)
                if not np.isfinite(moved[block]).all():
                    faults.append(block)
                if block.stop - read >= _FORGOTTEN_AT_ONCE:
                    self._forget(vector, counted, slice(read, block.stop))
                    read = block.stop
            after = _finished(counted, writers) if counted is not None and sound else None
        return moved, after, tuple(faults)

    def _writers(self, moments: Moments, files: ExitStack) -> list[VectorWriter]:
        """Return what makes the vectors of a new memory: one where the optimizer has no second moments."""
        lengths = [vector.size for vector in (moments.first, moments.second)]
        writers = [self._room.begin(length, self._width) for length in lengths if length]
        for writer in writers:
            files.callback(writer.close)
        return writers

    def _direction(self, gradient: _Block, first: _Block, second: _Block, counted: Moments) -> _Block:
        """Return the direction of a block of parameters.

        Args:
            gradient: the pseudo-gradient; its memory is used up.
            first: the first moments; they become those after the round.
            second: the second ones, likewise.
            counted: has the powers of this round.
        """
        stated = self._stated
        first *= stated.momentum
        if stated.name == "momentum":
            first += gradient
            gradient[...] = first
            return gradient
        spare = np.multiply(gradient, 1.0 - stated.momentum)
        first += spare
        square = np.multiply(gradient, gradient, out=gradient)
        if stated.name == "adam":
            second *= stated.second_momentum
            second += np.multiply(square, 1.0 - stated.second_momentum, out=spare)
        else:
            np.sign(np.subtract(second, square, out=spare), out=spare)
            spare *= 1.0 - stated.second_momentum
            spare *= square
            second -= spare
        mean = np.divide(first, 1.0 - counted.first_power, out=gradient)
        root = np.sqrt(np.divide(second, 1.0 - counted.second_power, out=spare), out=spare)
        root += stated.floor
        mean /= root
        return mean

    def _forget(self, vector: _Array, moments: Moments | None, place: slice) -> None:
        read = (vector,) if moments is None else (vector, moments.first, moments.second)
        for each in read:
            self._room.forget(each, place)


def _load(moments: Moments, block: slice, into: tuple[_Block, _Block]) -> None:
    """Write a block of the moments into float64 arrays; zeros where there are no second ones."""
    first, second = into
    first[...] = moments.first[block]
    second[...] = moments.second[block] if moments.second.size else 0.0


def _finished(moments: Moments, writers: list[VectorWriter]) -> Moments:
    """Return a memory with new vectors, and with their digests where they are known already."""
    (first, digest), *others = (writer.finished() for writer in writers)
    second, second_digest = others[0] if others else (np.empty(0, first.dtype), b"")
    made = replace(moments, first=first, second=second)
    if digest:
        made.__dict__["vectors_sha256"] = digest, second_digest or vector_sha256(second)
    return made


def rule(setting: TermSetting) -> ServerOptimizer:
    """Return the steps of a plan; every plan has one."""
    return ServerOptimizer(setting.plan, setting.layout, setting.room)


@dataclass(frozen=True, slots=True)
class MomentFields:
    """The memory of a server optimizer but its vectors; attributes as in `Moments`."""

    threshold_first: float
    threshold_second: float
    first_power: float
    second_power: float


def _digested(moments: Moments) -> bytes:
    thresholds = moments.threshold_first, moments.threshold_second
    return b"".join(moments.vectors_sha256) + struct.pack(
        "<4d", *thresholds, moments.first_power, moments.second_power
    )


def _fields(moments: Moments) -> MomentFields:
    powers = moments.first_power, moments.second_power
    return MomentFields(moments.threshold_first, moments.threshold_second, *powers)


def _made(fields: MomentFields, vectors: Vectors, initial: FirstState) -> Moments:
    like, width = first_of(initial, SLOT_NAME, Moments), initial.model.vector.dtype
    first = np.asarray(fitting(vectors["first"], like.first), width)
    second = np.asarray(fitting(vectors["second"], like.second), width)
    powers = fields.first_power, fields.second_power
    return Moments(first, second, fields.threshold_first, fields.threshold_second, *powers)


SLOT_NAME = "moments"
SLOT = Slot(
    digested=_digested,
    fields=_fields,
    form=TypeAdapter(MomentFields),
    made=_made,
    vectors=lambda moments: {"first": moments.first, "second": moments.second},
    known_sha256=lambda moments: dict(zip(("first", "second"), moments.vectors_sha256, strict=True)),
    planned=True,
)
