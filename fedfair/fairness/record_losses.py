"""The losses of single records by split, with the class of each record and the class it was taken for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


def _no_scores() -> NDArray[np.float64]:
    return np.zeros((0, 0))


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of one split at one collaborator; a value that only a simulation has.

    Attributes:
        values: float64 array (n,), in nats.
        labels: the class of each record, int64 array (n,).
        predictions: the class that it was taken for, int64 array (n,).
        scores: the probabilities that the model gives, float64 array (n, columns): that of class 1 where there
            are two classes, else one for each class. No columns where nobody asked for them.
    """

    values: NDArray[np.float64]
    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    scores: NDArray[np.float64] = field(default_factory=_no_scores)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return which records were classified correctly: bool array (n,)."""
        return np.equal(self.labels, self.predictions)


SiteLosses: TypeAlias = Mapping[str, Losses]


"""Losses by split, for the splits that have records."""
