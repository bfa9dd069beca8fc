"""The survey of a run as it was opened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class OpenedSurvey:
    """The survey of a run as it was opened.

    Attributes:
        header: float64 array, as `aggregation.survey` lays it out.
        members: whose training records it is of, sorted.
    """

    header: NDArray[np.float64]
    members: tuple[str, ...]
