"""The clip of masked sums, over the changes of a group of collaborators at once.

The counterpart, in tensors, of `secagg.fixedpoint.clipped_values`, which clips one collaborator's change: a test
holds the two together. Nothing is replaced here: what is no number ends the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedfair.aggregation.running_sum import Totals
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

    def tell(self, totals: Totals) -> Totals:
        """Return the totals with the report of the sizes of the changes, all of which must be finite."""
        sizes = tuple(int(count) for count in size_histogram(*self.largest))
        return replace(totals, clipped=self.clipped, sizes=sizes)

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
