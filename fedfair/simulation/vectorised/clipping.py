"""The clip of masked sums, over the changes of a group of collaborators at once.

The counterpart, in tensors, of `secagg.fixedpoint.clipped_values`, which clips one collaborator's change: a test
holds the two together. Nothing is replaced here: what is no number ends the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.aggregation.running_sum import Totals
from fedfair.errors import TrainingError
from fedfair.secagg.fixedpoint import size_histogram


@dataclass(slots=True)
class ChangeClipping:
    """The sizes seen while the changes of a round were clipped.

    Attributes:
        clip: the largest change of one parameter that counts in full, above 0.
        clipped: how many changes were larger.
        largest: each collaborator's largest change.
    """

    clip: float
    clipped: int = 0
    largest: list[float] = field(default_factory=list)

    def limit(self, changes: Tensor) -> None:
        """Clip changes (k, d) in place, and count; NaN and infinities stay as they are.

        Args:
            changes: float tensor, a row for each collaborator.
        """
        low, high = torch.aminmax(changes, dim=1)
        largest = torch.maximum(-low, high)
        self.largest += largest.tolist()
        if bool(torch.isfinite(largest).all()) and bool((largest > self.clip).any()):
            self.clipped += int((changes.abs() > self.clip).sum())
            changes.clamp_(-self.clip, self.clip)


def training_totals(
    header: NDArray[np.float64], total: Tensor, contributors: int, number: int, clipping: ChangeClipping | None
) -> Totals:
    """Return the totals of a round's changes, with the sizes of these where they were clipped.

    Raises:
        TrainingError: a value is NaN or infinite.
    """
    body: NDArray[np.floating] = total.cpu().numpy()
    if not (np.isfinite(header).all() and np.isfinite(body).all()):
        raise TrainingError(
            f"the sum of round {number} holds values that are NaN or infinite",
            "lower learning_rate, or look for missing or extreme values in the data",
        )
    if clipping is None:
        return Totals(header, body, contributors)
    sizes = tuple(int(count) for count in size_histogram(*clipping.largest))
    return Totals(header, body, contributors, clipped=clipping.clipped, sizes=sizes)
