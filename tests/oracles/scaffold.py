"""SCAFFOLD on (theta, c), slowly, in numpy, from the paper: two vectors travel, and all sites' variate is kept.

Option II of Algorithm 1 of Karimireddy et al. 2020, with the weighted mean of FedAvg in place of the plain one.
The gradients of the smoothed objective are written out by hand. Nothing of fedfair's training is used; a model is
theta = [b_0, b_1, W (2 x columns)], as the flat vector has it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """The records of every site, and the objective with softplus."""

    sites: Sequence[tuple[Vector, NDArray[np.int64]]]
    worst_group_size: float
    tradeoff: float
    gamma: float

    def losses(self, theta: Vector, site: int) -> Vector:
        x, y = self.sites[site]
        logits = theta[:2] + x @ theta[2:].reshape(2, -1).T
        return np.logaddexp(logits[:, 0], logits[:, 1]) - logits[np.arange(len(y)), y]

    def gradient(self, point: Vector, site: int) -> Vector:
        """Return the gradient at (theta, c) of the mean of this site's records: array (d + 1,)."""
        theta, c = point[:-1], point[-1]
        x, y = self.sites[site]
        sigma = 1.0 / (1.0 + np.exp(-(self.losses(theta, site) - c) / self.gamma))
        weight = (1.0 - self.tradeoff) * sigma / self.worst_group_size + self.tradeoff
        logits = theta[:2] + x @ theta[2:].reshape(2, -1).T
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = scores / scores.sum(axis=1, keepdims=True)
        error[np.arange(len(y)), y] -= 1.0
        error *= weight[:, None] / len(y)
        return np.concatenate([error.sum(axis=0), (error.T @ x).ravel(), [1.0 - weight.mean()]])

    def objective(self, point: Vector) -> float:
        """Return the smoothed objective over all sites' records."""
        theta, c = point[:-1], point[-1]
        losses = np.concatenate([self.losses(theta, site) for site in range(len(self.sites))])
        plus = self.gamma * np.logaddexp(0.0, (losses - c) / self.gamma)
        tail = c + plus.mean() / self.worst_group_size
        return float((1.0 - self.tradeoff) * tail + self.tradeoff * losses.mean())


@dataclass
class Scaffold:
    """The run of one federation; `play` makes a round with those who are there.

    Attributes:
        rates: array (d + 1,): eta for theta, eta_c for c.
        weights: w_k.
        x: (theta, c).
        own: v_k of each site; None where it has never taken part.
    """

    problem: Problem
    steps: int
    rates: Vector
    weights: Sequence[float]
    x: Vector
    own: list[Vector | None]
    corrects: bool = True

    @property
    def common(self) -> Vector:
        """Return v: the weighted mean of the variates of all sites that have ever taken part."""
        taken = [(w, v) for w, v in zip(self.weights, self.own, strict=True) if v is not None]
        if not taken:
            return np.zeros_like(self.x)
        return sum(w * v for w, v in taken) / sum(w for w, _ in taken)

    def play(self, present: Collection[int] | None = None) -> None:
        """Make a round; those who are absent keep their variates."""
        common, x = self.common, self.x
        members = range(len(self.own)) if present is None else sorted(present)
        change, renewed = np.zeros_like(x), {}
        for k in members:
            held = self.own[k]
            v, y = np.zeros_like(x) if held is None else held, x.copy()
            for _ in range(self.steps):
                correction = common - v if self.corrects else 0.0
                y = y - self.rates * (self.problem.gradient(y, k) + correction)
            renewed[k] = v - common + (x - y) / (self.steps * self.rates)
            change += self.weights[k] * (y - x)
        for k, v in renewed.items():
            self.own[k] = v
        moved = x + change / sum(self.weights[k] for k in members)
        moved[-1] = max(moved[-1], 0.0)
        self.x = moved
