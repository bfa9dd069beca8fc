"""Federated rounds of the smoothed fair objective in NumPy, for `optimizers.py`: nothing here is the product's.

A softmax model (linear, or with one hidden layer) and a threshold c are one vector z = (theta, c). In a round each
site takes some steps of gradient descent from the server's z on batches of its own. The server takes the mean
change, weighted by records, and moves z by its optimiser. Many settings run at once: they share the batches, and
the last axis counts them.

Shapes: S seeds, K sites, b records of a batch, D columns, C classes, R settings, P places of z. The
optimisers see (S, P, R) and work place by place, except those that say otherwise.

Sources: Reddi et al. 2021 (adam and yogi on the mean change), Defazio and Mishchenko 2023 (D-Adaptation, algorithm
5), Mishchenko and Defazio 2023 (Prodigy, algorithm 4), Defazio et al. 2024 (schedule-free).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from optimizer_tables import Table, worst_mean

Array = NDArray[np.float64]

Known = tuple[Array, ...]
"""What a model has computed on the way to its logits, and wants again on the way back."""

SMOOTHNESS = {"softplus": 0.25, "zang": 1.0}
"""The largest second derivative of the smoothed plus function at gamma = 1."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to train; what is not stated is the default that `docs/explain/defaults.md` recommends.

    Attributes:
        rho: size of the worst group.
        epsilon: weight of the mean.
        smoothing: softplus or zang.
        gamma: width of the smoothing, in units of the loss.
        optimizer: of the server: a key of `OPTIMIZERS`.
        rate: of the server, for the gradient; for averaging it is for the mean change, and 1 is FedAvg's.
        first, second: decay of the optimiser's means (beta1, beta2).
        stability: added to the square root (adam, yogi and their kin).
        schedule: of the server's rate: a key of `SCHEDULES`.
        warm_up: share of the rounds in which all rates grow to their full height.
        local_rate: of a site's steps, for theta.
        threshold_rate: of a site's steps, for c; None for `local_rate`.
        capped: keep the rate of c at or below the inverse of the objective's curvature in c.
        local_schedule: of both local rates.
        threshold: c before the first round.
    """

    rho: float = 0.1
    epsilon: float = 0.01
    smoothing: str = "zang"
    gamma: float = 0.02
    optimizer: str = "adam"
    rate: float = 0.1
    first: float = 0.9
    second: float = 0.95
    stability: float = 1e-8
    schedule: str = "cosine"
    warm_up: float = 0.1
    local_rate: float = 0.01
    threshold_rate: float | None = None
    capped: bool = False
    local_schedule: str = "cosine"
    threshold: float = 1.0

    @property
    def local_threshold_rate(self) -> float:
        """The rate of c in a site's steps."""
        stated = self.local_rate if self.threshold_rate is None else self.threshold_rate
        stable = self.gamma * self.rho / ((1.0 - self.epsilon) * SMOOTHNESS[self.smoothing])
        return min(stated, stable) if self.capped else stated


def scheduled(schedule: str, warm_up: float, number: int, rounds: int) -> float:
    """Return the factor of the rate in round `number` (from 1) of `rounds`: in (0, 1].

    Linear decay ends at 1 / rounds, so that the last round still moves. Cosine is half a wave; smoothstep is the
    polynomial nearest to it, which needs no function of a platform's library.
    """
    rising = math.ceil(warm_up * rounds)
    if number <= rising:
        return number / (rising + 1)
    left = (rounds - number + 1) / (rounds - rising)
    return {
        "constant": 1.0,
        "linear": left,
        "cosine": 0.5 - 0.5 * math.cos(math.pi * left),
        "smoothstep": left * left * (3.0 - 2.0 * left),
    }[schedule]


class Optimizer:
    """What a server makes of the mean gradient: place by place, for settings that share everything but numbers."""

    takes_change: ClassVar = False
    """True where minus the mean change stands for the gradient."""

    def __init__(self, settings: Sequence[Setting], start: Array) -> None:
        self.rate = np.array([one.rate for one in settings])
        self.first = np.array([one.first for one in settings])
        self.second = np.array([one.second for one in settings])
        self.stability = np.array([one.stability for one in settings])
        self.mean = np.zeros_like(start)
        self.square = np.zeros_like(start)
        self.steps = 0

    def step(self, z: Array, gradient: Array, factor: Array) -> Array:
        """Return the next z; `factor` (R,) is what the schedule makes of the rate."""
        return np.asarray(z - self.rate * factor * gradient)

    def result(self, z: Array) -> Array:
        """Return the model that is the result where sites compute at `z`."""
        return z


class Averaging(Optimizer):
    """The mean change itself, as in FedAvg and in the paper; the sites' rates are the only ones at rate 1."""

    takes_change: ClassVar = True


class Momentum(Optimizer):
    """Heavy ball: the mean is a sum, so the rate is worth 1 / (1 - first) of plain descent."""

    def step(self, z: Array, gradient: Array, factor: Array) -> Array:
        self.mean = self.first * self.mean + gradient
        return np.asarray(z - self.rate * factor * self.mean)


class Adam(Optimizer):
    """Adam, with the correction of the bias of both means."""

    def step(self, z: Array, gradient: Array, factor: Array) -> Array:
        self.steps += 1
        self.mean = self.first * self.mean + (1.0 - self.first) * gradient
        self.square = self._next_square(gradient * gradient)
        mean = self.mean / (1.0 - self.first**self.steps)
        square = self.square / (1.0 - self.second**self.steps)
        return np.asarray(z - self.rate * factor * mean / (np.sqrt(square) + self.stability))

    def _next_square(self, square: Array) -> Array:
        return np.asarray(self.second * self.square + (1.0 - self.second) * square)


class Yogi(Adam):
    """Yogi: the mean square moves by the square of the gradient, not by the distance from it."""

    def _next_square(self, square: Array) -> Array:
        return np.asarray(self.square - (1.0 - self.second) * np.sign(self.square - square) * square)


class AmsGrad(Adam):
    """AMSGrad: divides by the largest mean square so far; one more vector of state."""

    def __init__(self, settings: Sequence[Setting], start: Array) -> None:
        super().__init__(settings, start)
        self.largest = np.zeros_like(start)

    def step(self, z: Array, gradient: Array, factor: Array) -> Array:
        self.steps += 1
        self.mean = self.first * self.mean + (1.0 - self.first) * gradient
        self.square = self._next_square(gradient * gradient)
        mean = self.mean / (1.0 - self.first**self.steps)
        self.largest = np.maximum(self.largest, self.square / (1.0 - self.second**self.steps))
        return np.asarray(z - self.rate * factor * mean / (np.sqrt(self.largest) + self.stability))


class ScheduleFree(Adam):
    """Schedule-free Adam: sites compute at a mixture of the fast point and the mean; the result is the mean.

    State: the fast point and the mean square; the mean follows from them and z. Settings use schedule: constant.
    """

    def __init__(self, settings: Sequence[Setting], start: Array) -> None:
        super().__init__(settings, start)
        self.fast, self.slow = start.copy(), start.copy()
        self.weight = np.zeros(len(settings))

    def step(self, z: Array, gradient: Array, factor: Array) -> Array:
        del z
        self.steps += 1
        self.square = self._next_square(gradient * gradient)
        square = self.square / (1.0 - self.second**self.steps)
        self.fast = self.fast - self.rate * factor * gradient / (np.sqrt(square) + self.stability)
        self.weight = self.weight + factor * factor
        share = factor * factor / self.weight
        self.slow = (1.0 - share) * self.slow + share * self.fast
        return np.asarray((1.0 - self.first) * self.fast + self.first * self.slow)

    def result(self, z: Array) -> Array:
        del z
        return self.slow


class DAdaptation(Optimizer):
    """D-Adaptation for Adam: learns the distance to the optimum from products over all places; 3 vectors."""

    def __init__(self, settings: Sequence[Setting], start: Array) -> None:
        super().__init__(settings, start)
        self.distance = np.full((start.shape[0], 1, start.shape[2]), 1e-6)
        self.sum = np.zeros_like(start)
        self.product = np.zeros_like(self.distance)

    def step(self, z: Array, gradient: Array, factor: Array) -> Array:
        root = np.sqrt(self.second)
        scaled = self.distance * self.rate * factor
        self.mean = self.first * self.mean + (1.0 - self.first) * scaled * gradient
        self.square = self.second * self.square + (1.0 - self.second) * gradient * gradient
        divisor = np.sqrt(self.square) + self.stability
        inner = (gradient * self.sum / divisor).sum(axis=1, keepdims=True)
        self.product = root * self.product + (1.0 - root) * scaled * inner
        self.sum = root * self.sum + (1.0 - root) * scaled * gradient
        norm = np.abs(self.sum).sum(axis=1, keepdims=True)
        self.distance = np.maximum(self.distance, self.product / ((1.0 - root) * np.maximum(norm, 1e-300)))
        return np.asarray(z - self.mean / divisor)


class Prodigy(Optimizer):
    """Prodigy for Adam: the same with a faster estimate. Needs a product over all places, and 4 vectors."""

    def __init__(self, settings: Sequence[Setting], start: Array) -> None:
        super().__init__(settings, start)
        self.start = start.copy()
        self.distance = np.full((start.shape[0], 1, start.shape[2]), 1e-6)
        self.sum = np.zeros_like(start)
        self.product = np.zeros_like(self.distance)

    def step(self, z: Array, gradient: Array, factor: Array) -> Array:
        root, rate = np.sqrt(self.second), self.rate * factor
        held = self.distance
        self.mean = self.first * self.mean + (1.0 - self.first) * held * gradient
        self.square = self.second * self.square + (1.0 - self.second) * held * held * gradient * gradient
        inner = (gradient * (self.start - z)).sum(axis=1, keepdims=True)
        self.product = root * self.product + (1.0 - root) * rate * held * held * inner
        self.sum = root * self.sum + (1.0 - root) * rate * held * held * gradient
        norm = np.abs(self.sum).sum(axis=1, keepdims=True)
        self.distance = np.maximum(held, self.product / np.maximum(norm, 1e-300))
        return np.asarray(z - rate * held * self.mean / (np.sqrt(self.square) + held * self.stability))


OPTIMIZERS: Mapping[str, type[Optimizer]] = {
    "averaging": Averaging,
    "sgd": Optimizer,
    "momentum": Momentum,
    "adam": Adam,
    "yogi": Yogi,
    "amsgrad": AmsGrad,
    "schedule-free": ScheduleFree,
    "d-adaptation": DAdaptation,
    "prodigy": Prodigy,
}


def curvature_rate(table: Table, rho: float, epsilon: float, smoothing: str, gamma: float) -> float:
    """Return the inverse of a bound of the objective's curvature in theta, from sums of squares of the columns.

    The cross-entropy of softmax has curvature at most |x|^2 / 2 and slope at most sqrt(2) |x|.
    """
    features, _ = table.pooled
    squares = (features * features).sum(axis=1)
    bound = 0.5 * squares.mean() + 2.0 * squares.mean() * SMOOTHNESS[smoothing] / gamma
    return float(rho / ((1.0 - epsilon) * bound))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a setting with one seed, in nats.

    Attributes:
        start: objective without smoothing before the first round, at the best threshold.
        curve: the same after the rounds of `Runs.checkpoints`.
        last: the same at the end.
        tail: the same for the mean model of the second half of the rounds.
        threshold: c at the end.
    """

    start: float
    curve: list[float]
    last: float
    tail: float
    threshold: float


class Linear:
    """A linear softmax model: (D, C) weights, from zero. Settings share its arithmetic along the last axis."""

    def __init__(self, columns: int, classes: int) -> None:
        self.columns, self.classes = columns, classes
        self.places = columns * classes

    def start(self, source: np.random.Generator) -> Array:
        """Return the weights before the first round: (places,)."""
        del source
        return np.zeros(self.places)

    def logits(self, theta: Array, features: Array) -> tuple[Array, Known]:
        """Return logits (..., b, C, R) of weights (..., places, R), and what `slope` wants to know again."""
        settings = theta.shape[-1]
        weights = theta.reshape(*theta.shape[:-2], self.columns, self.classes * settings)
        return (features @ weights).reshape(*features.shape[:-1], self.classes, settings), (features,)

    def slope(self, theta: Array, known: Known, backward: Array) -> Array:
        """Return the gradient (..., places, R) from the derivatives (..., b, C, R) in the logits."""
        settings = theta.shape[-1]
        flat = backward.reshape(*backward.shape[:-2], self.classes * settings)
        return np.asarray((np.swapaxes(known[0], -1, -2) @ flat).reshape(*theta.shape))


class OneHidden:
    """One hidden layer of rectified units, with weights drawn as PyTorch draws them."""

    def __init__(self, columns: int, classes: int, units: int = 64) -> None:
        self.columns, self.classes, self.units = columns, classes, units
        self.first = columns * units
        self.places = self.first + (units + 1) * classes

    def start(self, source: np.random.Generator) -> Array:
        """Return the weights before the first round: (places,)."""
        inner, outer = 1.0 / math.sqrt(self.columns - 1), 1.0 / math.sqrt(self.units)
        return np.concatenate(
            [
                source.uniform(-inner, inner, self.first),
                source.uniform(-outer, outer, self.places - self.first),
            ]
        )

    def logits(self, theta: Array, features: Array) -> tuple[Array, Known]:
        """Return logits (..., b, C, R), and features and hidden units (..., R, b, units + 1)."""
        settings = theta.shape[-1]
        inner = theta[..., : self.first, :].reshape(*theta.shape[:-2], self.columns, self.units * settings)
        hidden = (features @ inner).reshape(*features.shape[:-1], self.units, settings)
        hidden = np.concatenate([np.maximum(hidden, 0.0), np.ones_like(hidden[..., :1, :])], axis=-2)
        by_setting = np.moveaxis(hidden, -1, -3)
        return np.moveaxis(by_setting @ self._outer(theta), -3, -1).copy(), (features, by_setting)

    def slope(self, theta: Array, known: Known, backward: Array) -> Array:
        """Return the gradient (..., places, R) from the derivatives (..., b, C, R) in the logits."""
        features, hidden = known
        settings, back = theta.shape[-1], np.moveaxis(backward, -1, -3)
        outer = np.moveaxis(np.swapaxes(hidden, -1, -2) @ back, -3, -1)
        before = (back @ np.swapaxes(self._outer(theta), -1, -2))[..., :-1] * (hidden[..., :-1] > 0.0)
        flat = np.moveaxis(before, -3, -1).reshape(*features.shape[:-1], self.units * settings)
        inner = np.swapaxes(features, -1, -2) @ flat
        lead = theta.shape[:-2]
        return np.concatenate(
            [inner.reshape(*lead, self.first, settings), outer.reshape(*lead, self.places - self.first, settings)],
            axis=-2,
        )

    def _outer(self, theta: Array) -> Array:
        """Return the outer weights (..., R, units + 1, C)."""
        outer = theta[..., self.first :, :]
        shaped = outer.reshape(*outer.shape[:-2], self.units + 1, self.classes, outer.shape[-1])
        return np.moveaxis(shaped, -1, -3)


def true_objective(losses: Array, rho: Array, epsilon: Array) -> Array:
    """Return (1 - eps) CVaR_rho + eps mean of the losses (n, R): (R,)."""
    worst = np.empty(losses.shape[1])
    for one in np.unique(rho):
        chosen = rho == one
        worst[chosen] = worst_mean(losses[:, chosen], float(one))
    return np.asarray((1.0 - epsilon) * worst + epsilon * losses.mean(axis=0))


class Runs:
    """Settings that run together on one table: same batches, same number of local steps."""

    def __init__(
        self, table: Table, settings: Sequence[Setting], seeds: Sequence[int], *, rounds: int, local_steps: int,
        batch: int | None, hidden: int | None = None,
    ) -> None:  # fmt: skip
        self.table, self.rounds, self.local_steps = table, rounds, local_steps
        order = sorted(range(len(settings)), key=lambda at: settings[at].optimizer)
        self.order = order
        self.settings = [settings[at] for at in order]
        self.counts = [len(own) for own in table.labels]
        self.batches = [count if batch is None else min(batch, count) for count in self.counts]
        self.sources = [np.random.default_rng([seed, 12]) for seed in seeds]
        self.shares = np.array(self.counts) / sum(self.counts)
        columns, classes = table.features[0].shape[1], table.classes
        self.model = Linear(columns, classes) if hidden is None else OneHidden(columns, classes, hidden)
        places = self.model.places + 1
        self.z = np.zeros((len(seeds), places, len(settings)))
        for at, seed in enumerate(seeds):
            self.z[at, :-1] = self.model.start(np.random.default_rng([seed, 5]))[:, None]
        self.z[:, -1] = [one.threshold for one in self.settings]
        self.rho = np.array([one.rho for one in self.settings])
        self.epsilon = np.array([one.epsilon for one in self.settings])
        self.gamma = np.array([one.gamma for one in self.settings])
        self.is_zang = np.array([one.smoothing == "zang" for one in self.settings])
        self.local = np.empty((places, len(settings)))
        self.local[:-1] = [one.local_rate for one in self.settings]
        self.local[-1] = [one.local_threshold_rate for one in self.settings]
        self.groups: list[tuple[slice, Optimizer]] = []
        names = [one.optimizer for one in self.settings]
        for name in dict.fromkeys(names):
            place = slice(names.index(name), names.index(name) + names.count(name))
            self.groups.append((place, OPTIMIZERS[name](self.settings[place], self.z[:, :, place])))
        self.checkpoints = sorted({max(1, round(rounds * part / 12)) for part in range(1, 13)})

    def slopes(self, losses: Array, threshold: Array) -> Array:
        """Return sigma of the losses (..., R) at thresholds that broadcast with them."""
        margin = (losses - threshold) / self.gamma
        zang, soft = self.is_zang, ~self.is_zang
        sigma: Array = np.empty_like(margin)
        sigma[..., zang] = np.clip(margin[..., zang] + 0.5, 0.0, 1.0)
        sigma[..., soft] = 0.5 + 0.5 * np.tanh(0.5 * margin[..., soft])
        return sigma

    def gradient(self, z: Array, features: Array, labels: NDArray[np.int64], weights: Array) -> Array:
        """Return the gradient of the smoothed objective of weighted records.

        Args:
            z: (..., P, R).
            features: (..., b, D).
            labels: (..., b).
            weights: (..., b), of sum 1; padding has 0.
        """
        logits, known = self.model.logits(z[..., :-1, :], features)
        logits -= logits.max(axis=-2, keepdims=True)
        chosen = labels[..., None, None]
        own = np.take_along_axis(logits, chosen, axis=-2)[..., 0, :]
        probabilities = np.exp(logits, out=logits)
        total = probabilities.sum(axis=-2)
        losses = np.log(total) - own
        probabilities /= total[..., None, :]
        factors = (1.0 - self.epsilon) / self.rho * self.slopes(losses, z[..., -1:, :]) + self.epsilon
        factors *= weights[..., None]
        held = np.take_along_axis(probabilities, chosen, axis=-2)
        np.put_along_axis(probabilities, chosen, held - 1.0, axis=-2)
        probabilities *= factors[..., None, :]
        gradient = np.empty_like(z)
        gradient[..., :-1, :] = self.model.slope(z[..., :-1, :], known, probabilities)
        gradient[..., -1, :] = 1.0 - factors.sum(axis=-2)
        return gradient

    def draw(self) -> tuple[Array, NDArray[np.int64], Array]:
        """Return a batch of each site for each seed: features, labels and weights (S, K, b, ...)."""
        size, sites = max(self.batches), len(self.counts)
        seeds, columns = len(self.sources), self.table.features[0].shape[1]
        features = np.zeros((seeds, sites, size, columns))
        labels = np.zeros((seeds, sites, size), np.int64)
        weights = np.zeros((seeds, sites, size))
        for at, source in enumerate(self.sources):
            for site, (count, own) in enumerate(zip(self.counts, self.batches, strict=True)):
                chosen = slice(None) if own == count else source.choice(count, own, replace=False, shuffle=False)
                features[at, site, :own] = self.table.features[site][chosen]
                labels[at, site, :own] = self.table.labels[site][chosen]
                weights[at, site, :own] = 1.0 / own
        return features, labels, weights

    def mean_gradient(self, local: Array) -> Array:
        """Return minus the mean change of a round over local rates (P, R) and number of steps: (S, P, R)."""
        if self.local_steps == 1:
            features, labels, weights = self.draw()
            weights *= self.shares[:, None]
            flat = (len(labels), -1)
            pooled = features.reshape(*flat, features.shape[-1])
            return self.gradient(self.z, pooled, labels.reshape(flat), weights.reshape(flat))
        z = np.repeat(self.z[:, None], len(self.counts), axis=1)
        for _ in range(self.local_steps):
            z -= local * self.gradient(z, *self.draw())
        change = np.einsum("k,skpr->spr", self.shares, z) - self.z
        return np.asarray(-change / (local * self.local_steps))

    def take_round(self, number: int) -> None:
        """Change z by round `number`, from 1."""
        decay = [scheduled(one.local_schedule, one.warm_up, number, self.rounds) for one in self.settings]
        local = self.local * np.array(decay)
        gradient = self.mean_gradient(local)
        factor = np.array([scheduled(one.schedule, one.warm_up, number, self.rounds) for one in self.settings])
        for place, optimizer in self.groups:
            given = gradient[:, :, place]
            if optimizer.takes_change:
                given = given * (local[:, place] * self.local_steps)
            self.z[:, :, place] = optimizer.step(self.z[:, :, place], given, factor[place])
        self.z[:, -1] = np.maximum(self.z[:, -1], 0.0)

    def objective(self, z: Array) -> Array:
        """Return the objective without smoothing over all records at the best threshold: (S, R)."""
        features, labels = self.table.pooled
        found = []
        for own in z:
            logits, _ = self.model.logits(own[:-1], features)
            logits -= logits.max(axis=1, keepdims=True)
            chosen = np.take_along_axis(logits, labels[:, None, None], axis=1)[:, 0]
            losses = np.log(np.exp(logits).sum(axis=1)) - chosen
            found.append(true_objective(losses, self.rho, self.epsilon))
        return np.array(found)

    def run(self) -> list[list[Outcome]]:
        """Return the outcomes: for each setting, in the order in which they were given, one for each seed."""
        start, curve = self.objective(self.z), []
        tail, begun = np.zeros_like(self.z), self.rounds // 2
        for number in range(1, self.rounds + 1):
            self.take_round(number)
            if number > begun:
                tail += self.z / (self.rounds - begun)
            if number in self.checkpoints:
                curve.append(self.objective(self.result()))
        last, tailed = curve[-1], self.objective(tail)
        found: list[list[Outcome]] = [[] for _ in self.settings]
        for at, given in enumerate(self.order):
            for seed in range(len(self.sources)):
                found[given].append(
                    Outcome(
                        float(start[seed, at]), [float(one[seed, at]) for one in curve], float(last[seed, at]),
                        float(tailed[seed, at]), float(self.z[seed, -1, at]),
                    )
                )  # fmt: skip
        return found

    def result(self) -> Array:
        """Return the model that is the result now: (S, P, R)."""
        found = self.z.copy()
        for place, optimizer in self.groups:
            found[:, :, place] = optimizer.result(self.z[:, :, place])
        return found
