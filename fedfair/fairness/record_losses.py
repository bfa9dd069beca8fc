"""The losses of single records by split, with the answer of each record and what was predicted for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


def _no_scores() -> NDArray[np.float64]:
    return np.zeros((0, 0))


def _no_excess() -> NDArray[np.float64]:
    return np.zeros(0)


Answers: TypeAlias = NDArray[Any]
"""One answer for each record: classes (n,), or numbers (n, ...)."""

_ARRAYS = ("values", "labels", "predictions", "scores", "figures", "excess", "answered")


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of one split at one collaborator; a value that only a simulation has.

    Attributes:
        values: float64 array (n,), in units of the loss.
        labels: the class of each record, int64 array (n,); or its answer, float64 or int64 array (n, ...).
        predictions: the class that it was taken for, int64 array (n,); or what was predicted, array (n, ...).
        scores: the probabilities that the model gives, float64 array (n, columns): that of class 1 where there
            are two classes, else one for each class. No columns where none were requested.
        figures: what of each record is summed beside its loss, float64 array (n, figures); no columns for classes.
        excess: over what a reference attains, float64 array (n,), in units of the loss; empty where no reference
            has judged.
        answered: float64 array (n, 2): the chance that the reference gave, of class 1 where there are two classes,
            else of the likeliest one, and whether it came true; no columns where no reference has judged a class.
        has_classes: whether a record's answer is one class.
    """

    values: NDArray[np.float64] = field(repr=False)
    labels: Answers
    predictions: Answers
    scores: NDArray[np.float64] = field(default_factory=_no_scores, repr=False)
    figures: NDArray[np.float64] = field(default_factory=_no_scores, repr=False)
    excess: NDArray[np.float64] = field(default_factory=_no_excess, repr=False)
    answered: NDArray[np.float64] = field(default_factory=_no_scores, repr=False)
    has_classes: bool = True

    @property
    def measured(self) -> NDArray[np.float64]:
        """Return what the objective is about: the excess where references have judged, else the losses."""
        return self.excess if self.excess.size else self.values

    @property
    def correct(self) -> NDArray[np.bool_] | None:
        """Return which records were classified correctly: bool array (n,); None where there are no classes."""
        return np.equal(self.labels, self.predictions) if self.has_classes else None

    def part(self, start: int, end: int) -> Losses:
        """Return the losses of the records from `start` to before `end`, as views."""
        each = {name: getattr(self, name)[start:end] for name in _ARRAYS}
        return Losses(**each, has_classes=self.has_classes)

    @classmethod
    def joined(cls, parts: Sequence[Losses]) -> Losses:
        """Return the losses of several sites together; at least one."""
        each = {name: np.concatenate([getattr(one, name) for one in parts]) for name in _ARRAYS}
        return cls(**each, has_classes=parts[0].has_classes)


SiteLosses: TypeAlias = Mapping[str, Losses]


"""Losses by split, for the splits that have records."""
