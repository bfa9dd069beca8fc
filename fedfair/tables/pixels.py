"""Pixels: images in the form of their bytes, and the numbers that a model sees.

Decides what a byte stands for: x / 255 in float32. Images are held as bytes and become numbers batch by batch
(`training.device`); here are the few places that need the numbers of all records.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

WHITE = 255

Values = NDArray[np.floating] | NDArray[np.uint8]
"""Features as they are held: numbers, or the bytes of images."""


def are_pixels(features: Values) -> bool:
    """Return whether features are the bytes of images."""
    return features.dtype == np.uint8


def is_image(features: NDArray[np.generic]) -> bool:
    """Return whether an array (n, ...) is taken for images: bytes, and more than one axis a record."""
    return features.dtype == np.uint8 and features.ndim > 2


def feature_values(features: Values) -> NDArray[np.floating]:
    """Return the numbers that features stand for: float32 from 0 to 1 for bytes, and numbers as they are."""
    if not are_pixels(features):
        return cast("NDArray[np.floating]", features)
    values = features.astype(np.float32)
    values /= WHITE
    return values
