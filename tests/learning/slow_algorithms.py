"""Every algorithm once more over bc10, slowly, in numpy, from its paper: the softmax and its gradient by hand.

Nothing of fedfair's training is used; a model is theta = [b_0, b_1, W (2 x 10)], as the flat vector has it. Only
full batches, so nothing is drawn except where an algorithm itself draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import bc10
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Parts = Sequence[NDArray[np.int64]]

DIMENSION = 22


def thirds() -> list[NDArray[np.int64]]:
    """Return the collaborators of tests/vectors/algorithms_bc10.json."""
    return np.split(np.arange(len(bc10.dataset())), [200, 400])


def losses(theta: Vector, part: NDArray[np.int64]) -> Vector:
    """Return the cross-entropy of each record."""
    x, y = bc10.dataset().features[part], bc10.dataset().labels[part]
    logits = theta[:2] + x @ theta[2:].reshape(2, 10).T
    return np.array([np.log(sum(np.exp(row - row[label]))) for row, label in zip(logits, y, strict=True)])


def gradient(theta: Vector, part: NDArray[np.int64], weights: Vector | None = None) -> Vector:
    """Return the mean over records of weight * gradient of the loss."""
    x, y = bc10.dataset().features[part], bc10.dataset().labels[part]
    total = np.zeros(DIMENSION)
    for i, (row, label) in enumerate(zip(x, y, strict=True)):
        scores = np.exp(theta[:2] + theta[2:].reshape(2, 10) @ row)
        error = scores / scores.sum() - (np.arange(2) == label)
        weight = 1.0 if weights is None else weights[i]
        total += weight * np.concatenate([error, np.outer(error, row).ravel()])
    return total / len(part)


def local(theta: Vector, part: NDArray[np.int64], rate: float, steps: int) -> Vector:
    """Return the model after some steps of plain descent."""
    for _ in range(steps):
        theta = theta - rate * gradient(theta, part)
    return theta


def project(point: Vector, lower: Vector | float = 0.0, upper: Vector | float = 1.0, total: float = 1.0) -> Vector:
    """Return the nearest point of a box with a sum, by trying every set of entries that could be at an end."""
    low, high = np.broadcast_to(lower, point.shape), np.broadcast_to(upper, point.shape)
    best, least = None, np.inf
    for code in range(3 ** len(point)):
        state = np.array([code // 3**i % 3 for i in range(len(point))])
        found = np.where(state == 0, low, high).astype(float)
        free = state == 2
        if free.any():
            found[free] = point[free] + (total - found[~free].sum() - point[free].sum()) / free.sum()
        feasible = (found >= low - 1e-13).all() and (found <= high + 1e-13).all()
        if feasible and abs(found.sum() - total) < 1e-12 and ((found - point) ** 2).sum() < least:
            best, least = found, ((found - point) ** 2).sum()
    assert best is not None
    return best


def trajectory(step: Callable[[Vector, int], Vector], rounds: int) -> list[Vector]:
    """Return the models after each round, from zero."""
    models = [np.zeros(DIMENSION)]
    for number in range(1, rounds + 1):
        models.append(step(models[-1], number))
    return models[1:]


def afl(parts: Parts, rounds: int, rate: float, adversary_rate: float) -> list[Vector]:
    """Return the models of AFL (Mohri et al. 2019, Algorithm 1)."""
    weights = np.array([len(part) for part in parts], float)
    weights /= weights.sum()

    def step(theta: Vector, _: int) -> Vector:
        nonlocal weights
        risks = np.array([losses(theta, part).mean() for part in parts])
        moved = theta - rate * sum(
            (weight * gradient(theta, part) for weight, part in zip(weights, parts, strict=True)),
            np.zeros(DIMENSION),
        )
        weights = project(weights + adversary_rate * risks)
        return moved

    return trajectory(step, rounds)
