"""What the five clinics of the demonstration learn together: to read digits.

Softmax regression on scikit-learn's digits (8 x 8 pixels, 1797 images), split in a row into parts of unequal
size. Chosen because its 650 numbers can be looked at: the weights of one class are an 8 x 8 picture. Numpy only,
so that the demonstration starts at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PIXELS = 64
CLASSES = 10
DIMENSION = PIXELS * CLASSES + CLASSES
LOCAL_STEPS = 20
LEARNING_RATE = 0.2
LEFT_OUT = 4
"""Each round draws another batch: it leaves out every fourth image, beginning with another one."""


@dataclass(frozen=True, slots=True)
class Records:
    """One clinic's images: pixels (n, 64) in [0, 1], labels (n,) in 0 to 9."""

    pixels: NDArray[np.float64]
    labels: NDArray[np.int64]

    def batch(self, number: int) -> Records:
        """Return three quarters of the images, other ones for each of four numbers in a row."""
        kept = np.arange(self.labels.size) % LEFT_OUT != number % LEFT_OUT
        return Records(self.pixels[kept], self.labels[kept])


@dataclass(frozen=True, slots=True)
class LocalChange:
    """What a clinic would like to tell: how many images, their summed loss, and the change of the model (650,)."""

    images: int
    loss_sum: float
    change: NDArray[np.float32]


def load_records(shares: Sequence[float]) -> list[Records]:
    """Return one part of the images for each share; the shares add up to 1."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = np.asarray(digits.data, np.float64) / 16.0
    labels = np.asarray(digits.target, np.int64)
    cuts = np.rint(np.cumsum(shares)[:-1] * labels.size).astype(int)
    return [Records(*part) for part in zip(np.split(pixels, cuts), np.split(labels, cuts), strict=True)]


def local_change(records: Records, model: NDArray[np.float32]) -> LocalChange:
    """Train a few steps of gradient descent from `model` (650,) and return what changed."""
    weights, offsets = _parts(model.astype(np.float64))
    hot = np.eye(CLASSES)[records.labels]
    loss_sum = -float(np.log(_probabilities(records, weights, offsets)[hot == 1.0]).sum())
    for _ in range(LOCAL_STEPS):
        slope = (_probabilities(records, weights, offsets) - hot) / records.labels.size
        weights = weights - LEARNING_RATE * records.pixels.T @ slope
        offsets = offsets - LEARNING_RATE * slope.sum(axis=0)
    trained = np.concatenate([weights.ravel(), offsets])
    return LocalChange(records.labels.size, loss_sum, (trained - model).astype(np.float32))


def class_pictures(vector: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return the weights of each class in `vector` (650,) as a picture (8, 8)."""
    weights, _ = _parts(vector)
    return [weights[:, digit].reshape(8, 8) for digit in range(CLASSES)]


def _parts(vector: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return vector[: PIXELS * CLASSES].reshape(PIXELS, CLASSES), vector[PIXELS * CLASSES :]


def _probabilities(
    records: Records, weights: NDArray[np.float64], offsets: NDArray[np.float64]
) -> NDArray[np.float64]:
    scores = records.pixels @ weights + offsets
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return probabilities
